"""The pages of policies: the matrix, and what a role or an instance is to run with."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from django.test import Client
from django.utils import timezone

from dashboards.shared import record_reader
from fleet.changes import engine
from fleet.changes.policies import desired_state
from fleet.models.actions import DesiredPolicy
from fleet.models.changes import AuditEntry, Change
from fleet.models.clusters import ensure_default_cluster
from fleet.models.inventory import Instance
from fleet.protocol.policies import policy_json
from fleet.protocol.policies.env_policies import BY_NAME, HTTP_CLOSE_VARIABLE
from fleet.protocol.recovery.announce import AUTH_TTL_VARIABLE
from fleet.protocol.recovery.service_config import RFD_VARIABLE, PickHealthyMode, ServiceConfig
from fleet.vocabulary.changes import ChangeState
from fleet.vocabulary.instances import InstanceState
from fleet.vocabulary.node_policies import NodeReportResponse
from tests.dashboards.conftest import MakeUser
from tests.fakes.policy_nodes import FakePolicyBook, PolicyNode
from tests.fakes.reader import FakeReader

pytestmark = pytest.mark.django_db


@pytest.fixture
def page(
    client: Client, person: MakeUser, fake_reader: FakeReader, monkeypatch: pytest.MonkeyPatch
) -> Client:
    """A browser of a config admin; two auths that report, proxies that do not."""
    ensure_default_cluster()
    book = FakePolicyBook(
        auth_id_1=PolicyNode("auth-1"), auth_id_2=PolicyNode("auth-2", environment={AUTH_TTL_VARIABLE: "1m"})
    )
    monkeypatch.setattr(record_reader, "policy_report_store", lambda: book)
    client.force_login(person("config admin"))
    return client


def test_matrix_of_instances_that_report_nothing(page: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is said to be as desired where nothing is known."""
    monkeypatch.setattr(record_reader, "policy_report_store", lambda: FakePolicyBook())
    html = page.get("/policies/").content.decode()
    assert "No instance has reported its policies." in html
    assert "match their desired values" not in html


def test_matrix_without_desired_values_and_without_a_report(
    page: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is compared; the age of a failed attempt is not the age of a report."""
    html = page.get("/policies/").content.decode()
    assert "No policy has a desired value; 2 instances have not reported." in html
    assert "match their desired values" not in html
    DesiredPolicy.objects.create(cluster_id="default", target="auth", name=HTTP_CLOSE_VARIABLE, value="false")
    html = page.get("/policies/").content.decode()
    assert "All reporting instances match their desired values; 2 instances have not reported." in html
    book = FakePolicyBook(auth_id_1=PolicyNode("auth-1"))
    responses = book.read("default") | {"auth-id-2": NodeReportResponse(1.0, None, "unavailable")}
    monkeypatch.setattr(book, "read", lambda cluster: responses)
    monkeypatch.setattr(record_reader, "policy_report_store", lambda: book)
    monkeypatch.setattr(record_reader, "current_time", lambda: 3.0)
    html = page.get("/policies/").content.decode()
    assert html.count('<td class="moment" data-label="Reported">2 s ago</td>') == 1
    assert html.count('<td class="moment" data-label="Reported">no report; asked 2 s ago</td>') == 1


def test_matrix_shows_the_rollout_of_unfinished_instances(
    page: Client, fake_reader: FakeReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In place of the drift that it ends, and also while the instance is deregistered; other drift stays."""
    form = {AUTH_TTL_VARIABLE: "20s", "roll_out": "on"}
    page.post("/policies/auth/", {"revision": desired_state.revision_of({}), **form})
    change = Change.objects.get()
    desired_state.store_desired_values(change)
    drift = page.get("/policies/").content.decode()
    assert drift.count('<div><span class="tag tag-drift">drift</span>') == 2
    assert "desired: 20 s; needs a rollout: a restart alone gives 10 min" in drift
    engine.transition(change, ChangeState.CONFIRMED, timezone.now())
    engine.start(change, timezone.now())
    change.rollout_steps.filter(name="auth-1").update(state="restarting")
    read_views = fake_reader.instances
    monkeypatch.setattr(
        fake_reader,
        "instances",
        lambda cluster, now: tuple(
            replace(view, state=InstanceState.GONE) if view.facts.name == "auth-1" else view
            for view in read_views(cluster, now)
        ),
    )
    for path in ("/policies/", "/policies/?drift=1"):
        html = page.get(path).content.decode()
        assert "auth-1</bdi></a>" in html
        assert "rollout: restarting" in html
        assert html.count('<span class="tag tag-running">rollout running</span>') == 2
        assert "needs a rollout" not in html
    change.rollout_steps.update(state="failed")
    engine.transition(change, ChangeState.PAUSED, timezone.now())
    html = page.get("/policies/").content.decode()
    assert html.count('<div><span class="tag tag-drift">drift</span>') == 1
    assert "auth-1</bdi></a>" not in html


def test_policy_edit_leads_to_a_plan(page: Client) -> None:
    """What each runs with; a change of a role restarts whoever would run with something else."""
    first = page.get("/policies/").content.decode()
    assert "no report yet" in first
    assert "No policy has a desired value; 2 instances have not reported." in first
    form = page.get("/policies/auth/").content.decode()
    revision = re.search(r'name="revision" value="(\w+)"', form)
    assert revision is not None
    edit_form = {"revision": revision[1], AUTH_TTL_VARIABLE: "60s", "roll_out": "on", "soak_seconds": "1 s"}
    answer = page.post("/policies/auth/", edit_form)
    change = Change.objects.get()
    assert answer.headers["Location"] == f"/changes/{change.pk}/"
    assert [restart["name"] for restart in change.plan["restarts"]] == ["auth-1"]
    html = page.get(f"/changes/{change.pk}/").content.decode()
    assert "Set auth announce TTL and restart 1 instance<" in html
    assert "auth-1" in html
    desired_state.store_desired_values(change)
    matrix = page.get("/policies/?drift=1").content.decode()
    assert "drift" in matrix
    assert "auth-2</a>" not in matrix
    stale = page.post("/policies/auth/", edit_form)
    assert stale.status_code == 400
    assert "Out of date: the desired values were changed" in stale.content.decode()


def test_plan_shows_effects_and_affected_instances(page: Client) -> None:
    """At Preview, and on the page of the change: detection, writes, warnings, restarts, the number in the question."""
    form = {
        "revision": desired_state.revision_of({}),
        AUTH_TTL_VARIABLE: "1s",
        HTTP_CLOSE_VARIABLE: "true",
        "roll_out": "on",
    }
    preview = page.post("/policies/auth/", form | {"preview": "1"}).content.decode()
    assert not Change.objects.exists()
    page.post("/policies/auth/", form)
    change = Change.objects.get()
    assert [row["title"] for row in change.plan["ttl"]] == [
        "1 auth, TTL 10 min to 1 s",
        "1 auth, TTL 1 min to 1 s",
    ]
    html = page.get(f"/changes/{change.pk}/").content.decode()
    for html_page in (preview, html):
        for text in (
            "1 auth, TTL 10 min to 1 s",
            "Detection of a lost",
            "Heartbeat writes per second",
            "shorter than three polls of Refloat",
            "2 of 2 instances must restart: auth-1, auth-2",
            "of 4 agents",
        ):
            assert text in html_page
    assert ", and restart 2 auths with 4 connected agents?</h1>" in html


@pytest.mark.parametrize(
    ("mode", "service", "warning"),
    [
        ("reconnect", "fleet.Agents", "No auth serves the health service"),
        ("pick_first", "", "In mode pick_first the health check has no effect"),
    ],
)
def test_policy_that_agents_do_not_follow_to_the_letter_is_a_warning(
    page: Client, mode: str, service: str, warning: str
) -> None:
    """Below its field, and in the preview of what it would do."""
    config = ServiceConfig(PickHealthyMode(mode), service)
    form = {
        "revision": desired_state.revision_of({}),
        RFD_VARIABLE: policy_json.document(config, RFD_VARIABLE),
    }
    answer = page.post("/policies/auth/", form | {"preview": "1", "roll_out": "on"})
    (field,) = [field for field in answer.context["fields"] if field["policy"].name == RFD_VARIABLE]
    assert [text.startswith(warning) for text in field["warnings"]] == [True]
    assert warning in " ".join(answer.context["outlook"]["notes"])
    assert answer.content.decode().count(warning) == 2


def test_concurrent_edit_shows_three_versions_and_rebases(page: Client) -> None:
    """The first values are stored; the second are offered on top of them and can be planned."""
    start = desired_state.revision_of({})
    page.post("/policies/auth/", {"revision": start, HTTP_CLOSE_VARIABLE: "true"})
    desired_state.store_desired_values(Change.objects.get())
    own_form = {"revision": start, AUTH_TTL_VARIABLE: "2m", "roll_out": "on"}
    answer = page.post("/policies/auth/", own_form)
    rows = {
        row["label"]: tuple(row[name] for name in ("base_value", "stored_value", "own_value", "is_conflict"))
        for row in answer.context["three_way_rows"]
    }
    assert rows == {
        BY_NAME[HTTP_CLOSE_VARIABLE].label: ("", "on", "", False),
        BY_NAME[AUTH_TTL_VARIABLE].label: ("", "", "2 min", False),
    }
    second_answer = page.post("/policies/auth/", own_form | {"rebase": "1"})
    assert second_answer.status_code == 200
    again = {
        field["policy"].name: field["value"] for field in second_answer.context["fields"] if field["value"]
    }
    assert again == {HTTP_CLOSE_VARIABLE: "true", AUTH_TTL_VARIABLE: "2 min"}
    page.post("/policies/auth/", {**again, "revision": second_answer.context["revision"], "roll_out": "on"})
    assert Change.objects.latest("pk").after == {
        "auth": {HTTP_CLOSE_VARIABLE: "true", AUTH_TTL_VARIABLE: "2m0s"}
    }


def test_durations_of_the_form_are_those_that_people_type(page: Client) -> None:
    """`60s` is shown as `1 min`; sent back it is no edit, and another duration is stored as nodes read it."""
    start = desired_state.revision_of({})
    page.post("/policies/auth/", {"revision": start, AUTH_TTL_VARIABLE: "60s"})
    desired_state.store_desired_values(Change.objects.get())
    answer = page.get("/policies/auth/")
    (value,) = [field["value"] for field in answer.context["fields"] if field["value"]]
    assert value == "1 min"
    form = {"revision": answer.context["revision"], AUTH_TTL_VARIABLE: value, HTTP_CLOSE_VARIABLE: "true"}
    preview = page.post("/policies/auth/", form | {"preview": "1"})
    assert preview.status_code == 200
    page.post("/policies/auth/", form)
    assert Change.objects.latest("pk").after == {
        "auth": {AUTH_TTL_VARIABLE: "60s", HTTP_CLOSE_VARIABLE: "true"}
    }
    page.post("/policies/auth/", form | {AUTH_TTL_VARIABLE: "1 min 30 s"})
    assert Change.objects.latest("pk").after["auth"][AUTH_TTL_VARIABLE] == "1m30s"  # type: ignore[index] # a document
    answer = page.post("/policies/auth/", form | {AUTH_TTL_VARIABLE: "soon"})
    assert "Enter a number with its unit: 24 h, 10 min, 90 s or 1 h 30 min." in answer.content.decode()


def test_form_shows_the_values_in_effect_and_the_usual_values(page: Client) -> None:
    """Beside each field: what instances run with, the desired and the inherited value, and the usual values."""
    for target, value in (("auth", "5m"), ("auth-id-2", "1m")):
        DesiredPolicy.objects.create(cluster_id="default", target=target, name=AUTH_TTL_VARIABLE, value=value)
    html = page.get("/policies/auth/").content.decode()
    assert '<b>1 min</b> (env) <span class="quiet">auth-2</span>' in html
    assert 'data-fill="1 min" aria-pressed="false" disabled>1 min</button>' in html
    assert ">Reconnect, with health check (failover on)</button>" in html
    own = page.get("/policies/auth-id-2/").content.decode()
    assert "<dt>Inherited</dt><dd><b>5 min</b></dd>" in own
    assert 'data-fill="1 min" aria-pressed="true" disabled>1 min</button>' in own
    assert 'data-current="1 min"' in own
    assert "field-changed" not in own
    form = {"revision": "", AUTH_TTL_VARIABLE: "2 min", "preview": "1"}
    assert "field-changed" in page.post("/policies/auth-id-2/", form).content.decode()


def test_desired_values_of_a_deregistered_instance_can_be_removed(page: Client) -> None:
    """It is listed below the matrix, under the name it had, with a way to a plan."""
    page.post("/policies/auth-id-2/", {"revision": desired_state.revision_of({}), AUTH_TTL_VARIABLE: "2m"})
    change = Change.objects.get()
    change.after = {"gone-id": change.after["auth-id-2"]}
    change.before = {}
    desired_state.store_desired_values(change)
    Instance.objects.create(
        cluster_id="default", instance_id="gone-id", kind="auth", name="auth-9", position=9
    )
    matrix = page.get("/policies/").content.decode()
    assert "Preview removal" in matrix
    assert "auth-9" in matrix
    assert "This instance was deregistered" in page.get("/policies/gone-id/").content.decode()
    page.post(
        "/policies/gone-id/",
        {"revision": desired_state.revision_of(desired_state.desired_values_of("default"))},
    )
    assert Change.objects.latest("pk").after == {}


def test_blind_pollers_restart_nobody(page: Client, fake_reader: FakeReader) -> None:
    """What is wanted may be changed all the same."""
    fake_reader.as_of = 1.0
    form = {"revision": desired_state.revision_of({}), AUTH_TTL_VARIABLE: "2m"}
    assert "No current data" in page.post("/policies/auth/", form | {"roll_out": "on"}).context["sentence"]
    assert not Change.objects.exists()
    assert page.post("/policies/auth/", form).status_code == 302


@pytest.mark.parametrize("name", list(BY_NAME))
def test_wrong_value_is_shown_at_its_field(page: Client, name: str) -> None:
    """For every policy: a message there, what was written kept, nothing saved, a row in the log."""
    answer = page.post(
        f"/policies/{BY_NAME[name].role}/", {name: "<nonsense>", "revision": desired_state.revision_of({})}
    )
    assert answer.status_code == 400
    html = answer.content.decode()
    assert f'id="{name}-error"' in html
    assert "&lt;nonsense&gt;" in html
    assert not Change.objects.exists()
    assert desired_state.desired_values_of("default") == {}
    assert AuditEntry.objects.get().outcome == "refused"


def test_wrong_terms_are_shown_at_their_fields(page: Client) -> None:
    """As those of policies."""
    form = {
        AUTH_TTL_VARIABLE: "1m",
        "concurrency": "0",
        "timeout_seconds": "90",
        "revision": desired_state.revision_of({}),
    }
    html = page.post("/policies/auth/", form).content.decode()
    assert 'id="concurrency-error"' in html
    assert 'id="timeout_seconds-error"' in html
    assert "&#x27;90&#x27; is not a duration. Enter a number with its unit" in html
    assert not Change.objects.exists()


def test_preview_shows_the_policy_that_agents_will_get(page: Client) -> None:
    """In both dialects, without a plan; snippets for those who set it by hand."""
    text = '{"grpc_client_lb_policy": {"loadBalancingConfig": [{"teleport_pick_healthy": {"mode": "reconnect"}}]}}'
    html = page.post("/policies/auth/", {RFD_VARIABLE: text, "preview": "1"}).content.decode()
    assert "MODE_RECONNECT" in html
    assert "Such an agent has no health check" in html
    assert "Such an agent ." not in html
    assert "extraEnv" in html
    assert not Change.objects.exists()
    wrong = page.post("/policies/auth/", {RFD_VARIABLE: "{", "preview": "1"}).content.decode()
    assert f'id="{RFD_VARIABLE}-error"' in wrong


def test_viewers_can_only_read(page: Client, person: MakeUser) -> None:
    """Viewers see desired values and cannot plan."""
    page.force_login(person("viewer"))
    assert "Preview change" not in page.get("/policies/auth-id-1/").content.decode()
    assert page.post("/policies/auth/", {}).status_code == 403
    assert page.get("/policies/nobody/").status_code == 404
