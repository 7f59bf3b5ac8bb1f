"""`refloat policies` against a fake console."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result

from fleet.cli.policies import policies
from fleet.protocol.recovery.announce import AUTH_TTL_VARIABLE, PROXY_TTL_VARIABLE
from tests.fakes.console import TOKEN, FakeConsole, run_console

POLICIES = {
    "cluster": "default", "revision": "r1", "desired_values": {"auth": {AUTH_TTL_VARIABLE: "1m"}},
    "instances": [{"id": "id-1", "name": "auth-1", "role": "auth", "accepts_policies": True, "note": "", "policies": [
        {"name": AUTH_TTL_VARIABLE, "state": "drift", "desired_value": "1m", "desired_source": "role",
         "current_value": "10m", "source": "default", "next_value": "10m"},
    ]}],
    "deregistered": {"id-9": {AUTH_TTL_VARIABLE: "5m"}},
}  # fmt: skip
CHANGE = {
    "id": 7, "revision": "7-1", "kind": "policy",
    "title": "1 policy of auths", "question": "Restart 1 instance", "confirmation_required": "",
    "review_required": False, "approved_by": "", "state": "planned", "detail": "",
    "plan": {"restarts": [{"name": "auth-1", "agent_count": 3}],
             "manual_restarts": [{"name": "auth-2", "reason": "no folder"}, {"name": "auth-3", "reason": ""}],
             "silent_instances": [{"name": "auth-4", "reason": "unavailable"}],
             "notes": ["Raising the TTL: beware."],
             "ttl": [{"role": "proxy", "title": "2 proxies, TTL 1m0s to 10m0s",
                      "before": {"detection_time": "2m0s", "writes_per_second": 0.06, "messages_per_second": 3.1},
                      "after": {"detection_time": "20m0s", "writes_per_second": 0.006, "messages_per_second": 0.31}}]},
}  # fmt: skip
PROGRESS = {
    "id": 7, "revision": "7-4",
    "kind": "policy", "state": "verified", "detail": "", "total_count": 1, "finished_count": 1,
    "percent": 100, "failed_count": 0,
}  # fmt: skip


PRESETS = {
    "cluster": "default", "revision": "r1",
    "presets": [
        {"name": "recommended", "label": "Recommended", "description": "Auths fail over.", "is_in_effect": False,
         "desired_values": {"auth": {AUTH_TTL_VARIABLE: "1m"}, "proxy": {PROXY_TTL_VARIABLE: "30s"}}},
        {"name": "failover", "label": "Failover on", "description": "Agents check.", "is_in_effect": True,
         "desired_values": {"auth": {AUTH_TTL_VARIABLE: "1m"}}},
    ],
}  # fmt: skip


@pytest.fixture
def console() -> Iterator[FakeConsole]:
    """A console with one auth that drifts."""
    with run_console() as fake_console:
        fake_console.responses = {
            "/api/v1/policies": (200, POLICIES),
            "/api/v1/policies/plan": (201, CHANGE),
            "/api/v1/policies/presets": (200, PRESETS),
            "/api/v1/changes/3": (200, {**CHANGE, "id": 3, "revision": "3-4"}),
            "/api/v1/changes/3/undo": (201, CHANGE),
            "/api/v1/changes/7/confirm": (202, CHANGE),
            "/api/v1/changes/7/cancel": (202, CHANGE),
            "/api/v1/changes/7/progress": (200, PROGRESS),
        }
        yield fake_console


def _run(console: FakeConsole, *arguments: str) -> Result:
    return CliRunner().invoke(policies, [*arguments, "--url", console.url, "--token", TOKEN])


def test_list_and_snippet(console: FakeConsole) -> None:
    """Drift in the list, and a snippet to set values by hand."""
    assert "drift" in _run(console, "list", "--drift").output
    assert _run(console, "snippet", "auth-1").output == f"export {AUTH_TTL_VARIABLE}=1m\n"
    assert "has no desired values" in _run(console, "snippet", "proxy").output


def test_set_accepts_an_unambiguous_name_suffix(console: FakeConsole) -> None:
    """The announce TTL of proxies is no policy of auths."""
    assert _run(console, "set", "auth", "announce_ttl=1m", "--dry-run").exit_code == 0
    assert console.posts[0][1]["desired_values"] == {"auth": {AUTH_TTL_VARIABLE: "1m"}}
    output = _run(console, "set", "auth", "proxy_announce_ttl=1m").output
    assert "is a policy of proxies, not of auths. Policies of auths: grpc_client_lb_policy, " in output


def test_set_extends_the_values_that_were_read(console: FakeConsole) -> None:
    """Names may be short; an empty value unsets; the revision goes along."""
    outcome = _run(
        console, "set", "auth", "auth-announce-ttl=", "http-close-unhealthy=true", "--yes", "--reason", "x"
    )
    assert outcome.exit_code == 0, outcome.output
    path, body, headers = console.posts[0]
    assert path == "/api/v1/policies/plan"
    assert body["desired_values"] == {"auth": {"TELEPORT_UNSTABLE_HTTP_CLOSE_UNHEALTHY": "true"}}
    assert headers["If-Match"] == '"r1"'
    assert body["settings"] == {}
    for text in (
        "restart auth-2 yourself: no folder",
        "restart auth-3 yourself\n",
        "auth-4 does not respond, so it does not accept the desired values: repeat this change",
        "a lost proxy is detected within 20m0s (now 2m0s)",
        "discovery messages 0.31/s (now 3.1/s)",
        "Raising the TTL: beware.",
    ):
        assert text in outcome.output


def test_removal_of_a_value_that_is_not_set_is_noted(console: FakeConsole) -> None:
    """The console only sees that nothing changes."""
    outcome = _run(console, "set", "auth", "http-close-unhealthy=", "auth-announce-ttl=", "--dry-run")
    assert "http_close_unhealthy of auth has no desired value to remove" in outcome.stderr
    assert "announce_ttl of" not in outcome.stderr


def test_settings_are_sent_unchanged(console: FakeConsole) -> None:
    """It knows their ranges."""
    arguments = (
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
    assert _run(console, "set", *arguments).exit_code == 0
    assert console.posts[0][1]["settings"] == {"concurrency": "0", "timeout_seconds": "x"}
    console.responses["/api/v1/policies/plan"] = (
        400,
        {"detail": "No.", "problems": {"timeout_seconds": "not a number"}},
    )
    assert (
        "nothing was changed: No.\n  --instance-timeout: not a number"
        in _run(console, "set", *arguments).output
    )


def test_remove_values_of_a_deregistered_instance(console: FakeConsole) -> None:
    """It is named by the list; others cannot be forgotten."""
    assert "refloat policies remove id-9" in _run(console, "list").output
    assert _run(console, "remove", "id-9", "--yes", "--reason", "gone").exit_code == 0
    assert console.posts[0][1] == {"desired_values": {"id-9": {}}, "roll_out": False}


@pytest.mark.parametrize(
    ("instance_id", "message"),
    [
        ("id-1", "id-1 is still registered: remove a desired value with `refloat policies set id-1 NAME=`"),
        ("auth-1", "auth-1 is still registered"),
        ("nope", "'nope' is not the id of a deregistered instance with desired values: use one of id-9"),
    ],
)
def test_refused_removal_says_why(console: FakeConsole, instance_id: str, message: str) -> None:
    """A registered instance and an unknown one have different errors."""
    outcome = _run(console, "remove", instance_id)
    assert (outcome.exit_code, console.posts) == (2, [])
    assert message in outcome.output


def test_removal_without_deregistered_instances_is_refused(console: FakeConsole) -> None:
    """The error does not list an empty choice."""
    console.responses["/api/v1/policies"] = (200, {**POLICIES, "deregistered": {}})
    assert "there are no such instances" in _run(console, "remove", "nope").output


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "TELEPORT_UNSTABLE_PROXY_ANNOUNCE_TTL",
            "Policies of auths: TELEPORT_UNSTABLE_GRPC_CLIENT_LB_POLICY, ",
        ),
        ("nope", "'nope' is not a policy of auths. Policies of auths: grpc_client_lb_policy, "),
    ],
)
def test_wrong_policy_lists_names_in_the_form_that_was_typed(
    console: FakeConsole, name: str, message: str
) -> None:
    """Environment variables or their ends."""
    assert message in _run(console, "set", "auth", f"{name}=5m").output


def test_undo_plans_and_confirms(console: FakeConsole) -> None:
    """By the number of the change."""
    assert _run(console, "undo", "3", "--yes", "--reason", "it was wrong").exit_code == 0
    assert [path for path, _, _ in console.posts] == ["/api/v1/changes/3/undo", "/api/v1/changes/7/confirm"]


def test_presets_are_listed_with_their_values(console: FakeConsole) -> None:
    """Each with what it does and whether it is in effect; as JSON it is the response."""
    assert _run(console, "presets").output == (
        "recommended (Recommended): Auths fail over.\n"
        "failover (Failover on), in effect: Agents check.\n"
        "\n"
        "PRESET       ROLE   POLICY              VALUE\n"
        "recommended  auth   auth_announce_ttl   1m\n"
        "recommended  proxy  proxy_announce_ttl  30s\n"
        "failover     auth   auth_announce_ttl   1m\n"
    )
    assert json.loads(_run(console, "presets", "--json").output) == PRESETS


def test_preset_is_planned_by_its_name(console: FakeConsole) -> None:
    """With the revision that was read, and the settings of every rollout; an unknown name is refused here."""
    arguments = ("recommended", "--no-rollout", "--soak-time", "9", "--yes", "--reason", "x")
    outcome = _run(console, "apply", *arguments)
    assert outcome.exit_code == 0, outcome.output
    path, body, headers = console.posts[0]
    assert (path, headers["If-Match"]) == ("/api/v1/policies/plan", '"r1"')
    assert body == {"preset": "recommended", "roll_out": False, "settings": {"soak_seconds": "9"}}
    assert "undo with: refloat policies undo 7" in outcome.output
    assert "'recommended', 'failover'" in _run(console, "apply", "reckless").output


@pytest.mark.parametrize(
    "arguments", [("nobody", "auth-announce-ttl=1m"), ("auth", "path=x"), ("auth", "auth-announce-ttl")]
)
def test_invalid_arguments_are_refused(console: FakeConsole, arguments: tuple[str, str]) -> None:
    """Before anything is sent."""
    assert _run(console, "set", *arguments).exit_code != 0
    assert not console.posts
