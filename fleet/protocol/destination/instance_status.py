"""What an instance declares about itself beside its health: degraded (not preferred) or draining (no new sessions).

Sent as headers of `/readyz`, as metadata of gRPC health responses, and as two more gRPC health services. The "degraded"
header is Envoy's (https://www.envoyproxy.io/docs/envoy/latest/intro/arch_overview/upstream/health_checking,
"Degraded health"), so Envoy understands it, too. Pure. docs/reference/destination-health.md, "Declared status".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

#: The presence of a header counts; its value is the reason. Lower case, because both are gRPC metadata, too.
DEGRADED_HEADER = "x-envoy-degraded"
DRAINING_HEADER = "x-refloat-draining"

#: gRPC health services: SERVING while the instance is healthy and not degraded, or healthy and not draining.
PREFERRED_SERVICE = "refloat.preferred"
ACCEPTING_SERVICE = "refloat.accepting"
#: Health services of auths and proxies; the empty name is the whole server.
HEALTH_SERVICES = ("", PREFERRED_SERVICE, ACCEPTING_SERVICE)

#: Maximum length of a reason, characters.
LONGEST_REASON = 200


@dataclass(frozen=True, slots=True)
class InstanceStatus:
    """The declarations of an instance, each with its reason; None: not declared. An empty reason is allowed."""

    degraded_reason: str | None = None
    draining_reason: str | None = None


EMPTY_STATUS = InstanceStatus()


def is_valid_reason(text: str) -> bool:
    """Return whether a text may be shown as a reason: printable and not too long. Empty means no reason."""
    return len(text) <= LONGEST_REASON and text.isprintable()


def to_headers(status: InstanceStatus) -> list[tuple[str, str]]:
    """Return the declarations as headers, lower-case names. Characters beyond ASCII are escaped."""
    return [
        (name, _escape_ascii(reason) or "yes")
        for name, reason in (
            (DEGRADED_HEADER, status.degraded_reason),
            (DRAINING_HEADER, status.draining_reason),
        )
        if reason is not None
    ]


def from_headers(pairs: Iterable[tuple[str, str | bytes]]) -> InstanceStatus:
    """Read the declarations from headers or metadata of any sender: unprintable characters are dropped."""
    reasons: dict[str, str] = {}
    for name, value in pairs:
        text = value.decode("latin-1") if isinstance(value, bytes) else value
        reasons[name.lower()] = "".join(filter(str.isprintable, text))[:LONGEST_REASON]
    return InstanceStatus(reasons.get(DEGRADED_HEADER), reasons.get(DRAINING_HEADER))


def merge_reports(reports: Sequence[InstanceStatus]) -> InstanceStatus | None:
    """Merge the reports of one instance: the first reason of each declaration counts; None without reports."""
    if not reports:
        return None
    degraded_reason = next(
        (report.degraded_reason for report in reports if report.degraded_reason is not None), None
    )
    return InstanceStatus(
        degraded_reason,
        next((report.draining_reason for report in reports if report.draining_reason is not None), None),
    )


def _escape_ascii(reason: str) -> str:
    return reason.encode("ascii", "backslashreplace").decode()[:LONGEST_REASON]
