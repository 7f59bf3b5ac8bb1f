"""How to repair a failing instance, as far as the polls tell why it fails. Pure."""

from __future__ import annotations

from fleet.alerts.wording.failure_clauses import refuses_connections
from fleet.monitoring.views import InstanceView
from fleet.vocabulary.instances import (
    READYZ_DEGRADED,
    SICK_STATES,
    InstanceFacts,
    InstanceKind,
    InstanceState,
)


def repair_steps_of(view: InstanceView, now: float, heartbeat_auth: str = "") -> tuple[str, ...]:
    """Return what to do about an instance as sentences, in order; only that it is not failing, if it is not.

    `heartbeat_auth`: name of the auth through which a proxy sends heartbeats; empty if not known.
    """
    name = view.facts.name
    if view.state not in SICK_STATES:
        return (f"{name} is not failing: there is nothing to repair.",)
    return (
        _describe_repair(view, heartbeat_auth or "its auth"),
        (
            f"Refloat notices by itself, in the next round, that {name} is back. Its incident then recovers at once, "
            "and resolves after its quiet time (5 min by default)."
        ),
        _describe_removal(view, now),
    )


def _describe_repair(view: InstanceView, heartbeat_auth: str) -> str:
    """Return how to end the failure, as far as the polls tell why the instance fails."""
    facts = view.facts
    name, address = facts.name, facts.address or "its address"
    match view.state:
        case InstanceState.SILENT if refuses_connections(facts):
            return f"Start {name} again: its host responds, but nothing listens at {address}. Read its log first."
        case InstanceState.SILENT:
            return (
                f"Check the host of {name}, the network to {address}, and whether its process runs. "
                "Start it again if it has ended or hangs."
            )
        case InstanceState.GONE:
            return f"{name} ended and deregistered itself. Start it again if that was not intended."
        case _ if facts.readyz == READYZ_DEGRADED and facts.kind is InstanceKind.AUTH:
            return f"Check the auth backend, and the network from {name} to it. {name} itself responds."
        case _ if facts.readyz == READYZ_DEGRADED:
            return f"Check {heartbeat_auth}, and the network from {name} to it. {name} itself responds."
        case _:
            return f"Read the log of {name}{_describe_readyz(facts)}. If it does not recover, drain and restart it."


def _describe_readyz(facts: InstanceFacts) -> str:
    return f" and http://{facts.diag_address}/readyz" if facts.diag_address else ""


def _describe_removal(view: InstanceView, now: float) -> str:
    """Return what happens with an instance that does not come back: it cannot be removed by hand."""
    name = view.facts.name
    if view.state is InstanceState.GONE:
        return f"Otherwise there is nothing to do: agents look for other instances without {name}."
    silence_advice = f"If {name} no longer exists, silence its incident."
    if view.facts.kind is InstanceKind.AUTH:
        # With pick_first, the end of the heartbeat moves no agents: the end of the connection does.
        agents = (
            "Its agents look for other auths when their connections to it end, or when you reconnect them."
        )
    elif view.facts.expires_at is not None and view.facts.expires_at <= now:
        agents = "Its heartbeat has expired, so its agents look for other instances now."
    else:
        agents = "Its agents look for other instances when its heartbeat has expired."
    end = f"10 min after its heartbeat expired, Refloat no longer polls {name}, and lists it as expired."
    return f"{silence_advice} {agents} {end}"
