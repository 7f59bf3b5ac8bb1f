"""A console made of the real templates and scripts and a scripted fleet: what a page does with the wire protocol,
without pollers, Redis or sign-in. Frames are docs/live.md's; the test says when each is sent, lost or late.
"""

from __future__ import annotations

import mimetypes
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from aiohttp import WSMsgType, web
from django.contrib.staticfiles import finders
from django.template.loader import render_to_string

from dashboards import agent_query, figures
from fleet.domain.verdicts import State
from fleet.domain.views import Summary

#: The console's own policy, without the nonce it does not use on these pages.
CSP = (
    "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self';"
    " object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)


@dataclass
class ScriptedFleet:
    """What the server would know: state bytes, counts and the place in the event stream."""

    names: list[str]
    homes: list[int]
    blocks: list[tuple[str, str]]
    states: bytearray
    epoch: str = "e1"
    seq: int = 1
    layout_version: str = "l1"
    interval_ms: int = 600
    #: None before the first round.
    age_ms: int | None = 200
    stale: bool = False
    #: Cards of the instances strip, as _instance.html says.
    auths: list[dict[str, Any]] = field(default_factory=list)
    proxies: list[dict[str, Any]] = field(default_factory=list)
    sockets: set[web.WebSocketResponse] = field(default_factory=set)
    #: How many snapshots were sent, and what browsers asked for.
    snapshots: int = 0
    asked: list[str] = field(default_factory=list)
    #: When set, new sockets are closed with this code at once.
    refuse: int | None = None

    def shown(self) -> bytes:
        """The state bytes with age applied."""
        if not self.stale:
            return bytes(self.states)
        return bytes(s if s == State.RETIRED else State.UNKNOWN for s in self.states)

    def counts(self) -> dict[str, int]:
        """Counts of every state by slug."""
        tally = Counter(self.shown())
        return {state.slug: tally[state] for state in State}

    def hello(self) -> dict[str, Any]:
        """The frame that announces a snapshot."""
        return {
            "type": "hello",
            "cluster": "default",
            "epoch": self.epoch,
            "seq": self.seq,
            "layout_version": self.layout_version,
            "agents": len(self.states),
            "age_ms": self.age_ms,
            "interval_ms": self.interval_ms,
            "stale": self.stale,
            "counts": self.counts(),
        }

    def layout(self) -> dict[str, Any]:
        """`/map/layout.json`."""
        return {
            "version": self.layout_version,
            "ids": [f"id-{name}" for name in self.names],
            "names": self.names,
            "homes": self.homes,
            "blocks": self.blocks,
        }

    def apply(self, changes: Mapping[int, State]) -> dict[str, Any]:
        """Conclude a round that changed these agents; the frame that says so. Not sending it is losing it."""
        for index, state in changes.items():
            self.states[index] = state
        self.seq += 1
        return {
            "type": "delta",
            "epoch": self.epoch,
            "seq": self.seq,
            "age_ms": self.age_ms,
            "changes": [[index, int(state)] for index, state in changes.items()],
            "counts": self.counts(),
        }

    def beat(self) -> dict[str, Any]:
        """The frame of every 5 s."""
        return {
            "type": "beat",
            "epoch": self.epoch,
            "seq": self.seq,
            "age_ms": self.age_ms,
            "stale": self.stale,
        }

    async def send(self, frame: Mapping[str, Any]) -> None:
        """Send one frame to every browser."""
        for socket in list(self.sockets):
            await socket.send_json(frame)

    async def change(self, changes: Mapping[int, State]) -> None:
        """Conclude a round and say so."""
        await self.send(self.apply(changes))

    async def snapshot(self, socket: web.WebSocketResponse) -> None:
        """Send hello and the state bytes."""
        self.snapshots += 1
        await socket.send_json(self.hello())
        await socket.send_bytes(self.shown())

    async def go_stale(self) -> None:
        """The pollers fell silent."""
        self.stale = True
        self.age_ms = 47_000
        await self.send({"type": "stale", "epoch": self.epoch, "seq": self.seq, "counts": self.counts()})
        await self.send(self.beat())

    async def recover(self) -> None:
        """They are back: a new hello and snapshot."""
        self.stale = False
        self.age_ms = 200
        for socket in list(self.sockets):
            await self.snapshot(socket)

    async def hang_up(self, code: int = 1011) -> None:
        """Close every socket."""
        for socket in list(self.sockets):
            await socket.close(code=code)

    def summary(self) -> Summary:
        """What the page's view would be given."""
        by_slug = self.counts()
        return Summary(
            cluster="default",
            as_of=None if self.age_ms is None else 1.0,
            interval=self.interval_ms / 1000,
            stale=self.stale,
            counts={state: by_slug[state.slug] for state in State},
            agents=len(self.states),
            instances=len(self.auths) + len(self.proxies),
        )


class Harness:
    """Serves one scripted fleet."""

    def __init__(self, fleet: ScriptedFleet) -> None:
        self.fleet = fleet
        self.url = ""
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Listen on a free port of 127.0.0.1."""
        app = web.Application()
        app.add_routes(
            [
                web.get("/", self._fleet_now),
                web.get("/map/", self._map),
                web.get("/map/layout.json", self._layout),
                web.get("/agents/", self._agents),
                web.get("/agents/{id}/", self._agent),
                web.get("/api/v1/fleet/summary", self._summary),
                web.get("/incidents/badge.json", self._badge),
                web.get("/ws/fleet/", self._socket),
                web.get("/static/{path:.*}", self._static),
            ]
        )
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"

    async def stop(self) -> None:
        """Close every socket and the port."""
        await self.fleet.hang_up()
        if self._runner is not None:
            await self._runner.cleanup()

    def _page(self, template: str, page: str, context: Mapping[str, Any]) -> web.Response:
        summary = self.fleet.summary()
        frame = {
            "user": SimpleNamespace(is_authenticated=True, get_username=lambda: "nora"),
            "cluster": "default",
            "url_prefix": "",
            "page": page,
            "summary": summary,
            "counts": [(state, summary.counts[state]) for state in agent_query.READING_ORDER],
            "age_ms": self.fleet.age_ms,
            "stale": self.fleet.stale,
        }
        text = render_to_string(template, {**frame, **context})
        return web.Response(text=text, content_type="text/html", headers={"Content-Security-Policy": CSP})

    async def _badge(self, _: web.Request) -> web.Response:
        return web.json_response({"open": {"critical": 0, "warning": 0}})

    async def _fleet_now(self, request: web.Request) -> web.Response:
        template = "fleet" if request.headers.get("HX-Target") != "instances" else "_instances"
        context = {"auths": self.fleet.auths, "proxies": self.fleet.proxies}
        return self._page(f"dashboards/{template}.html", "fleet", context)

    async def _map(self, request: web.Request) -> web.Response:
        return self._page("dashboards/map.html", "map", {"figure": figures.map_figure()})

    async def _layout(self, request: web.Request) -> web.Response:
        return web.json_response(self.fleet.layout())

    async def _agents(self, request: web.Request) -> web.Response:
        chosen = request.query.getall("state", [])
        shown = self.fleet.shown()
        found = [i for i in range(len(shown)) if not chosen or State(shown[i]).slug in chosen]
        context = {
            "rows": [self._row(index) for index in found[:50]],
            "chosen": chosen,
            "total": len(found),
            "next_url": "/agents/?after=x" if len(found) > 50 else "",
        }
        return self._page("dashboards/agents.html", "agents", context)

    async def _agent(self, request: web.Request) -> web.Response:
        index = self.fleet.names.index(request.match_info["id"].removeprefix("id-"))
        row = self._row(index)
        part = request.headers.get("HX-Target") == "agent-card"
        home = row["home"]
        context = {
            "agent": row,
            "tunnels": [
                {
                    "proxy": home,
                    "slug": "ok",
                    "label": "ok",
                    "why": "",
                    "opened": row["since"],
                    "opened_ms": 9000,
                }
            ],
            "evidence": [
                ("Heartbeat written by", "auth-1"),
                ("Resource TTL", "20 s"),
                ("Tunnels wanted", "2"),
            ],
        }
        return self._page(f"dashboards/{'_agent_card' if part else 'agent'}.html", "agents", context)

    def _row(self, index: int) -> dict[str, Any]:
        state = State(self.fleet.shown()[index])
        home = self.fleet.blocks[self.fleet.homes[index]][1] if self.fleet.homes[index] >= 0 else ""
        bad = state is State.STRANDED
        return {
            "id": f"id-{self.fleet.names[index]}",
            "name": self.fleet.names[index],
            "state": state,
            "reason": "proxy-unhealthy" if bad else "",
            "sentence": f"Its only tunnel is on {home}, which is silent." if bad else "",
            "recovery": "yes, by 03:21:40 UTC" if bad else "",
            "cause": home if bad else "",
            "since": datetime(2026, 3, 1, 3, 12, 7, tzinfo=UTC),
            "since_ms": 252_000,
            "auth": "auth-1",
            "auth_slug": "ok",
            "proxies": [home],
            "home": home,
            "expires": datetime(2026, 3, 1, 3, 16, 40, tzinfo=UTC),
            "expires_ms": -21_000,
        }

    async def _summary(self, request: web.Request) -> web.Response:
        as_of = datetime.now(UTC).isoformat()
        return web.json_response({"as_of": as_of, "stale": self.fleet.stale, "counts": self.fleet.counts()})

    async def _socket(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        if self.fleet.refuse is not None:
            await socket.close(code=self.fleet.refuse)
            return socket
        self.fleet.sockets.add(socket)
        try:
            await self.fleet.snapshot(socket)
            async for message in socket:
                if message.type is WSMsgType.TEXT:
                    self.fleet.asked.append(message.json()["type"])
                    await self.fleet.snapshot(socket)
        finally:
            self.fleet.sockets.discard(socket)
        return socket

    async def _static(self, request: web.Request) -> web.FileResponse:
        path = request.match_info["path"]
        found = finders.find(path)
        if not isinstance(found, str):
            raise web.HTTPNotFound
        kind = mimetypes.guess_type(path)[0] or "application/octet-stream"
        return web.FileResponse(found, headers={"Content-Type": kind})


def instance(name: str, kind: str, slug: str = "ok", **more: Any) -> dict[str, Any]:
    """One card of the strip, well unless told otherwise."""
    well = {"sentence": "", "agents": 50, "heartbeat_ms": 4_000, "ttl_ms": 20_000, "bad": []}
    return {"id": name, "name": name, "kind": kind, "slug": slug, "label": slug, **well, **more}


def even_fleet(proxies: int, each: int) -> ScriptedFleet:
    """A healthy fleet, `each` agents on every proxy."""
    names = [f"agent-{number:03d}" for number in range(1, proxies * each + 1)]
    blocks = [(f"uuid-{number}", f"proxy-{number}") for number in range(1, proxies + 1)]
    return ScriptedFleet(
        names=names,
        homes=[index // each for index in range(len(names))],
        blocks=blocks,
        states=bytearray([State.HEALTHY] * len(names)),
        auths=[instance(f"auth-{number}", "auth") for number in range(1, 4)],
        proxies=[instance(name, "proxy", agents=each) for _id, name in blocks],
    )


def block_of(fleet: ScriptedFleet, number: int) -> Iterable[int]:
    """Agent indices of one block."""
    return (index for index, home in enumerate(fleet.homes) if home == number)
