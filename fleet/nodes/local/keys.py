"""Keys of a local fleet: a CA of its own, one certificate per process, and one for the console that polls it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from fleet.nodes.local import record
from fleet.nodes.local.plan import AGENT_PREFIX, FleetPlan
from fleet.nodes.local.record import FleetError
from fleet.processes import folders
from fleet.protocol.tunnel import agent_services
from fleet.transport import certificate_authority

#: Whose certificate a console shows to the fleet's auths and proxies.
CONSOLE = "console"


def folder_of(home: Path, cluster: str) -> Path:
    """Where the keys of a local fleet are."""
    return record.folder(home, cluster) / "keys"


def make(plan: FleetPlan) -> None:
    """Issue what the processes of a fleet with TLS need; what is there and valid stays. Raises FleetError."""
    if plan.keys is None:
        return
    now = datetime.now(UTC)
    names = [(name, role) for role, name in plan.instances]
    with _report_key_errors(plan.keys):
        ca = certificate_authority.ensure_authority(plan.keys, now=now)
        for name, role in [*names, ("gateway", "gateway"), (CONSOLE, CONSOLE)]:
            certificate_authority.issue(ca, name, role=role, now=now)
        for name, first, count in plan.agent_groups:
            # One process, one key: it is all of its agents, and no other's.
            agents = agent_services.range_name(AGENT_PREFIX, first, count)
            certificate_authority.issue(ca, name, role="agent", now=now, uris=(agents,))


def make_console(keys: Path) -> dict[str, str]:
    """Issue what a console needs before its fleet is there; answers as `of_console`. Raises FleetError."""
    now = datetime.now(UTC)
    with _report_key_errors(keys):
        certificate_authority.issue(
            certificate_authority.ensure_authority(keys, now=now), CONSOLE, role=CONSOLE, now=now
        )
    return of_console(keys)


def of_console(keys: Path) -> dict[str, str]:
    """The files a console polls the fleet with, by the setting that takes each."""
    return {
        "REFLOAT_TLS_CA": str(keys / "ca.crt"),
        "REFLOAT_TLS_CERT": str(keys / f"{CONSOLE}.crt"),
        "REFLOAT_TLS_KEY": str(keys / f"{CONSOLE}.key"),
    }


@contextlib.contextmanager
def _report_key_errors(keys: Path) -> Iterator[None]:
    try:
        folders.make_private(keys)
        yield
    except (OSError, ValueError) as error:
        raise FleetError(f"the fleet's keys cannot be made in {keys}: {error}") from error
