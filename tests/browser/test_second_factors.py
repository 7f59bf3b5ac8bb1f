"""Security keys and passkeys: Chromium's virtual authenticator against the console's pages."""

from __future__ import annotations

import asyncio

import pytest
from playwright.async_api import Browser, Page, Route, expect

from tests.browser.visits import new_context, watch
from tests.flow.web import PASSWORD, Console

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

_LOGIN, _ADD_KEY = "/accounts/login/", "/accounts/2fa/webauthn/add/"
#: A page that users without any role may see.
_OWN_PAGE = "/accounts/password/change/"
#: One that touches itself, and knows its user by fingerprint.
_AUTHENTICATOR = {
    "protocol": "ctap2",
    "transport": "internal",
    "hasResidentKey": True,
    "hasUserVerification": True,
    "isUserVerified": True,
    "automaticPresenceSimulation": True,
}


async def _submit_password(page: Page, username: str) -> None:
    await page.fill("input[name=login]", username)
    await page.fill("input[type=password]", PASSWORD)
    await page.click("main button[type=submit]:not(#passkey_login)")


async def _sign_out(page: Page, url: str) -> None:
    await page.goto(f"{url}/accounts/logout/")
    await page.click("main button[type=submit]")
    await page.goto(f"{url}{_LOGIN}?next={_OWN_PAGE}")


async def test_no_click_is_lost_before_the_scripts_are_there(chromium: Browser, console: Console) -> None:
    """The button is disabled until it has its meaning: a click before did nothing, or sent an empty form."""
    context = await new_context(chromium)
    page = await context.new_page()
    is_due = asyncio.Event()

    async def hold(route: Route) -> None:
        await is_due.wait()
        await route.continue_()

    await page.route("**/webauthn.*js", hold)
    await page.goto(console.url + _LOGIN, wait_until="commit")
    await expect(page.locator("#passkey_login")).to_be_disabled()
    is_due.set()
    await expect(page.locator("#passkey_login")).to_be_enabled()
    await context.close()


async def test_page_without_https_says_what_passkeys_need(chromium: Browser, console: Console) -> None:
    """Browsers have no passkeys there, and the button would do nothing."""
    context = await new_context(chromium)
    await context.add_init_script("delete window.PublicKeyCredential")
    page = await context.new_page()
    await page.goto(console.url + _LOGIN)
    await expect(page.get_by_text("Security keys and passkeys need HTTPS.")).to_be_visible()
    await expect(page.locator("#passkey_login")).to_be_disabled()
    await context.close()


async def test_passkey_of_a_browser_signs_in(chromium: Browser, console: Console) -> None:
    """Added on the page of security keys; then alone, and after the password. Nothing violates the content policy."""
    await asyncio.to_thread(console.add_user, "passkey-user", "viewer")
    # Browsers have passkeys for names only, and without TLS only for this one.
    url = console.url.replace("127.0.0.1", "localhost")
    context = await new_context(chromium)
    errors: list[str] = []
    page = await context.new_page()
    watch(page, errors)
    devtools = await context.new_cdp_session(page)
    await devtools.send("WebAuthn.enable")
    authenticator = await devtools.send("WebAuthn.addVirtualAuthenticator", {"options": _AUTHENTICATOR})

    await page.goto(f"{url}{_LOGIN}?next={_ADD_KEY}")
    await _submit_password(page, "passkey-user")
    await page.check("input[name=passwordless]")
    await page.click("#mfa_webauthn_add")
    await page.wait_for_url("**/recovery-codes/")
    credentials = await devtools.send("WebAuthn.getCredentials", authenticator)
    assert [entry["rpId"] for entry in credentials["credentials"]] == ["localhost"]

    await _sign_out(page, url)
    await page.click("#passkey_login")
    await page.wait_for_url(lambda address: _LOGIN not in address)
    await page.goto(url + _OWN_PAGE)
    await expect(page.locator("input[name=oldpassword]")).to_be_visible()

    await _sign_out(page, url)
    await _submit_password(page, "passkey-user")
    await page.click("#mfa_webauthn_authenticate")
    await page.wait_for_url(f"**{_OWN_PAGE}")

    await _sign_out(page, url)
    await devtools.send("WebAuthn.setUserVerified", {**authenticator, "isUserVerified": False})
    assert errors == []
    async with page.expect_console_message() as refusal:
        await page.click("#passkey_login")
    assert "NotAllowedError" in (await refusal.value).text
    await page.goto(url + _OWN_PAGE)
    await expect(page.locator("#passkey_login")).to_be_visible()
    await context.close()
