"""Pages of alerts in a real console, in Chromium: at night, by keyboard, on a phone, in the dark."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from functools import partial

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from fleet.domain.verdicts import State
from fleet.state.connect import connect
from tests.browser.conftest import DEADLINE_MS, NOTICE_VIOLATIONS
from tests.browser.test_access import accessible
from tests.fakes.record import fill
from tests.fakes.waiting import eventually_sync
from tests.flow.alerting import sql
from tests.flow.web import PASSWORD, USERNAME, Console, web_console
from tests.meta.house import ROOT

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

#: What the alerting process, people and seven days leave behind.
_SCENE = """
import time, django; django.setup()
from datetime import UTC, datetime, timedelta
from fleet.alerts import acting
from fleet.alerts.messages import Links, payload
from fleet.alerts.store import value_of
from fleet.alerts.values import Notice, NoticeKind
from fleet.models.alerting import AlertClock, Channel, Delivery, Route
from fleet.models.clusters import ensure_default_cluster
from fleet.models.incidents import Incident, IncidentEvent, VersionChange
from fleet.models.remembered import Agent
from fleet.models.transitions import Transition

cluster, now = ensure_default_cluster(), time.time()
mark = [now - 240, 1.0, 2, 2, 207, "207 agents stranded.", True, False]
row = Incident.objects.create(
    cluster=cluster, key="proxy/proxy-1-id", cause_kind="proxy", cause_id="proxy-1-id", cause_name="proxy-1",
    generation=1, state="firing", severity=2, opened_at=now - 240, fired_at=now - 235, affected=3, peak=207,
    names=["agent-1", "agent-3"], sentence="207 agents stranded.", heals_at=now + 600, notices=1, notified_at=now - 200,
    notified_severity=2, notified_affected=207, marks={"Agents stranded": mark},
    trend=[[now - 240, 40], [now - 220, 207], [now - 100, 150], [now - 30, 3]])
Incident.objects.create(
    cluster=cluster, key="agents/no-tunnel", cause_kind="agents", cause_id="no-tunnel", cause_name="agents without "
    "a common cause (no-tunnel)", generation=1, state="pending", severity=1, opened_at=now - 60, affected=2, peak=2,
    sentence="2 agents stranded.", inhibited_by="proxy/proxy-1-id", marks={"Few agents stranded": mark})
Incident.objects.create(
    cluster=cluster, key="backend/default", cause_kind="backend", cause_id="default", cause_name="backend/default",
    generation=1, state="resolved", severity=2, opened_at=now - 9000, fired_at=now - 8990, resolved_at=now - 8000,
    quiet_since=now - 8300, peak=400, sentence="All auths fell sick together.", notices=2,
    trend=[[now - 9000, 400], [now - 8300, 0]])
for at, kind, text in ((-235, "firing", "207 agents stranded."), (-200, "notice", "A message goes out: firing.")):
    IncidentEvent.objects.create(incident=row, at=now + at, kind=kind, text=text)
VersionChange.objects.create(
    cluster=cluster, instance_id="proxy-1-id", name="proxy-1", old="17.1.0", new="17.2.0", at=now - 600)
hook = Channel.objects.create(name="ops", kind="webhook", config={"url": "https://hooks.example.com/T0/secret"})
chief = Channel.objects.create(name="chief", kind="email", config={"to": "chief@example.com"}, digest="weekly")
root = Route.objects.get()
root.channels.add(hook)
night = Route.objects.create(
    name="proxies at night", parent=root, matchers="kind=proxy label=critical", escalate_after=900,
    quiet_from="22:00", quiet_until="07:00", quiet_zone="Europe/Berlin")
night.escalate_to.add(chief)
said = payload(Notice(NoticeKind.FIRING, value_of(row), now - 200, 1), Links("https://console.example.com", "", row.pk))
for number, more in enumerate((
    {"sent_at": now - 199, "attempts": 1},
    {"attempts": 4, "next_attempt_at": now + 300, "last_error": "it answered 503", "waits_for": "it failed before"},
    {"attempts": 9, "failed_at": now - 50, "last_error": "it answered 404: no such hook"},
)):
    Delivery.objects.create(channel=hook, incident=row, key=f"k/{number}", kind="firing", payload=said,
                            created_at=now - 200, **{"next_attempt_at": now - 200} | more)
acting.silence("cause=backend*", "upgrade of the database", "ada", now - 3000, now + 600)
AlertClock.objects.create(cluster=cluster, looked_at=now - 1)
Agent.objects.bulk_create(Agent(cluster=cluster, agent_id=f"a{n}", name=f"agent-{n}", position=n) for n in range(20))
for minutes, old, new in ((20_000, "unknown", "healthy"), (600, "healthy", "stranded"), (590, "stranded", "healthy")):
    Transition.objects.bulk_create(
        Transition(cluster=cluster, agent=f"a{n}", old=old, new=new, reason="proxy-unhealthy", recovery="by-itself",
                   cause="proxy-1-id", at=datetime.now(UTC) - timedelta(minutes=minutes), round=minutes)
        for n in range(8))
"""


#: What the desktop is told of three incidents: unchosen, chosen, and chosen while somebody looks.
_DESKTOP = """() => {
  const told = [];
  window.Notification = class {
    static permission = "granted";
    constructor(title, { body, tag }) { told.push([title, body, tag]); }
  };
  const say = (text, hidden) => {
    Object.defineProperty(document, "hidden", { configurable: true, get: () => hidden });
    dispatchEvent(new CustomEvent("refloat-incidents", { detail: { open: {}, text, severity: "warning", number: 7 } }));
  };
  say("unchosen", true);
  localStorage.setItem("refloat-desktop", "on");
  say("chosen", true);
  say("seen", false);
  localStorage.removeItem("refloat-desktop");
  delete document.hidden;
  return told;
}"""


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    """A web process whose cluster has trouble."""
    with web_console(tmp_path_factory.mktemp("web")) as running:

        def answers() -> bool:
            try:
                return bool(urllib.request.urlopen(f"{running.url}/readyz", timeout=30).status == 200)
            except (OSError, urllib.error.URLError):
                return False

        eventually_sync(answers, seconds=180)
        env = {
            name: value for name, value in os.environ.items() if not name.startswith(("REFLOAT_", "REDIS_"))
        }
        env |= {"REFLOAT_HOME": str(running.data.parent), "REDIS_URL": running.server.url}
        subprocess.run([sys.executable, "-c", _SCENE], cwd=ROOT, env=env, check=True)
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def signed_in(chromium: Browser, console: Console) -> AsyncIterator[Page]:
    """One page for all tests here, signed in; it must end without errors."""
    errors: list[str] = []
    context = await chromium.new_context(color_scheme="light")
    await context.add_init_script(NOTICE_VIOLATIONS)
    page = await context.new_page()
    page.set_default_timeout(DEADLINE_MS)
    page.on("console", lambda line: errors.append(line.text) if line.type == "error" else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    await page.goto(f"{console.url}/incidents/")
    await page.fill("input[name=login]", USERNAME)
    await page.fill("input[type=password]", PASSWORD)
    await page.click("main button[type=submit]")
    await expect(page.locator("#open tbody tr")).to_have_count(1)
    yield page
    await context.close()
    assert errors == []


@pytest_asyncio.fixture(loop_scope="session")
async def page(signed_in: Page, console: Console) -> Page:
    """The page, with a round that has just concluded."""
    states = [State.STRANDED, State.HEALTHY, State.STRANDED, State.HEALTHY]
    await asyncio.to_thread(connect(console.server.url).flushdb)
    await asyncio.to_thread(fill, console.writer(), states, as_of=time.time())
    return signed_in


async def test_incident_is_worked_on_by_keyboard(page: Page, console: Console) -> None:
    """From the list to acknowledged, silenced and noted; what comes next and why is said."""
    await page.goto(f"{console.url}/incidents/")
    await expect(page.locator("#incident-badge")).to_contain_text("1")
    await accessible(page)
    await page.check("#toast-sound")
    assert await page.evaluate("localStorage.getItem('refloat-sound')") == "on"
    await page.click("text=207 agents stranded, proxy-1")
    await expect(page.locator("#next")).to_contain_text("because it is said again while it lasts; to ops")
    await expect(page.locator("#cause")).to_contain_text("version 17.1.0 became 17.2.0")
    await expect(page.locator("#strip")).to_contain_text(re.compile(r"Data.* ago"))
    await accessible(page)
    await page.keyboard.press("a")
    await expect(page.locator("#next")).to_contain_text("No further message, because it is acknowledged")
    await page.keyboard.press("s")
    await page.keyboard.type("being mended")
    await page.click("text=Silence 1 h")
    await expect(page.locator("#next")).to_be_visible()
    await page.fill("#note-text", "Power is back at 4.")
    await page.click("text=Add note")
    await expect(page.locator("#events")).to_contain_text("Power is back at 4.")
    await expect(page.locator("#events")).to_contain_text("silenced it for an hour: being mended")
    # Webhooks are told of acknowledgements.
    await expect(page.locator("#messages tbody tr")).to_have_count(4)
    await accessible(page)


@pytest.mark.slow
async def test_incident_has_pictures_with_words_and_lists_its_keys(page: Page, console: Console) -> None:
    """Heat map and ribbons are drawn late, within the content policy, in both themes; `?` lists the keys."""
    states = [State.STRANDED, State.HEALTHY, State.AT_RISK, State.HEALTHY] * 5
    # In the future, so that it does not grow stale while a slow machine draws.
    filled = partial(fill, console.writer(), states, as_of=time.time() + 600, cause=2)
    await asyncio.to_thread(connect(console.server.url).flushdb)
    await asyncio.to_thread(filled)
    await page.goto(f"{console.url}/incidents/")
    assert await page.evaluate("typeof Plotly") == "undefined"
    await page.click("text=207 agents stranded, proxy-1")
    await page.locator("#pictures").scroll_into_view_if_needed()
    await expect(page.locator("#pictures")).to_have_attribute("data-drawn", "light")
    await expect(page.locator("#crossing .heatmaplayer image")).to_have_count(1)
    await expect(page.locator("#ribbons .parcats .dimension")).to_have_count(4)
    await page.click("text=View as table")
    await expect(page.locator("#crossing-table tbody tr").first).to_contain_text("10 of 10")
    # What was unfolded stays so when the page asks anew.
    await page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    await page.click("text=View in words")
    await expect(page.locator("#ribbons-table")).to_contain_text("5 stranded, none, proxy-1, auth-1")
    await expect(page.locator("#crossing-words")).to_have_attribute("open", "")
    await accessible(page)
    await page.emulate_media(color_scheme="dark")
    await expect(page.locator("#pictures")).to_have_attribute("data-drawn", "dark")
    await accessible(page)
    await page.emulate_media(color_scheme="light")
    await page.keyboard.press("?")
    await expect(page.locator("#keys")).to_contain_text("next and previous agent")
    await page.keyboard.press("a")
    await page.keyboard.press("Escape")
    await expect(page.locator("#keys")).to_be_hidden()
    await page.keyboard.press("j")
    assert await page.evaluate("document.activeElement.matches('#agents tbody tr:first-child')")


async def test_incident_on_a_phone_shows_ten_of_its_agents(page: Page, console: Console) -> None:
    """Who and how they are, within the page's width; a link leads to the list. A wide page shows every one."""
    # In the future, so that it does not grow stale while a slow machine looks.
    filled = partial(fill, console.writer(), [State.STRANDED] * 14, as_of=time.time() + 300, cause=2)
    await asyncio.to_thread(connect(console.server.url).flushdb)
    await asyncio.to_thread(filled)
    await page.goto(f"{console.url}/incidents/")
    await page.click("text=207 agents stranded, proxy-1")
    rows, link = (
        page.locator("#agents tbody tr:visible"),
        page.locator("#agents a", has_text="More in the list"),
    )
    await expect(rows).to_have_count(14)
    await expect(link).to_be_hidden()
    usual = page.viewport_size
    assert usual is not None
    await page.set_viewport_size({"width": 360, "height": 780})
    await expect(rows).to_have_count(10)
    await expect(rows.first.locator("th, td").locator("visible=true")).to_have_count(4)
    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    await link.click()
    await expect(page.locator("#matches")).to_contain_text("match")
    await page.set_viewport_size(usual)


async def test_silence_shows_what_it_matches_and_wants_a_word_for_everything(
    page: Page, console: Console
) -> None:
    """While it is typed; then it is kept, and lasts longer by one click."""
    await page.goto(f"{console.url}/silences/")
    await expect(page.locator("tbody >> nth=0")).to_contain_text("ends soon")
    await accessible(page)
    await page.fill("#silence-form #id_matchers", "agent=agent-[12]")
    await expect(page.locator("#preview")).to_contain_text("Matches 2 agents")
    await page.fill("#silence-form #id_matchers", "cause!=x")
    await expect(page.locator("#preview .tag")).to_have_text("everything")
    await page.fill("#silence-form #id_reason", "move of the data centre")
    await page.fill("#id_starts", "2027-03-28T02:00")
    await expect(page.locator("#id_starts_helptext")).to_contain_text("That is Mar 28, 2027")
    await page.fill("#id_starts", "")
    await expect(page.locator("#id_starts_helptext")).to_have_text("Empty: now.")
    await page.click("#silence-form button[value=silence]")
    await expect(page.locator(".errors")).to_contain_text("type the word everything")
    await accessible(page)
    await page.fill("#silence-form #id_typed", "everything")
    await page.click("#silence-form button[value=silence]")
    row = page.locator("tbody tr", has_text="move of the data centre")
    await expect(row).to_contain_text("ada")
    ends = "tr => tr.querySelector('time').dateTime"
    before = await row.evaluate(ends)
    await row.locator("button[value=extend]").click()
    await page.wait_for_function(
        "before => [...document.querySelectorAll('tbody tr')].some(tr => tr.textContent.includes('data centre')"
        " && tr.querySelector('time').dateTime > before)",
        arg=before,
    )
    await page.locator("tbody tr", has_text="data centre").locator("button[value=end]").click()
    await expect(page.locator("tr.spent", has_text="data centre")).to_be_visible()


async def test_page_without_a_live_link_tells_of_an_incident_too(page: Page, console: Console) -> None:
    """It asks now and then, and when somebody looks at it again; what was told before is not told once more."""
    await page.goto(f"{console.url}/alerts/rules/")
    await page.wait_for_function("sessionStorage.getItem('refloat-told') !== null")
    await expect(page.locator(".toast")).to_have_count(0)
    await asyncio.to_thread(
        sql,
        console.data.parent,
        "insert into fleet_incidentevent (incident_id, at, kind, who, text) select id, ?, 'notice', '', '' from"
        " fleet_incident where cause_name = 'proxy-1'",
        time.time(),
    )
    await page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    await expect(page.locator(".toast a")).to_contain_text("CRIT default: 207 agents stranded, proxy-1")
    await page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    await expect(page.locator(".toast")).to_have_count(1)
    await accessible(page)
    # To the desktop by choice only, and only while nobody looks at the page.
    assert await page.evaluate(_DESKTOP) == [["Refloat", "chosen", "incident-7"]]


@pytest.mark.slow
async def test_rule_is_tried_on_the_history(page: Page, console: Console) -> None:
    """Once in seven days, for ten minutes; with a higher number not at all; nothing is kept by trying."""
    await page.goto(f"{console.url}/alerts/rules/")
    await accessible(page)
    await page.click("text=Agents stranded >> nth=0")
    await expect(page.locator(".verdict")).to_have_text("Would have fired once in 7 days, longest 10 min.")
    await accessible(page)
    await page.fill("#id_min_count", "9")
    await page.click("button[value=try]")
    await expect(page.locator(".verdict")).to_have_text("Would not have fired in 7 days.")
    await page.goto(f"{console.url}/alerts/rules/")
    await expect(page.locator("tr", has_text="Agents stranded").first).to_contain_text("5 agents and 0.5 %")


@pytest.mark.slow
async def test_channel_is_made_and_tried_out(page: Page, console: Console) -> None:
    """Its test is in its log with the next attempt; lists show no path of an address; routes are said in words."""
    await page.goto(f"{console.url}/alerts/channels/")
    await expect(page.locator("body")).not_to_contain_text("T0/secret")
    await expect(page.locator(".tree")).to_contain_text("after 15 min without acknowledgement also chief")
    await expect(page.locator("tr", has_text="it answered 503")).to_contain_text("waiting")
    await accessible(page)
    await page.click("text=New channel")
    await page.fill("#id_name", "team")
    await page.select_option("#id_kind", "webhook")
    await page.fill("#id_url", "https://ada:pw@hooks.example.com/")
    await page.click("button[value=save]")
    await expect(page.locator("#id_url_error")).to_contain_text("no password")
    await accessible(page)
    await page.fill("#id_url", "https://hooks.example.com/")
    await page.click("button[value=save]")
    await page.click("button[value=test]")
    await expect(page.locator("#log tbody tr")).to_contain_text("This is a test of the channel team")
    await accessible(page)
    await page.goto(f"{console.url}/alerts/channels/")
    await page.click(".tree >> text=proxies at night")
    await expect(page.locator("#id_quiet_zone")).to_have_value("Europe/Berlin")
    await accessible(page)
