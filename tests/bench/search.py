"""Search over HTTP at 100,000 agents: typeahead, palette, groups, and the first page of the list.

The web process runs as always; the record is written as pollers write it, with versions and labels. Requests use one
kept connection, as those of a browser do; each is sent when the response before it has arrived.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlencode

import aiohttp

from tests.bench.measure import BenchError, Figure, Outcome, Target, percentile

_SETTINGS_MODULE = "dashboards.config.settings"
#: Agents, proxies, and requests of each kind.
_LARGE, _QUICK = (100_000, 200, 30), (2_000, 20, 2)
#: What users type: a key, a value of each kind, a label, a comparison, a part of a name, and something unknown.
_TYPED_TEXTS = (
    "",
    "sta",
    "state:",
    "cause:proxy",
    "proxy:proxy-1",
    "-proxy:",
    "version:18",
    "label:region=",
    "age:>",
    "agent-99",
    "nothing like this",
)
_PALETTE_QUERIES = ("", "agent-999", "proxy-17", "networking", "nothing like this")
_LIST_QUERIES = ("", "state:stranded", "proxy:proxy-1 -state:healthy", "agent-99")
_GROUPINGS = ("cause", "proxy", "version")
_TARGETS = (
    Target("typeahead_ms", at_most=150),
    Target("palette_ms", at_most=150),
    Target("list_ms", at_most=300),
    Target("groups_ms", at_most=300),
)


def run(*, quick: bool) -> Outcome:
    """Measure each request over and over, in turn. Figures are medians of the slowest text of each kind."""
    with tempfile.TemporaryDirectory(prefix="refloat-bench-") as folder:
        os.environ |= {"REFLOAT_HOME": folder, "DJANGO_SETTINGS_MODULE": _SETTINGS_MODULE}
        import django

        django.setup()
        from tests.bench._search_fleet import write_fleet
        from tests.flow.web import web_console

        home = Path(folder) / "console"
        home.mkdir()
        with web_console(home) as console:
            agents, proxies, repeats = _QUICK if quick else _LARGE
            asyncio.run(write_fleet(console, agents, proxies))
            cookies = {cookie.name: str(cookie.value) for cookie in console.sign_in()}
            times = asyncio.run(_measure(f"{console.url}/c/large", cookies, repeats))
    figures: dict[str, Figure] = {"agents": agents}
    for kind, times_by_text in times.items():
        slowest = max(times_by_text, key=lambda text: statistics.median(times_by_text[text]))
        figures[f"{kind}_ms"] = round(statistics.median(times_by_text[slowest]), 1)
        figures[f"{kind}_p95_ms"] = round(percentile(times_by_text[slowest], 0.95), 1)
        figures[f"{kind}_slowest"] = slowest or "(empty)"
    return Outcome(figures, () if quick else _TARGETS)


async def _measure(url: str, cookies: Mapping[str, str], repeats: int) -> dict[str, dict[str, list[float]]]:
    """Return the milliseconds of each request by kind and text. Raises BenchError if a request fails."""
    paths_by_kind = {
        "typeahead": ("agent-filters.json", "text", _TYPED_TEXTS),
        "palette": ("palette.json", "q", _PALETTE_QUERIES),
        "list": ("agents/", "q", _LIST_QUERIES),
        "groups": ("agents/", "group", _GROUPINGS),
    }
    times: dict[str, dict[str, list[float]]] = {kind: {} for kind in paths_by_kind}
    async with aiohttp.ClientSession(cookies=cookies) as session:
        for repeat in range(repeats + 1):
            for kind, (path, parameter, texts) in paths_by_kind.items():
                for text in texts:
                    address = f"{url}/{path}?{urlencode({parameter: text})}"
                    duration_ms = await _request(session, address)
                    # Templates are compiled for the first request of a process.
                    if repeat:
                        times[kind].setdefault(text, []).append(duration_ms)
    return times


async def _request(session: aiohttp.ClientSession, address: str) -> float:
    """Return the milliseconds until the whole response has arrived."""
    start = time.perf_counter()
    async with session.get(address, allow_redirects=False) as response:
        body = await response.read()
    if response.status != 200:
        raise BenchError(f"{address} responded with {response.status}: {body[:200].decode(errors='replace')}")
    return (time.perf_counter() - start) * 1000
