"""Keys of a local fleet: a CA of its own, one certificate per process, and one for the console that polls it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from fleet.nodes.fleet_plan import FleetPlan
from fleet.nodes.fleet_record import FleetError
from fleet.transport import authority

#: Whose certificate a console shows to the fleet's auths and proxies.
CONSOLE = "console"


def make(plan: FleetPlan) -> None:
    """Issue what the processes of a fleet with TLS need; what is there and valid stays. Raises FleetError."""
    if plan.keys is None:
        return
    now = datetime.now(UTC)
    names = [(name, role) for role, name in plan.instances]
    names += [(name, "agent") for name, _, _ in plan.agent_groups]
    try:
        ca = authority.ensure_authority(plan.keys, now=now)
        for name, role in [*names, (CONSOLE, CONSOLE)]:
            authority.issue(ca, name, role=role, now=now)
    except (OSError, ValueError) as error:
        raise FleetError(f"the fleet's keys cannot be made in {plan.keys}: {error}") from error


def of_console(keys: Path) -> dict[str, str]:
    """The files a console polls the fleet with, by the setting that takes each."""
    return {
        "REFLOAT_TLS_CA": str(keys / "ca.crt"),
        "REFLOAT_TLS_CERT": str(keys / f"{CONSOLE}.crt"),
        "REFLOAT_TLS_KEY": str(keys / f"{CONSOLE}.key"),
    }
