"""What a page keeps of a fleet's socket: states, and on the map places; a snapshot changed by every delta."""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

from fleet.vocabulary.verdicts import State
from tests.fakes.sockets import Socket
from tests.fakes.waiting import DEADLINE


class SocketPage:
    """What a page keeps: the states it was sent, changed by every delta; `None` before the first snapshot."""

    def __init__(self, link: Socket) -> None:
        self.link = link
        self.states: bytearray | None = None
        #: Proxy, auth and cause by agent, for a socket with columns.
        self.places: list[list[int]] = []
        self.epoch = ""
        self.seq = 0
        self.stale: bool | None = None
        self.log: list[dict[str, Any]] = []

    async def step(self, seconds: float = DEADLINE) -> dict[str, Any]:
        """Take one frame, and the snapshot that follows a hello."""
        output = await self.link.receive(seconds)
        if output["type"] == "websocket.close":
            return {"type": "close", "code": output["code"]}
        message: dict[str, Any] = json.loads(output["text"])
        self.log.append(message)
        if message["type"] == "hello":
            snapshot = (await self.link.receive(seconds))["bytes"]
            if "columns" in message:
                snapshot = self._split_columns(message, snapshot)
            assert len(snapshot) == message["agents"]
            self.states, self.epoch, self.seq = bytearray(snapshot), message["epoch"], message["seq"]
            self.stale = message["stale"]
        elif message["type"] == "delta":
            assert (message["epoch"], message["seq"]) == (self.epoch, self.seq + 1)
            assert self.states is not None
            self.seq = message["seq"]
            for index, state, *place in message["changes"]:
                self.states[index] = state
                if self.places:
                    self.places[index] = place
        elif message["type"] == "stale":
            self.stale = True
            self.states = bytearray(s if s == State.RETIRED else State.UNKNOWN for s in self.states or b"")
        return message

    def _split_columns(self, hello: dict[str, Any], frame: bytes) -> bytes:
        """Keep the places of a frame with columns; return its states."""
        assert (hello["columns"], hello["encoding"]) == (["proxy", "auth", "cause", "state"], "deflate")
        columns, agent_count = zlib.decompress(frame), hello["agents"]
        places = np.frombuffer(columns, "<u2", 3 * agent_count).reshape(3, agent_count)
        self.places = places.T.tolist()
        return columns[6 * agent_count :]

    async def until(
        self, condition: Callable[[dict[str, Any]], bool], seconds: float = DEADLINE
    ) -> dict[str, Any]:
        """Receive frames until one meets the condition."""
        async with asyncio.timeout(seconds):
            while True:
                message = await self.step(seconds)
                if condition(message):
                    return message
