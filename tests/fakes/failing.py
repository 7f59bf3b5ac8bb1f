"""A backend that fails as the call's metadata says, and records what it received."""

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


def failure_metadata(
    *,
    code: str = "OK",
    succeed_after: int = 1_000_000,
    hang: bool = False,
    delay: float = 0.0,
    pushback: str | None = None,
    then: str = "",
    early: bool = False,
) -> list[tuple[str, str]]:
    """Return the metadata of a call whose first `succeed_after` tries fail like this, each after `delay` seconds.

    `hang` never answers instead; `then` is the code of tries after the first; `early` has a stream fail before its
    first message, not after it. New at each call.
    """
    metadata = [("x-call", str(uuid.uuid4())), ("x-code", code), ("x-succeed-after", str(succeed_after))]
    if hang:
        metadata.append(("x-hang", "yes"))
    if then:
        metadata.append(("x-then", then))
    if early:
        metadata.append(("x-early", "yes"))
    if delay:
        metadata.append(("x-delay", str(delay)))
    return metadata if pushback is None else [*metadata, ("x-pushback", pushback)]


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
        metadata = {key: value for key, value in context.invocation_metadata()}  # noqa: C416 - gRPC's pairs are no tuples
        tries = self.tries[metadata.get("x-call", "")]
        tries.append(metadata.get(PREVIOUS_ATTEMPTS))
        self.times[metadata.get("x-call", "")].append(time.monotonic())
        if len(tries) > int(metadata.get("x-succeed-after", "0")):
            return
        if "x-hang" in metadata:
            try:
                await asyncio.Event().wait()
            finally:
                self.given_up.append(metadata["x-call"])
        if "x-delay" in metadata:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(float(metadata["x-delay"])):
                    await asyncio.Event().wait()
        if "x-pushback" in metadata:
            context.set_trailing_metadata(((PUSHBACK, metadata["x-pushback"]),))
        code = metadata["x-code"] if len(tries) == 1 else metadata.get("x-then", metadata["x-code"])
        if code != "OK":
            await context.abort(grpc.StatusCode[code], "as I was told")
