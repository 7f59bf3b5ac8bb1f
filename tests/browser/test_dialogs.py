"""Forms in dialogs: they open over the page, keep what was typed, and give the focus back."""

from __future__ import annotations

import pytest
from playwright.async_api import Browser, Page, Route, expect

from fleet.models.inventory import Agent
from tests.browser.axe import PHONE, accessible_everywhere
from tests.browser.conftest import Visiting
from tests.browser.visits import new_context

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

#: Until a page asks anew.
REFRESH_MS = 6_000
RETIRE_PATH = "/agents/agent-1-id/retire/"


async def open_agent(visiting: Visiting, **options: object) -> Page:
    """Open the page of an agent that is offline, with a clock that the test moves."""
    visit = await visiting(**options)
    visit.fleet.offline_agents = frozenset({0})
    await visit.fleet.begin()
    page = await visit.new_page()
    await page.clock.install()
    await page.goto(f"{visit.url}/agents/agent-1-id/")
    await expect(page.locator("#agent")).to_contain_text("Retire agent…")
    await expect(page.locator("#dialog")).to_have_count(1)
    return page


async def test_keyboard_opens_and_closes_a_dialog(visiting: Visiting) -> None:
    """Enter on the link opens the form with the focus in it; Escape gives the focus back, also to a link that a
    refresh has replaced.
    """
    page = await open_agent(visiting)
    link = page.get_by_role("link", name="Retire agent…")
    dialog = page.get_by_role("dialog", name="Retire agent-1")
    await link.focus()
    await page.keyboard.press("Enter")
    await expect(dialog.get_by_label("Reason")).to_be_focused()
    await expect(dialog).to_contain_text("raises no alerts")
    await page.keyboard.press("Escape")
    await expect(dialog).to_be_hidden()
    await expect(link).to_be_focused()

    await page.keyboard.press("Enter")
    # The focus on a button lets the page below be refreshed.
    await dialog.get_by_role("link", name="Cancel").focus()
    await page.evaluate("document.querySelector('#agent').dataset.isOld = 'yes'")
    await page.clock.run_for(REFRESH_MS)
    await expect(page.locator("#agent[data-is-old]")).to_have_count(0)
    await expect(dialog).to_be_visible()
    await page.keyboard.press("Enter")
    await expect(dialog).to_be_hidden()
    await expect(link).to_be_focused()
    assert page.url.endswith("/agents/agent-1-id/")


async def test_link_opens_again_at_once(visiting: Visiting) -> None:
    """Browsers report that a dialog was closed a moment later: what was opened in between stays open."""
    page = await open_agent(visiting)
    link = page.get_by_role("link", name="Retire agent…")
    dialog = page.get_by_role("dialog", name="Retire agent-1")
    await link.click()
    await expect(dialog.get_by_label("Reason")).to_be_focused()
    await link.evaluate("(link) => { document.getElementById('dialog').close(); link.click(); }")
    await expect(dialog.get_by_label("Reason")).to_be_focused()
    await page.keyboard.press("Escape")
    await expect(link).to_be_focused()


async def test_reason_is_kept_until_it_is_sent(visiting: Visiting) -> None:
    """Neither Cancel nor Esc loses what was typed."""
    page = await open_agent(visiting)
    link = page.get_by_role("link", name="Retire agent…")
    dialog = page.get_by_role("dialog", name="Retire agent-1")
    await link.click()
    await dialog.get_by_label("Reason").fill("host was scrapped")
    await dialog.get_by_role("link", name="Cancel").click()
    await expect(dialog).to_be_hidden()
    await link.click()
    await expect(dialog.get_by_label("Reason")).to_have_value("host was scrapped")
    await page.keyboard.press("Escape")
    await link.click()
    await expect(dialog.get_by_label("Reason")).to_have_value("host was scrapped")


async def test_refused_form_keeps_its_text_and_success_shows_a_message(visiting: Visiting) -> None:
    """A reason that is too short comes back with its error; a valid one leads to the page with a message."""
    page = await open_agent(visiting)
    await page.get_by_role("link", name="Retire agent…").click()
    dialog = page.get_by_role("dialog", name="Retire agent-1")
    await dialog.get_by_label("Reason").fill("x")
    await dialog.get_by_role("button", name="Retire agent-1").click()
    await expect(dialog).to_contain_text("Enter a reason of 3 to 200 characters")
    await expect(dialog.get_by_label("Reason")).to_have_value("x")
    await expect(dialog.get_by_label("Reason")).to_be_focused()
    await dialog.get_by_label("Reason").fill("scrapped")
    await page.keyboard.press("Enter")
    await expect(page.locator(".messages")).to_contain_text("agent-1 will be retired")
    await expect(dialog).to_be_hidden()
    await expect(page.locator("#retirement")).to_contain_text("scrapped")


async def test_button_shows_progress_and_a_second_click_sends_nothing(visiting: Visiting) -> None:
    """While a request runs, the button says so; after a while, the dialog says that it may be closed."""
    page = await open_agent(visiting)
    arrived: list[Route] = []

    async def hold(route: Route) -> None:
        if route.request.method == "POST":
            arrived.append(route)
        else:
            await route.continue_()

    await page.route(f"**{RETIRE_PATH}", hold)
    await page.get_by_role("link", name="Retire agent…").click()
    dialog = page.get_by_role("dialog", name="Retire agent-1")
    await dialog.get_by_label("Reason").fill("scrapped")
    await dialog.get_by_role("button", name="Retire agent-1").click()
    button = dialog.get_by_role("button", name="Retiring…")
    await expect(button).to_have_attribute("aria-disabled", "true")
    # Playwright clicks no disabled button by itself.
    await button.click(force=True)
    await page.clock.run_for(5_000)
    await expect(dialog).to_contain_text("You can close this dialog")
    assert len(arrived) == 1
    await arrived[0].continue_()
    await expect(page.locator(".messages")).to_contain_text("agent-1 will be retired")


async def test_console_that_does_not_respond_is_an_error_in_the_dialog(visiting: Visiting) -> None:
    """The form can be requested and sent again, and keeps what was typed."""
    visit = await visiting()
    visit.expected.append("ERR_FAILED")
    visit.fleet.offline_agents = frozenset({0})
    await visit.fleet.begin()
    page = await visit.open("/agents/agent-1-id/")
    await expect(page.locator("#dialog")).to_have_count(1)
    await page.route(f"**{RETIRE_PATH}", lambda route: route.abort())
    await page.get_by_role("link", name="Retire agent…").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog.get_by_role("alert")).to_contain_text("The console does not respond")
    await page.unroute(f"**{RETIRE_PATH}")
    await dialog.get_by_role("button", name="Try again").click()
    await dialog.get_by_label("Reason").fill("scrapped")
    await page.route(f"**{RETIRE_PATH}", lambda route: route.abort())
    await dialog.get_by_role("button", name="Retire agent-1").click()
    await expect(dialog.get_by_role("alert")).to_contain_text("The console does not respond")
    await page.unroute(f"**{RETIRE_PATH}")
    await expect(dialog.get_by_label("Reason")).to_have_value("scrapped")
    await dialog.get_by_role("button", name="Retire agent-1").click()
    await expect(page.locator(".messages")).to_contain_text("agent-1 will be retired")


async def test_refusal_of_the_page_is_shown_as_text(visiting: Visiting) -> None:
    """An agent that does not exist any more: the dialog has the text of the 404 page."""
    visit = await visiting()
    visit.expected.append("404 (Not Found)")
    await visit.fleet.begin()
    page = await visit.open("/agents/agent-1-id/")
    await expect(page.locator("#dialog")).to_be_attached()
    link = page.get_by_role("link", name="Retire agent…")
    await link.evaluate("(link) => link.href = link.href.replace('agent-1-id', 'agent-9999-id')")
    await link.click()
    await expect(page.get_by_role("dialog")).to_contain_text("Agent agent-9999-id was not found")


async def test_old_sign_in_leads_to_the_password_and_back(visiting: Visiting) -> None:
    """Without a recent proof, the browser goes to the page that asks for one, and the form is sent after it."""
    visit = await visiting(own_session=True)
    visit.fleet.offline_agents = frozenset({0})
    await visit.fleet.begin()
    page = await visit.open("/agents/agent-1-id/")
    await expect(page.locator("#dialog")).to_be_attached()
    await page.get_by_role("link", name="Retire agent…").click()
    form = page.get_by_role("dialog")
    await form.get_by_label("Reason").fill("scrapped")
    await form.get_by_role("button", name="Retire agent-1").click()
    await expect(page.locator(".messages, [name=password]").first).to_be_visible()
    if await page.locator("[name=password]").count():
        await page.fill("[name=password]", "correct horse battery")
        await page.keyboard.press("Enter")
    await expect(page.locator("#retirement")).to_contain_text("scrapped")
    assert await visit.rows(lambda: Agent.objects.get(cluster=visit.cluster).is_retired)


@pytest.mark.parametrize("modifier", ["Control", "Shift"])
async def test_modified_click_opens_the_page(visiting: Visiting, modifier: str) -> None:
    """In a tab or window of its own, as with every link."""
    page = await open_agent(visiting)
    async with page.context.expect_page() as page_info:
        await page.get_by_role("link", name="Retire agent…").click(modifiers=[modifier])  # type: ignore[list-item] # a name
    other_page = await page_info.value
    await expect(other_page.locator("h1")).to_have_text("Retire agent-1")
    await expect(page.get_by_role("dialog")).to_be_hidden()


async def test_backdrop_closes_and_selecting_text_does_not(visiting: Visiting) -> None:
    """A drag that begins in the dialog and ends on the backdrop keeps it open."""
    page = await open_agent(visiting)
    await page.get_by_role("link", name="Retire agent…").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog.get_by_label("Reason")).to_be_focused()
    await dialog.get_by_label("Reason").hover()
    await page.mouse.down()
    await page.mouse.move(5, 300)
    await page.mouse.up()
    await expect(dialog).to_be_visible()
    await page.mouse.click(5, 300)
    await expect(dialog).to_be_hidden()


async def test_link_works_without_scripts(chromium: Browser, visiting: Visiting, visitor: object) -> None:
    """The link opens the page, and its form works there."""
    visit = await visiting()
    visit.fleet.offline_agents = frozenset({0})
    await visit.fleet.begin()
    context = await new_context(
        chromium, storage_state=await visit.context.storage_state(), java_script_enabled=False
    )
    page = await context.new_page()
    await page.goto(f"{visit.url}/agents/agent-1-id/")
    await page.get_by_role("link", name="Retire agent…").click()
    await page.get_by_label("Reason").fill("x")
    await page.get_by_role("button", name="Retire agent-1").click()
    await expect(page.get_by_label("Reason")).to_have_value("x")
    await page.get_by_label("Reason").fill("scrapped")
    await page.get_by_role("button", name="Retire agent-1").click()
    await expect(page.locator(".messages, [name=password]").first).to_be_visible()
    await context.close()


async def test_dialogs_are_accessible(visiting: Visiting) -> None:
    """No findings in light and dark, and on a phone a sheet at the lower edge."""
    page = await open_agent(visiting)
    await page.get_by_role("link", name="Retire agent…").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog.get_by_label("Reason")).to_be_focused()
    await accessible_everywhere(page)
    await page.set_viewport_size(PHONE)
    box = await dialog.bounding_box()
    assert box is not None
    assert (box["x"], box["width"], box["y"] + box["height"]) == (0, 360, PHONE["height"])


async def test_row_of_an_instance_opens_its_form(visiting: Visiting) -> None:
    """On Fleet now, the action of a row opens over the table."""
    visit = await visiting()
    await visit.fleet.begin()
    page = await visit.open("/")
    await expect(page.locator("#dialog")).to_be_attached()
    await page.get_by_role("link", name="proxy-1").filter(has_text="service…").first.click()
    await expect(page.get_by_role("dialog")).to_contain_text("proxy-1")
    await expect(page.get_by_role("dialog").locator("form").first).to_be_visible()
