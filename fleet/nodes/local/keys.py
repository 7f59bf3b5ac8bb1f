"""Keys of a local fleet with TLS: a CA, one certificate per process, and one for the console that polls the fleet."""

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

#: Name in the certificate that a console presents to auths and proxies.
CONSOLE = "console"


def folder_of(home: Path, cluster: str) -> Path:
    """Return the folder of the keys of a local fleet."""
    return record.folder_of(home, cluster) / "keys"


def make(plan: FleetPlan) -> None:
    """Issue the certificates for all processes of a fleet with TLS; valid ones are kept. Raises FleetError."""
    if plan.keys_folder is None:
        return
    now = datetime.now(UTC)
    names = [(name, role) for role, name in plan.instances]
    with _open_keys_folder(plan.keys_folder):
        ca = certificate_authority.ensure_authority(plan.keys_folder, now=now)
        for name, role in [*names, ("gateway", "gateway"), (CONSOLE, CONSOLE)]:
            certificate_authority.issue(ca, name, role=role, now=now)
        for name, first, count in plan.agent_groups:
            # One key per process: its certificate names all its agents, and no others.
            agents = agent_services.range_uri(AGENT_PREFIX, first, count)
            certificate_authority.issue(ca, name, role="agent", now=now, uris=(agents,))


def make_console(keys: Path) -> dict[str, str]:
    """Issue the certificate of a console before its fleet starts; return `console_settings_of`. Raises FleetError."""
    now = datetime.now(UTC)
    with _open_keys_folder(keys):
        certificate_authority.issue(
            certificate_authority.ensure_authority(keys, now=now), CONSOLE, role=CONSOLE, now=now
        )
    return console_settings_of(keys)


def console_settings_of(keys: Path) -> dict[str, str]:
    """Return the TLS files of a console for this fleet, by setting name."""
    return {
        "REFLOAT_TLS_CA": str(keys / "ca.crt"),
        "REFLOAT_TLS_CERT": str(keys / f"{CONSOLE}.crt"),
        "REFLOAT_TLS_KEY": str(keys / f"{CONSOLE}.key"),
    }


@contextlib.contextmanager
def _open_keys_folder(keys: Path) -> Iterator[None]:
    try:
        folders.create_private_folder(keys)
        yield
    except (OSError, ValueError) as error:
        raise FleetError(f"cannot create the keys of the fleet in {keys}: {error}") from error
