"""States of auths and proxies as pages show them: one word for one fault, and the look of what it does to agents. Pure.

docs/reference/verdicts.md, "Instance states".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fleet.alerts.wording.failure_clauses import label_of_instance
from fleet.monitoring.views import FleetTable, InstanceView
from fleet.protocol.destination.health import Health
from fleet.vocabulary.instances import SICK_STATES, InstanceKind, InstanceState
from fleet.vocabulary.verdicts import BACKEND_CAUSE, State


@dataclass(frozen=True, slots=True)
class ShownInstanceState:
    """State of an auth or proxy as pages show it."""

    label: str
    #: Name of the symbol, without `shape-`.
    symbol: str
    #: CSS class of the colours.
    css_class: str


def find_stranding_instances(table: FleetTable) -> frozenset[int]:
    """Return the indices of failing instances that strand agents now.

    Those that are the cause of stranded agents; if that is the auth backend, the failing auths of these agents.
    """
    if table.stale:
        return frozenset()
    causes = set(np.unique(table.verdicts["cause"][table.verdicts["state"] == State.STRANDED]).tolist())
    return frozenset(
        index
        for index, view in table.instances.items()
        if view.state in SICK_STATES
        and (
            index in causes
            or (
                BACKEND_CAUSE in causes
                and view.facts.kind is InstanceKind.AUTH
                and view.counts.get(State.STRANDED, 0) > 0
            )
        )
    )


def shown_state_of(view: InstanceView, *, is_stranding: bool) -> ShownInstanceState:
    """Return the state of an instance for pages: instead of `OK`, that it is degraded, unhealthy or draining.

    `is_stranding`: it strands agents, and has their symbol and colours; otherwise a failing instance is amber.
    """
    state = view.state
    is_declared = state is InstanceState.OK
    is_avoided = is_declared and view.health in (Health.DEGRADED, Health.UNHEALTHY)
    is_draining = is_declared and view.drain_request is not None
    if is_stranding:
        return ShownInstanceState(
            label_of_instance(view), State.STRANDED.slug, f"state-{State.STRANDED.slug}"
        )
    if not is_avoided and not is_draining:
        label = label_of_instance(view) if state in SICK_STATES else state.label
        # An instance that cannot send heartbeats expires while it responds: the fault stays the same.
        is_unhealthy = state is InstanceState.EXPIRED and label != state.label
        symbol = InstanceState.UNHEALTHY.slug if is_unhealthy else state.slug
        return ShownInstanceState(label, symbol, f"instance-{symbol}")
    labels = ([view.health.value] if is_avoided else []) + (["draining"] if is_draining else [])
    # Draining has the symbol and colours of the line that gives its reason.
    symbol, css_class = ("degraded", "state-degraded") if is_avoided else ("draining", "state-working")
    return ShownInstanceState(", ".join(labels), symbol, css_class)
