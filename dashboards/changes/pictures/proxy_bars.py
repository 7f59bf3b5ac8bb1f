"""Bars of the tunnels of each proxy before and after a config change. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fleet.vocabulary.natural_order import natural_sort_key


@dataclass(frozen=True, slots=True)
class ProxyBar:
    """The tunnels of one proxy: bars of 0 to 100."""

    name: str
    before: int
    #: Least and most tunnels afterwards.
    after_low: int
    after_high: int
    #: The part that stays for certain, the part that may close or open, and the bar before.
    before_percent: float
    low_percent: float
    uncertain_percent: float
    opening_count: int
    is_uncertain: bool


def proxy_bars_of(
    proxies: Sequence[Mapping[str, Any]], uncertain_names: Sequence[str] = ()
) -> list[ProxyBar]:
    """Return the bars of a plan's proxies on one scale, in natural order. `uncertain_names`: not healthy now."""
    rows = sorted(proxies, key=lambda proxy: natural_sort_key(str(proxy["name"])))
    largest = max((max(int(row["tunnels_before"]), int(row["tunnels_after"][1])) for row in rows), default=0)
    scale = 100 / (largest or 1)
    return [
        ProxyBar(
            name=str(row["name"]),
            before=int(row["tunnels_before"]),
            after_low=low,
            after_high=high,
            before_percent=round(row["tunnels_before"] * scale, 1),
            low_percent=round(low * scale, 1),
            uncertain_percent=round((high - low) * scale, 1),
            opening_count=int(row["opening_count"][1]),
            is_uncertain=row["name"] in uncertain_names,
        )
        for row in rows
        for low, high in [row["tunnels_after"]]
    ]
