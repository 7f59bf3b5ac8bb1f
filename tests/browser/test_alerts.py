"""Pages of alerts in a real console, in Chromium: at night, by keyboard, on a phone, in the dark."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from fleet.vocabulary.verdicts import State
from tests.browser.axe import accessible, accessible_everywhere
from tests.browser.visits import Visit, Visitor
from tests.fakes import incident_rows

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

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


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def visit(visitor: Visitor) -> AsyncIterator[Visit]:
    """A cluster with incidents."""
    visit = await visitor.begin(color_scheme="light", viewport={"width": 1400, "height": 900})
    await visit.rows(incident_rows.write, visit.cluster)
    yield visit
    await visit.end()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def only_page(visit: Visit) -> Page:
    """One page for all tests here."""
    return await visit.new_page()


@pytest_asyncio.fixture(loop_scope="session")
async def page(only_page: Page, visit: Visit) -> Page:
    """The page, with a round that has just concluded."""
    states = [State.STRANDED, State.HEALTHY, State.STRANDED, State.HEALTHY]
    await visit.fill(states, as_of=time.time())
    return only_page


async def _open_incident(page: Page, visit: Visit) -> None:
    """Open the page of the firing incident from its tab: an earlier test may have silenced it."""
    # The sentence is that of the newest round: the row is found by its peak.
    link = page.locator("#incident-list tr", has_text="/ 207").locator("th a").first
    await page.goto(f"{visit.url}/incidents/")
    if await link.count() == 0:
        await page.click("#incident-tabs a >> text=Suppressed")
    await link.click()


async def test_incident_is_worked_on_by_keyboard(page: Page, visit: Visit) -> None:
    """From the list to acknowledge, silence and note; the next notification and its reason are shown."""
    await page.goto(f"{visit.url}/incidents/")
    await expect(page.locator("#incident-badge")).to_have_text("1 open incident")
    await accessible_everywhere(page)
    await page.check("#toast-sound")
    assert await page.evaluate("localStorage.getItem('refloat-sound')") == "on"
    await page.click("text=207 agents stranded (proxy-1)")
    await expect(page.locator("#next")).to_contain_text("(repeat every 4 h) to ops")
    await expect(page.locator("#cause")).to_contain_text("version changed from 17.1.0 to 17.2.0")
    await expect(page.locator("#strip")).to_contain_text(re.compile(r"Data.* ago"))
    await accessible_everywhere(page)
    await page.wait_for_load_state()
    # The old page may show the change by its own refresh, before the new page replaces it and what was typed.
    async with page.expect_event("load"):
        await page.keyboard.press("a")
    await expect(page.locator("#next")).to_contain_text("the incident is acknowledged")
    await page.keyboard.press("s")
    await expect(page.locator("#dialog [name=reason]")).to_be_focused()
    await page.keyboard.type("being mended")
    async with page.expect_event("load"):
        await page.keyboard.press("Enter")
    await expect(page.locator("#silenced")).to_contain_text("being mended")
    await page.fill("#note-text", "Power is back at 4.")
    async with page.expect_event("load"):
        await page.click("text=Add note")
    await expect(page.locator("#events")).to_contain_text("Power is back at 4.")
    await expect(page.locator("#events")).to_contain_text("silenced the incident for 1 h: being mended")
    # Webhooks are told of acknowledgements.
    await expect(page.locator("#messages tbody tr")).to_have_count(4)


async def test_actions_of_an_incident_follow_its_agents(page: Page, visit: Visit) -> None:
    """Without a reload; the buttons and keys work after it."""
    await visit.fill([State.STRANDED] * 4, cause=2)
    await _open_incident(page, visit)
    link = page.locator("#acts a", has_text="Reconnect agents of proxy-1")
    await expect(link).to_have_count(1)
    await page.evaluate("document.getElementById('acts').dataset.old = 'yes'")
    await page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    await expect(page.locator("#acts[data-old]")).to_have_count(0)
    await expect(link).to_have_count(1)
    await page.keyboard.press("?")
    await expect(page.locator("#keys")).to_be_visible()
    await page.keyboard.press("Escape")
    await page.click("#show-keys")
    await expect(page.locator("#keys")).to_be_visible()
    await page.keyboard.press("Escape")


@pytest.mark.slow
async def test_incident_has_described_charts_and_lists_its_keys(page: Page, visit: Visit) -> None:
    """Heat map and ribbons are drawn late, within the content policy, in both themes; `?` lists the keys."""
    states = [State.STRANDED, State.HEALTHY, State.AT_RISK, State.HEALTHY] * 5
    await visit.fill(states, cause=2)
    await _open_incident(page, visit)
    assert await page.evaluate("typeof Plotly") == "undefined"
    await page.locator("#pictures").scroll_into_view_if_needed()
    await expect(page.locator("#pictures")).to_have_attribute("data-drawn", "light")
    await expect(page.locator("#crossing .heatmaplayer image")).to_have_count(1)
    await expect(page.locator("#ribbons .parcats .dimension")).to_have_count(4)
    await page.click("text=View as table")
    await expect(page.locator("#crossing-table tbody tr").first).to_contain_text("10 of 10")
    # What was unfolded stays so when the page asks anew.
    await page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    await page.click("text=View as list")
    await expect(page.locator("#ribbons-table")).to_contain_text("5 stranded, none, proxy-1, auth-1")
    await expect(page.locator("#crossing-words")).to_have_attribute("open", "")
    await accessible(page)
    await page.emulate_media(color_scheme="dark")
    await expect(page.locator("#pictures")).to_have_attribute("data-drawn", "dark")
    await accessible(page)
    await page.emulate_media(color_scheme="light")
    await page.keyboard.press("?")
    await expect(page.locator("#keys")).to_contain_text("Next or previous agent")
    await page.keyboard.press("a")
    await page.keyboard.press("Escape")
    await expect(page.locator("#keys")).to_be_hidden()
    await page.keyboard.press("j")
    assert await page.evaluate("document.activeElement.matches('#agents tbody tr:first-child')")


async def test_incident_on_a_phone_shows_ten_of_its_agents(page: Page, visit: Visit) -> None:
    """Folded rows within the page's width, with a link to the list. A wide page shows every agent."""
    await visit.fill([State.STRANDED] * 14, cause=2)
    await _open_incident(page, visit)
    rows, link = (
        page.locator("#agents tbody tr:visible"),
        page.locator("#agents a", has_text="View all affected agents"),
    )
    await expect(rows).to_have_count(14)
    await expect(link).to_be_hidden()
    usual = page.viewport_size
    assert usual is not None
    await page.set_viewport_size({"width": 360, "height": 780})
    await expect(rows).to_have_count(10)
    await expect(rows.first.locator("th, td").locator("visible=true")).to_have_count(6)
    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    hidden_width = "frame => frame.scrollWidth - frame.clientWidth"
    assert await page.locator("#agents .table-frame").evaluate(hidden_width) == 0, "the last column is cut"
    await link.click()
    await expect(page.locator("#matches")).to_contain_text("match")
    await page.goto(f"{visit.url}/incidents/")
    assert await page.locator("#incident-list").evaluate(hidden_width) == 0, "the last column is cut"
    await page.set_viewport_size(usual)


#: The elements of the page's main part that have the colour of stranded agents.
_RED_ELEMENTS = """() => {
  const probe = document.createElement("span");
  probe.style.color = "var(--stranded)";
  document.body.append(probe);
  const red = getComputedStyle(probe).color;
  probe.remove();
  const properties = ["color", "fill", "stroke", "backgroundColor", "borderLeftColor", "boxShadow"];
  return [...document.querySelectorAll("main *")].filter((element) => {
    const style = getComputedStyle(element);
    return element.checkVisibility() && properties.some((name) => style[name].includes(red));
  }).map((element) => element.outerHTML.slice(0, 120));
}"""


async def test_list_has_tabs_that_work_by_keyboard(page: Page, visit: Visit) -> None:
    """A tab has a URL and a count; a column sorts; nothing is cut on a phone."""
    await page.goto(f"{visit.url}/incidents/")
    await page.locator("#incident-tabs a", has_text="Resolved").focus()
    await page.keyboard.press("Enter")
    await expect(page).to_have_url(re.compile(r"tab=resolved"))
    await expect(page.locator("#incident-tabs [aria-current]")).to_contain_text("Resolved 1")
    await expect(page.locator("#incident-list tbody tr")).to_have_count(1)
    await expect(page.locator("#incident-list tbody tr")).to_contain_text("was critical")
    assert await page.evaluate(_RED_ELEMENTS) == []
    await accessible_everywhere(page)
    await page.locator("#incident-list thead a", has_text="Affected").focus()
    await page.keyboard.press("Enter")
    await expect(page.locator("#incident-list th[aria-sort=ascending]")).to_contain_text(
        "Affected now / peak"
    )
    await page.click("#incident-tabs a >> text=Suppressed")
    await expect(page.locator("#incident-list")).to_contain_text("inhibited by proxy-1")
    await accessible_everywhere(page)


async def test_resolved_incident_shows_its_evidence_and_nothing_red(page: Page, visit: Visit) -> None:
    """Agents and charts as of the peak, page by page, in calm colours in both themes."""
    await page.goto(f"{visit.url}/incidents/?tab=resolved")
    await page.locator("#incident-list a", has_text="All auths failed").click()
    await expect(page.locator("#evidence")).to_contain_text("when most agents were affected")
    await page.locator("#pictures").scroll_into_view_if_needed()
    await expect(page.locator("#pictures")).to_have_attribute("data-drawn", "light")
    assert await page.evaluate(_RED_ELEMENTS) == []
    await accessible_everywhere(page)
    await page.emulate_media(color_scheme="dark")
    await expect(page.locator("#pictures")).to_have_attribute("data-drawn", "dark")
    assert await page.evaluate(_RED_ELEMENTS) == []
    await page.emulate_media(color_scheme="light")
    await expect(page.locator("#agents tbody tr")).to_have_count(50)
    await page.click("#agents >> text=Next page")
    await expect(page.locator("#agents tbody tr")).to_have_count(20)
    await expect(page.locator("#agents")).to_contain_text("Agents 51 to 70 of 70")
    map_link = page.locator("#acts a", has_text="View map at the peak")
    await expect(map_link).to_have_attribute(
        "href", re.compile(r"/map/\?at=20\d\d-[0-9T:.-]+Z&q=cause:backend$")
    )
    usual = page.viewport_size
    assert usual is not None
    await page.set_viewport_size({"width": 360, "height": 780})
    await expect(page.locator("#agents tbody tr:visible")).to_have_count(10)
    await page.click("#agents >> text=Show all 20 agents of this page")
    await expect(page.locator("#agents tbody tr:visible")).to_have_count(20)
    await page.click("#agents >> text=Previous page")
    await expect(page.locator("#agents tbody tr:visible")).to_have_count(50)
    await page.set_viewport_size(usual)
    async with page.expect_download() as download:
        await page.click("text=Download CSV")
    assert (await download.value).suggested_filename.startswith("incident-")


async def test_silence_shows_matches_and_requires_confirmation_for_everything(
    page: Page, visit: Visit
) -> None:
    """While it is typed; then it is kept, and lasts longer by one click."""
    await page.goto(f"{visit.url}/silences/")
    await expect(page.locator("tbody >> nth=0")).to_contain_text("ends soon")
    await accessible(page)
    await page.goto(f"{visit.url}/silences/new/")
    await page.click("summary >> text=matchers")
    await page.fill("#id_matchers", "agent=agent-[12]")
    await expect(page.locator("#preview")).to_contain_text("Matches 2 agents")
    await page.fill("#id_matchers", "cause!=x")
    await expect(page.locator("#preview .tag")).to_have_text("everything")
    await page.fill("#id_reason", "move of the data centre")
    await page.click("text=Start later")
    await page.fill("#id_starts", "2027-03-28T02:00")
    await expect(page.locator("#id_starts_helptext")).to_contain_text("Your local time: Mar 28, 2027")
    await page.fill("#id_starts", "")
    await expect(page.locator("#id_starts_helptext")).to_have_text("Empty: the silence starts now.")
    await page.click("#silence-form .button-main")
    await expect(page.locator(".errors")).to_contain_text("Enter the word “everything” as confirmation")
    await accessible(page)
    await page.fill("#id_confirmation", "everything")
    await page.click("#silence-form .button-main")
    row = page.locator("tbody tr", has_text="move of the data centre")
    await expect(row).to_contain_text("ada")
    ends = "tr => tr.querySelector('time').dateTime"
    before = await row.evaluate(ends)
    await row.locator("text=Extend…").click()
    await page.click("#dialog >> text=Extend by 1 h")
    await page.wait_for_function(
        "before => [...document.querySelectorAll('tbody tr')].some(tr => tr.textContent.includes('data centre')"
        " && tr.querySelector('time').dateTime > before)",
        arg=before,
    )
    await page.locator("tbody tr", has_text="data centre").locator("button[value=end]").click()
    await page.click("text=Ended silences")
    await expect(page.locator("tr.spent", has_text="data centre")).to_be_visible()


async def test_page_without_a_live_link_tells_of_an_incident_too(page: Page, visit: Visit) -> None:
    """The page polls, also when it becomes visible again; a known incident is not announced twice."""
    await page.goto(f"{visit.url}/alerts/rules/")
    await page.wait_for_function("sessionStorage.getItem('refloat-told') !== null")
    await expect(page.locator(".toast")).to_have_count(0)
    await visit.rows(incident_rows.add_notification_event, visit.cluster)
    await page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    await expect(page.locator(".toast a")).to_contain_text(
        f"CRIT {visit.cluster}: 207 agents stranded (proxy-1)"
    )
    await page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    await expect(page.locator(".toast")).to_have_count(1)
    await accessible(page)
    # To the desktop by choice only, and only while nobody looks at the page.
    assert await page.evaluate(_DESKTOP) == [["Refloat", "chosen", "incident-7"]]


@pytest.mark.slow
async def test_rule_is_backtested(page: Page, visit: Visit) -> None:
    """Once in seven days, for ten minutes; with a higher number not at all; nothing is kept by trying."""
    await page.goto(f"{visit.url}/alerts/rules/")
    await accessible(page)
    await page.get_by_role("link", name="Agents stranded", exact=True).click()
    await expect(page.locator(".verdict")).to_have_text(
        "Would have fired once in the last 7 days, longest 10 min."
    )
    await accessible(page)
    await page.fill("#id_min_count", "9")
    await page.click("button[value=try]")
    await expect(page.locator(".verdict")).to_have_text("Would not have fired in the last 7 days.")
    await page.goto(f"{visit.url}/alerts/rules/")
    await expect(page.locator("tr", has_text="Agents stranded").first).to_contain_text("5 agents and 0.5 %")


@pytest.mark.slow
async def test_channel_is_created_and_tested(page: Page, visit: Visit) -> None:
    """The test message is in the log with its next attempt; lists hide URL paths; routes are described in text."""
    await page.goto(f"{visit.url}/alerts/channels/")
    await expect(page.locator("body")).not_to_contain_text("T0/secret")
    await expect(page.locator(".route-tree")).to_contain_text("chief after 15 min without acknowledgement")
    await expect(page.locator("tr", has_text="responded with status 503")).to_contain_text("retrying")
    await accessible(page)
    await page.click(".kind-tile:has-text('Webhook')")
    dialog = page.get_by_role("dialog")
    await expect(dialog.locator("[name=name]")).to_be_visible()
    await accessible(page)
    await dialog.locator("[name=name]").fill("team")
    await dialog.locator("[name=url]").fill("https://ada:pw@hooks.example.com/")
    await dialog.get_by_role("button", name="Create channel").click()
    await expect(dialog.locator(".error")).to_contain_text("user name or password")
    await expect(dialog.locator("[name=name]")).to_have_value("team")
    await accessible(page)
    await dialog.locator("[name=url]").fill("https://hooks.example.com/")
    await dialog.get_by_role("button", name="Create channel").click()
    card = page.locator(".channel-card", has=page.get_by_role("link", name="team", exact=True))
    await card.get_by_role("button", name="Send test").click()
    await expect(card).to_contain_text("Sending a test…")
    await visit.rows(incident_rows.mark_test_deliveries_sent)
    await expect(card).to_contain_text("Test accepted")
    await accessible(page)
    await card.get_by_role("link", name="team", exact=True).click()
    await expect(page.locator("#log tbody tr")).to_contain_text("This is a test of channel team")
    await page.click("text=Delete channel…")
    await expect(page.locator(".dialog-title")).to_have_text("Delete channel team?")
    await accessible(page)
    await page.click("text=Keep channel")
    await expect(page.locator("dialog[open]")).to_have_count(0)
    await page.goto(f"{visit.url}/alerts/channels/")
    await page.click(".route:has-text('proxies at night') >> text=Edit")
    await expect(page.get_by_role("dialog").locator("[name=quiet_zone]")).to_have_value("Europe/Berlin")
    await accessible(page)
    await page.keyboard.press("Escape")
    await page.select_option("[name=try-cause]", "fleet")
    await expect(page.locator("#trial-result")).to_contain_text("about the whole fleet notifies")
    await expect(page.locator(".route-matched")).to_have_count(1)
    await accessible(page)
