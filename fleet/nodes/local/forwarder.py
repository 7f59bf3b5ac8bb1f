"""The forwarder: one process with many named TCP forwards, in which faults are injected.

The ports and the backend connection of every instance pass through forwards, so that nodes need no code for faults.
Control: HTTP on loopback, `GET /forwards` and `POST /forwards/NAME {"mode": "pass|hold|cut", "target_address":
"host:port"}`, with a bearer token, which is in the fleet's state file.
"""

from __future__ import annotations

import hmac
import json
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from aiohttp import web

from fleet.nodes.local.forward_names import ForwardMode
from fleet.nodes.local.forwards import Forward
from fleet.nodes.shared import addresses, http_site, lifecycle
from fleet.nodes.shared.options import ParsedOption

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class ForwardSpec:
    """A forward from flags or a file. Without a destination, connections wait until it is set."""

    name: str
    listen: tuple[str, int]
    target_address: tuple[str, int] | None


def parse_flag(text: str) -> ForwardSpec:
    """Read `NAME=HOST:PORT,HOST:PORT`, or `NAME=HOST:PORT,-` without a destination. Raises ValueError."""
    name, equals, rest = text.partition("=")
    listen, comma, target_address = rest.partition(",")
    if not name or not equals or not comma:
        raise ValueError(f"{text!r} is not NAME=LISTEN_HOST:PORT,TO_HOST:PORT")
    return ForwardSpec(
        name, addresses.parse(listen), None if target_address == "-" else addresses.parse(target_address)
    )


def parse_file(path: Path) -> list[ForwardSpec]:
    """Read `{"NAME": {"listen": "host:port", "target_address": "host:port" or null}}`. Raises ValueError, OSError."""
    try:
        document = json.loads(path.read_text())
        return [
            ForwardSpec(
                name,
                addresses.parse(entry["listen"]),
                addresses.parse(entry["target_address"]) if entry.get("target_address") else None,
            )
            for name, entry in document.items()
        ]
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is not JSON: {error}") from error
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(
            f'{path}: each forward is "NAME": {{"listen": "host:port", "target_address": "host:port"}}'
        ) from error


class ForwarderControl:
    """The control API of the forwarder, over HTTP."""

    def __init__(self, forwards: Mapping[str, Forward], token: str) -> None:
        self._forwards = forwards
        self._token = token

    def app(self) -> web.Application:
        """Return the web application of the control API."""
        app = web.Application(middlewares=[self._authorize])
        app.router.add_get("/forwards", self._list)
        app.router.add_post("/forwards/{name:.+}", self._change)
        return app

    @web.middleware
    async def _authorize(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if self._token and not hmac.compare_digest(token.encode(), self._token.encode()):
            return _error(401, "not authorized: send the bearer token of the fleet's state file")
        return await handler(request)

    async def _list(self, request: web.Request) -> web.StreamResponse:
        return web.json_response({"forwards": [forward.describe() for forward in self._forwards.values()]})

    async def _change(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["name"]
        forward = self._forwards.get(name)
        if forward is None:
            return _error(404, f"forward {name!r} was not found; forwards: {', '.join(self._forwards)}")
        try:
            mode, target_address = _read_change(await request.json())
        except ValueError as error:
            return _error(400, str(error))
        try:
            await forward.change(mode=mode, target_address=target_address)
        except OSError as error:
            return _error(409, f"cannot listen on {addresses.join(*forward.listen)} again: {error.strerror}")
        return web.json_response(forward.describe())


def _read_change(body: Any) -> tuple[ForwardMode | None, tuple[str, int] | None]:
    if not isinstance(body, dict) or not body or not body.keys() <= {"mode", "target_address"}:
        raise ValueError('expected {"mode": "pass|hold|cut"} or {"target_address": "host:port"}')
    mode = body.get("mode")
    if mode is not None and mode not in set(ForwardMode):
        raise ValueError(f"mode {mode!r} is not one of {', '.join(ForwardMode)}")
    target_address = body.get("target_address")
    return (None if mode is None else ForwardMode(mode)), (
        None if target_address is None else addresses.parse(str(target_address))
    )


def _error(status: int, sentence: str) -> web.Response:
    return web.json_response({"error": sentence}, status=status)


async def serve(specs: Sequence[ForwardSpec], *, control: tuple[str, int], token: str) -> None:
    """Run the forwarder until SIGTERM or SIGINT. Raises `lifecycle.NodeStartError` if a port cannot be opened."""
    forwards = {spec.name: Forward(spec.name, spec.listen, spec.target_address) for spec in specs}
    for forward in forwards.values():
        await lifecycle.start_listening(forward.listen, forward.start())
    async with http_site.serve(ForwarderControl(forwards, token).app(), control) as bound:
        lifecycle.print_ready_line(
            role="forwarder",
            name="forwarder",
            control=bound,
            forwards={name: addresses.join(*forward.listen) for name, forward in forwards.items()},
        )
        await lifecycle.wait_for_stop_signal()
    for forward in forwards.values():
        await forward.stop()


@click.command()
@click.option(
    "--forward",
    "flags",
    type=ParsedOption("name=host:port,host:port", parse_flag),
    multiple=True,
    help="Name, listen address and destination of a forward; - as destination: set by the control API. Repeatable.",
)
@click.option(
    "--forwards",
    "file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="JSON file of forwards.",
)
@addresses.listen_option("--control", "Listen address of the control API.")
def command(flags: tuple[ForwardSpec, ...], file: Path | None, control: tuple[str, int]) -> None:
    """Forward TCP ports, and inject faults into them.

    REFLOAT_FORWARDER_TOKEN: bearer token of the control API. If it is not set, no token is needed.
    """
    specs = list(flags)
    if file is not None:
        try:
            specs += parse_file(file)
        except (OSError, ValueError) as error:
            raise click.BadParameter(str(error), param_hint="--forwards") from error
    names = [spec.name for spec in specs]
    if not specs or len(set(names)) < len(names):
        raise click.UsageError("give at least one forward, and a unique name for each")
    token = os.environ.get("REFLOAT_FORWARDER_TOKEN", "")
    lifecycle.run(lambda: lifecycle.run_on_loop(serve(specs, control=control, token=token)))
