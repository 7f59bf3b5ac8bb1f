"""Pages of one test in Chromium: signed in, in a cluster of their own, and watched for every error."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from playwright.async_api import Browser, BrowserContext, Page

from fleet.monitoring.publish import ChannelLayer
from fleet.vocabulary.verdicts import State
from tests.fakes.live_fleet import LiveFleet
from tests.fakes.record import fill
from tests.flow.web import USERNAME, Console, database

Outcome = TypeVar("Outcome")

#: For anything a page must show; a machine shared with other tests is slow.
DEADLINE_MS = 90_000
#: A session older than this is not given to a test: the console asks for the password again after 900 s.
_SESSION_SECONDS = 300.0
#: Runs in every page before its scripts: a violated policy is an error like any other.
NOTICE_VIOLATIONS = """
document.addEventListener("securitypolicyviolation", (event) =>
  console.error(`CSP: ${event.violatedDirective} ${event.blockedURI} ${event.sample}`));
"""


def watch(page: Page, errors: list[str]) -> None:
    """Collect the page's exceptions, and the errors that the browser writes to its console."""
    page.on("pageerror", lambda error: errors.append(f"{page.url}: {error}"))
    page.on(
        "console",
        lambda line: errors.append(f"{page.url}: {line.text}") if line.type == "error" else None,
    )


async def new_context(chromium: Browser, **options: Any) -> BrowserContext:
    """Return a browser context whose pages report violations of the policy and wait long enough."""
    context = await chromium.new_context(**options)
    await context.add_init_script(NOTICE_VIOLATIONS)
    context.set_default_timeout(DEADLINE_MS)
    return context


class Sessions:
    """Sessions of the users of one console, as storage states of Playwright. Each user signs in once."""

    def __init__(self, console: Console) -> None:
        self._console = console
        #: By user name: when to sign in anew, and the state.
        self._states: dict[str, tuple[float, Any]] = {}

    async def state(self, username: str = USERNAME) -> Any:
        """Return the state of a browser in which this user is signed in. Other tests use the same session."""
        renew_at, state = self._states.get(username, (0.0, None))
        if time.monotonic() >= renew_at:
            state = await self.begin(username)
            self._states[username] = time.monotonic() + _SESSION_SECONDS, state
        return state

    async def begin(self, username: str = USERNAME) -> Any:
        """Return the same with a session of its own, for a test that ends it."""
        cookies = await asyncio.to_thread(self._console.sign_in, username)
        return {
            "cookies": [
                {
                    "name": cookie.name,
                    "value": cookie.value,
                    "domain": "127.0.0.1",
                    "path": "/",
                    "expires": -1,
                    "httpOnly": cookie.name == "sessionid",
                    "secure": False,
                    "sameSite": "Lax",
                }
                for cookie in cookies
            ],
            "origins": [],
        }


@dataclass
class Visit:
    """The pages that a test opens in its cluster, and the errors in them."""

    context: BrowserContext
    console: Console
    fleet: LiveFleet
    errors: list[str] = field(default_factory=list)
    #: Parts of the error messages that this visit provokes.
    expected: list[str] = field(default_factory=list)
    #: Another visit made the cluster, and still uses its record.
    is_guest: bool = False

    @property
    def cluster(self) -> str:
        """The cluster's id."""
        return self.fleet.cluster

    @property
    def prefix(self) -> str:
        """The path before the cluster's pages."""
        return f"/c/{self.cluster}"

    @property
    def url(self) -> str:
        """The address before the cluster's pages."""
        return self.console.url + self.prefix

    async def new_page(self) -> Page:
        """Return an empty page."""
        page = await self.context.new_page()
        watch(page, self.errors)
        return page

    async def open(self, path: str) -> Page:
        """Open a page of the cluster."""
        page = await self.new_page()
        # Until the scripts of the page have run: a click before that is a click on a page without scripts.
        await page.goto(self.url + path, wait_until="domcontentloaded")
        return page

    async def fill(self, states: list[State], **options: Any) -> None:
        """Write a record of other agents, by `tests.fakes.record.fill`, that stays fresh for ten minutes."""

        def write() -> None:
            self.fleet.delete()
            defaults = {"as_of": time.time() + 600}
            fill(self.console.writer(), states, cluster=self.cluster, **(defaults | options))

        await asyncio.to_thread(write)

    async def rows(self, work: Callable[..., Outcome], *values: Any) -> Outcome:
        """Call `work` in a thread in which the models use the console's database."""

        def run() -> Outcome:
            with database(self.console.home):
                return work(*values)

        return await asyncio.to_thread(run)

    async def end(self) -> None:
        """Close all pages, and fail if one of them had an error that is not expected."""
        await self.context.close()
        if not self.is_guest:
            await asyncio.to_thread(self.fleet.delete)
        unexpected = [line for line in self.errors if not any(part in line for part in self.expected)]
        assert not unexpected, unexpected


@dataclass(frozen=True, slots=True)
class Visitor:
    """Begins visits to the console that this process shares."""

    chromium: Browser
    console: Console
    sessions: Sessions
    layer: ChannelLayer

    async def begin(
        self,
        *,
        proxies: int = 4,
        agents_per_proxy: int = 50,
        cluster: str = "",
        username: str = USERNAME,
        own_session: bool = False,
        **options: Any,
    ) -> Visit:
        """Open a browser context in which this user is signed in, for `cluster` or a new cluster. The caller ends it.

        `proxies` and `agents_per_proxy` shape the fleet, which has no record before `visit.fleet.begin()`.
        `own_session` is for tests that end the session; `options` are those of a browser context.
        """
        is_guest = bool(cluster)
        if not is_guest:
            cluster = f"t{secrets.token_hex(5)}"
            await asyncio.to_thread(self.console.add_cluster, cluster)
        state = await (self.sessions.begin(username) if own_session else self.sessions.state(username))
        context = await new_context(self.chromium, storage_state=state, **options)
        fleet = LiveFleet(
            self.console.writer(), self.layer, cluster, proxies=proxies, agents_per_proxy=agents_per_proxy
        )
        return Visit(context, self.console, fleet, is_guest=is_guest)
