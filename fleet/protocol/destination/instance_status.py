"""What an instance says of itself beside being well: that it would rather not be preferred, or takes nobody new.

Said in headers of `/readyz` and in metadata of gRPC health's answers, and by two more names of gRPC health. The header
of "degraded" is Envoy's (https://www.envoyproxy.io/docs/envoy/latest/intro/arch_overview/upstream/health_checking,
"Degraded health"), so that Envoy reads it, too. Pure. docs/destination-health.md, "What an instance says of itself".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

#: Whether it is there is what counts; we write why. Lower case: they are gRPC metadata as well.
DEGRADED_HEADER = "x-envoy-degraded"
DRAINING_HEADER = "x-refloat-draining"

#: Services of gRPC health: SERVING when it is well, and is not degraded, or does not drain.
PREFERRED_SERVICE = "refloat.preferred"
ACCEPTING_SERVICE = "refloat.accepting"
#: All that auths and proxies serve; the empty name is the whole server.
HEALTH_SERVICES = ("", PREFERRED_SERVICE, ACCEPTING_SERVICE)

#: Characters of a reason.
LONGEST_REASON = 200


@dataclass(frozen=True, slots=True)
class InstanceStatus:
    """What it says, each with a reason; None when it does not say it."""

    degraded_reason: str | None = None
    draining_reason: str | None = None


EMPTY_STATUS = InstanceStatus()


def is_reason(text: str) -> bool:
    """Tell whether people may be shown this as a reason; none is one."""
    return len(text) <= LONGEST_REASON and text.isprintable()


def headers(status: InstanceStatus) -> list[tuple[str, str]]:
    """Write it. A header's value is ASCII: what is not is escaped."""
    return [
        (name, _ascii(reason) or "yes")
        for name, reason in ((DEGRADED_HEADER, status.degraded_reason), (DRAINING_HEADER, status.draining_reason))
        if reason is not None
    ]


def read(pairs: Iterable[tuple[str, str | bytes]]) -> InstanceStatus:
    """Read it from headers or metadata; somebody else may have written them."""
    reasons: dict[str, str] = {}
    for name, value in pairs:
        text = value.decode("latin-1") if isinstance(value, bytes) else value
        reasons[name.lower()] = "".join(filter(str.isprintable, text))[:LONGEST_REASON]
    return InstanceStatus(reasons.get(DEGRADED_HEADER), reasons.get(DRAINING_HEADER))


def merge_reports(reports: Sequence[InstanceStatus]) -> InstanceStatus | None:
    """Return what several answers of an instance say together, the first word on each; None without an answer."""
    if not reports:
        return None
    degraded_reason = next((report.degraded_reason for report in reports if report.degraded_reason is not None), None)
    return InstanceStatus(degraded_reason, next((report.draining_reason for report in reports if report.draining_reason is not None), None))


def _ascii(reason: str) -> str:
    return reason.encode("ascii", "backslashreplace").decode()[:LONGEST_REASON]
