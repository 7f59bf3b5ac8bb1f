"""The pages of policies: the matrix, and what a role or an instance is to run with."""

from __future__ import annotations

import re

import pytest
from django.test import Client

from dashboards import reading
from fleet.control import desired
from fleet.models.changes import AuditEntry, Change
from fleet.models.clusters import ensure_default_cluster
from fleet.protocol.announce import AUTH_TTL_VARIABLE
from fleet.protocol.policies import BY_NAME
from fleet.protocol.service_config import RFD_VARIABLE
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
    monkeypatch.setattr(reading, "policy_book", lambda: book)
    client.force_login(person("config admin"))
    return client


def test_matrix_and_its_way_to_a_plan(page: Client) -> None:
    """What each runs with; a change of a role restarts whoever would run with something else."""
    assert "not asked yet" in page.get("/policies/").content.decode()
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
    desired.store(change)
    matrix = page.get("/policies/?drift=1").content.decode()
    assert "drift" in matrix
    assert "auth-2</a>" not in matrix
    stale = page.post("/policies/auth/", sent)
    assert stale.status_code == 400
    assert "Somebody else changed" in stale.content.decode()


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
    assert desired.wanted_of("default") == {}
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
    assert "not told to ask about health" in shown
    assert "extraEnv" in shown
    assert not Change.objects.exists()
    wrong = page.post("/policies/auth/", {RFD_VARIABLE: "{", "preview": "1"}).content.decode()
    assert f'id="{RFD_VARIABLE}-error"' in wrong


def test_viewers_look_only(page: Client, person: MakeUser) -> None:
    """They see what is wanted, and plan nothing."""
    page.force_login(person("viewer"))
    assert "Plan this change" not in page.get("/policies/auth-id-1/").content.decode()
    assert page.post("/policies/auth/", {}).status_code == 403
    assert page.get("/policies/nobody/").status_code == 404
