"""A gRPC server of all four kinds of calls, and a gateway in this process before such servers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import yaml
from typing_extensions import override

from fleet.nodes.gateway.server import Gateway, GatewayFlags
from fleet.nodes.shared import addresses
from fleet.transport.channels import add_port, server_options
from fleet.transport.tls import TLSFiles

ECHO = "/refloat.test.Echo/"


class Echo(grpc.GenericRpcHandler):
    """Answers bytes with the same bytes. Metadata `x-...` comes back as trailers; `x-code` makes it fail."""

    def __init__(self) -> None:
        self.port = 0
        #: Metadata of every call, and what its deadline was.
        self.calls: list[tuple[str, list[tuple[str, Any]], float | None]] = []
        #: Calls of `Both` and `Hang` that are over.
        self.ended_calls = 0
        self._server: grpc.aio.Server | None = None

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"127.0.0.1:{self.port}"

    async def start(self, tls: TLSFiles | None = None, *, port: int = 0) -> Echo:
        """Listen."""
        options = [*server_options(), ("grpc.max_receive_message_length", -1)]
        self._server = grpc.aio.server(options=options)
        self._server.add_generic_rpc_handlers((self,))
        self.port = add_port(self._server, f"127.0.0.1:{port}", tls)
        await self._server.start()
        return self

    async def stop(self, grace: float | None = None) -> None:
        """End, with every call."""
        if self._server is not None:
            await self._server.stop(grace)

    @override
    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        """Know five methods."""
        method = str(handler_call_details.method).removeprefix(ECHO)
        match method:
            case "Unary" | "Hang":
                return grpc.unary_unary_rpc_method_handler(self._hang if method == "Hang" else self._unary)
            case "Up":
                return grpc.stream_unary_rpc_method_handler(self._up)
            case "Down":
                return grpc.unary_stream_rpc_method_handler(self._down)
            case "Both":
                return grpc.stream_stream_rpc_method_handler(self._bidirectional)
        return None

    async def _note(self, method: str, context: Any) -> None:
        metadata = [(key, value) for key, value in context.invocation_metadata()]
        self.calls.append((method, metadata, context.time_remaining()))
        await context.send_initial_metadata((("x-head", method),))
        context.set_trailing_metadata(tuple(pair for pair in metadata if pair[0].startswith("x-")))
        code = dict(metadata).get("x-code")
        if code:
            await context.abort(grpc.StatusCode[code], "wörds, with spaces: 100 %")

    async def _unary(self, request: bytes, context: Any) -> bytes:
        await self._note("Unary", context)
        return request

    async def _hang(self, request: bytes, context: Any) -> bytes:
        del request
        await self._note("Hang", context)
        try:
            await asyncio.Event().wait()
        finally:
            self.ended_calls += 1
        raise AssertionError("unreachable")

    async def _up(self, requests: AsyncIterator[bytes], context: Any) -> bytes:
        await self._note("Up", context)
        return b"".join([request async for request in requests])

    async def _down(self, request: bytes, context: Any) -> AsyncIterator[bytes]:
        await self._note("Down", context)
        for at in range(len(request)):
            yield request[at : at + 1]

    async def _bidirectional(self, requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        await self._note("Both", context)
        try:
            async for request in requests:
                yield request
        finally:
            # A caller that gives up looks like one that has ended (grpc.aio).
            self.ended_calls += 1


def route(*rules: dict[str, Any], name: str = "r", hosts: Sequence[str] = ()) -> dict[str, Any]:
    """A GRPCRoute; a rule without `backendRefs` goes to `svc:1`."""
    spec: dict[str, Any] = {
        "rules": [{"backendRefs": [{"name": "svc", "port": 1}], **rule} for rule in rules or ({},)]
    }
    if hosts:
        spec["hostnames"] = list(hosts)
    return {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "GRPCRoute",
        "metadata": {"name": name},
        "spec": spec,
    }


def write_routes(path: Path, *routes: dict[str, Any]) -> Path:
    """Write a routes file."""
    path.write_text(yaml.safe_dump_all(routes or (route(),)))
    return path


@asynccontextmanager
async def run_gateway(
    folder: Path, backends: dict[str, Sequence[str]], *routes: dict[str, Any], **flags: Any
) -> AsyncIterator[tuple[Gateway, str]]:
    """A gateway in this process; `{"svc:1": ["127.0.0.1:5", ...]}`."""
    path = write_routes(folder / "routes.yaml", *routes)
    backend_addresses = {
        addresses.parse(name): tuple(addresses.parse(backend_address) for backend_address in names)
        for name, names in backends.items()
    }
    gateway = Gateway(
        GatewayFlags(
            path,
            backends=backend_addresses,
            **{"drain": 0.2, "probe_interval": 0.2, "dial_timeout": 5.0, **flags},
        )
    )
    address = await gateway.start()
    try:
        yield gateway, address
    finally:
        await gateway.stop()
