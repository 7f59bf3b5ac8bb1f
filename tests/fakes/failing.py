"""A backend that is told by a call's metadata how to fail, and remembers what it was sent."""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections import defaultdict
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
from typing_extensions import override

from fleet.protocol.retry.policy import PREVIOUS_ATTEMPTS, PUSHBACK
from fleet.transport.channels import server_options

UNARY, STREAM = "/refloat.test.Backend/Unary", "/refloat.test.Backend/Stream"


def told(
    *,
    code: str = "OK",
    succeed_after: int = 1_000_000,
    hang: bool = False,
    delay: float = 0.0,
    pushback: str | None = None,
    then: str = "",
    early: bool = False,
) -> list[tuple[str, str]]:
    """Metadata of a call that fails so until so many tries have, each after `delay` seconds.

    `hang` never answers instead; `then` is the code of tries after the first; `early` has a stream fail before its
    first message, not after it. New at each call.
    """
    how = [("x-call", str(uuid.uuid4())), ("x-code", code), ("x-succeed-after", str(succeed_after))]
    if hang:
        how.append(("x-hang", "yes"))
    if then:
        how.append(("x-then", then))
    if early:
        how.append(("x-early", "yes"))
    if delay:
        how.append(("x-delay", str(delay)))
    return how if pushback is None else [*how, ("x-pushback", pushback)]


class FailingBackend(grpc.GenericRpcHandler):
    """Answers bytes with the same bytes."""

    def __init__(self) -> None:
        #: What each try of a call said of tries before it, by the call's id.
        self.tries: defaultdict[str, list[str | None]] = defaultdict(list)
        #: When each try of a call came, by the call's id; seconds of a clock that never jumps.
        self.times: defaultdict[str, list[float]] = defaultdict(list)
        #: Ids of calls with a try that was given up while it hung.
        self.given_up: list[str] = []
        self.port = 0
        self._server: grpc.aio.Server | None = None

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"127.0.0.1:{self.port}"

    def count(self, metadata: list[tuple[str, str]]) -> int:
        """Tries of a call that arrived."""
        return len(self.tries[dict(metadata)["x-call"]])

    async def start(self) -> FailingBackend:
        """Listen on a port of the system's choice."""
        self._server = grpc.aio.server(options=server_options())
        self._server.add_generic_rpc_handlers((self,))
        self.port = self._server.add_insecure_port("127.0.0.1:0")
        await self._server.start()
        return self

    async def stop(self) -> None:
        """End, with every call."""
        if self._server is not None:
            await self._server.stop(None)

    @override
    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        """Know the two methods."""
        if handler_call_details.method == UNARY:
            return grpc.unary_unary_rpc_method_handler(self._unary)
        if handler_call_details.method == STREAM:
            return grpc.unary_stream_rpc_method_handler(self._stream)
        return None

    async def _unary(self, request: bytes, context: Any) -> bytes:
        await self._fail(context)
        return request

    async def _stream(self, request: bytes, context: Any) -> AsyncIterator[bytes]:
        early = any(key == "x-early" for key, _ in context.invocation_metadata())
        if early:
            await self._fail(context)
        yield request
        if not early:
            await self._fail(context)

    async def _fail(self, context: Any) -> None:
        how = {key: value for key, value in context.invocation_metadata()}  # noqa: C416 - gRPC's pairs are no tuples
        tries = self.tries[how.get("x-call", "")]
        tries.append(how.get(PREVIOUS_ATTEMPTS))
        self.times[how.get("x-call", "")].append(time.monotonic())
        if len(tries) > int(how.get("x-succeed-after", "0")):
            return
        if "x-hang" in how:
            try:
                await asyncio.Event().wait()
            finally:
                self.given_up.append(how["x-call"])
        if "x-delay" in how:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(float(how["x-delay"])):
                    await asyncio.Event().wait()
        if "x-pushback" in how:
            context.set_trailing_metadata(((PUSHBACK, how["x-pushback"]),))
        code = how["x-code"] if len(tries) == 1 else how.get("x-then", how["x-code"])
        if code != "OK":
            await context.abort(grpc.StatusCode[code], "as I was told")
