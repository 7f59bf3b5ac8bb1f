from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fleet.management.startup_checks import PrepareError
from fleet.management.teleport_start import (
    TeleportStart,
    read_teleport_options,
    report_connection,
    store_cluster,
)
from fleet.models.changes import AuditEntry
from fleet.models.clusters import Cluster
from fleet.processes.valkey import find_free_port
from tests.fakes.identity_files import make_identity_file

_NOW = datetime.now(UTC)


@pytest.fixture
def identity(tmp_path: Path) -> Path:
    path = tmp_path / "identity"
    path.write_bytes(make_identity_file(begins_at=_NOW, ends_at=_NOW + timedelta(hours=1)))
    return path


def test_options_are_checked_before_anything_starts(identity: Path) -> None:
    """The port is that of Teleport's auths unless it is given; without either option there is nothing to do."""
    assert read_teleport_options({"teleport": None, "identity": None}, _NOW) is None
    start = read_teleport_options({"teleport": "t.example", "identity": str(identity)}, _NOW)
    assert start == TeleportStart("t.example:3025", identity)


@pytest.mark.parametrize(
    ("address", "path", "sentence"),
    [
        ("t.example", None, "belong together"),
        (None, "identity", "belong together"),
        ("https://t.example", "identity", "--teleport: 'https://t.example' is a URL"),
        ("t.example:x", "identity", "--teleport: .* has no valid port"),
        ("t.example", "missing", "--identity: cannot read .*missing: No such file"),
        (
            "t.example",
            "old",
            "--identity: cannot use identity file .*old: the identity of user refloat expired",
        ),
        ("t.example", "keyless", "--identity: .* has no private key"),
    ],
)
def test_wrong_options_are_one_sentence(
    identity: Path, address: str | None, path: str | None, sentence: str
) -> None:
    """It names the option, and what is wrong."""
    folder = identity.parent
    (folder / "old").write_bytes(
        make_identity_file(begins_at=_NOW - timedelta(hours=2), ends_at=_NOW - timedelta(hours=1))
    )
    (folder / "keyless").write_bytes(
        make_identity_file(begins_at=_NOW, ends_at=_NOW + timedelta(hours=1), has_key=False)
    )
    options = {"teleport": address, "identity": path and str(folder / path)}
    with pytest.raises(PrepareError, match=sentence):
        read_teleport_options(options, _NOW)


@pytest.mark.django_db
def test_cluster_is_created_then_updated(identity: Path) -> None:
    """A second start with the same options changes nothing; what people set stays."""
    for _ in range(2):
        row = store_cluster(TeleportStart("t.example:3025", identity))
    assert (row.pk, row.name, row.source, row.auths) == (
        "teleport",
        "Teleport",
        "teleport",
        ["t.example:3025"],
    )
    assert (row.tls_source, row.tls_files) == ("identity", {"identity": str(identity)})
    assert AuditEntry.objects.count() == 1
    row.name, row.production = "Prod", True
    row.save()
    store_cluster(TeleportStart("u.example:3025", identity))
    row.refresh_from_db()
    assert (row.name, row.production, row.auths) == ("Prod", True, ["u.example:3025"])


@pytest.mark.django_db
def test_address_of_another_cluster_is_refused(identity: Path) -> None:
    Cluster.objects.create(id="other", name="Other", auths=["t.example:3025"])
    with pytest.raises(PrepareError, match="already belongs to the cluster Other"):
        store_cluster(TeleportStart("t.example:3025", identity))


def test_report_has_the_steps_and_what_is_not_available(identity: Path) -> None:
    """A port that nobody listens on: the failure and what to do about it."""
    lines: list[str] = []
    report_connection(TeleportStart(f"127.0.0.1:{find_free_port()}", identity), lines.append)
    text = "\n".join(lines)
    assert "Failed   Connection: 127.0.0.1" in text
    assert "What to do: " in text
    assert "not available: Reconnect advice: Teleport has no API that asks agents to reconnect." in text
