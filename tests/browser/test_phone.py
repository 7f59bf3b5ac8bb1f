"""Every page of the console fits a phone and a wide window, whatever typeface and size of text the reader has."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass

import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, Page, ViewportSize

from fleet.protocol.recovery.announce import AUTH_TTL_VARIABLE
from tests.browser.map_page import wait_painted
from tests.browser.readers import SETTINGS, Setting, apply, overflow, prepare
from tests.browser.visits import Sessions, new_context
from tests.flow.web import GUEST, USERNAME, Console, web_console
from tests.meta.house import ROOT

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

#: Width and height of windows, in pixels.
PHONE: ViewportSize = {"width": 360, "height": 740}
TABLET: ViewportSize = {"width": 800, "height": 900}
DESKTOP: ViewportSize = {"width": 1400, "height": 900}
#: For who is signed in; names in braces are ids of `phone_scene`.
PAGES = [
    "/",
    "/map/",
    "/agents/",
    "/agents/?q=nothing:that",
    "/agents/agent-1-id/",
    "/agents/agent-2-id/retire/",
    "/instances/proxy-1-id/service/",
    "/instances/proxy-2-id/service/",
    "/history/",
    "/history/compare/",
    "/networking/",
    "/networking/?tab=yaml",
    "/policies/",
    "/policies/auth/",
    "/policies/proxy-1-id/",
    "/reconnect/",
    "/changes/",
    "/changes/{config_plan}/",
    "/changes/{campaign_plan}/",
    "/changes/{campaign}/",
    "/changes/{rollout_plan}/",
    "/changes/{rollout}/",
    "/audit/",
    "/audit/{audit_entry}/",
    "/incidents/",
    "/incidents/{incident}/",
    "/incidents/{incident}/silence/",
    "/incidents/{incident}/acknowledge/",
    "/silences/",
    "/silences/new/",
    "/silences/windows/new/",
    "/alerts/rules/",
    "/alerts/rules/0/",
    "/alerts/rules/{rule}/",
    "/alerts/runbooks/",
    "/alerts/runbooks/agents/",
    "/alerts/runbooks/proxy/?instance=proxy-1-id",
    "/alerts/channels/",
    "/alerts/channels/{channel}/",
    "/alerts/import/",
    "/alerts/routes/{route}/",
    "/tokens/",
    "/accounts/reauthenticate/",
    "/accounts/2fa/",
    "/accounts/2fa/totp/activate/",
    "/accounts/2fa/webauthn/add/",
    "/accounts/password/change/",
    "/accounts/logout/",
    "/api/v1/docs",
    "/clusters/",
    "/clusters/new/",
    "/clusters/default/",
    "/no_such_page_of_the_distribution_centre_in_the_northern_industrial_estate/",
    "/agents/no_such_agent_of_the_distribution_centre_in_the_northern_industrial_estate/",
]
#: Frames of folded tables, and cells in them, that are wider than the room they have: text and width, px.
_FOLDED_OVERFLOW = """() => [...document.querySelectorAll(".table-frame:has(> .folds), .folds :is(th, td)")]
  .filter((box) => getComputedStyle(box).display !== "none" && box.closest("thead") === null)
  .filter((box) => box.scrollWidth > box.clientWidth + 1)
  .map((box) => `${box.innerText.slice(0, 40)}: ${box.scrollWidth} > ${box.clientWidth}`)"""
#: Notes each layout shift: its value, and what moved from where to where.
_OBSERVE_SHIFTS = """window.shifts = [];
new PerformanceObserver((list) => {
  for (const { value, sources } of list.getEntries()) {
    const moved = sources.map(({ node, previousRect, currentRect }) =>
      `${node?.id || node?.className || node?.nodeName} ${previousRect.y} to ${currentRect.y}`);
    window.shifts.push([value, moved.join("; ")]);
  }
}).observe({ type: "layout-shift", buffered: true });"""


@dataclass(frozen=True, slots=True)
class Entrance:
    """A console, the ids in its paths, and browsers of an administrator, of a user without a role, and of nobody."""

    url: str
    ids: dict[str, int]
    admin: BrowserContext
    guest: BrowserContext
    signed_out: BrowserContext


@pytest.fixture(scope="module")
def long_names(
    chromium_path: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Console, dict[str, int]]]:
    """A console full of long names, and its ids. Not the one that tests share: here every table and list is filled."""
    with web_console(tmp_path_factory.mktemp("phone")) as console:
        yield console, _fill(console)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def entrance(chromium: Browser, long_names: tuple[Console, dict[str, int]]) -> AsyncIterator[Entrance]:
    """That console, with a browser for each kind of user."""
    console, ids = long_names
    sessions = Sessions(console)
    # The typefaces are data: URLs, which the console's own policy forbids.
    contexts = [
        await new_context(
            chromium,
            viewport=PHONE,
            bypass_csp=True,
            storage_state=await sessions.state(username) if username else None,
        )
        for username in (USERNAME, GUEST, None)
    ]
    yield Entrance(console.url, ids, *contexts)
    for context in contexts:
        await context.close()


def _fill(console: Console) -> dict[str, int]:
    """Write the scene, and return its ids."""
    process = subprocess.run(
        [sys.executable, "-m", "tests.browser.phone_scene"],
        cwd=ROOT,
        env=console.environment,
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stderr
    ids: dict[str, int] = json.loads(process.stdout)
    return ids


async def _faults(page: Page, phone_settings: Sequence[Setting] = SETTINGS) -> list[str]:
    """Measure a page with these settings on the phone, and with the one that takes most room in wider windows."""
    usual_size = await prepare(page)
    faults = []
    for window, settings in ((PHONE, phone_settings), (TABLET, SETTINGS[-1:]), (DESKTOP, SETTINGS[-1:])):
        await page.set_viewport_size(window)
        for setting in settings:
            await apply(page, setting, usual_size)
            faults += [f"{window['width']} px, {setting.name}: {fault}" for fault in await overflow(page)]
    return faults


@pytest.mark.parametrize("path", PAGES)
async def test_page_does_not_scroll_sideways(entrance: Entrance, path: str) -> None:
    """No part of the page reaches beyond the window, unless it lies in a part that scrolls by itself."""
    page = await entrance.admin.new_page()
    address = entrance.url + path.format(**entrance.ids)
    response = await page.goto(address)
    assert response is not None
    assert response.status == 200 or path.startswith(("/agents/", "/no_such_page"))
    assert page.url == address
    if path == "/map/":
        await wait_painted(page)
    if path == "/api/v1/docs":
        await page.locator(".opblock").first.wait_for()
    # The reference of the API takes seconds of CPU time for each layout.
    assert await _faults(page, SETTINGS[-1:] if path == "/api/v1/docs" else SETTINGS) == []
    await page.close()


@pytest.mark.parametrize("path", ["/accounts/login/", "/"])
async def test_page_of_refused_users_does_not_scroll_sideways(entrance: Entrance, path: str) -> None:
    """The sign-in, also after a wrong password, and the page for a user without permission."""
    page = await (entrance.signed_out if path == "/accounts/login/" else entrance.guest).new_page()
    await page.goto(entrance.url + path)
    if path == "/accounts/login/":
        await page.fill("input[name=login]", USERNAME)
        await page.fill("input[name=password]", "wrong")
        await page.click("main button[type=submit]")
        await page.wait_for_selector(".errors")
    else:
        assert await page.text_content(".error-code") == "403"
    assert await _faults(page) == []
    await page.close()


@pytest.mark.parametrize(
    "path", ["/", "/agents/", "/incidents/", "/incidents/{incident}/", "/history/compare/?a=2026-01-01"]
)
async def test_tables_fold_on_a_phone(entrance: Entrance, path: str) -> None:
    """Name, state, time and cause of each row are read without scrolling sideways, and keep their labels."""
    page = await entrance.admin.new_page()
    await page.goto(entrance.url + path.format(**entrance.ids))
    usual_size = await prepare(page)
    for setting in SETTINGS:
        await apply(page, setting, usual_size)
        assert await page.evaluate(_FOLDED_OVERFLOW) == [], setting.name
    await page.close()


@pytest.mark.parametrize("window", [PHONE, DESKTOP], ids=lambda window: f"{window['width']} px")
@pytest.mark.parametrize("path", ["/agents/", "/incidents/", "/incidents/{incident}/", "/history/"])
async def test_page_does_not_move_while_it_loads(entrance: Entrance, path: str, window: ViewportSize) -> None:
    """What a reader wants to press stays where it is: cumulative layout shift of at most 0.1."""
    page = await entrance.admin.new_page()
    await page.set_viewport_size(window)
    await page.add_init_script(_OBSERVE_SHIFTS)
    await page.goto(entrance.url + path.format(**entrance.ids))
    await page.wait_for_function("""document.getElementById("age-text")?.textContent !== "Loading…" """)
    shifts = await page.evaluate("shifts")
    assert sum(value for value, _ in shifts) <= 0.1, shifts
    await page.close()


async def test_present_tab_of_the_navigation_is_in_view(entrance: Entrance) -> None:
    """The navigation scrolls in itself on a phone, and begins where the entry of the present page is seen whole."""
    page = await entrance.admin.new_page()
    for path in ("/", "/incidents/", "/changes/"):
        await page.goto(entrance.url + path)
        assert await page.evaluate("document.querySelector('.nav').scrollWidth > innerWidth")
        await page.wait_for_function("""() => {
          const { left, right } = document.querySelector(".nav [aria-current]").getBoundingClientRect();
          return left >= 0 && right <= innerWidth;
        }""")
    await page.close()


async def test_preview_of_policies_shows_every_column(entrance: Entrance) -> None:
    """At 1400 px and the usual size of text no table beside the form hides its last column: that of the new values."""
    page = await entrance.admin.new_page()
    await page.set_viewport_size(DESKTOP)
    await page.goto(f"{entrance.url}/policies/auth/")
    await page.fill(f"#{AUTH_TTL_VARIABLE}", "30s")
    await page.click("button[name=preview]")
    await page.wait_for_selector(".change-side .outlook")
    usual_size = await prepare(page)
    hidden_columns = {}
    for setting in SETTINGS[:-1]:
        await apply(page, setting, usual_size)
        hidden_columns[setting.name] = await page.evaluate(
            "[...document.querySelectorAll('.change-side .table-frame')].map((f) => f.scrollWidth - f.clientWidth)"
        )

    assert hidden_columns == {name: [0] for name in hidden_columns}
    await page.close()
