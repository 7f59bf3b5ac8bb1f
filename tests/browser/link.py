"""The live link between a page and the real console, with the faults of a network that a test puts into it."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable
from typing import Any

from playwright.async_api import Error, Page, WebSocketRoute

Frame = str | bytes


def kind_of(frame: Frame) -> str:
    """Return the type of a frame; `bytes` for a snapshot."""
    return str(json.loads(frame)["type"]) if isinstance(frame, str) else "bytes"


class FaultyLink:
    """The sockets of one page. Attach it before the page goes to its address."""

    def __init__(self) -> None:
        #: The messages that the page sent.
        self.requests: list[Any] = []
        #: Decides which frames of the console are lost.
        self.is_lost: Callable[[Frame], bool] = lambda _: False
        self.lost_count = 0
        self._ends: list[tuple[WebSocketRoute, WebSocketRoute]] = []

    async def attach(self, page: Page) -> None:
        """Stand between this page and the console."""
        await page.route_web_socket(re.compile("/ws/"), self._connect)

    async def cut(self, code: int = 1011) -> None:
        """Close every socket with this code, as the page sees it."""
        for page_side, console_side in self._ends:
            with contextlib.suppress(Error):
                await page_side.close(code=code)
            with contextlib.suppress(Error):
                await console_side.close()
        self._ends.clear()

    def lose_one(self, kind: str) -> None:
        """Lose the next frame of this kind."""
        self.is_lost = lambda frame: kind_of(frame) == kind and self.lost_count == 0

    def _connect(self, page_side: WebSocketRoute) -> None:
        console_side = page_side.connect_to_server()

        def send(frame: Frame) -> None:
            self.requests.append(json.loads(frame))
            console_side.send(frame)

        def receive(frame: Frame) -> None:
            if self.is_lost(frame):
                self.lost_count += 1
            else:
                page_side.send(frame)

        page_side.on_message(send)
        console_side.on_message(receive)
        self._ends.append((page_side, console_side))
