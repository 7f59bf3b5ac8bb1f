"""The editor of the networking config: every wrong value at its field, and two people at once."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from django.test import Client

from dashboards.forms.networking import initial_of
from fleet.control import networking
from fleet.domain.changes import ChangeState
from fleet.models.changes import AuditEntry, Change
from fleet.models.clusters import ensure_default_cluster
from fleet.models.networking import NetworkingReading
from fleet.protocol.networking_config import ORIGIN_LABEL, NetworkingConfig, Resource, Strategy, with_defaults
from tests.dashboards.conftest import MakeUser
from tests.fakes.reader import FakeReader

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 1, 1, tzinfo=UTC)
STORED = with_defaults(
    NetworkingConfig(tunnel_strategy=str(Strategy.PROXY_PEERING), agent_connection_count=1)
)


def remember(config: NetworkingConfig, revision: str, origin: str = "dynamic") -> None:
    """What a worker would have read."""
    ensure_default_cluster()
    networking.remember("default", Resource(config, {ORIGIN_LABEL: origin}, revision), NOW)


@pytest.fixture
def editor(client: Client, person: MakeUser, fake_reader: FakeReader) -> Client:
    """A config admin in front of a fleet whose config was read."""
    remember(STORED, "r1")
    client.force_login(person("config admin"))
    return client


def sent(revision: str = "r1", **fields: Any) -> dict[str, Any]:
    """The form as a browser sends it, with some fields filled in otherwise."""
    values = {**initial_of(STORED, revision), **fields}
    return {name: value for name, value in values.items() if value is not False}


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("client_idle_timeout", "soon", "soon"),
        ("client_idle_timeout", "721h", "not within"),
        ("idle_timeout_message", "x" * 1025, "longer than 1024"),
        ("idle_timeout_message", "a\x07b", "control characters"),
        ("web_idle_timeout", "-1s", "not within"),
        ("keep_alive_interval", "2h", "not within"),
        ("keep_alive_count_max", "three", "not a whole number"),
        ("keep_alive_count_max", "101", "not within"),
        ("session_control_timeout", "25h", "not within"),
        ("proxy_listener_mode", "triplex", "not one of the available"),
        ("routing_strategy", "", "none of"),
        ("tunnel_strategy", "star", "not one of the available"),
        ("agent_connection_count", "0.5", "not a whole number"),
        ("agent_connection_count", "-1", "not within"),
        ("proxy_ping_interval", "1ms", "not within"),
        ("assist_command_execution_workers", "1001", "not within"),
        ("ssh_dial_timeout", "11m", "not within"),
        ("tunnel_closing_wait_min", "25h", "not within"),
        ("tunnel_closing_wait_max", "10m", "below the shortest wait"),
        ("tunnel_disconnect_threshold", "x", "x"),
    ],
)
def test_wrong_value_is_said_at_its_field(editor: Client, field: str, value: str, words: str) -> None:
    """And nothing is saved: no plan, only the attempt in the log."""
    answer = editor.post("/networking/", sent(**{field: value}))
    errors = answer.context["tab"].form.errors
    assert words in " ".join(errors[field]).lower()
    assert f'id="id_{field}_error"' in answer.content.decode()
    assert not Change.objects.exists()
    assert AuditEntry.objects.get().outcome == "refused"


def test_two_rules_at_once_are_refused(editor: Client) -> None:
    """One contradicts the other; the sentence stands at a field."""
    answer = editor.post("/networking/", sent(graceful_tunnel_closing="on", tunnel_disconnect_threshold="5m"))
    assert "choose one rule" in str(answer.context["tab"].form.errors["tunnel_disconnect_threshold"])


def test_good_value_leads_to_its_plan(editor: Client) -> None:
    """Nothing is written: the change waits to be confirmed, and its page shows what it does."""
    answer = editor.post("/networking/", sent(graceful_tunnel_closing="on"), follow=True)
    change = Change.objects.get()
    assert change.state == ChangeState.PLANNED
    page = answer.content.decode()
    assert "RFD 226, GracefulTunnelClosing" in page
    assert "It closes no tunnel" in page


def test_yaml_is_the_same_object(editor: Client) -> None:
    """What stands in the form comes out as YAML, and back, without being planned."""
    page = editor.post("/networking/", sent(keep_alive_count_max="7") | {"show": "yaml"})
    text = page.context["tab"].yaml
    assert "keep_alive_count_max: 7" in text
    back = editor.post("/networking/", {"tab": "yaml", "yaml": text, "revision": "r1", "show": "form"})
    assert back.context["tab"].form["keep_alive_count_max"].value() == 7
    editor.post("/networking/", {"tab": "yaml", "yaml": text, "revision": "r1"})
    assert Change.objects.get().title == "keep_alive_count_max = 7"


def test_wrong_yaml_is_named_by_key(editor: Client) -> None:
    """Unknown keys, ranges and what is no YAML at all."""
    for text, words in (
        ("spec: {keep_alive_intervall: 5s}", "keep_alive_intervall"),
        ("spec: {keep_alive_interval: 5h}", "keep_alive_interval"),
        ("spec: [", "YAML"),
    ):
        answer = editor.post("/networking/", {"tab": "yaml", "yaml": text, "revision": "r1"})
        assert words in str(answer.context["tab"].problems)
    assert not Change.objects.exists()


def test_second_of_two_sees_three_versions_and_rebases(editor: Client) -> None:
    """Nothing of either is lost: theirs is stored, mine is offered on top of it."""
    remember(replace(STORED, web_idle_timeout=60.0, keep_alive_count_max=5), "r2")
    mine = sent(keep_alive_count_max="9", ssh_dial_timeout="20s")
    answer = editor.post("/networking/", mine)
    rows = {
        row.key: (row.base, row.theirs, row.mine, row.clash) for row in answer.context["tab"].conflict["rows"]
    }
    assert rows == {
        "web_idle_timeout": ("never", "1m0s", "never", False),
        "keep_alive_count_max": ("3", "5", "9", True),
        "ssh_dial_timeout": ("30s", "30s", "20s", False),
    }
    assert not Change.objects.exists()
    rebased = editor.post("/networking/", {**mine, "rebase": "1"}).context["tab"].form
    assert [rebased[name].value() for name in ("revision", "web_idle_timeout", "keep_alive_count_max")] == [
        "r2", "1m0s", 9,
    ]  # fmt: skip


def test_config_of_a_file_is_offered_as_a_patch(
    client: Client, person: MakeUser, fake_reader: FakeReader
) -> None:
    """It is not saved, and says so."""
    remember(STORED, "r1", "config-file")
    client.force_login(person("config admin"))
    page = client.get("/networking/")
    assert page.context["owned"]
    assert page.context["patch"].startswith("spec:")
    assert "Plan this change" not in page.content.decode()
    client.post("/networking/", sent(keep_alive_count_max="7"))
    assert not Change.objects.exists()


def test_revert_plans_the_old_revision(editor: Client) -> None:
    """Through the same plan, onto the present revision."""
    remember(replace(STORED, keep_alive_count_max=5), "r2")
    old = networking.must_be_read("default").previous
    assert old is not None
    editor.post("/networking/", {"revert": str(old.pk)})
    assert Change.objects.get().title == "keep_alive_count_max = 3"
    assert editor.post("/networking/", {"revert": "999"}).status_code == 404


def test_blind_pollers_refuse_the_plan(editor: Client, fake_reader: FakeReader) -> None:
    """The sentence says why; what was filled in stays."""
    fake_reader.as_of = 1.0
    answer = editor.post("/networking/", sent(graceful_tunnel_closing="on"))
    assert "blind" in answer.context["tab"].sentence
    assert answer.context["tab"].form["graceful_tunnel_closing"].value()


def test_cluster_that_does_not_know_the_switch(editor: Client) -> None:
    """It is off and cannot be turned on."""
    NetworkingReading.objects.update(knows_closing=False)
    page = editor.get("/networking/").content.decode()
    assert "does not know the field" in page
    editor.post("/networking/", sent(graceful_tunnel_closing="on"))
    assert not Change.objects.exists()


def test_viewer_looks_and_cannot_change(client: Client, person: MakeUser, fake_reader: FakeReader) -> None:
    """No button, and no way around it."""
    remember(STORED, "r1")
    client.force_login(person("operator"))
    assert "Plan this change" not in client.get("/networking/").content.decode()
    assert client.post("/networking/", sent(keep_alive_count_max="7")).status_code == 403
    assert "permission" in AuditEntry.objects.get().detail


def test_never_read_says_so(client: Client, person: MakeUser, fake_reader: FakeReader) -> None:
    """With the error of whoever tried."""
    ensure_default_cluster()
    networking.unread("default", "no auth is known")
    client.force_login(person("viewer"))
    page = client.get("/networking/").content.decode()
    assert "no auth is known" in page
    assert "<textarea" not in page
