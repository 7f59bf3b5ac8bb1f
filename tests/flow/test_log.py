"""The log of all that people do, through a web process as it runs: every action leaves its row."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest
import requests
from django.core.management import call_command
from pytest_django import Settings

from fleet.changes.networking import revisions
from fleet.models.incidents import Incident
from fleet.protocol.networking.config import (
    ORIGIN_LABEL,
    NetworkingConfig,
    NetworkingResource,
    Strategy,
    with_defaults,
)
from fleet.vocabulary.verdicts import State
from tests.fakes.record import fill
from tests.flow.alerting import sql
from tests.flow.producers import Database, Pages, produced
from tests.flow.web import USERNAME, Console, database, web_console

pytestmark = pytest.mark.slow

#: Seconds that the record is ahead of now, so that it is fresh for as long as the tests run.
AHEAD = 10_000.0
REASON = "to see it in the log"
#: A second person, who may do everything too.
SECOND = "grace"


@dataclass
class Person:
    """A signed-in user who sends forms."""

    console: Console
    username: str = USERNAME
    session: requests.Session = field(default_factory=requests.Session)

    def __post_init__(self) -> None:
        for cookie in self.console.sign_in(self.username):
            self.session.cookies.set_cookie(cookie)

    def post(self, path: str, status: int = 302, /, **fields: Any) -> None:
        """Send a form, and see how it is answered: with a redirect when it is done."""
        token = self.session.cookies.get("csrftoken") or ""
        answer = self.session.post(
            self.console.url + path,
            data=fields,
            headers={"X-CSRFToken": token},
            allow_redirects=False,
            timeout=60,
        )
        assert answer.status_code == status, f"{path} {fields}: {answer.status_code} {answer.text[:3000]}"

    def request(self, path: str, /, **body: Any) -> None:
        """Send a request to the API, which takes it."""
        answer = self.session.post(
            f"{self.console.url}/api/v1{path}",
            json=body,
            headers={"X-CSRFToken": self.session.cookies.get("csrftoken") or ""},
            timeout=60,
        )
        assert answer.ok, f"{path} {body}: {answer.status_code} {answer.text[:3000]}"

    def metrics(self) -> Iterator[str]:
        """The metrics of the console."""
        yield self.session.get(f"{self.console.url}/metrics", timeout=60).text

    def count_rows(self, table: str) -> int:
        """The newest row of a table."""
        ((number,),) = sql(self.console.home, f"select max(id) from fleet_{table}")
        return int(number)


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    """A web process with a record of some agents, and a networking config that was read."""
    with web_console(tmp_path_factory.mktemp("web")) as web:
        fill(web.writer(), [State.HEALTHY] * 4, as_of=time.time() + AHEAD)
        stored = with_defaults(
            NetworkingConfig(tunnel_strategy=str(Strategy.PROXY_PEERING), agent_connection_count=1)
        )
        with database(web.home):
            revisions.record_revision(
                "default", NetworkingResource(stored, {ORIGIN_LABEL: "dynamic"}, "r1"), datetime.now(UTC)
            )
        yield web


@pytest.fixture(scope="module")
def person(console: Console) -> Person:
    """An administrator."""
    return Person(console)


def test_saved_views_are_logged(person: Person) -> None:
    """A view is saved, shared under another name, and deleted."""
    person.post("/agent-views/", do="save", name="mine", parameters="q=agent")
    view = person.count_rows("savedview")
    person.post("/agent-views/", do="change", id=view, name="ours", is_shared="on")
    person.post("/agent-views/", do="delete", id=view)
    produced(
        Database(person.console.home),
        actions=("saved-view.create", "saved-view.update", "saved-view.delete"),
    )


def test_actions_of_users_are_logged(person: Person) -> None:
    """A person is invited, sets a password by the link, and is limited, signed out and freed of a second factor."""
    page = person.session.post(
        f"{person.console.url}/users/",
        data={"username": "linus", "role": "viewer"},
        headers={"X-CSRFToken": person.session.cookies.get("csrftoken") or ""},
        timeout=60,
    )
    link = re.search(r"/invitation/[^/\"<]+/", page.text)
    assert link is not None, page.text[:3000]
    invited_session = requests.Session()
    invited_session.get(person.console.url + link[0], timeout=60)
    answer = invited_session.post(
        person.console.url + link[0],
        data={"password": "a long enough secret", "password_again": "a long enough secret"},
        headers={"X-CSRFToken": invited_session.cookies.get("csrftoken") or ""},
        allow_redirects=False,
        timeout=60,
    )
    assert answer.status_code == 302, answer.text[:3000]
    assert invited_session.get(f"{person.console.url}/agents/", timeout=60).url.endswith("/agents/")
    person.post("/users/linus/", do="limits", clusters="default")
    person.post("/users/linus/", do="reset-second-factor")
    person.post("/users/linus/", do="end-sessions")
    assert "/accounts/login/" in invited_session.get(f"{person.console.url}/agents/", timeout=60).url
    produced(
        Database(person.console.home),
        actions=(
            *("user.invite", "user.accept-invitation", "user.limits", "user.end-sessions"),
            "user.reset-second-factor",
        ),
    )


def test_alerting_actions_are_logged(person: Person) -> None:
    """Silences, windows, channels, routes, rules and labels are made, changed and deleted."""
    person.post(
        "/silences/new/", do="silence", duration="1 h", matchers="cause=x", reason=REASON, cluster="default"
    )
    silence = person.count_rows("silence")
    person.post("/silences/", do="extend", id=silence)
    person.post("/silences/", do="end", id=silence)
    window_form = {
        "do": "window", "name": "mine", "matchers": "cause=x", "rule": "FREQ=DAILY", "first_day": "2026-01-01",
        "start_time": "22:00", "time_zone": "UTC", "reason": REASON, "duration": "2 h",
    }  # fmt: skip
    person.post("/silences/windows/new/", **window_form)
    window = person.count_rows("maintenancewindow")
    person.post(f"/silences/windows/{window}/", **window_form | {"start_time": "23:00"})
    person.post("/silences/", do="switch", id=window)
    person.post(f"/silences/windows/{window}/delete/")

    form = {"name": "mine", "to": "me@example.com", "per_minute": "10", "cluster": "default"}
    person.post("/alerts/channels/new/email/", **form)
    channel = f"/alerts/channels/{person.count_rows('channel')}/"
    person.post(channel, **form)
    person.post(channel, do="test")
    person.post("/alerts/channels/", do="again", id=person.count_rows("delivery"))
    produced(Pages(person.metrics), metrics=("refloat_notifications",))
    person.post(channel, do="delete", confirm="yes")

    ((root,),) = sql(person.console.home, "select min(id) from fleet_route")
    route_form = {"name": "mine", "position": "0", "min_severity": "1", "parent": root, "cluster": "default"}
    person.post("/alerts/routes/0/", **route_form)
    route = f"/alerts/routes/{person.count_rows('route')}/"
    person.post(route, **route_form)
    person.post(route, do="delete", confirm="yes")

    rule_form = {
        "name": "mine", "kind": "stranded", "severity": "1", "min_count": "1", "pending_rounds": "2",
        "pending_seconds": "0 s", "recover_seconds": "5 min", "group_wait": "30 s", "group_interval": "5 min",
        "repeat_seconds": "1 h", "share_percent": "0", "cluster": "default",
    }  # fmt: skip
    person.post("/alerts/rules/0/", **rule_form)
    rule = f"/alerts/rules/{person.count_rows('alertrule')}/"
    person.post(rule, **rule_form)
    person.post(rule, do="delete", confirm="yes")
    ((builtin,),) = sql(person.console.home, "select min(id) from fleet_alertrule where builtin")
    person.post(f"/alerts/rules/{builtin}/", do="override")
    person.post("/alerts/runbooks/auth/text/?scope=cluster", text="Call Ada.")
    person.post("/alerts/rules/", do="add-agent-set", pattern="agent-1", name="critical")
    person.post("/alerts/rules/", do="remove-agent-set", agent_set_id=person.count_rows("agentset"))
    person.post(
        "/alerts/rules/", do="import", document="rules: [{name: own, kind: stranded, severity: info}]"
    )
    document = "rules: [{name: own, kind: stranded, severity: info, is_enabled: false}]"
    answer = person.session.post(
        f"{person.console.url}/api/v1/alerting/plan",
        json={"document": document},
        headers={"X-CSRFToken": person.session.cookies.get("csrftoken") or ""},
        timeout=60,
    )
    person.request("/alerting/apply", document=document, fingerprint=answer.json()["fingerprint"])
    produced(
        Database(person.console.home),
        actions=(
            "alerting.import",
            *("silence.create", "silence.extend", "silence.end"),
            *("window.create", "window.update", "window.toggle", "window.remove"),
            *("channel.create", "channel.update", "channel.test", "channel.delete", "delivery.retry"),
            *("route.create", "route.update", "route.delete"),
            *("alert-rule.create", "alert-rule.update", "alert-rule.delete", "alert-rule.override"),
            *("alert-rules.import", "agent-set.create", "agent-set.delete", "runbook.update"),
        ),
    )


def test_incident_actions_are_logged(person: Person) -> None:
    """Each action is an entry of the timeline."""
    with database(person.console.home):
        row = Incident.objects.create(
            cluster_id="default",
            key="proxy/p",
            cause_kind="proxy",
            cause_id="p",
            cause_name="proxy-1",
            generation=1,
            state="firing",
            severity=2,
            opened_at=time.time(),
        )
    page = f"/incidents/{row.pk}/"
    person.post(page, do="acknowledge")
    person.post(page, do="let-go")
    person.post(page, do="note", text=REASON)
    person.post(f"{page}silence/", period="3600", reason=REASON)
    person.post("/silences/", do="extend", id=person.count_rows("silence"))
    person.post("/silences/", do="end", id=person.count_rows("silence"))
    produced(
        Database(person.console.home),
        timeline=("acknowledged", "unacknowledged", "note", "silenced", "extended", "unsilenced"),
        actions=("page",),
    )


def test_fleet_actions_are_logged(person: Person) -> None:
    """Actions on instances and agents; an impossible one is refused, and logged too."""
    person.post("/instances/proxy-1-id/service/", action="take-out", move_agents="no", reason=REASON)
    person.post("/instances/proxy-1-id/service/", action="bring-back", reason=REASON)
    person.request("/instances/proxy-1-id/degrade", is_degraded=True, reason=REASON)
    person.request("/instances/proxy-1-id/degrade", is_degraded=False, reason=REASON)
    person.post("/agents/agent-1-id/retire/", action="retire", reason=REASON, sure="on")
    person.post("/agents/agent-1-id/retire/", action="reinstate", reason=REASON)
    person.post("/networking/", try_closing="yes")
    headers = {"Authorization": f"Bearer {person.console.token}"}
    answer = requests.post(
        f"{person.console.url}/api/v1/reconnect/plan", json={}, headers=headers, timeout=60
    )
    assert answer.status_code == 403
    produced(
        Database(person.console.home),
        actions=(
            *("instance.drain", "instance.undrain", "instance.degrade", "instance.undegrade"),
            *("agent.retire", "agent.reinstate"),
            *("networking-config.reset-closing-support", "api"),
        ),
        change_kinds=("service", "degrade", "retire"),
    )


def test_account_actions_are_logged(person: Person, settings: Settings) -> None:
    """Tokens by their page; users and clusters by commands, beside the web process."""
    settings.REDIS_URL = person.console.server.url
    person.post("/tokens/", 200, name="mine", scopes="view_fleet", days="1")
    person.post("/tokens/", revoke=person.count_rows("apitoken"))
    with database(person.console.home):
        call_command("user", "create", "eve", "--role", "viewer")
        call_command("user", "role", "eve", "operator")
        call_command("user", "disable", "eve")
        call_command("user", "enable", "eve")
        call_command("cluster", "set", "default", "--require-review", "no")
        call_command("cluster", "add", "eu", "--auths", "auth-1.eu.example:3025", "--tls", "none")
        call_command("cluster", "edit", "eu", "--name", "Europe")
        call_command("cluster", "pause", "eu")
        call_command("cluster", "resume", "eu")
        call_command("cluster", "remove", "eu", "--confirm", "Europe")
    produced(
        Database(person.console.home),
        actions=(
            *("token.create", "token.revoke", "cluster.set", "cluster.create", "cluster.update"),
            *("cluster.pause", "cluster.resume", "cluster.remove"),
            *("user.create", "user.role", "user.disable", "user.enable"),
        ),
    )


def test_change_that_two_people_approve_and_cancel(person: Person) -> None:
    """Planned, confirmed, approved; nothing carries it out here."""
    console = person.console
    sql(console.home, "update fleet_cluster set review_required = 1")
    console.add_user(SECOND, "admin")
    second = Person(console, SECOND)
    person.post("/reconnect/", q="agent")
    change = f"/changes/{person.count_rows('change')}/"
    person.post(change, do="confirm", reason=REASON)
    second.post(change, do="approve")
    second.post(change, do="cancel")
    sql(console.home, "update fleet_cluster set review_required = 0")
    produced(
        Database(console.home),
        change_kinds=("reconnect",),
        change_words=("plan", "confirm", "approve", "cancelled"),
    )
