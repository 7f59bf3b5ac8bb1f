"""Clients leave an unhealthy auth (RFD 226, "Auth HTTP Clients"), with a real client behind a real balancer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp

from fleet.nodes.auth.server import Auth
from fleet.nodes.auth.site import HTTPFlags
from fleet.nodes.balancer.rotation import BalancerTarget
from fleet.nodes.balancer.server import LoadBalancer
from fleet.nodes.local.forward_names import ForwardMode
from fleet.nodes.local.forwards import Forward
from fleet.nodes.shared import addresses
from tests.fakes.plane import Plane, get_diag
from tests.fakes.waiting import eventually

PATH = "/v2/authservers"


async def count_responses(auth: Auth) -> float:
    """Return how many requests an auth has responded to."""
    lines = (await get_diag(auth.instance, "/metrics"))[1].splitlines()
    return sum(
        float(line.split()[-1]) for line in lines if line.startswith("refloat_auth_http_requests_total")
    )


class BalancedAuths:
    """Two auths behind a balancer and a client that keeps its connection; the first auth can lose its backend."""

    def __init__(
        self,
        auths: list[Auth],
        forward: Forward,
        balancer: LoadBalancer,
        url: str,
        client: aiohttp.ClientSession,
    ) -> None:
        self.auths = auths
        self.forward = forward
        self.balancer = balancer
        self._url = url
        self._client = client

    async def send_request(self) -> tuple[str, int, str]:
        """Send one request; return the name of the auth that responded, the code, and the Connection header."""
        counts_before = [await count_responses(auth) for auth in self.auths]
        async with self._client.get(self._url) as response:
            await response.read()
        counts_after = [await count_responses(auth) for auth in self.auths]
        (auth_name,) = [
            auth.instance.flags.name
            for auth, n, m in zip(self.auths, counts_before, counts_after, strict=True)
            if n != m
        ]
        return auth_name, response.status, response.headers.get("connection", "")

    def list_readiness(self) -> list[bool]:
        return [bool(target["ready"]) for target in self.balancer.describe()]


@asynccontextmanager
async def start_balanced_auths(plane: Plane, *, close_unhealthy: bool) -> AsyncIterator[BalancedAuths]:
    forward, url = await plane.backend_forward()
    flags = HTTPFlags(close_unhealthy=close_unhealthy)
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
    balancer = LoadBalancer("auths", targets, 0.05, probe_timeout=30.0)
    async with aiohttp.ClientSession() as client:
        address = await balancer.start(("127.0.0.1", 0))
        balanced = BalancedAuths(auths, forward, balancer, f"http://{address}{PATH}", client)
        try:
            await eventually(lambda: balanced.list_readiness() == [True, True])
            yield balanced
        finally:
            await balancer.stop()


async def connect_to_first_auth(balanced: BalancedAuths) -> None:
    """Make the client's only connection lead to auth-1."""
    auth_name, code, header = await balanced.send_request()
    if auth_name != "auth-1":
        for forward in list(balanced.balancer._links):
            forward.close()
        auth_name, code, header = await balanced.send_request()
    assert (auth_name, code, header) == ("auth-1", 200, "")


async def test_client_leaves_unhealthy_auth_after_one_response(plane: Plane) -> None:
    """A healthy auth keeps the connection; an unhealthy auth closes it, and auth-2 serves the next request."""
    async with start_balanced_auths(plane, close_unhealthy=True) as balanced:
        await connect_to_first_auth(balanced)
        for _ in range(3):
            assert await balanced.send_request() == ("auth-1", 200, "")
        await balanced.forward.change(mode=ForwardMode.CUT)
        await eventually(lambda: balanced.list_readiness() == [False, True])
        auth_name, code, header = await balanced.send_request()
        assert (auth_name, code, header.lower()) == ("auth-1", 503, "close")
        for _ in range(3):
            assert await balanced.send_request() == ("auth-2", 200, "")
        lines = (await get_diag(balanced.auths[0].instance, "/metrics"))[1].splitlines()
        assert "refloat_auth_http_connections_closed_total 1.0" in lines


async def test_client_stays_with_unhealthy_auth_without_the_flag(plane: Plane) -> None:
    """The connection outlives the balancer's decision."""
    async with start_balanced_auths(plane, close_unhealthy=False) as balanced:
        await connect_to_first_auth(balanced)
        await balanced.forward.change(mode=ForwardMode.CUT)
        await eventually(lambda: balanced.list_readiness() == [False, True])
        for _ in range(3):
            assert await balanced.send_request() == ("auth-1", 503, "")


async def test_recovered_auth_keeps_connections_again(plane: Plane) -> None:
    """An auth whose backend is back does not close connections."""
    async with start_balanced_auths(plane, close_unhealthy=True) as balanced:
        await balanced.forward.change(mode=ForwardMode.CUT)
        await eventually(lambda: balanced.list_readiness() == [False, True])
        await balanced.forward.change(mode=ForwardMode.PASS)
        await eventually(lambda: balanced.list_readiness() == [True, True])
        async with (
            aiohttp.ClientSession() as client,
            client.get(f"http://{balanced.auths[0].http_address}{PATH}") as response,
        ):
            assert (response.status, response.headers.get("connection", "")) == (200, "")
