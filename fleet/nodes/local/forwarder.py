"""The forwarder: one process with many named TCP forwards, and the faults of a fleet in them.

Every instance's ports and its backend connection pass through one, so that nodes hold no fault code.
Control: HTTP on loopback, `GET /forwards` and `POST /forwards/NAME {"mode": "pass|hold|cut", "to": "host:port"}`,
with a bearer token: whoever may write faults is whoever may read the fleet's state file.
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
    """A forward as flags or a file give it. Without a target, connections wait until it gets one."""

    name: str
    listen: tuple[str, int]
    to: tuple[str, int] | None


def parse_flag(text: str) -> ForwardSpec:
    """Read `NAME=HOST:PORT,HOST:PORT`, or `NAME=HOST:PORT,-` without a target. Raises ValueError."""
    name, equals, rest = text.partition("=")
    listen, comma, to = rest.partition(",")
    if not name or not equals or not comma:
        raise ValueError(f"{text!r} is not NAME=LISTEN_HOST:PORT,TO_HOST:PORT")
    return ForwardSpec(name, addresses.parse(listen), None if to == "-" else addresses.parse(to))


def parse_file(path: Path) -> list[ForwardSpec]:
    """Read `{"NAME": {"listen": "host:port", "to": "host:port" or null}}`. Raises ValueError, OSError."""
    try:
        document = json.loads(path.read_text())
        return [
            ForwardSpec(
                name, addresses.parse(entry["listen"]), addresses.parse(entry["to"]) if entry.get("to") else None
            )
            for name, entry in document.items()
        ]
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(
            f'{path}: each forward is "NAME": {{"listen": "host:port", "to": "host:port"}}'
        ) from error


class Control:
    """The forwarder's HTTP API."""

    def __init__(self, forwards: Mapping[str, Forward], token: str) -> None:
        self._forwards = forwards
        self._token = token

    def app(self) -> web.Application:
        """Build the application."""
        app = web.Application(middlewares=[self._authorize])
        app.router.add_get("/forwards", self._list)
        app.router.add_post("/forwards/{name:.+}", self._change)
        return app

    @web.middleware
    async def _authorize(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if self._token and not hmac.compare_digest(token.encode(), self._token.encode()):
            return _error(401, "the bearer token of the fleet's state file is needed")
        return await handler(request)

    async def _list(self, request: web.Request) -> web.StreamResponse:
        return web.json_response({"forwards": [forward.describe() for forward in self._forwards.values()]})

    async def _change(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["name"]
        forward = self._forwards.get(name)
        if forward is None:
            return _error(404, f"no forward {name!r}; known: {', '.join(self._forwards)}")
        try:
            mode, to = _read_change(await request.json())
        except ValueError as error:
            return _error(400, str(error))
        try:
            await forward.change(mode=mode, to=to)
        except OSError as error:
            return _error(409, f"cannot listen on {addresses.join(*forward.listen)} again: {error.strerror}")
        return web.json_response(forward.describe())


def _read_change(body: Any) -> tuple[ForwardMode | None, tuple[str, int] | None]:
    if not isinstance(body, dict) or not body or not body.keys() <= {"mode", "to"}:
        raise ValueError('want {"mode": "pass|hold|cut"} or {"to": "host:port"}')
    mode = body.get("mode")
    if mode is not None and mode not in set(ForwardMode):
        raise ValueError(f"mode {mode!r} is not one of {', '.join(ForwardMode)}")
    to = body.get("to")
    return (None if mode is None else ForwardMode(mode)), (None if to is None else addresses.parse(str(to)))


def _error(status: int, sentence: str) -> web.Response:
    return web.json_response({"error": sentence}, status=status)


async def serve(specs: Sequence[ForwardSpec], *, control: tuple[str, int], token: str) -> None:
    """Run until SIGTERM or SIGINT. Raises `running.StartError` when a port cannot be had."""
    forwards = {spec.name: Forward(spec.name, spec.listen, spec.to) for spec in specs}
    for forward in forwards.values():
        await lifecycle.start_listening(forward.listen, forward.start())
    async with http_site.serve(Control(forwards, token).app(), control) as bound:
        lifecycle.announce(
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
    help="A name, where to listen, where to go (- for later); repeat.",
)
@click.option(
    "--forwards",
    "file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A JSON file of them.",
)
@addresses.listen_option("--control", "Where the control API listens.")
def command(flags: tuple[ForwardSpec, ...], file: Path | None, control: tuple[str, int]) -> None:
    """Forward TCP ports, and inject faults into them.

    REFLOAT_FORWARDER_TOKEN: the bearer token the control API asks for; none when it is not set.
    """
    specs = list(flags)
    if file is not None:
        try:
            specs += parse_file(file)
        except (OSError, ValueError) as error:
            raise click.BadParameter(str(error), param_hint="--forwards") from error
    names = [spec.name for spec in specs]
    if not specs or len(set(names)) < len(names):
        raise click.UsageError("give every forward a name of its own, and at least one forward")
    token = os.environ.get("REFLOAT_FORWARDER_TOKEN", "")
    lifecycle.run(lambda: lifecycle.on_loop(serve(specs, control=control, token=token)))
