"""Small edits of policies: one value of the matrix, and presets."""

from __future__ import annotations

import pytest
from django.test import Client

from dashboards.shared import record_reader
from fleet.models.actions import DesiredPolicy
from fleet.models.changes import AuditEntry, Change
from fleet.models.clusters import ensure_default_cluster
from fleet.protocol.policies import policy_json
from fleet.protocol.policies.env_policies import HTTP_CLOSE_VARIABLE
from fleet.protocol.policies.presets import PRESETS_BY_SLUG
from fleet.protocol.recovery.announce import AUTH_TTL_VARIABLE, PROXY_TTL_VARIABLE
from fleet.protocol.recovery.service_config import RFD_VARIABLE
from tests.dashboards.conftest import MakeUser
from tests.fakes.policy_nodes import FakePolicyBook, PolicyNode
from tests.fakes.reader import FakeReader

pytestmark = pytest.mark.django_db
AUTH_TTL = f"/policies/auth/{AUTH_TTL_VARIABLE}/"


@pytest.fixture
def page(
    client: Client, person: MakeUser, fake_reader: FakeReader, monkeypatch: pytest.MonkeyPatch
) -> Client:
    """A browser of a config admin; two auths and two proxies that report."""
    ensure_default_cluster()
    book = FakePolicyBook(
        auth_id_1=PolicyNode("auth-1"),
        auth_id_2=PolicyNode("auth-2", environment={AUTH_TTL_VARIABLE: "1m"}),
        proxy_id_1=PolicyNode("proxy-1", role="proxy"),
        proxy_id_2=PolicyNode("proxy-2", role="proxy"),
    )
    monkeypatch.setattr(record_reader, "policy_report_store", lambda: book)
    client.force_login(person("config admin"))
    return client


def test_cell_of_the_matrix_leads_to_a_plan(page: Client) -> None:
    """The typed value counts; other values of the target stay."""
    DesiredPolicy.objects.create(cluster_id="default", target="auth", name=HTTP_CLOSE_VARIABLE, value="true")
    assert f'href="{AUTH_TTL}"' in page.get("/policies/").content.decode()
    html = page.get(AUTH_TTL).content.decode()
    assert "Auth announce TTL of all auths" in html
    assert "<dt>Desired value</dt><dd><b>not managed</b></dd>" in html
    assert "restarts auth-1, auth-2, one after the other" in html
    answer = page.post(AUTH_TTL, {"option": "1m", "value": "30s"})
    change = Change.objects.get()
    assert answer.headers["Location"] == f"/changes/{change.pk}/"
    assert change.title == "Set auth announce TTL of all auths to 30 s"
    assert change.after == {"auth": {HTTP_CLOSE_VARIABLE: "true", AUTH_TTL_VARIABLE: "30s"}}


def test_option_and_not_managed(page: Client) -> None:
    """A usual value by its option; the last option removes the desired value."""
    page.post(AUTH_TTL, {"option": "1m", "value": ""})
    change = Change.objects.get()
    assert change.after == {"auth": {AUTH_TTL_VARIABLE: "1m"}}
    DesiredPolicy.objects.create(cluster_id="default", target="auth", name=AUTH_TTL_VARIABLE, value="1m")
    html = page.get(AUTH_TTL).content.decode()
    assert 'name="option" value="1m" checked' in html
    page.post(AUTH_TTL, {"option": ""})
    assert Change.objects.latest("pk").title == "Stop managing auth announce TTL of all auths"


def test_instance_shows_what_it_inherits_and_runs_with(page: Client) -> None:
    """Its own value overrides that of its role."""
    DesiredPolicy.objects.create(cluster_id="default", target="auth", name=AUTH_TTL_VARIABLE, value="5m")
    html = page.get(f"/policies/auth-id-2/{AUTH_TTL_VARIABLE}/").content.decode()
    assert "<dt>Inherited</dt><dd><b>5 min</b></dd>" in html
    assert "<dt>In effect</dt><dd><div><b>1 min</b> (env)</div></dd>" in html
    page.post(f"/policies/auth-id-2/{AUTH_TTL_VARIABLE}/", {"value": "2m"})
    assert Change.objects.get().title == "Set auth announce TTL of auth-2 to 2 min"


def test_role_shows_the_values_in_effect_on_its_instances(page: Client) -> None:
    """Each value with its source and instances; those of the other role are left out."""
    answer = page.get(AUTH_TTL)
    assert answer.context["values"]["current_values"] == [
        {"text": "10 min", "source": "default", "names": "auth-1"},
        {"text": "1 min", "source": "env", "names": "auth-2"},
    ]
    assert '<b>1 min</b> (env) <span class="quiet">auth-2</span>' in answer.content.decode()


def test_selected_field_without_a_value_is_refused(page: Client) -> None:
    """It does not stop managing the policy; the field stays selected."""
    answer = page.post(AUTH_TTL, {"option": "typed", "value": ""})
    html = answer.content.decode()
    assert answer.status_code == 400
    assert "Enter a value, or select another option." in html
    assert 'id="option-typed" checked' in html
    assert 'name="option" value="" checked' not in html
    assert not Change.objects.exists()


def test_refused_value_stays_in_the_form(page: Client) -> None:
    """With the reason at the field."""
    answer = page.post(AUTH_TTL, {"option": "1m", "value": "soon"})
    html = answer.content.decode()
    assert answer.status_code == 400
    assert 'id="value-error"' in html
    assert 'value="soon"' in html
    assert not Change.objects.exists()
    wrong_setting = page.post(AUTH_TTL, {"value": "1m", "soak_seconds": "x"}).content.decode()
    assert 'id="soak_seconds-error"' in wrong_setting


def test_duration_is_typed_as_the_dialog_shows_it(page: Client) -> None:
    """`1 min 30 s` is stored as `1m30s`, and shown again with its units."""
    page.post(AUTH_TTL, {"option": "", "value": "1 min 30 s"})
    assert Change.objects.get().after == {"auth": {AUTH_TTL_VARIABLE: "1m30s"}}
    DesiredPolicy.objects.create(cluster_id="default", target="auth", name=AUTH_TTL_VARIABLE, value="1m30s")
    html = page.get(AUTH_TTL).content.decode()
    assert "such as 30 s or 5 min" in html
    assert 'name="value" value="1 min 30 s"' in html


def test_json_is_chosen_by_what_it_does(page: Client) -> None:
    """Nobody has to write it."""
    path = f"/policies/auth/{RFD_VARIABLE}/"
    assert "<b>Reconnect, with health check (failover on)</b>" in page.get(path).content.decode()
    (text,) = PRESETS_BY_SLUG["failover"].values["auth"].values()
    page.post(path, {"option": text})
    change = Change.objects.get()
    assert change.title == "Set agent reconnect mode of all auths to reconnect, health check"
    assert change.after == {"auth": {RFD_VARIABLE: policy_json.canonical(text)}}
    plan = page.get(f"/changes/{change.pk}/").content.decode()
    assert 'Agent reconnect mode<div class="quiet">' in plan
    assert "<del>not managed</del></td>" in plan
    assert "<ins>reconnect, health check</ins><details" in plan


def test_preset_sets_all_its_values(page: Client) -> None:
    """Where they differ; it is offered until it is in effect."""
    html = page.get("/policies/").content.decode()
    assert "Preview Recommended" in html
    page.post("/policy-presets/recommended/")
    change = Change.objects.get()
    assert change.after["proxy"][PROXY_TTL_VARIABLE] == "1m"  # type: ignore[index] # a document
    for target, values in change.after.items():  # type: ignore[union-attr] # a document
        for name, value in values.items():
            DesiredPolicy.objects.create(cluster_id="default", target=target, name=name, value=value)
    html = page.get("/policies/").content.decode()
    assert "Preview Recommended" not in html
    assert "Preview Failover on" not in html


def test_preset_that_cannot_be_planned_says_why(page: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """No instance has reported."""
    monkeypatch.setattr(record_reader, "policy_report_store", lambda: FakePolicyBook())
    answer = page.post("/policy-presets/failover/")
    assert (answer.status_code, "no report" in answer.content.decode()) == (400, True)
    assert AuditEntry.objects.get().outcome == "refused"


@pytest.mark.parametrize(
    "path",
    ["/policies/auth/NOTHING/", f"/policies/proxy/{AUTH_TTL_VARIABLE}/", f"/policies/nobody/{RFD_VARIABLE}/"],
)
def test_unknown_policy_or_target_is_not_found(page: Client, path: str) -> None:
    """404."""
    assert page.get(path).status_code == 404
    assert page.post("/policy-presets/reckless/").status_code == 404


def test_operators_see_values_without_links(page: Client, person: MakeUser) -> None:
    """Changing policies needs another role."""
    page.force_login(person("operator"))
    html = page.get("/policies/").content.decode()
    assert "cell-edit" not in html
    assert "Preview Recommended" not in html
    assert page.get(AUTH_TTL).status_code == 403
