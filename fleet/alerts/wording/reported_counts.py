"""Tunnels that a proxy counts without naming their agents, in words: docs/reference/sources.md. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from fleet.vocabulary.instances import InstanceFacts, InstanceKind, InstanceState

#: Type of the tunnels whose missing ones a proxy counts.
_NODE_TYPE = "node"
#: Seconds without counts while the instance responds, from which counts are old.
_CURRENT_SECONDS = 30.0
_NOT_NAMED = "The API of the cluster does not name the agents."


@dataclass(frozen=True, slots=True)
class ReportedCounts:
    """Tunnels of a proxy as it counts them."""

    total: int
    #: Tunnels by type, `397 node, 12 app`; empty without tunnels.
    types: str
    #: How many tunnels are missing, as a sentence; empty if none is.
    missing_sentence: str
    #: The proxy does not report the numbers any more.
    is_past: bool


def find_reported_counts(facts: InstanceFacts, state: InstanceState) -> ReportedCounts | None:
    """Return the counts of a proxy; None for an auth, and for a proxy that never reported any."""
    if facts.kind is not InstanceKind.PROXY or facts.counted_at is None or not facts.diag_address:
        return None
    newest_attempt_at = facts.attempts[0].at if facts.attempts else facts.counted_at
    is_past = not state.has_current_counts or newest_attempt_at - facts.counted_at > _CURRENT_SECONDS
    total = sum(count for _, count in facts.connection_counts)
    by_count = sorted(facts.connection_counts, key=lambda entry: (-entry[1], entry[0]))
    return ReportedCounts(
        total,
        ", ".join(f"{count:,} {name}" for name, count in by_count if count),
        _describe_missing(facts, total, is_past=is_past),
        is_past,
    )


def _describe_missing(facts: InstanceFacts, total: int, *, is_past: bool) -> str:
    if is_past:
        if not total:
            return ""
        return f"{facts.name} had {total:,} tunnel{'' if total == 1 else 's'} when it last reported them. {_NOT_NAMED}"
    missing_count = facts.missing_tunnel_count
    if not missing_count:
        return ""
    expected_count = missing_count + dict(facts.connection_counts).get(_NODE_TYPE, 0)
    verb = "is" if expected_count == 1 else "are"
    noun = "tunnel" if expected_count == 1 else "tunnels"
    return f"{missing_count:,} of {expected_count:,} SSH {noun} {verb} missing at {facts.name}. {_NOT_NAMED}"
