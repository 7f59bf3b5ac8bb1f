"""Retry policy, timeouts and counters of a gateway's rule in plain words. Pure."""

from __future__ import annotations

from fleet.protocol.durations import format_readable
from fleet.vocabulary.edge_instances import RouteRule


def describe_retry(rule: RouteRule) -> str:
    """Return the retry policy as a sentence."""
    retry = rule.retry
    if retry is None:
        return "No retries."
    noun = "retry" if retry.attempts == 1 else "retries"
    # Without reasons only transient failures are retried (docs/reference/retries.md).
    reasons = _join(retry.reasons) if retry.reasons else "unavailable or a timeout of the attempt"
    growth = "" if retry.attempts == 1 else ", and at least twice as long before each further one"
    return (
        f"Up to {retry.attempts} {noun} after {reasons}, at least {format_readable(retry.backoff)} after the "
        f"failure{growth}."
    )


def describe_timeouts(rule: RouteRule) -> str:
    """Return the timeouts as a sentence."""
    parts = []
    if rule.request_timeout:
        parts.append(f"{format_readable(rule.request_timeout)} for the whole call")
    if rule.attempt_timeout:
        parts.append(f"{format_readable(rule.attempt_timeout)} for each attempt")
    return f"Timeouts: {' and '.join(parts)}." if parts else "No timeouts."


def describe_retry_counts(rule: RouteRule) -> str:
    """Return how often attempts were retried, and after which statuses; empty without retries."""
    return ", ".join(f"{count:,} {status}" for status, count in rule.retry_counts)


def format_share(share: float) -> str:
    """Return a share of the calls: `33 %`; `no calls` for 0."""
    percent = round(share * 100)
    return f"{max(percent, 1)} %" if share > 0 else "no calls"


def _join(reasons: tuple[str, ...]) -> str:
    return reasons[0] if len(reasons) == 1 else f"{', '.join(reasons[:-1])} or {reasons[-1]}"
