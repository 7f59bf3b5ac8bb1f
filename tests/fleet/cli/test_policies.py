"""`refloat policies` against a console that answers what it is given."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result

from fleet.cli.policies import policies
from fleet.protocol.recovery.announce import AUTH_TTL_VARIABLE
from tests.fakes.console import TOKEN, FakeConsole, answering

FOUND = {
    "cluster": "default", "revision": "r1", "desired": {"auth": {AUTH_TTL_VARIABLE: "1m"}},
    "instances": [{"id": "id-1", "name": "auth-1", "role": "auth", "takes": True, "note": "", "policies": [
        {"name": AUTH_TTL_VARIABLE, "state": "drift", "desired": "1m", "desired_of": "role", "value": "10m",
         "source": "default", "next_value": "10m"},
    ]}],
    "gone": {"id-9": {AUTH_TTL_VARIABLE: "5m"}},
}  # fmt: skip
CHANGE = {
    "id": 7, "revision": "7-1",
    "title": "1 policy of auths", "question": "Restart 1 instance", "asks_typed": "", "asks_second": False,
    "approved_by": "", "state": "planned", "detail": "",
    "plan": {"restarts": [{"name": "auth-1", "agents": 3}], "by_hand": [{"name": "auth-2", "why": "no folder"}],
             "notes": ["Raising the TTL: beware."],
             "ttl": [{"role": "proxy", "title": "2 proxies, TTL 1m0s to 10m0s",
                      "before": {"detection": "2m0s", "writes": 0.06, "messages": 3.1},
                      "after": {"detection": "20m0s", "writes": 0.006, "messages": 0.31}}]},
}  # fmt: skip
PROGRESS = {
    "id": 7, "revision": "7-4",
    "kind": "policy", "state": "verified", "detail": "", "total": 1, "done": 1, "percent": 100, "failed": 0,
}  # fmt: skip


@pytest.fixture
def console() -> Iterator[FakeConsole]:
    """A console with one auth that drifts."""
    with answering() as running:
        running.answers = {
            "/api/v1/policies": (200, FOUND),
            "/api/v1/policies/plan": (201, CHANGE),
            "/api/v1/changes/3": (200, {**CHANGE, "id": 3, "revision": "3-4"}),
            "/api/v1/changes/3/undo": (201, CHANGE),
            "/api/v1/changes/7/confirm": (202, CHANGE),
            "/api/v1/changes/7/cancel": (202, CHANGE),
            "/api/v1/changes/7/progress": (200, PROGRESS),
        }
        yield running


def _run(console: FakeConsole, *words: str) -> Result:
    return CliRunner().invoke(policies, [*words, "--url", console.url, "--token", TOKEN])


def test_list_and_snippet(console: FakeConsole) -> None:
    """What runs beside what is wanted, and what to write by hand."""
    assert "drift" in _run(console, "list", "--drift").output
    assert _run(console, "snippet", "auth-1").output == f"export {AUTH_TTL_VARIABLE}=1m\n"
    assert "has no desired values" in _run(console, "snippet", "proxy").output


def test_set_takes_the_end_of_a_name_that_the_role_has_once(console: FakeConsole) -> None:
    """Auths read one announce TTL, and that of proxies is none of theirs."""
    assert _run(console, "set", "auth", "announce_ttl=1m", "--dry-run").exit_code == 0
    assert console.sent[0][1]["desired"] == {"auth": {AUTH_TTL_VARIABLE: "1m"}}
    refused = _run(console, "set", "auth", "proxy_announce_ttl=1m").output
    assert "does not name one policy of auths: use one of grpc_client_lb_policy, " in refused


def test_set_goes_on_from_what_was_read(console: FakeConsole) -> None:
    """Names may be short; an empty value unsets; the revision goes along."""
    result = _run(
        console, "set", "auth", "auth-announce-ttl=", "http-close-unhealthy=true", "--yes", "--reason", "x"
    )
    assert result.exit_code == 0, result.output
    path, body, headers = console.sent[0]
    assert path == "/api/v1/policies/plan"
    assert body["desired"] == {"auth": {"TELEPORT_UNSTABLE_HTTP_CLOSE_UNHEALTHY": "true"}}
    assert headers["If-Match"] == '"r1"'
    assert body["terms"] == {}
    for words in (
        "restart auth-2 yourself: no folder",
        "a lost proxy is detected within 20m0s (now 2m0s)",
        "discovery messages 0.31/s (now 3.1/s)",
        "Raising the TTL: beware.",
    ):
        assert words in result.output


def test_terms_go_to_the_console_as_they_are(console: FakeConsole) -> None:
    """It knows their ranges."""
    words = (
        "auth",
        "auth-announce-ttl=2m",
        "--concurrency",
        "0",
        "--instance-timeout",
        "x",
        "--yes",
        "--reason",
        "why",
    )
    assert _run(console, "set", *words).exit_code == 0
    assert console.sent[0][1]["terms"] == {"at_once": "0", "patience": "x"}
    console.answers["/api/v1/policies/plan"] = (
        400,
        {"detail": "No.", "problems": {"patience": "not a number"}},
    )
    assert (
        "nothing was changed: No.\n  --instance-timeout: not a number" in _run(console, "set", *words).output
    )


def test_forget_an_instance_that_is_gone(console: FakeConsole) -> None:
    """It is named by the list; others cannot be forgotten."""
    assert "refloat policies remove id-9" in _run(console, "list").output
    assert _run(console, "remove", "id-9", "--yes", "--reason", "gone").exit_code == 0
    assert console.sent[0][1] == {"desired": {"id-9": {}}, "roll_out": False}
    assert "no deregistered instance" in _run(console, "remove", "id-1").output


def test_undo_plans_and_asks(console: FakeConsole) -> None:
    """By the number of the change."""
    assert _run(console, "undo", "3", "--yes", "--reason", "it was wrong").exit_code == 0
    assert [path for path, _, _ in console.sent] == ["/api/v1/changes/3/undo", "/api/v1/changes/7/confirm"]


@pytest.mark.parametrize(
    "words", [("nobody", "auth-announce-ttl=1m"), ("auth", "path=x"), ("auth", "auth-announce-ttl")]
)
def test_what_cannot_be_meant_is_refused(console: FakeConsole, words: tuple[str, str]) -> None:
    """Before anything is sent."""
    assert _run(console, "set", *words).exit_code != 0
    assert not console.sent
