"""The map in headless Chromium: bytes and time until all cells are painted, and updates of 100,000 agents.

The web process runs as always. The record is written as pollers write it; agents are spread at random over proxies and
auths. Times come from marks and frames of the page.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path

from tests.bench.measure import Figure, Outcome, Target

_SETTINGS_MODULE = "dashboards.config.settings"
#: Agents, proxies, and repetitions of each measurement, and rounds with changes.
_LOAD, _LARGE = (20_000, 50), (100_000, 200)
_REPEATS, _ROUNDS = 5, 20
_QUICK_LOAD, _QUICK_LARGE, _QUICK_REPEATS, _QUICK_ROUNDS = (2_000, 10), (5_000, 20), 1, 3
_TARGETS = (
    Target("cold_painted_ms", at_most=1500),
    Target("cold_kb", at_most=700),
    Target("cold_data_kb", at_most=150),
    Target("warm_kb", at_most=60),
    Target("large_painted_after_data_ms", at_most=1500),
    Target("large_update_ms", at_most=250),
    Target("large_longest_frame_ms", at_most=100),
    Target("large_list_ms", at_most=300),
)


def run(*, quick: bool) -> Outcome:
    """Measure the load of the page, then updates and the list of agents of a large fleet."""
    with tempfile.TemporaryDirectory(prefix="refloat-bench-") as folder:
        os.environ |= {"REFLOAT_HOME": folder, "DJANGO_SETTINGS_MODULE": _SETTINGS_MODULE}
        import django

        django.setup()
        from tests.bench._map_browser import measure_load, measure_updates, open_browser
        from tests.flow.web import Console, web_console

        async def measure(console: Console) -> dict[str, Figure]:
            async with open_browser(console) as bench:
                load, large = (_QUICK_LOAD, _QUICK_LARGE) if quick else (_LOAD, _LARGE)
                figures = await measure_load(bench, *load, repeats=_QUICK_REPEATS if quick else _REPEATS)
                rounds = _QUICK_ROUNDS if quick else _ROUNDS
                return figures | await measure_updates(bench, *large, rounds=rounds)

        home = Path(folder) / "console"
        home.mkdir()
        with web_console(home) as started_console:
            figures = asyncio.run(measure(started_console))
    return Outcome(figures, () if quick else _TARGETS)
