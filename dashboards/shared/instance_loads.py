"""How evenly agents are spread: the load of each auth and proxy beside the mean of its peers. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urlencode

from fleet.monitoring.views import InstanceView
from fleet.vocabulary.instances import InstanceKind, InstanceState

#: Share of the mean from which a difference is named: below, chance alone explains it.
_MIN_NAMED_SHARE = 0.25
#: Mean load from which a difference is named: of a few tunnels, one more is a large share.
_MIN_NAMED_MEAN = 4.0


@dataclass(frozen=True, slots=True)
class InstanceLoad:
    """Number of tunnels (proxies) or connected agents (auths) of an instance beside its peers."""

    kind: InstanceKind
    count: int
    #: Share of the largest count among the instances of its kind, 0 to 100.
    percent_of_largest: int
    #: Difference to the mean of its peers as a share of it, in hundredths: 0.6 for 60 % above; None if small, or
    #: without peers. All pages show whole percents of this number.
    imbalance: float | None = None
    #: Query of the campaign that spreads agents, where the instance has too few; empty otherwise.
    spread_query: str = ""

    @property
    def imbalance_text(self) -> str:
        """Return the imbalance in words: `60 % more than the average proxy`; empty without one."""
        if self.imbalance is None:
            return ""
        comparative = "more" if self.imbalance > 0 else "fewer"
        return f"{round(100 * abs(self.imbalance))} % {comparative} than the average {self.kind}"


def spread_query_of(kind: str) -> str:
    """Return the query of a campaign that makes the loads of the instances of a kind even."""
    connection = "auth" if kind == InstanceKind.AUTH else "tunnel"
    return urlencode({"connection": connection, "spread": "1"})


def instance_loads_of(views: Iterable[InstanceView]) -> dict[int, InstanceLoad]:
    """Return the loads by instance index.

    The mean is that of the instances of one kind that are OK and accept connections: the others lose agents anyway.
    """
    loads = {}
    all_views = list(views)
    for kind in InstanceKind:
        members = [view for view in all_views if view.facts.kind is kind]
        peers = [view.agent_count for view in members if _is_balanced(view)]
        mean = sum(peers) / len(peers) if len(peers) > 1 else 0.0
        largest = max((view.agent_count for view in members), default=0)
        for view in members:
            loads[view.facts.index] = InstanceLoad(
                kind,
                view.agent_count,
                round(100 * view.agent_count / largest) if largest else 0,
                imbalance := _find_imbalance(view.agent_count, mean) if _is_balanced(view) else None,
                spread_query_of(kind) if imbalance is not None and imbalance < 0 else "",
            )
    return loads


def _is_balanced(view: InstanceView) -> bool:
    """Return whether the instance should have as many agents as its peers."""
    return view.state is InstanceState.OK and view.drain_request is None


def _find_imbalance(count: int, mean: float) -> float | None:
    if mean < _MIN_NAMED_MEAN or abs(count - mean) < _MIN_NAMED_SHARE * mean:
        return None
    return round((count - mean) / mean, 2)
