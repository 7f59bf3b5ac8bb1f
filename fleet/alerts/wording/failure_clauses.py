"""What failed, as a clause: `auth-1 lost its backend`, as far as the polls tell. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fleet.alerts.wording.words import format_since
from fleet.monitoring.views import FleetTable, InstanceView
from fleet.protocol.destination.health import Health
from fleet.vocabulary.error_texts import summarize_error
from fleet.vocabulary.incidents import CauseKind
from fleet.vocabulary.instances import (
    CONNECTED_SICK_STATES,
    READYZ_DEGRADED,
    READYZ_RECOVERING,
    InstanceFacts,
    InstanceKind,
    InstanceState,
)
from fleet.vocabulary.verdicts import Reason


@dataclass(frozen=True, slots=True)
class FailureClause:
    """A failure as a clause without a full stop, in three tenses."""

    #: `proxy-1 is not responding`.
    present: str
    #: `proxy-1 was not responding`.
    past: str
    #: The beginning of the clause with its start: `proxy-1 has not responded since`. Empty: it has none.
    start_prefix: str = ""

    def describe(self, since: float | None, now: float) -> str:
        """Return the clause with its start, if that is known: `proxy-1 has not responded since 10:14 UTC`."""
        return (
            f"{self.start_prefix} {format_since(since, now)}"
            if since is not None and self.start_prefix
            else self.present
        )


def as_sentence(clause: str) -> str:
    """Return a clause as a sentence. A clause that begins with a name keeps its small letter."""
    first_word = clause.partition(" ")[0]
    return f"{clause[:1].upper()}{clause[1:]}." if first_word.isalpha() else f"{clause}."


#: Failures that no instance causes, by the reason of the agents' states.
_CLAUSE_BY_REASON = {
    Reason.NO_TUNNEL: FailureClause(
        "no proxy reports a tunnel to them", "no proxy reported a tunnel to them"
    ),
    Reason.RESOURCE_EXPIRED: FailureClause(
        "their heartbeats expired although their auth is OK", "their heartbeats expired"
    ),
    Reason.POLICY_OFF: FailureClause(
        "their heartbeats expired and pick_first looks for no other auth", "their heartbeats expired"
    ),
    Reason.AUTH_UNHEALTHY: FailureClause("no auth is OK", "no auth was OK"),
    Reason.PROXY_UNHEALTHY: FailureClause("their proxies are failing", "their proxies failed"),
    Reason.PROXY_EXPIRED: FailureClause("their proxies expired", "their proxies expired"),
    Reason.DISAGREE: FailureClause("reports about them conflict", "reports about them conflicted"),
    Reason.TOO_FEW_TUNNELS: FailureClause(
        "they have fewer tunnels than desired", "they had fewer tunnels than desired"
    ),
}
#: The backend, for agents that still recover from its failure.
PAST_BACKEND_CLAUSE = FailureClause("the auth backend was failing", "the auth backend was failing")
#: Why all states are unknown.
CLUSTER_CLAUSE = FailureClause("no instance of the cluster responds", "no instance of the cluster responded")


def clause_of_reason(reason: Reason) -> FailureClause | None:
    """Return what failed for agents whose state has this reason and no instance as its cause; None: not known."""
    return _CLAUSE_BY_REASON.get(reason)


def clause_of_instance(view: InstanceView) -> FailureClause:
    """Return the failure of an auth or proxy, or that it was deregistered or is degraded.

    Of an instance that is OK: that it was failing, because agents may still recover from that.
    """
    name = view.facts.name
    match view.state:
        case InstanceState.SILENT if refuses_connections(view.facts):
            return FailureClause(
                f"{name} refuses connections",
                f"{name} refused connections",
                f"{name} has refused connections since",
            )
        case InstanceState.SILENT:
            return FailureClause(
                f"{name} is not responding", f"{name} was not responding", f"{name} has not responded since"
            )
        case InstanceState.UNHEALTHY | InstanceState.EXPIRED if view.facts.readyz == READYZ_DEGRADED:
            return _heartbeat_clause_of(view)
        case InstanceState.UNHEALTHY if view.facts.readyz == READYZ_RECOVERING:
            return FailureClause(f"{name} is recovering", f"{name} was recovering")
        case InstanceState.UNHEALTHY:
            return FailureClause(
                f"{name} is unhealthy", f"{name} was unhealthy", f"{name} has been unhealthy since"
            )
        case InstanceState.EXPIRED:
            return FailureClause(f"{name} has expired", f"{name} had expired", f"{name} expired at")
        case InstanceState.GONE:
            return FailureClause(
                f"{name} was deregistered", f"{name} was deregistered", f"{name} was deregistered at"
            )
        case _ if view.health is Health.DEGRADED:
            return FailureClause(
                f"{name} is degraded", f"{name} was degraded", f"{name} has been degraded since"
            )
        case InstanceState.UNKNOWN:
            return FailureClause(f"the state of {name} is unknown", f"the state of {name} was unknown")
        case _:
            return FailureClause(f"{name} was failing", f"{name} was failing")


def label_of_instance(view: InstanceView) -> str:
    """Return the failure of an auth or proxy as a label, in the words of the headline: `lost its backend`.

    Of a proxy that fails because of another instance: `fails with its auth`.
    """
    if view.cause and view.state in CONNECTED_SICK_STATES:
        is_backend = view.cause.startswith(f"{CauseKind.BACKEND.value}/")
        return "fails with backend" if is_backend else "fails with its auth"
    clause = clause_of_instance(view).present.removeprefix(f"{view.facts.name} ")
    first_word, _, predicate = clause.partition(" ")
    return predicate if first_word in ("is", "has", "was") else clause


def _heartbeat_clause_of(view: InstanceView) -> FailureClause:
    """Return the failure of a responding instance that cannot write its heartbeat."""
    name = view.facts.name
    if view.facts.kind is InstanceKind.AUTH:
        # An auth writes its heartbeat into the backend itself.
        clause = f"{name} lost its backend"
        return FailureClause(clause, clause, f"{clause} at")
    return FailureClause(
        f"{name} cannot send heartbeats",
        f"{name} could not send heartbeats",
        f"{name} has not been able to send heartbeats since",
    )


def clause_of_backend(table: FleetTable) -> FailureClause:
    """Return the failure of all auths at the same time."""
    auths = [
        view
        for view in table.instances.values()
        if view.facts.kind is InstanceKind.AUTH and view.state is not InstanceState.GONE
    ]
    subject = "both auths" if len(auths) == 2 else f"all {len(auths)} auths"
    if has_lost_backend(auths):
        return FailureClause(
            f"{subject} lost their backend",
            f"{subject} lost their backend",
            f"{subject} lost their backend at",
        )
    if all(auth.state is InstanceState.SILENT for auth in auths):
        return FailureClause(
            f"{subject} are not responding",
            f"{subject} were not responding",
            f"{subject} have not responded since",
        )
    return FailureClause(
        f"{subject} failed at the same time",
        f"{subject} failed at the same time",
        f"{subject} have been failing since",
    )


def has_lost_backend(auths: Sequence[InstanceView]) -> bool:
    """Return whether all of these auths respond but cannot write to their backend."""
    return all(auth.state in CONNECTED_SICK_STATES and auth.facts.readyz == READYZ_DEGRADED for auth in auths)


def clause_of_members(name: str, sick_count: int, member_count: int) -> FailureClause:
    """Return the failure of several instances of a proxy group or region."""
    subject = f"{sick_count} of {member_count} instances of {name}"
    return FailureClause(
        f"{subject} are failing", f"{subject} were failing", f"{subject} have been failing since"
    )


def refuses_connections(facts: InstanceFacts) -> bool:
    """Return whether the host responds, but nothing listens there: the process has most likely ended.

    A connection that is closed is no sign of it: the load balancer of a process that ended closes it, and so does a
    process that hangs.
    """
    return len(facts.attempts) > 1 and all(
        "refused" in summarize_error(attempt.error).lower() for attempt in facts.attempts[:2]
    )
