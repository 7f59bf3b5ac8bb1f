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
class Said:
    """What it says, each with a reason; None when it does not say it."""

    degraded: str | None = None
    draining: str | None = None


NOTHING = Said()


def is_reason(text: str) -> bool:
    """Tell whether people may be shown this as a reason; none is one."""
    return len(text) <= LONGEST_REASON and text.isprintable()


def headers(said: Said) -> list[tuple[str, str]]:
    """Write it. A header's value is ASCII: what is not is escaped."""
    return [
        (name, _ascii(reason) or "yes")
        for name, reason in ((DEGRADED_HEADER, said.degraded), (DRAINING_HEADER, said.draining))
        if reason is not None
    ]


def read(pairs: Iterable[tuple[str, str | bytes]]) -> Said:
    """Read it from headers or metadata; somebody else may have written them."""
    found: dict[str, str] = {}
    for name, value in pairs:
        text = value.decode("latin-1") if isinstance(value, bytes) else value
        found[name.lower()] = "".join(filter(str.isprintable, text))[:LONGEST_REASON]
    return Said(found.get(DEGRADED_HEADER), found.get(DRAINING_HEADER))


def joined(reports: Sequence[Said]) -> Said | None:
    """Return what several answers of an instance say together, the first word on each; None without an answer."""
    if not reports:
        return None
    degraded = next((report.degraded for report in reports if report.degraded is not None), None)
    return Said(degraded, next((report.draining for report in reports if report.draining is not None), None))


def _ascii(reason: str) -> str:
    return reason.encode("ascii", "backslashreplace").decode()[:LONGEST_REASON]
