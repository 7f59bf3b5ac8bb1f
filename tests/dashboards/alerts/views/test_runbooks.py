from __future__ import annotations

import re
import time
from html import unescape

import pytest
from django.test import Client
from django.urls import resolve

from dashboards.shared import record_reader
from fleet.alerts.rules import RuleKind
from fleet.alerts.runbooks.custom_texts import version_of
from fleet.alerts.runbooks.texts import RUNBOOKS
from fleet.models.alerting import AlertRule
from fleet.models.changes import AuditEntry
from fleet.models.clusters import Cluster, ensure_default_cluster
from fleet.models.incidents import Incident, VersionChange
from fleet.models.inventory import Instance
from fleet.models.runbooks import RunbookText
from fleet.vocabulary.instances import InstanceState
from fleet.vocabulary.runbooks import RunbookCause
from tests.dashboards.conftest import MakeUser, reauthenticate
from tests.fakes.policy_nodes import FakePolicyBook
from tests.fakes.reader import FakeReader

pytestmark = pytest.mark.django_db

_BUTTON = re.compile(
    r'<div class="remedy-act"><a class="button(?: button-main)?"(?: data-dialog)? href="([^"]*)">([^<]*)</a>'
)


@pytest.fixture
def admin(
    client: Client, person: MakeUser, fake_reader: FakeReader, monkeypatch: pytest.MonkeyPatch
) -> Client:
    """A browser in which an admin is signed in."""
    ensure_default_cluster()
    monkeypatch.setattr(record_reader, "policy_report_store", lambda: FakePolicyBook())
    client.force_login(person("admin"))
    reauthenticate(client)
    return client


@pytest.fixture
def proxy_incident(fake_reader: FakeReader) -> Incident:
    """An incident of proxy-1, which is unhealthy."""
    fake_reader.proxy_state = InstanceState.UNHEALTHY
    now = time.time()
    return Incident.objects.create(
        cluster=ensure_default_cluster(), key="proxy/proxy-id-1", cause_kind="proxy", cause_id="proxy-id-1",
        cause_name="proxy-1", generation=1, state="firing", severity=2, opened_at=now - 90, fired_at=now - 60,
        affected_count=3, peak_count=207, summary="3 agents stranded.",
        marks={"Agents stranded": [now - 90, 1.0, 2, 2, 3, "3 agents stranded.", True, False]},
    )  # fmt: skip


def _page(client: Client, path: str) -> str:
    response = client.get(path)
    assert response.status_code == 200, path
    return response.content.decode()


def _buttons(page: str) -> dict[str, str]:
    """Return the paths of the buttons of remedies, by label."""
    return {unescape(label): unescape(path) for path, label in _BUTTON.findall(page)}


@pytest.mark.parametrize("query", ["", "?incident={incident}", "?instance=proxy-id-1"])
@pytest.mark.parametrize("cause", RunbookCause)
def test_every_button_opens_its_page(
    admin: Client, proxy_incident: Incident, cause: RunbookCause, query: str
) -> None:
    """For an incident, for an instance, and for neither: no button is dead."""
    page = _page(admin, f"/alerts/runbooks/{cause}/{query.format(incident=proxy_incident.pk)}")
    buttons = _buttons(page)
    assert buttons
    assert page.count('class="remedy-act"') == len(buttons)
    for label, path in buttons.items():
        assert resolve(path.partition("?")[0].partition("#")[0])
        assert admin.get(path).status_code == 200, label


def test_list_has_every_runbook(admin: Client) -> None:
    """And says which have a custom text."""
    RunbookText.objects.create(cause="drift", text="x", updated_at=1.0, updated_by="ada")
    page = _page(admin, "/alerts/runbooks/")
    for cause in RunbookCause:
        assert f'<a href="/alerts/runbooks/{cause}/">{cause.label}</a>' in page
    assert page.count(">yes</td>") == 1


def test_runbook_of_an_incident_shows_its_present_state(admin: Client, proxy_incident: Incident) -> None:
    """Instance, agents, the buttons about exactly that, and the way back."""
    page = _page(admin, f"/alerts/runbooks/proxy/?incident={proxy_incident.pk}")
    assert "<h1>Runbook: Proxy failed</h1>" in page
    assert page.count("button button-main") == 1
    assert f'<a href="/incidents/{proxy_incident.pk}/">Incident {proxy_incident.pk}:' in page
    assert "207 at the peak" in page
    assert _buttons(page) == {
        "Reconnect agents of proxy-1": "/reconnect/?proxy=proxy-1",
        "Take proxy-1 out of service…": "/instances/proxy-id-1/service/",
        "View affected agents": "/agents/?state=stranded&state=at_risk&proxy=proxy-1",
        f"Silence incident {proxy_incident.pk}…": f"/incidents/{proxy_incident.pk}/silence/",
    }
    assert "Refloat suggests" not in page
    other_page = _page(admin, f"/alerts/runbooks/auth/?incident={proxy_incident.pk}")
    assert "Refloat suggests the runbook" in other_page
    assert f'href="/alerts/runbooks/proxy/?incident={proxy_incident.pk}"' in other_page


def test_new_version_is_the_runbook_and_is_named(admin: Client, proxy_incident: Incident) -> None:
    """An update of proxy-1 shortly before: the page of the incident leads to the runbook *version*."""
    VersionChange.objects.create(
        cluster_id="default", instance_id="proxy-id-1", name="proxy-1", old="17.1", new="17.2",
        at=proxy_incident.opened_at - 60,
    )  # fmt: skip
    path = f"/alerts/runbooks/version/?incident={proxy_incident.pk}"
    assert f'href="{path}"' in _page(admin, f"/incidents/{proxy_incident.pk}/")
    page = _page(admin, path)
    assert "proxy-1</bdi></a>: 17.1 → <b>17.2</b></li>" in page
    assert _buttons(page)["Reconnect agents of proxy-1"] == "/reconnect/?proxy=proxy-1"


def test_runbook_of_an_instance_takes_its_open_incident(admin: Client, proxy_incident: Incident) -> None:
    """Without one, the silence is about the instance."""
    page = _page(admin, "/alerts/runbooks/proxy/?instance=proxy-id-1")
    assert f"/incidents/{proxy_incident.pk}/silence/" in page
    Incident.objects.update(state="resolved", resolved_at=time.time())
    buttons = _buttons(_page(admin, "/alerts/runbooks/proxy/?instance=proxy-id-1"))
    assert buttons["Silence proxy-1…"] == "/silences/new/?matchers=cause%3Dproxy%2Fproxy-id-1"


def test_runbook_of_a_resolved_incident_needs_no_silence(admin: Client, proxy_incident: Incident) -> None:
    """A sentence is in the place of the button."""
    Incident.objects.update(state="resolved", resolved_at=time.time())
    page = _page(admin, f"/alerts/runbooks/proxy/?incident={proxy_incident.pk}")
    assert "so it needs no silence." in page
    assert "none, 207 at the peak" in page


def test_backend_lists_its_failing_auths(
    admin: Client, proxy_incident: Incident, fake_reader: FakeReader
) -> None:
    """A cause that is not one instance has the failing ones, each with its own runbook."""
    Incident.objects.update(
        key="cluster/default", cause_kind="cluster", cause_id="default", cause_name="cluster"
    )
    page = _page(admin, f"/alerts/runbooks/cluster/?incident={proxy_incident.pk}")
    assert "Failing instances" in page
    assert '<a href="/alerts/runbooks/proxy/?instance=proxy-id-1">proxy-1</a>' in page


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("?incident=999", "This incident was not found in this cluster."),
        ("?incident=x", "This incident was not found in this cluster."),
        ("?instance=gone", "Refloat has no data about this instance."),
    ],
)
def test_unknown_objects_leave_the_runbook(admin: Client, query: str, sentence: str) -> None:
    """With a sentence that says so."""
    assert sentence in _page(admin, f"/alerts/runbooks/proxy/{query}")


def test_incident_of_another_cluster_is_not_shown(admin: Client, proxy_incident: Incident) -> None:
    Cluster.objects.create(id="other", name="other")
    page = _page(admin, f"/c/other/alerts/runbooks/proxy/?incident={proxy_incident.pk}")
    assert "This incident was not found in this cluster." in page


def test_runbook_is_there_without_data(
    admin: Client, proxy_incident: Incident, fake_reader: FakeReader
) -> None:
    """While the record cannot be read; the buttons lead to a choice."""
    fake_reader.down = True
    for cause in RunbookCause:
        page = _page(admin, f"/alerts/runbooks/{cause}/?incident={proxy_incident.pk}")
        assert unescape(page).count(RUNBOOKS[cause].meaning) == 1


def test_missing_role_is_named(client: Client, person: MakeUser, proxy_incident: Incident) -> None:
    """Viewers see what would help, and which role they need for it."""
    client.force_login(person("viewer"))
    page = _page(client, f"/alerts/runbooks/auth/?incident={proxy_incident.pk}")
    assert _buttons(page) == {}
    assert "Not allowed: this action needs the role operator." in page
    assert "Not allowed: this action needs the role config admin." in page
    assert "Add text" not in page


@pytest.mark.parametrize("kind", RuleKind)
def test_old_addresses_lead_to_a_runbook(admin: Client, kind: RuleKind) -> None:
    """Notifications that were sent before have them; with the instance, where they name one."""
    Instance.objects.create(
        cluster=ensure_default_cluster(), instance_id="proxy-id-1", kind="proxy", name="proxy-1", position=2
    )
    for query in ("", "?instance=proxy-id-1", "?instance=gone"):
        response = admin.get(f"/alerts/runbooks/{kind}/{query}", follow=True)
        assert response.status_code == 200
        last_path = response.redirect_chain[-1][0] if response.redirect_chain else ""
        if kind in ("stranded", "at-risk", "instance"):
            is_known = query.endswith("proxy-id-1")
            assert last_path == (
                "/alerts/runbooks/proxy/?instance=proxy-id-1" if is_known else "/alerts/runbooks/"
            )
    assert admin.get("/alerts/runbooks/none/").status_code == 404


def test_custom_text_is_written_and_shown(admin: Client, proxy_incident: Incident) -> None:
    """Escaped, with links and line breaks, and back on the runbook of the incident."""
    path = f"/alerts/runbooks/proxy/text/?scope=installation&incident={proxy_incident.pk}"
    assert path.replace("&", "&amp;") in _page(admin, f"/alerts/runbooks/proxy/?incident={proxy_incident.pk}")
    text = "Call <b>Ada</b>\nor see https://wiki.example.com/a?b=1&c=2."
    response = admin.post(path, {"text": text, "seen_version": version_of("")})
    assert response.headers["Location"] == f"/alerts/runbooks/proxy/?incident={proxy_incident.pk}"
    page = _page(admin, response.headers["Location"])
    assert "Call &lt;b&gt;Ada&lt;/b&gt;<br>or see <a href=" in page
    assert '<a href="https://wiki.example.com/a?b=1&amp;c=2" rel="noreferrer">' in page
    assert "Whole installation, written by admin." in page
    entry = AuditEntry.objects.get(action="runbook.update")
    assert (entry.subject, entry.cluster, entry.after["text"]) == ("Proxy failed", "", text)


def test_cluster_may_have_a_text_of_its_own(admin: Client) -> None:
    """It begins with that of the installation, which other clusters keep."""
    RunbookText.objects.create(cause="auth", text="for all", updated_at=1.0, updated_by="ada")
    form = _page(admin, "/alerts/runbooks/auth/text/?scope=cluster")
    assert ">\nfor all</textarea>" in form
    assert "Edit the text for the whole installation instead" in form
    version = re.search(r'name="seen_version" value="(\w+)"', form)
    assert version is not None
    admin.post("/alerts/runbooks/auth/text/?scope=cluster", {"text": "for one", "seen_version": version[1]})
    assert dict(RunbookText.objects.values_list("cluster", "text")) == {"": "for all", "default": "for one"}
    assert "for one" in _page(admin, "/alerts/runbooks/auth/")


def test_simultaneous_edit_brings_the_form_back(admin: Client) -> None:
    """With what was typed and with the stored text; saving again replaces that."""
    RunbookText.objects.create(cause="auth", text="theirs", updated_at=1.0, updated_by="ada")
    path, form = (
        "/alerts/runbooks/auth/text/?scope=installation",
        {"text": "mine", "seen_version": version_of("")},
    )
    page = admin.post(path, form).content.decode()
    assert "Out of date: somebody changed this text. Nothing was saved." in page
    assert ">\nmine</textarea>" in page
    assert '<pre class="code stored-text">theirs</pre>' in page
    assert RunbookText.objects.get().text == "theirs"
    version = re.search(r'name="seen_version" value="(\w+)"', page)
    assert version is not None
    assert admin.post(path, form | {"seen_version": version[1]}).status_code == 302
    assert RunbookText.objects.get().text == "mine"


def test_text_that_is_too_long_is_refused(admin: Client) -> None:
    """With what was typed, and how to mend it."""
    page = admin.post(
        "/alerts/runbooks/auth/text/?scope=installation", {"text": "x" * 10_001}
    ).content.decode()
    assert "The text has 10,001 characters, and at most 10,000 are allowed. Shorten the text by 1" in page
    assert "x" * 10_001 in page
    assert not RunbookText.objects.exists()


def test_only_config_admins_write_texts(
    client: Client, person: MakeUser, make_limited_user: MakeUser, fake_reader: FakeReader
) -> None:
    """A limited one only for their cluster: an edit of the installation's text becomes an own one."""
    ensure_default_cluster()
    client.force_login(person("operator"))
    assert client.get("/alerts/runbooks/auth/text/").status_code == 403
    RunbookText.objects.create(cause="auth", text="for all", updated_at=1.0, updated_by="ada")
    client.force_login(make_limited_user("config admin"))
    page = _page(client, "/c/other/alerts/runbooks/auth/")
    assert "for all" in page
    assert 'href="/c/other/alerts/runbooks/auth/text/?scope=cluster"' in page
    path = "/c/other/alerts/runbooks/auth/text/?scope="
    assert client.post(f"{path}installation", {"text": "x"}).status_code == 403
    assert client.post(f"{path}cluster", {"text": "x"}).status_code == 302
    assert client.get("/c/other/alerts/runbooks/none/text/").status_code == 404
    assert dict(RunbookText.objects.values_list("cluster", "text")) == {"": "for all", "other": "x"}


def test_custom_runbook_of_the_rule_is_linked(admin: Client, proxy_incident: Incident) -> None:
    """Beside the custom text, and on the page of the incident."""
    AlertRule.objects.filter(name="Agents stranded").update(runbook="https://wiki.example.com/stranded")
    link = 'href="https://wiki.example.com/stranded"'
    assert link in _page(admin, f"/alerts/runbooks/proxy/?incident={proxy_incident.pk}")
    page = _page(admin, f"/incidents/{proxy_incident.pk}/")
    assert link in page
    assert f'href="/alerts/runbooks/proxy/?incident={proxy_incident.pk}">Open runbook' in page
