"""Checks of the clock of this machine against those of the database and of Redis. Pure."""

from __future__ import annotations

from fleet.management.doctor.findings import CheckFinding, error, ok, warning
from fleet.protocol.durations import format_readable

#: Difference from which ages and leases are wrong: the shortest lease lasts 15 s.
MAX_OFFSET_SECONDS = 10.0
#: Difference from which times on pages are visibly wrong.
RECOMMENDED_OFFSET_SECONDS = 2.0
_REMEDY = "Synchronize the clocks of both machines with NTP: run `timedatectl` on each of them."


def check_clock(
    name: str, server_name: str, server_at: float, started_at: float, ended_at: float
) -> CheckFinding:
    """Return the finding of the clock of a server. Seconds since the epoch.

    `server_at`: the time that the server returned for a request that took from `started_at` to `ended_at`.
    """
    # Within the duration of the request, the difference is unknown.
    offset = max(0.0, server_at - ended_at) or min(0.0, server_at - started_at)
    direction = "behind" if offset > 0 else "ahead of"
    summary = (
        f"The clock of this machine is {format_readable(abs(offset))} {direction} the clock of {server_name}"
    )
    if abs(offset) >= MAX_OFFSET_SECONDS:
        return error(name, f"{summary}: leases and the age of data are wrong.", _REMEDY)
    if abs(offset) >= RECOMMENDED_OFFSET_SECONDS:
        return warning(name, f"{summary}.", _REMEDY)
    return ok(name, f"The clocks of this machine and of {server_name} agree.")
