"""Servers on loopback that misbehave as instances may: they do not respond, refuse, or send what nobody asked for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import grpc
import grpc.aio
from typing_extensions import override

_LOOPBACK = "127.0.0.1"
_NOISE = bytes(range(256)) * 256
#: Bodies of HTTP responses that nobody expects.
_BODIES: Mapping[str, bytes] = {
    "an empty body": b"",
    "HTML": b"<!doctype html><title>It works</title>",
    "a number": b"1e400",
    "null": b"null",
    "nested JSON": b"[" * 100_000,
    "text that is no Unicode": b'{"name": "\xff\xfe"}',
    "wrong types": b'{"name": 5, "leafs": {"a": [null, 1e400, {"name": null}]}, "instances": "none"}',
}
#: Responses of gRPC calls, as message or status.
_MESSAGES: Mapping[str, bytes | grpc.StatusCode] = {
    "empty messages": b"",
    "messages that cannot be parsed": b"\xff" * 100,
    "permission denied": grpc.StatusCode.PERMISSION_DENIED,
    "unimplemented": grpc.StatusCode.UNIMPLEMENTED,
}
_Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def hostile_servers() -> AsyncIterator[dict[str, str]]:
    """Start the servers; yield their addresses by what they do."""
    addresses: dict[str, str] = {}
    async with AsyncExitStack() as stack:
        handlers: dict[str, _Handler] = {
            "no response": _stay_silent,
            "a closed connection": _close,
            "noise": _send_noise,
            "an endless body": _send_endless_body,
            **{text: _respond_with(body) for text, body in _BODIES.items()},
        }
        for text, handler in handlers.items():
            addresses[text] = await stack.enter_async_context(_tcp_server(handler))
        for text, response in _MESSAGES.items():
            addresses[text] = await stack.enter_async_context(_grpc_server(response))
        yield addresses


@asynccontextmanager
async def _tcp_server(handler: _Handler) -> AsyncIterator[str]:
    tasks: set[asyncio.Task[Any]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None, "asyncio runs each handler in a task"
        tasks.add(task)
        try:
            await handler(reader, writer)
        except (OSError, asyncio.CancelledError):
            return  # the client ended, or the check did
        finally:
            tasks.discard(task)
            writer.close()

    server = await asyncio.start_server(handle, _LOOPBACK, 0)
    host, port = server.sockets[0].getsockname()
    try:
        yield f"{host}:{port}"
    finally:
        server.close()
        for task in tuple(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _stay_silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    while await reader.read(65_536):
        pass


async def _close(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    return


async def _send_noise(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(_NOISE)
    await writer.drain()


async def _send_endless_body(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readline()
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
    chunk = b"x" * 16_384
    while not writer.is_closing():
        writer.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
        await writer.drain()
        # A fast loop over loopback would keep the event loop of the check busy.
        await asyncio.sleep(0.001)


def _respond_with(body: bytes) -> _Handler:
    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        writer.write(head.encode() + b"Connection: close\r\n\r\n" + body)
        await writer.drain()

    return respond


class _AnyMethod(grpc.GenericRpcHandler):
    """Answers every call in the same way."""

    def __init__(self, response: bytes | grpc.StatusCode) -> None:
        self._response = response

    @override
    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes]:
        async def respond(_: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
            if isinstance(self._response, grpc.StatusCode):
                await context.abort(self._response, "of the conformance check")
            assert isinstance(self._response, bytes), "abort raises"
            return self._response

        handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_unary_rpc_method_handler(respond)
        return handler


@asynccontextmanager
async def _grpc_server(response: bytes | grpc.StatusCode) -> AsyncIterator[str]:
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((_AnyMethod(response),))
    port = server.add_insecure_port(f"{_LOOPBACK}:0")
    await server.start()
    try:
        yield f"{_LOOPBACK}:{port}"
    finally:
        await server.stop(None)
