"""The pages of policies: the matrix, and what a role or an instance is to run with."""

from __future__ import annotations

import re

import pytest
from django.test import Client

from dashboards.shared import record_reader
from fleet.changes.policies import desired
from fleet.models.changes import AuditEntry, Change
from fleet.models.clusters import ensure_default_cluster
from fleet.models.inventory import Instance
from fleet.protocol.policies import policy_json
from fleet.protocol.policies.env_policies import BY_NAME, HTTP_CLOSE_VARIABLE
from fleet.protocol.recovery.announce import AUTH_TTL_VARIABLE
from fleet.protocol.recovery.service_config import RFD_VARIABLE, PickHealthyMode, ServiceConfig
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
    monkeypatch.setattr(record_reader, "policy_book", lambda: book)
    client.force_login(person("config admin"))
    return client


def test_matrix_of_instances_that_report_nothing(page: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is said to be as desired where nothing is known."""
    monkeypatch.setattr(record_reader, "policy_book", lambda: FakePolicyBook())
    shown = page.get("/policies/").content.decode()
    assert "No instance has reported its policies." in shown
    assert "match their desired values" not in shown


def test_matrix_and_its_way_to_a_plan(page: Client) -> None:
    """What each runs with; a change of a role restarts whoever would run with something else."""
    first = page.get("/policies/").content.decode()
    assert "no report yet" in first
    assert "All reporting instances match their desired values; 2 instances have not reported." in first
    form = page.get("/policies/auth/").content.decode()
    revision = re.search(r'name="revision" value="(\w+)"', form)
    assert revision is not None
    sent = {"revision": revision[1], AUTH_TTL_VARIABLE: "60s", "roll_out": "on", "settle": "1"}
    answer = page.post("/policies/auth/", sent)
    change = Change.objects.get()
    assert answer.headers["Location"] == f"/changes/{change.pk}/"
    assert [one["name"] for one in change.plan["restarts"]] == ["auth-1"]
    shown = page.get(f"/changes/{change.pk}/").content.decode()
    assert "Restart 1 instance<" in shown
    assert "auth-1" in shown
    desired.store_desired_values(change)
    matrix = page.get("/policies/?drift=1").content.decode()
    assert "drift" in matrix
    assert "auth-2</a>" not in matrix
    stale = page.post("/policies/auth/", sent)
    assert stale.status_code == 400
    assert "Out of date: the desired values were changed" in stale.content.decode()


def test_plan_says_what_it_costs_and_whom_it_concerns(page: Client) -> None:
    """At Preview, and on the page of the change: detection, writes, warnings, restarts, the number in the question."""
    sent = {
        "revision": desired.revision_of({}),
        AUTH_TTL_VARIABLE: "1s",
        HTTP_CLOSE_VARIABLE: "true",
        "roll_out": "on",
    }
    preview = page.post("/policies/auth/", sent | {"preview": "1"}).content.decode()
    assert not Change.objects.exists()
    page.post("/policies/auth/", sent)
    change = Change.objects.get()
    assert [row["title"] for row in change.plan["ttl"]] == [
        "1 auth, TTL 10m0s to 1s",
        "1 auth, TTL 1m0s to 1s",
    ]
    shown = page.get(f"/changes/{change.pk}/").content.decode()
    for where in (preview, shown):
        for words in (
            "1 auth, TTL 10m0s to 1s",
            "Detection of a lost",
            "Heartbeat writes per second",
            "shorter than three polls of Refloat",
            "2 of 2 instances must restart: auth-1, auth-2",
            "of 4 agents",
        ):
            assert words in where
    assert "<h1>Restart 2 auths with 4 connected agents?</h1>" in shown


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
    sent = {"revision": desired.revision_of({}), RFD_VARIABLE: policy_json.document(config, RFD_VARIABLE)}
    answer = page.post("/policies/auth/", sent | {"preview": "1", "roll_out": "on"})
    (field,) = [field for field in answer.context["fields"] if field["policy"].name == RFD_VARIABLE]
    assert [text.startswith(warning) for text in field["warnings"]] == [True]
    assert warning in " ".join(answer.context["outlook"]["notes"])
    assert answer.content.decode().count(warning) == 2


def test_second_of_two_sees_three_versions_and_rebases(page: Client) -> None:
    """Theirs is wanted, mine is offered on top of it, and can be planned then."""
    start = desired.revision_of({})
    page.post("/policies/auth/", {"revision": start, HTTP_CLOSE_VARIABLE: "true"})
    desired.store_desired_values(Change.objects.get())
    mine = {"revision": start, AUTH_TTL_VARIABLE: "2m", "roll_out": "on"}
    answer = page.post("/policies/auth/", mine)
    rows = {
        row["label"]: (row["base"], row["theirs"], row["mine"], row["clash"])
        for row in answer.context["three_way"]
    }
    assert rows == {
        BY_NAME[HTTP_CLOSE_VARIABLE].label: ("", "true", "", False),
        BY_NAME[AUTH_TTL_VARIABLE].label: ("", "", "2m", False),
    }
    rebased = page.post("/policies/auth/", mine | {"rebase": "1"})
    assert rebased.status_code == 200
    again = {field["policy"].name: field["value"] for field in rebased.context["fields"] if field["value"]}
    assert again == {HTTP_CLOSE_VARIABLE: "true", AUTH_TTL_VARIABLE: "2m"}
    page.post("/policies/auth/", {**again, "revision": rebased.context["revision"], "roll_out": "on"})
    assert Change.objects.latest("pk").after == {"auth": again}


def test_instance_that_has_gone_can_be_forgotten(page: Client) -> None:
    """It is listed below the matrix, under the name it had, with a way to a plan."""
    page.post("/policies/auth-id-2/", {"revision": desired.revision_of({}), AUTH_TTL_VARIABLE: "2m"})
    change = Change.objects.get()
    change.after = {"gone-id": change.after["auth-id-2"]}
    change.before = {}
    desired.store_desired_values(change)
    Instance.objects.create(
        cluster_id="default", instance_id="gone-id", kind="auth", name="auth-9", position=9
    )
    matrix = page.get("/policies/").content.decode()
    assert "Preview removal" in matrix
    assert "auth-9" in matrix
    assert "This instance was deregistered" in page.get("/policies/gone-id/").content.decode()
    page.post("/policies/gone-id/", {"revision": desired.revision_of(desired.desired_values_of("default"))})
    assert Change.objects.latest("pk").after == {}


def test_blind_pollers_restart_nobody(page: Client, fake_reader: FakeReader) -> None:
    """What is wanted may be changed all the same."""
    fake_reader.as_of = 1.0
    sent = {"revision": desired.revision_of({}), AUTH_TTL_VARIABLE: "2m"}
    assert "No current data" in page.post("/policies/auth/", sent | {"roll_out": "on"}).context["sentence"]
    assert not Change.objects.exists()
    assert page.post("/policies/auth/", sent).status_code == 302


@pytest.mark.parametrize("name", list(BY_NAME))
def test_wrong_value_is_shown_at_its_field(page: Client, name: str) -> None:
    """For every policy: a message there, what was written kept, nothing saved, a row in the log."""
    answer = page.post(
        f"/policies/{BY_NAME[name].role}/", {name: "<nonsense>", "revision": desired.revision_of({})}
    )
    assert answer.status_code == 400
    shown = answer.content.decode()
    assert f'id="{name}-error"' in shown
    assert "&lt;nonsense&gt;" in shown
    assert not Change.objects.exists()
    assert desired.desired_values_of("default") == {}
    assert AuditEntry.objects.get().outcome == "refused"


def test_wrong_terms_are_shown_at_their_fields(page: Client) -> None:
    """As those of policies."""
    sent = {AUTH_TTL_VARIABLE: "1m", "at_once": "0", "patience": "x", "revision": desired.revision_of({})}
    shown = page.post("/policies/auth/", sent).content.decode()
    assert 'id="at_once-error"' in shown
    assert 'id="patience-error"' in shown
    assert not Change.objects.exists()


def test_preview_says_what_agents_will_be_told(page: Client) -> None:
    """In both dialects, without a plan; snippets for those who set it by hand."""
    text = '{"grpc_client_lb_policy": {"loadBalancingConfig": [{"teleport_pick_healthy": {"mode": "reconnect"}}]}}'
    shown = page.post("/policies/auth/", {RFD_VARIABLE: text, "preview": "1"}).content.decode()
    assert "MODE_RECONNECT" in shown
    assert "has no health check" in shown
    assert "extraEnv" in shown
    assert not Change.objects.exists()
    wrong = page.post("/policies/auth/", {RFD_VARIABLE: "{", "preview": "1"}).content.decode()
    assert f'id="{RFD_VARIABLE}-error"' in wrong


def test_viewers_look_only(page: Client, person: MakeUser) -> None:
    """They see what is wanted, and plan nothing."""
    page.force_login(person("viewer"))
    assert "Preview change" not in page.get("/policies/auth-id-1/").content.decode()
    assert page.post("/policies/auth/", {}).status_code == 403
    assert page.get("/policies/nobody/").status_code == 404
