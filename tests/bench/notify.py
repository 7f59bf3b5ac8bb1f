"""Seconds from a frozen proxy to the message at a webhook, in the real demo with its default rules and group wait.

Two outages of 15 s, which are over before their first notification is due, and two that last until it has arrived.
"""

from __future__ import annotations

import asyncio
import os
import signal
import statistics
import time
from datetime import datetime
from typing import Any

import aiohttp

from fleet.vocabulary.incidents import NotificationKind
from tests.bench import _demo
from tests.bench.measure import BenchError, Outcome, Target
from tests.fakes.receivers import Receiver, run_receiver
from tests.flow.alerting import add_channel, sql

_SHORT_PROXIES, _LONG_PROXIES = ("proxy-1", "proxy-2"), ("proxy-3", "proxy-4")
_SHORT_OUTAGE_SECONDS = 15.0
#: Seconds from the start of an incident to the message.
_LIMIT_SECONDS = 35.0
#: An outage that takes longer counts as not notified.
_TIMEOUT_SECONDS = 120.0
#: Seconds for which nothing more may arrive about a short outage.
_QUIET_SECONDS = 20.0
_POLL_SECONDS = 0.05


def run(*, quick: bool) -> Outcome:
    """Freeze one proxy after another, and compare each message with what the API counted meanwhile.

    `--quick` freezes one of few agents, and waits for no group wait.
    """
    short_proxies, long_proxies = ((), _SHORT_PROXIES[:1]) if quick else (_SHORT_PROXIES, _LONG_PROXIES)
    flags = _demo.QUICK_FLAGS if quick else ()
    with _demo.start_demo(_demo.ROOT, *flags) as (_process, demo), run_receiver() as receiver:
        if quick:
            sql(demo.home, "update fleet_alertrule set group_wait = 0")
        add_channel(demo.home, "webhook", "url", receiver.url)
        return asyncio.run(_measure(demo, receiver, short_proxies, long_proxies))


async def _measure(
    demo: _demo.Demo, receiver: Receiver, short_proxies: tuple[str, ...], long_proxies: tuple[str, ...]
) -> Outcome:
    async with aiohttp.ClientSession() as session:
        client = _demo.DemoClient(demo, session)
        agent_count = await client.await_healthy(within=_demo.START_TIMEOUT)
        outages = []
        for proxies, seconds in ((short_proxies, _SHORT_OUTAGE_SECONDS), (long_proxies, None)):
            for proxy in proxies:
                outages.append(await _measure_outage(demo, client, receiver, proxy, seconds))
                print(f"{proxy}: {outages[-1]}", flush=True)
                await client.await_healthy(agents=agent_count, hold=2.0)
    short, long = outages[: len(short_proxies)], outages[len(short_proxies) :]
    figures: dict[str, float] = {"agents": agent_count}
    names = [name for name, group in (("short", short), ("long", long)) if group]
    for name, group in (("short", short), ("long", long)):
        if not group:
            continue
        figures[f"{name}_from_freeze_s"] = statistics.median(outage["from_freeze_s"] for outage in group)
        figures[f"{name}_from_start_s"] = max(outage["from_start_s"] for outage in group)
        figures[f"{name}_messages"] = max(outage["messages"] for outage in group)
        figures[f"{name}_untrue"] = sum(outage["untrue"] for outage in group)
    targets = [Target(f"{name}_from_start_s", at_most=_LIMIT_SECONDS) for name in names]
    targets += [Target(f"{name}_messages", at_most=1) for name in names]
    targets += [Target(f"{name}_untrue", at_most=0) for name in names]
    return Outcome(figures, targets)


async def _measure_outage(
    demo: _demo.Demo, client: _demo.DemoClient, receiver: Receiver, proxy: str, seconds: float | None
) -> dict[str, Any]:
    """Freeze a proxy for some seconds, None: until the message arrives. Return what was seen. Raises BenchError."""
    pid, before_count = await asyncio.to_thread(demo.pid_of, proxy), len(receiver.bodies)
    peak, arrived_at = 0, None
    start = time.monotonic()
    os.kill(pid, signal.SIGSTOP)
    try:
        while arrived_at is None:
            peak = max(peak, _demo.not_healthy(await client.counts()))
            seconds_since_start = time.monotonic() - start
            if len(receiver.bodies) > before_count:
                arrived_at = seconds_since_start
            elif seconds_since_start > _TIMEOUT_SECONDS:
                raise BenchError(f"no message about {proxy} within {_TIMEOUT_SECONDS:g} s")
            if seconds is not None and seconds_since_start >= seconds:
                os.kill(pid, signal.SIGCONT)
            await asyncio.sleep(_POLL_SECONDS)
    finally:
        os.kill(pid, signal.SIGCONT)
    arrived = time.time()
    if seconds is not None:
        quiet_until = time.monotonic() + _QUIET_SECONDS
        while time.monotonic() < quiet_until and len(receiver.bodies) == before_count + 1:  # noqa: ASYNC110 - nothing may come
            await asyncio.sleep(_POLL_SECONDS)
    bodies = receiver.bodies[before_count:]
    kind = NotificationKind.FIRING if seconds is None else NotificationKind.SHORT_OUTAGE
    return {
        "from_freeze_s": round(arrived_at, 1),
        "from_start_s": round(
            arrived - datetime.fromisoformat(bodies[0]["incident"]["opened_at"]).timestamp(), 1
        ),
        "messages": len(bodies),
        "untrue": _count_untrue(bodies[0], proxy, peak, kind),
        "subject": bodies[0]["subject"],
    }


def _count_untrue(body: dict[str, Any], proxy: str, peak: int, kind: NotificationKind) -> int:
    """Return how many of kind, severity, cause, number of agents and recovery are not those of the outage."""
    incident = body["incident"]
    recovery = (
        "all agents recovered at" if kind is NotificationKind.SHORT_OUTAGE else "no agents are affected now"
    )
    if incident["affected_count"]:
        recovery = "the agents recover automatically by"
    facts = (
        body["kind"] == kind.value,
        incident["severity"] == "critical",
        incident["cause"]["name"] == proxy,
        incident["peak_count"] == peak,
        str(incident["recovery"]).lower().startswith(recovery),
    )
    return facts.count(False)
