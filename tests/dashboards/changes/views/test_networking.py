"""The editor of the networking config: every wrong value at its field, and two people at once."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
import yaml
from django.test import Client

from dashboards.changes.forms.networking import initial_values_of
from fleet.changes.networking import revisions
from fleet.models.changes import AuditEntry, Change
from fleet.models.clusters import Cluster, ensure_default_cluster
from fleet.models.networking import NetworkingReading, NetworkingRevision
from fleet.protocol.networking.config import (
    FIELDS,
    ORIGIN_LABEL,
    NetworkingConfig,
    NetworkingResource,
    Strategy,
    field_of,
    with_defaults,
)
from fleet.vocabulary.changes import ChangeState
from fleet.vocabulary.verdicts import State
from tests.dashboards.conftest import MakeUser
from tests.fakes.reader import FakeReader
from tests.fakes.wrong_values import IN_FORMS, NETWORKING, document_of

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 1, 1, tzinfo=UTC)
STORED = with_defaults(
    NetworkingConfig(tunnel_strategy=str(Strategy.PROXY_PEERING), agent_connection_count=1)
)


def store_revision(config: NetworkingConfig, revision: str, origin: str = "dynamic") -> None:
    """Store a config revision, as a worker does that read it."""
    ensure_default_cluster()
    revisions.record_revision("default", NetworkingResource(config, {ORIGIN_LABEL: origin}, revision), NOW)


@pytest.fixture
def editor(client: Client, person: MakeUser, fake_reader: FakeReader) -> Client:
    """A config admin in front of a fleet whose config was read."""
    store_revision(STORED, "r1")
    client.force_login(person("config admin"))
    return client


def form_data(revision: str = "r1", **fields: Any) -> dict[str, Any]:
    """Return the form as a browser sends it, with some fields changed."""
    values = {**initial_values_of(STORED, revision), **fields}
    return {name: value for name, value in values.items() if value is not False}


def test_wrong_value_is_reported_at_its_field(editor: Client) -> None:
    """Of every field; and nothing is saved: no plan, only the attempt in the log."""
    for key, text, _, message in IN_FORMS:
        field = field_of(key).name
        answer = editor.post("/networking/", form_data(**{field: text}))
        errors = answer.context["tab"].form.errors
        assert re.search(message, " ".join(errors[field]).lower())
        assert f'id="id_{field}_error"' in answer.content.decode()
    assert not Change.objects.exists()
    assert AuditEntry.objects.filter(outcome="refused").count() == len(IN_FORMS)


def test_wrong_value_in_yaml_is_named_by_its_key(editor: Client) -> None:
    """Of every field, above the text, which stays as it was written."""
    for key, _, value, message in NETWORKING:
        text = yaml.safe_dump({"spec": document_of(key, value)})
        answer = editor.post("/networking/", {"tab": "yaml", "yaml": text, "revision": "r1"})
        problems = dict(answer.context["tab"].problems)
        assert re.search(message, problems[key])
        assert answer.context["tab"].yaml == text
    assert not Change.objects.exists()
    assert AuditEntry.objects.filter(outcome="refused").count() == len(NETWORKING)


@pytest.mark.parametrize(
    ("field", "text"),
    [("keep_alive_count_max", "three"), ("client_idle_timeout", "soon"), ("routing_strategy", "")],
)
def test_value_of_the_wrong_type_is_refused(editor: Client, field: str, text: str) -> None:
    """Text where a number or a duration is required, and no value where a choice is."""
    assert editor.post("/networking/", form_data(**{field: text})).context["tab"].form.errors[field]
    assert not Change.objects.exists()


def test_every_field_shows_its_value_and_who_applies_it(editor: Client) -> None:
    """The value in force, and plainly which ones Refloat's own nodes do nothing with."""
    page = editor.get("/networking/")
    sections = page.context["tab"].form.build_sections()
    rows = {row.key: row for rows in sections.values() for row in rows}
    assert len(rows) == len(FIELDS)
    assert {key for key, row in rows.items() if row.is_supported} == {
        "tunnel_strategy.type", "tunnel_strategy.agent_connection_count", "graceful_tunnel_closing",
        "tunnel_closing_wait_min", "tunnel_closing_wait_max", "tunnel_disconnect_threshold",
        "keep_alive_interval", "keep_alive_count_max",
    }  # fmt: skip
    assert (rows["keep_alive_interval"].current_text, rows["ssh_dial_timeout"].current_text) == (
        "5 min",
        "30 s",
    )
    assert (rows["graceful_tunnel_closing"].current_text, rows["idle_timeout_message"].current_text) == (
        "off",
        "empty",
    )
    assert not any(row.is_supported for row in sections["teleport"])
    assert "Used by Teleport's programs only (10 fields)" in page.content.decode()


def test_unknown_revision_overwrites_nothing(editor: Client) -> None:
    """What is stored is shown instead."""
    answer = editor.post("/networking/", form_data("r9", keep_alive_count_max="7"))
    assert "the revision that you edited is unknown" in answer.content.decode()
    assert not Change.objects.exists()


def test_yaml_validates_changed_fields_only(editor: Client) -> None:
    """A value that somebody stored elsewhere, and that we would refuse, stands in nobody's way."""
    store_revision(replace(STORED, web_idle_timeout=-5.0), "r2")
    text = editor.get("/networking/?tab=yaml").context["tab"].yaml
    new_text = text.replace("keep_alive_count_max: 3", "keep_alive_count_max: 4")
    editor.post("/networking/", {"tab": "yaml", "yaml": new_text, "revision": "r2"})
    assert Change.objects.get().title == "Set keep alive count max to 4"


def test_two_rules_at_once_are_refused(editor: Client) -> None:
    """One contradicts the other; the sentence stands at a field."""
    answer = editor.post(
        "/networking/", form_data(graceful_tunnel_closing="on", tunnel_disconnect_threshold="5m")
    )
    assert "Set only one of them" in str(answer.context["tab"].form.errors["tunnel_disconnect_threshold"])


def test_good_value_leads_to_its_plan(editor: Client) -> None:
    """Nothing is written: the change waits to be confirmed, and its page shows what it does."""
    answer = editor.post("/networking/", form_data(graceful_tunnel_closing="on"), follow=True)
    change = Change.objects.get()
    assert change.state == ChangeState.PLANNED
    page = answer.content.decode()
    assert "graceful tunnel closing (RFD 226)" in page
    assert "No tunnels close" in page


def test_yaml_is_the_same_object(editor: Client) -> None:
    """What stands in the form comes out as YAML, and back, without being planned."""
    page = editor.post("/networking/", form_data(keep_alive_count_max="7") | {"show": "yaml"})
    text = page.context["tab"].yaml
    assert "keep_alive_count_max: 7" in text
    back = editor.post("/networking/", {"tab": "yaml", "yaml": text, "revision": "r1", "show": "form"})
    assert back.context["tab"].form["keep_alive_count_max"].value() == 7
    editor.post("/networking/", {"tab": "yaml", "yaml": text, "revision": "r1"})
    assert Change.objects.get().title == "Set keep alive count max to 7"


def test_wrong_yaml_is_named_by_key(editor: Client) -> None:
    """Unknown keys, ranges and what is no YAML at all."""
    for text, message in (
        ("spec: {keep_alive_intervall: 5s}", "keep_alive_intervall"),
        ("spec: {keep_alive_interval: 5h}", "keep_alive_interval"),
        ("spec: [", "YAML"),
    ):
        answer = editor.post("/networking/", {"tab": "yaml", "yaml": text, "revision": "r1"})
        assert message in str(answer.context["tab"].problems)
    assert not Change.objects.exists()


def test_concurrent_edit_shows_three_versions_and_rebases(editor: Client) -> None:
    """No edit is lost: the first is stored, the second is offered on top of it."""
    store_revision(replace(STORED, web_idle_timeout=60.0, keep_alive_count_max=5), "r2")
    own_form = form_data(keep_alive_count_max="9", ssh_dial_timeout="20s")
    answer = editor.post("/networking/", own_form)
    rows = {
        row.key: (row.base_value, row.stored_value, row.own_value, row.is_conflict)
        for row in answer.context["tab"].conflict["rows"]
    }
    assert rows == {
        "web_idle_timeout": ("never", "1 min", "never", False),
        "keep_alive_count_max": ("3", "5", "9", True),
        "ssh_dial_timeout": ("30 s", "30 s", "20 s", False),
    }
    assert not Change.objects.exists()
    new_form = editor.post("/networking/", {**own_form, "rebase": "1"}).context["tab"].form
    assert [new_form[name].value() for name in ("revision", "web_idle_timeout", "keep_alive_count_max")] == [
        "r2", "1 min", 9,
    ]  # fmt: skip


def test_config_of_a_file_is_offered_as_a_patch(
    client: Client, person: MakeUser, fake_reader: FakeReader
) -> None:
    """It is not saved, and says so."""
    store_revision(STORED, "r1", "config-file")
    client.force_login(person("config admin"))
    page = client.get("/networking/")
    assert page.context["is_file_managed"]
    assert page.context["spec_yaml"].startswith("spec:")
    assert "Preview change" not in page.content.decode()
    client.post("/networking/", form_data(keep_alive_count_max="7"))
    assert not Change.objects.exists()


def test_revert_plans_the_old_revision(editor: Client) -> None:
    """Through the same plan, onto the present revision."""
    store_revision(replace(STORED, keep_alive_count_max=5), "r2")
    old = revisions.require_current_revision("default").previous
    assert old is not None
    editor.post("/networking/", {"revert": str(old.pk)})
    assert Change.objects.get().title == "Set keep alive count max to 3"
    assert editor.post("/networking/", {"revert": "999"}).status_code == 404


def test_blind_pollers_refuse_the_plan(editor: Client, fake_reader: FakeReader) -> None:
    """The sentence says why; what was filled in stays."""
    fake_reader.as_of = 1.0
    answer = editor.post("/networking/", form_data(graceful_tunnel_closing="on"))
    assert "No current data" in answer.context["tab"].sentence
    assert answer.context["tab"].form["graceful_tunnel_closing"].value()


def test_cluster_that_does_not_know_the_switch(editor: Client) -> None:
    """It is off and cannot be turned on."""
    NetworkingReading.objects.update(knows_closing=False)
    page = editor.get("/networking/").content.decode()
    assert "do not support this field" in page
    editor.post("/networking/", form_data(graceful_tunnel_closing="on"))
    assert not Change.objects.exists()
    editor.post("/networking/", {"try_closing": "1"})
    assert AuditEntry.objects.filter(
        action="networking-config.reset-closing-support", outcome="succeeded"
    ).exists()
    editor.post("/networking/", form_data(graceful_tunnel_closing="on"))
    assert Change.objects.get().title == "Turn on graceful tunnel closing"
    NetworkingReading.objects.update(knows_closing=False)
    store_revision(replace(STORED, graceful_tunnel_closing=True), "r2")
    assert NetworkingReading.objects.get().knows_closing


def test_viewer_can_read_and_not_change(client: Client, person: MakeUser, fake_reader: FakeReader) -> None:
    """No button, and a direct request is refused."""
    store_revision(STORED, "r1")
    client.force_login(person("operator"))
    assert "Preview change" not in client.get("/networking/").content.decode()
    assert client.post("/networking/", form_data(keep_alive_count_max="7")).status_code == 403
    assert "role config admin" in AuditEntry.objects.get().detail


def test_config_that_was_never_read_is_shown_as_unknown(
    client: Client, person: MakeUser, fake_reader: FakeReader
) -> None:
    """With the error of whoever tried."""
    ensure_default_cluster()
    revisions.record_read_error("default", "no auth is known")
    client.force_login(person("viewer"))
    page = client.get("/networking/").content.decode()
    assert "no auth is known" in page
    assert "<textarea" not in page


def _forecast(editor: Client, **fields: Any) -> str:
    answer = editor.get("/networking/forecast/", form_data(**fields))
    assert answer.status_code == 200
    return answer.content.decode()


def test_forecast_follows_the_edited_fields(editor: Client, fake_reader: FakeReader) -> None:
    """How many tunnels close and when, and what stays open while the switch is off; nothing is stored or logged."""
    fake_reader.states, fake_reader.desired_count = [State.HEALTHY] * 4, 1
    assert "No field is changed." in _forecast(editor)
    html = _forecast(editor, agent_connection_count="2")
    assert "<b>4</b> agents open <b>4</b> more tunnels" in html
    assert "<code>tunnel_strategy.agent_connection_count</code> <del>1</del> → <ins>2</ins>" in html
    html = _forecast(editor, graceful_tunnel_closing="on")
    assert "<del>off</del> → <ins>on</ins>" in html
    assert "No tunnel closes now" in html
    assert not Change.objects.exists()
    assert not AuditEntry.objects.exists()


def test_forecast_of_excess_tunnels(editor: Client, fake_reader: FakeReader) -> None:
    """They stay open for ever, or close within the two waits, and the time until agents act on the config."""
    store_revision(replace(STORED, agent_connection_count=2), "r2")
    fake_reader.states = [State.HEALTHY] * 4
    fake_reader.tunnels_per_agent = fake_reader.desired_count = 2
    off = _forecast(editor, revision="r2", agent_connection_count="1")
    assert "<b>4 tunnels</b> of 4 agents stay open for ever" in off
    assert "they close 30 min to 1 h after the change" in off
    on = _forecast(
        editor,
        revision="r2",
        agent_connection_count="1",
        graceful_tunnel_closing="on",
        tunnel_closing_wait_min="20 s",
        tunnel_closing_wait_max="40 s",
    )
    assert "<b>4 tunnels</b> of 4 agents close, 20 s to 42 s after the change" in on
    assert "Closed tunnels over time. In all 4" in on


def test_tunnels_close_later_after_the_waits(editor: Client) -> None:
    """In numbers: the fields may be out of view. Waits that contradict each other are explained in the same form."""
    on = _forecast(editor, graceful_tunnel_closing="on", tunnel_closing_wait_min="5 min")
    assert "between the shortest and the longest wait (5 min to 1 h)." in on
    threshold = _forecast(editor, tunnel_disconnect_threshold="5 min")
    assert "become excess later close after the disconnect threshold, 5 min." in threshold
    wrong = _forecast(editor, tunnel_closing_wait_min="5 min", tunnel_closing_wait_max="1 min")
    assert "1 min is shorter than the shortest wait, 5 min." in wrong


def test_forecast_names_the_invalid_fields(editor: Client) -> None:
    """With their messages; a link leads to the first one on the page."""
    html = _forecast(
        editor, web_idle_timeout="x", tunnel_closing_wait_max="soon", keep_alive_count_max="three"
    )
    assert (
        '<a href="#id_tunnel_closing_wait_max" data-first-problem><b>3</b> fields with an invalid value</a>'
        in html
    )
    assert re.findall('data-field="([a-z_]+)" data-id="([a-z_]+)"', html) == [
        (name, f"id_{name}_error")
        for name in ("tunnel_closing_wait_max", "keep_alive_count_max", "web_idle_timeout")
    ]
    assert "config-problems" in html
    assert "data-field" not in _forecast(editor)


def test_refused_form_gives_the_focus_to_the_first_invalid_field(editor: Client) -> None:
    """Also without scripts, and where the field is collapsed otherwise; a page without errors gives none."""
    html = editor.post("/networking/", form_data(web_idle_timeout="x", ssh_dial_timeout="y")).content.decode()
    assert re.findall(r"<input[^>]* name=\"(\w+)\"[^>]* autofocus", html) == ["web_idle_timeout"]
    assert 'id="teleport-fields" open' in html
    assert '<a href="#id_web_idle_timeout"' in html
    assert "autofocus" not in editor.get("/networking/").content.decode()


def test_forecast_says_why_there_is_none(editor: Client, fake_reader: FakeReader) -> None:
    """Invalid values, and data that is too old."""
    html = _forecast(editor, keep_alive_count_max="three")
    assert "<b>1</b> field with an invalid value" in html
    fake_reader.as_of = None
    assert "No data: no poller has completed a round" in _forecast(editor)


def test_yaml_shows_its_differences(editor: Client) -> None:
    """While it is edited, and after a refusal, which keeps the text."""
    text = editor.get("/networking/?tab=yaml").context["tab"].yaml
    new_text = text.replace("keep_alive_count_max: 3", "keep_alive_count_max: 4")
    query = {"tab": "yaml", "yaml": new_text, "revision": "r1"}
    html = editor.get("/networking/forecast/", query).content.decode()
    assert '<div class="diff-remove">-  keep_alive_count_max: 3</div>' in html
    assert '<div class="diff-add">+  keep_alive_count_max: 4</div>' in html
    wrong_text = new_text.replace("keep_alive_count_max: 4", "keep_alive_count_max: four")
    problem = "<code>keep_alive_count_max</code>: "
    assert problem in editor.get("/networking/forecast/", {**query, "yaml": wrong_text}).content.decode()
    page = editor.post("/networking/", {**query, "yaml": wrong_text}).content.decode()
    assert page.count(problem) == 1
    assert '<div class="diff-add">+  keep_alive_count_max: four</div>' in page


def test_changed_fields_are_marked_after_a_refusal(editor: Client) -> None:
    """With the current value and the new one; a changed field of Teleport opens its section."""
    page = editor.post("/networking/", form_data(ssh_dial_timeout="5 s", keep_alive_count_max="x"))
    rows = {row.key: row for rows in page.context["tab"].form.build_sections().values() for row in rows}
    assert {key for key, row in rows.items() if row.is_changed} == {
        "ssh_dial_timeout",
        "keep_alive_count_max",
    }
    html = page.content.decode()
    assert "<del>30 s</del> → <ins>5 s</ins>" in html
    assert 'id="teleport-fields" open' in html
    assert 'id="teleport-fields" open' not in editor.get("/networking/").content.decode()


def test_plan_can_be_edited_again(editor: Client) -> None:
    """The form begins with the values of the plan, also when other fields were changed meanwhile."""
    editor.post("/networking/", form_data(agent_connection_count="3"))
    change = Change.objects.get()
    link = f"/networking/?change={change.pk}"
    assert f'href="{link}">Edit change</a>' in editor.get(f"/changes/{change.pk}/").content.decode()
    store_revision(replace(STORED, keep_alive_count_max=9), "r2")
    form = editor.get(link).context["tab"].form
    assert form["agent_connection_count"].value() == 3
    assert form["keep_alive_count_max"].value() == 9
    assert editor.get("/networking/?change=999").context["tab"].form["agent_connection_count"].value() == 1


def test_plan_that_was_edited_is_cancelled_by_its_successor(editor: Client) -> None:
    """Only one of two plans of the same edits is left; a plan that somebody confirmed stays."""
    editor.post("/networking/", form_data(keep_alive_count_max="5"))
    first = Change.objects.get()
    html = editor.get(f"/networking/?change={first.pk}").content.decode()
    assert f'name="edited_change" value="{first.pk}"' in html
    editor.post("/networking/", form_data(keep_alive_count_max="6", edited_change=first.pk))
    first.refresh_from_db()
    second = Change.objects.latest("pk")
    assert (first.state, first.detail) == ("cancelled", f"replaced by change {second.pk}")
    Change.objects.filter(pk=second.pk).update(state="confirmed")
    editor.post("/networking/", form_data(keep_alive_count_max="7", edited_change=second.pk))
    second.refresh_from_db()
    assert second.state == "confirmed"


def test_fields_that_the_product_does_not_have_cannot_be_set(editor: Client) -> None:
    """The form ignores them; the YAML text and an old revision are refused with the reason."""
    Cluster.objects.update(source="teleport")
    html = editor.get("/networking/").content.decode()
    assert "Teleport has no GracefulTunnelClosing" in html
    assert 'name="graceful_tunnel_closing"' not in html
    editor.post(
        "/networking/",
        form_data(graceful_tunnel_closing="on", proxy_listener_mode="multiplex", keep_alive_count_max="7"),
    )
    change = Change.objects.get()
    assert change.title == "Set keep alive count max to 7"
    text = yaml.safe_dump({"spec": {"graceful_tunnel_closing": True}})
    answer = editor.post("/networking/", {"tab": "yaml", "yaml": text, "revision": "r1"})
    assert "Teleport has no GracefulTunnelClosing" in answer.context["tab"].sentence
    store_revision(replace(STORED, proxy_listener_mode="multiplex"), "r2")
    old_revision = NetworkingRevision.objects.get(revision="r1")
    answer = editor.post("/networking/", {"revert": str(old_revision.pk)})
    assert "Proxies of Teleport open their ports" in answer.context["tab"].sentence
    assert Change.objects.get() == change


def test_stored_values_out_of_range_do_not_hinder_other_edits(editor: Client) -> None:
    """Teleport stores any number; only what is edited must be valid."""
    stored = replace(
        STORED,
        keep_alive_interval=-5.0,
        client_idle_timeout=1e10,
        keep_alive_count_max=-3,
        agent_connection_count=500,
    )
    store_revision(stored, "r2")
    assert editor.get("/networking/").status_code == 200
    values = {**initial_values_of(stored, "r2"), "ssh_dial_timeout": "20 s"}
    answer = editor.post(
        "/networking/", {name: value for name, value in values.items() if value is not False}
    )
    assert answer.status_code == 302, dict(answer.context["tab"].form.errors)
    assert Change.objects.get().title == "Set SSH dial timeout to 20 s"
