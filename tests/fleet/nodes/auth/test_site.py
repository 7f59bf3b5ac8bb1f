"""Clients leave an unhealthy auth: RFD 226, "Auth HTTP Clients", with a real client behind a real balancer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp

from fleet.nodes.auth.server import Auth
from fleet.nodes.auth.site import HTTPFlags
from fleet.nodes.balancer.rotation import BalancerTarget
from fleet.nodes.balancer.server import Balancer
from fleet.nodes.local.forward_names import ForwardMode
from fleet.nodes.local.forwards import Forward
from fleet.nodes.shared import addresses
from tests.fakes.plane import Plane, get
from tests.fakes.waiting import eventually

PATH = "/v2/authservers"


async def answered(auth: Auth) -> float:
    """How many requests an auth answered."""
    lines = (await get(auth.instance, "/metrics"))[1].splitlines()
    return sum(
        float(line.split()[-1]) for line in lines if line.startswith("refloat_auth_http_requests_total")
    )


class Behind:
    """Two auths behind a balancer, the first of which can lose its backend, and a client that keeps alive."""

    def __init__(
        self, auths: list[Auth], link: Forward, balancer: Balancer, url: str, client: aiohttp.ClientSession
    ) -> None:
        self.auths = auths
        self.link = link
        self.balancer = balancer
        self._url = url
        self._client = client

    async def ask(self) -> tuple[str, int, str]:
        """Ask once; return who answered, the code, and the Connection header."""
        before = [await answered(auth) for auth in self.auths]
        async with self._client.get(self._url) as answer:
            await answer.read()
        after = [await answered(auth) for auth in self.auths]
        (who,) = [
            auth.instance.flags.name for auth, n, m in zip(self.auths, before, after, strict=True) if n != m
        ]
        return who, answer.status, answer.headers.get("connection", "")

    def in_rotation(self) -> list[bool]:
        return [bool(target["ready"]) for target in self.balancer.describe()]


@asynccontextmanager
async def behind(plane: Plane, *, close: bool) -> AsyncIterator[Behind]:
    link, url = await plane.backend_forward()
    flags = HTTPFlags(close_unhealthy=close)
    auths = [
        await plane.auth("auth-1", backend=url, http=flags, ttl=1.0),
        await plane.auth("auth-2", http=flags),
    ]
    targets = [
        BalancerTarget(
            auth.instance.flags.name,
            addresses.parse(auth.http_address),
            addresses.parse(auth.instance.diag_address),
        )
        for auth in auths
    ]
    balancer = Balancer("auths", targets, 0.05, probe_within=30.0)
    async with aiohttp.ClientSession() as client:
        address = await balancer.start(("127.0.0.1", 0))
        made = Behind(auths, link, balancer, f"http://{address}{PATH}", client)
        try:
            await eventually(lambda: made.in_rotation() == [True, True])
            yield made
        finally:
            await balancer.stop()


async def on_the_first(made: Behind) -> None:
    """Have the client's one connection lead to auth-1."""
    who, code, header = await made.ask()
    if who != "auth-1":
        for link in list(made.balancer._links):
            link.close()
        who, code, header = await made.ask()
    assert (who, code, header) == ("auth-1", 200, "")


async def test_clients_move(plane: Plane) -> None:
    """Kept alive while healthy; once unhealthy one response ends the connection, and the next comes from auth-2."""
    async with behind(plane, close=True) as made:
        await on_the_first(made)
        for _ in range(3):
            assert await made.ask() == ("auth-1", 200, "")
        await made.link.change(mode=ForwardMode.CUT)
        await eventually(lambda: made.in_rotation() == [False, True])
        who, code, header = await made.ask()
        assert (who, code, header.lower()) == ("auth-1", 503, "close")
        for _ in range(3):
            assert await made.ask() == ("auth-2", 200, "")
        lines = (await get(made.auths[0].instance, "/metrics"))[1].splitlines()
        assert "refloat_auth_http_connections_closed_total 1.0" in lines


async def test_clients_stay_without_the_switch(plane: Plane) -> None:
    """What the switch is for: without it the connection outlives the balancer's decision."""
    async with behind(plane, close=False) as made:
        await on_the_first(made)
        await made.link.change(mode=ForwardMode.CUT)
        await eventually(lambda: made.in_rotation() == [False, True])
        for _ in range(3):
            assert await made.ask() == ("auth-1", 503, "")


async def test_recovered_auth_keeps_alive_again(plane: Plane) -> None:
    """With its backend back an auth lets connections live."""
    async with behind(plane, close=True) as made:
        await made.link.change(mode=ForwardMode.CUT)
        await eventually(lambda: made.in_rotation() == [False, True])
        await made.link.change(mode=ForwardMode.PASS)
        await eventually(lambda: made.in_rotation() == [True, True])
        async with (
            aiohttp.ClientSession() as client,
            client.get(f"http://{made.auths[0].http_address}{PATH}") as answer,
        ):
            assert (answer.status, answer.headers.get("connection", "")) == (200, "")
