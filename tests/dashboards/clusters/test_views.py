from __future__ import annotations

import secrets
from dataclasses import replace

import pytest
from django.test import Client
from pytest_django import Settings

from dashboards.shared import record_reader
from fleet.clusters.test_report import ConnectionTestStep, StepName, StepVerdict
from fleet.clusters.test_store import open_test_store
from fleet.models.clusters import Cluster, ensure_default_cluster
from fleet.models.incidents import Incident
from fleet.monitoring.state.writer import Writer
from fleet.vocabulary.incidents import Severity
from tests.dashboards.conftest import MakeUser, reauthenticate

pytestmark = pytest.mark.django_db
_FORM = {
    "name": "Oslo lab",
    "source": "refloat",
    "address_kind": "static",
    "auths": "auth-1.example:3025",
    "tls_source": "none",
}


@pytest.fixture
def admin(
    client: Client, person: MakeUser, record: Writer, live_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> Client:
    """A browser in which an administrator has just signed in, over a real record and a real broker."""
    store = open_test_store(live_settings.REDIS_URL, live_settings.REFLOAT_PREFIX)
    monkeypatch.setattr(record_reader, "connection_test_store", lambda: store)
    live_settings.REFLOAT_AUTHS = ()
    client.force_login(person("admin"))
    reauthenticate(client)
    ensure_default_cluster()
    return client


def _new_id() -> str:
    return f"t{secrets.token_hex(5)}"


def test_added_cluster_is_tested(admin: Client) -> None:
    """The page of the new cluster waits for the test that the form requested."""
    cluster = _new_id()
    response = admin.post("/clusters/new/?setup=1", {**_FORM, "cluster_id": cluster})
    assert response["Location"] == f"/clusters/{cluster}/?setup=1"
    page = admin.get(response["Location"])
    assert page.context["test"].is_running
    assert page.context["next_url"] == "/alerts/channels/?setup=1"
    assert 'data-refresh-ms="500"' in page.content.decode()
    assert cluster in admin.get("/clusters/").content.decode()


def test_setup_step_of_the_cluster_is_done_when_its_test_succeeds(admin: Client) -> None:
    """A failed test does not complete the step; its page leads to the next step all the same."""
    cluster = _new_id()
    page = admin.post("/clusters/new/?setup=1", {**_FORM, "cluster_id": cluster}, follow=True)
    store = record_reader.connection_test_store()
    report = store.read(cluster)
    assert report is not None
    for verdict, is_done in ((StepVerdict.FAILED, False), (StepVerdict.WARNING, True)):
        step = ConnectionTestStep(StepName.RESOLVE, verdict, "The name auth-1.example does not exist.")
        store.write(
            replace(report, steps=(step,), started_at=report.requested_at, ended_at=report.requested_at)
        )
        page = admin.get(f"/clusters/{cluster}/?setup=1")
        assert [step.is_done for step in page.context["steps"]] == [True, is_done, False]
        assert page.context["next_url"] == "/alerts/channels/?setup=1"
        edit_link = f'<a class="button button-main" href="/clusters/{cluster}/edit/?setup=1">Edit cluster</a>'
        assert (edit_link in page.content.decode()) is not is_done


def test_problem_is_at_its_field(admin: Client) -> None:
    page = admin.post("/clusters/new/", {**_FORM, "cluster_id": _new_id(), "auths": "http://auth-1"})
    assert "is a URL" in page.context["form"].errors["auths"][0]
    page = admin.post("/clusters/new/", {**_FORM, "cluster_id": "default"})
    assert page.context["form"].errors["cluster_id"]


def test_edit_of_the_default_cluster(admin: Client) -> None:
    """Its form is the second step of the set-up."""
    page = admin.get("/clusters/default/edit/?setup=1")
    assert "<h1>Add your cluster</h1>" in page.content.decode()
    version = {"version": page.context["form"]["version"].value()}
    response = admin.post("/clusters/default/edit/", _FORM | version)
    assert response["Location"] == "/clusters/default/"
    row = Cluster.objects.get(pk="default")
    assert (row.name, row.auths) == ("Oslo lab", ["auth-1.example:3025"])
    late_page = admin.post("/clusters/default/edit/", _FORM | version)
    assert "Open this form anew" in late_page.content.decode()


def test_choice_of_a_product_saves_nothing(admin: Client) -> None:
    """The button for browsers without scripts shows the fields of the product with what was typed."""
    cluster = _new_id()
    page = admin.post(
        "/clusters/new/", {**_FORM, "cluster_id": cluster, "source": "nats", "name": "", "choose": "1"}
    )
    text = page.content.decode()
    assert "Find the hubs by" in text
    assert "hub-1.example.com:8222" in text
    assert f'value="{cluster}"' in text
    assert not page.context["form"].errors
    assert not Cluster.objects.filter(pk=cluster).exists()


def test_address_without_port_gets_that_of_its_product(admin: Client) -> None:
    cluster = _new_id()
    admin.post(
        "/clusters/new/",
        {**_FORM, "cluster_id": cluster, "source": "nats", "auths": "hub-1\n::1\nhub-2:8223"},
    )
    assert Cluster.objects.get(pk=cluster).auths == ["hub-1:8222", "[::1]:8222", "hub-2:8223"]


def test_pause_and_resume(admin: Client) -> None:
    admin.post("/clusters/default/", {"do": "pause"})
    assert Cluster.objects.get(pk="default").is_paused
    assert "This cluster is paused" in admin.get("/").content.decode()
    admin.post("/clusters/default/", {"do": "resume"})
    assert not Cluster.objects.get(pk="default").is_paused


def test_removal_requires_the_name(admin: Client) -> None:
    row = Cluster.objects.create(id=_new_id(), name="Oslo lab")
    path = f"/clusters/{row.pk}/"
    assert admin.get(f"{path}?remove=1").context["dialog"] == "remove"
    page = admin.post(path, {"do": "remove", "confirmation": "oslo"})
    assert page.context["removal_error"]
    assert Cluster.objects.filter(pk=row.pk).exists()
    assert admin.post(path, {"do": "remove", "confirmation": "Oslo lab"})["Location"] == "/clusters/"
    assert not Cluster.objects.filter(pk=row.pk).exists()
    assert admin.get(path).status_code == 404


def test_default_cluster_offers_no_removal(admin: Client) -> None:
    page = admin.get("/clusters/default/?remove=1")
    assert (page.context["is_removable"], page.context["dialog"]) == (False, "")


def test_form_needs_recent_proof(client: Client, person: MakeUser, record: Writer) -> None:
    """Uploads must not wait in the session for it, so the form itself is behind it."""
    client.force_login(person("admin"))
    assert client.get("/clusters/new/")["Location"].startswith("/accounts/reauthenticate/")


def test_others_see_and_do_not_change(admin: Client, make_limited_user: MakeUser, person: MakeUser) -> None:
    """An operator may test, a limited admin sees its cluster only: addresses decide whose evidence Refloat reads."""
    Cluster.objects.filter(pk="default").update(auths=["auth-1.example:3025"])
    operator, limited_admin = Client(), Client()
    operator.force_login(person("operator"))
    limited_admin.force_login(make_limited_user("admin"))
    assert "Add cluster" not in operator.get("/clusters/").content.decode()
    assert operator.post("/clusters/default/", {"do": "test"}).status_code == 302
    for do in ("pause", "resume", "remove"):
        assert operator.post("/clusters/default/", {"do": do}).status_code == 403
        assert limited_admin.post("/clusters/other/", {"do": do}).status_code == 403
    for path in ("/clusters/new/", "/clusters/other/edit/", "/clusters/default/"):
        assert limited_admin.get(path).status_code == 403
    assert [row.cluster.pk for row in limited_admin.get("/clusters/").context["rows"]] == ["other"]


def test_cluster_without_addresses_leads_from_fleet_now_to_its_form(admin: Client) -> None:
    """While it has no data."""
    row = Cluster.objects.create(id=_new_id(), name="Oslo lab")
    assert f'href="/clusters/{row.pk}/edit/"' in admin.get(f"/c/{row.pk}/").content.decode()
    assert "no addresses" not in admin.get("/").content.decode()


def test_incidents_and_stranded_agents_are_beside_the_connection(admin: Client) -> None:
    """Neither is a state of the connection. Silenced incidents are not counted."""
    columns = {"cause_kind": "proxy", "generation": 1, "severity": int(Severity.CRITICAL), "opened_at": 1.0}
    for number, own_columns in enumerate(({}, {"silenced_by": "silence 1"}, {"state": "resolved"})):
        cause = {"key": f"proxy/{number}", "cause_id": str(number), "cause_name": f"proxy-{number}"}
        Incident.objects.create(
            cluster_id="default", **{"state": "firing", **columns, **cause, **own_columns}
        )
    for path, name in (("/clusters/", "rows"), ("/clusters/default/", "row")):
        value = admin.get(path).context[name]
        row = value[0] if isinstance(value, list) else value
        assert row.open_incident_count == 1
        assert row.stranded_count == 1
