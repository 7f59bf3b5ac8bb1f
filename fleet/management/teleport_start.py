"""`refloat serve --teleport`: the cluster that watches a Teleport cluster, stored before the console starts."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from fleet.audit import shell_actor_of
from fleet.clusters import service
from fleet.clusters.address_entries import AddressEntryError, add_default_port, parse_address
from fleet.clusters.cluster_values import ClusterValues
from fleet.clusters.tls_uploads import IDENTITY_PART
from fleet.management.startup_checks import PrepareError
from fleet.models.clusters import Cluster
from fleet.source_plugins.declaration import list_missing
from fleet.source_plugins.teleport import SOURCE
from fleet.transport.tls import TLSError, read_identity
from fleet.vocabulary.actions import RefusalError
from fleet.vocabulary.clusters import AddressKind, TLSSource

#: Seconds for the connection test: the console starts after it, whatever it finds.
_TEST_TIMEOUT_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class TeleportStart:
    """The address of an auth of a Teleport cluster, and the identity file for it."""

    address: str
    identity: Path


def read_teleport_options(options: Mapping[str, Any], now: datetime) -> TeleportStart | None:
    """Return what --teleport and --identity say; None without them. Raises PrepareError, also for an old identity."""
    address, identity = options["teleport"], options["identity"]
    if address is None and identity is None:
        return None
    if address is None or identity is None:
        raise PrepareError(
            "--teleport HOST:PORT and --identity FILE belong together: the address of an auth, and the output of "
            "tctl auth sign --format=file"
        )
    address = add_default_port(AddressKind.STATIC, address, SOURCE.form.default_port)
    path = Path(identity).absolute()
    try:
        parse_address(address)
        read_identity(path, now)
    except AddressEntryError as error:
        raise PrepareError(f"--teleport: {str(error).rstrip('.')}") from error
    except TLSError as error:
        raise PrepareError(f"--identity: {error}") from error
    return TeleportStart(address, path)


def store_cluster(start: TeleportStart) -> Cluster:
    """Add the cluster `teleport`, or give it this address and identity. Raises PrepareError."""
    row = Cluster.objects.filter(pk=SOURCE.slug).first()
    values = replace(
        ClusterValues(SOURCE.label) if row is None else service.values_of(row),
        source=SOURCE.slug,
        address_kind=AddressKind.STATIC.value,
        auths=(start.address,),
        tls_source=TLSSource.IDENTITY.value,
        tls_files={IDENTITY_PART: str(start.identity)},
    )
    if row is not None and values == service.values_of(row):
        return row
    actor = shell_actor_of("console")
    try:
        if row is None:
            return service.create_cluster(SOURCE.slug, values, actor)
        return service.update_cluster(row, values, actor)
    except RefusalError as error:
        raise PrepareError(f"the cluster {SOURCE.slug} cannot be stored: {str(error).rstrip('.')}") from error


def report_connection(start: TeleportStart, write_line: Callable[[str], None]) -> None:
    """Test the connection, and write each step, and what Refloat never shows of Teleport clusters."""
    # In a process of its own: gRPC starts threads, and this process forks the programs of the console.
    argv = [sys.executable, "-m", "fleet.cli", "cluster", "test", "--source", SOURCE.slug]
    argv += ["--auths", start.address, "--identity", str(start.identity)]
    write_line(f"testing the connection to {start.address}")
    try:
        process = subprocess.run(
            argv, capture_output=True, text=True, timeout=_TEST_TIMEOUT_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        write_line(f"the connection test did not end within {_TEST_TIMEOUT_SECONDS:.0f} s")
        return
    for line in (process.stdout + process.stderr).splitlines():
        write_line(line)
    for capability, reason in list_missing(SOURCE, {}).items():
        write_line(f"not available: {capability.label}: {reason}")
