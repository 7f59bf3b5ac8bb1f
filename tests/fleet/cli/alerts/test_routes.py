from __future__ import annotations

from typing import Any

from click.testing import CliRunner, Result

from fleet.cli.main import main
from tests.fakes.console import TOKEN, FakeConsole, run_console

_ROUTE: dict[str, Any] = {
    "number": 3, "cluster": "", "name": "Everything", "sentence": "All incidents notify ops immediately.", "depth": 0,
    "parent": None, "position": 0, "matchers": "", "channels": [{"number": 1, "name": "ops"}], "version": "v1",
}  # fmt: skip
_CHILD = _ROUTE | {"number": 4, "name": "night", "depth": 1, "parent": 3}
_PATH = "/api/v1/routes"


def _run(console: FakeConsole, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["routes", *arguments, "--url", console.url, "--token", TOKEN])


def _serve(console: FakeConsole) -> None:
    console.responses[_PATH] = (200, {"routes": [_ROUTE, _CHILD]})
    channels = [{"number": 1, "name": "ops", "cluster": ""}, {"number": 2, "name": "pager", "cluster": ""}]
    console.responses["/api/v1/channels"] = (200, {"channels": channels})
    console.responses[f"{_PATH}/4"] = (200, _CHILD)


def test_routes_are_listed_as_a_tree_with_their_sentences() -> None:
    """And one is shown."""
    with run_console() as console:
        _serve(console)
        lines = _run(console, "list").output.splitlines()
        assert "notify ops immediately" in _run(console, "show", "night").output
    assert [line.split("  all")[0].rstrip() for line in lines[1:]] == [
        "3       Everything",
        "4         night",
    ]


def test_route_is_added_with_names_of_channels() -> None:
    """The API takes numbers and seconds."""
    with run_console() as console:
        _serve(console)
        # The same path lists and creates: the list is not read without --parent.
        console.responses[_PATH] = (201, _CHILD)
        outcome = _run(
            console, "add", "--severity", "critical", "--channel", "ops", "--escalate-after", "15 min", "--escalate-to",
            "pager", "--quiet", "22:00-6:00", "--match", "kind=proxy", "--with-parent", "--root", "--continue",
        )  # fmt: skip
    assert outcome.output == "route 4 added: All incidents notify ops immediately.\n"
    assert console.posts[0][1] == {
        "scope": "installation", "min_severity": "critical", "channels": [1], "escalate_after_seconds": 900,
        "escalate_to": [2], "quiet_from": "22:00", "quiet_until": "06:00", "matchers": "kind=proxy",
        "includes_parent_channels": True, "is_root": True, "continues": True,
    }  # fmt: skip


def test_route_is_changed_and_moved() -> None:
    """With the version that was read."""
    with run_console() as console:
        _serve(console)
        _run(
            console,
            "change",
            "night",
            "--parent",
            "Everything",
            "--no-escalation",
            "--no-quiet",
            "--no-channels",
        )
        assert console.posts[0][1] == {
            "version": "v1", "parent": 3, "channels": [], "escalate_to": [], "has_quiet_hours": False,
        }  # fmt: skip
        for wrong, message in (
            ((), "nothing to change"),
            (("--parent", "Everything", "--root"), "not both"),
            (("--no-channels", "--channel", "ops"), "not both"),
            (("--quiet", "22:00"), "is not of the form"),
            (("--channel", "sms"), "Channel 'sms' was not found"),
            (("--escalate-after", "15"), "Enter a number with its unit"),
        ):
            assert message in _run(console, "change", "night", *wrong).output
        assert len(console.posts) == 1


def test_trial_says_whom_an_incident_notifies() -> None:
    """Or why nobody."""
    trial: dict[str, Any] = {
        "subject": "A warning caused by proxy-1", "paths": ["Everything > night"],
        "notifications": [{"channel": "ops", "after_seconds": 0, "time_text": "immediately"}],
    }  # fmt: skip
    path = f"{_PATH}/try?cause=proxy%3Aproxy-1&severity=warning"
    with run_console() as console:
        console.responses[path] = (200, trial)
        command = ("try", "proxy:proxy-1", "--severity", "warning")
        assert _run(console, *command).output == (
            "A warning caused by proxy-1 notifies:\n  ops immediately\nroute: Everything > night\n"
        )
        console.responses[path] = (200, trial | {"notifications": []})
        assert "notifies nobody: the route that it ends at has no channel" in _run(console, *command).output


def test_deletion_says_that_child_routes_go_too() -> None:
    """Without a terminal it needs the flag."""
    with run_console() as console:
        _serve(console)
        console.responses[f"{_PATH}/3/delete"] = (200, {"deleted_child_routes": ["night"]})
        assert (
            "Delete route Everything with its child routes? Add --yes" in _run(console, "delete", "3").output
        )
        assert _run(console, "delete", "3", "--yes").output == "route 3 deleted: Everything, night\n"
