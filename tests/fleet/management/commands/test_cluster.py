from __future__ import annotations

import io
import json
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from celery import current_app
from django.core.management import CommandError, call_command
from pytest_django import Settings

from fleet.clusters.test_report import ConnectionTestReport, ConnectionTestStep, StepName, StepVerdict
from fleet.clusters.test_store import open_test_store
from fleet.models.changes import AuditEntry
from fleet.models.clusters import Cluster, ensure_default_cluster
from tests.fakes.identity_files import make_identity_file
from tests.fleet.clusters.pem_files import create_pem_files

pytestmark = pytest.mark.django_db


def _run_command(*arguments: str) -> str:
    out = io.StringIO()
    call_command("cluster", *arguments, stdout=out)
    return out.getvalue()


def test_set_changes_and_list_shows_the_review_setting() -> None:
    """Other settings stay, and the audit log has the old and the new value."""
    ensure_default_cluster()
    assert "review required: yes" in _run_command("set", "default", "--require-review", "yes")
    assert "production: no  review required: yes" in _run_command("list")
    assert Cluster.objects.get().review_required
    entry = AuditEntry.objects.get(action="cluster.set")
    assert (entry.before["review_required"], entry.after["review_required"]) == (False, True)


def test_set_of_unknown_cluster_is_refused() -> None:
    """The error names the cluster, and nothing changes."""
    with pytest.raises(CommandError, match="Cluster eu was not found"):
        call_command("cluster", "set", "eu", "--production", "yes")


def test_cluster_is_added_shown_edited_paused_resumed_and_removed(
    valkey_url: str, prefix: str, settings: Settings
) -> None:
    """The audit log has the command as the actor; values without a flag stay."""
    settings.REDIS_URL, settings.REFLOAT_PREFIX = valkey_url, prefix
    output = _run_command(
        "add", "eu", "--name", "Europe", "--auths", "a.example:1, b.example:1", "--tls", "none"
    )
    assert "Test the connection: manage.py cluster test eu" in output
    _run_command("edit", "eu", "--kind", "dns", "--production", "yes")
    assert _run_command("pause", "eu") == "eu is paused.\n"
    assert "a.example:1, b.example:1  paused" in _run_command("list")
    document = json.loads(_run_command("show", "eu", "--json"))
    assert (document["name"], document["address_kind"], document["is_paused"]) == ("Europe", "dns", True)
    assert _run_command("resume", "eu") == "eu is polled again.\n"
    assert "TLS files: No TLS\n" in _run_command("show", "eu")
    with pytest.raises(CommandError, match="--confirm: Enter the name of the cluster, Europe"):
        _run_command("remove", "eu", "--confirm", "eu")
    assert _run_command("remove", "eu", "--confirm", "Europe") == "eu was removed.\n"
    assert not Cluster.objects.exists()
    assert {entry.actor_name.partition(",")[0] for entry in AuditEntry.objects.all()} == {"manage.py cluster"}


def test_uploads_are_read_from_files_and_never_shown(tmp_path: Path) -> None:
    """Problems name the flag; a file that cannot be read is named."""
    create_pem_files(tmp_path)
    files = {part: str(tmp_path / name) for part, name in (("cert", "console.crt"), ("key", "console.key"))}
    arguments = ("eu", "--auths", "a:1", "--tls", "uploaded", "--tls-cert", files["cert"])
    with pytest.raises(CommandError, match="--tls-key: A certificate and its private key belong together"):
        _run_command("add", *arguments)
    with pytest.raises(CommandError, match="--tls-key: cannot read /nowhere: No such file"):
        _run_command("add", *arguments, "--tls-key", "/nowhere")
    _run_command("add", *arguments, "--tls-key", files["key"])
    output = _run_command("show", "eu") + _run_command("show", "eu", "--json")
    assert "Certificate of Refloat: uploaded, CN console, expires" in output
    assert "BEGIN" not in output
    with pytest.raises(CommandError, match="TLS files need --tls files or --tls uploaded"):
        _run_command("edit", "eu", "--tls", "none", "--tls-key", files["key"])


def test_diag_addresses_are_set_shown_and_removed() -> None:
    """By instance; another format is a problem of the flag."""
    arguments = ("eu", "--source", "teleport", "--auths", "a:1", "--tls", "settings")
    _run_command("add", *arguments, "--diag-addresses", "auth-1 10.0.0.1:3000, proxy-1 10.0.0.2:3000")
    assert "diag addresses: auth-1 10.0.0.1:3000, proxy-1 10.0.0.2:3000\n" in _run_command("show", "eu")
    with pytest.raises(CommandError, match="--diag-addresses: 'auth-1' is not an instance and an address"):
        _run_command("edit", "eu", "--diag-addresses", "auth-1")
    with pytest.raises(CommandError, match="--diag-addresses: 'a' has no port"):
        _run_command("edit", "eu", "--diag-addresses", "auth-1 a")
    _run_command("edit", "eu", "--diag-addresses", "")
    assert "diag addresses: none\n" in _run_command("show", "eu")


def test_edge_instances_are_set_shown_and_removed() -> None:
    """By name; another format is a problem of the flag."""
    _run_command("add", "eu", "--auths", "a:1", "--tls", "none", "--edge-instances", "edge-1 10.0.0.5:3000")
    assert "gateways and tunnel servers: edge-1 10.0.0.5:3000\n" in _run_command("show", "eu")
    with pytest.raises(CommandError, match="--edge-instances: 'edge-1' is not an instance and an address"):
        _run_command("edit", "eu", "--edge-instances", "edge-1")
    with pytest.raises(CommandError, match="--edge-instances: 'a' has no port"):
        _run_command("edit", "eu", "--edge-instances", "edge-1 a")
    _run_command("edit", "eu", "--edge-instances", "")
    assert "gateways and tunnel servers: none\n" in _run_command("show", "eu")


@pytest.mark.parametrize("verdict", [StepVerdict.OK, StepVerdict.FAILED])
def test_connection_test_is_followed_until_it_ends(
    verdict: StepVerdict, valkey_url: str, prefix: str, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each step with what to do; the exit code says whether one failed."""
    settings.REDIS_URL, settings.REFLOAT_PREFIX = valkey_url, prefix
    ensure_default_cluster(["a:1"])
    step = ConnectionTestStep(StepName.CONNECT, verdict, "Refused.", "Start the auth.")
    store = open_test_store(valkey_url, prefix)

    def run_test(name: str, args: tuple[str, str], **_: Any) -> None:
        assert name == "fleet.tasks.test_connection"
        now = time.time()
        store.write(ConnectionTestReport(args[1], args[0], now, (step,), started_at=now, ended_at=now))

    monkeypatch.setattr(current_app, "send_task", run_test)
    out = io.StringIO()
    if verdict is StepVerdict.FAILED:
        with pytest.raises(CommandError, match="The connection test failed") as caught:
            call_command("cluster", "test", "default", stdout=out)
        assert caught.value.returncode == 1
    else:
        call_command("cluster", "test", "default", stdout=out)
    assert f"{verdict.label:<8} Connection: Refused.\n" in out.getvalue()
    assert "What to do: Start the auth." in out.getvalue()


def test_connection_test_of_a_cluster_without_addresses() -> None:
    """The error says how to set them."""
    ensure_default_cluster()
    Cluster.objects.update(auths=[])
    with pytest.raises(CommandError, match="cluster edit default --auths"):
        call_command("cluster", "test", "default")


def test_teleport_cluster_with_an_identity_file(tmp_path: Path) -> None:
    """Its id, name and port are those of the product; the file stays at its path, or is read and encrypted."""
    now = datetime.now(UTC)
    path = tmp_path / "identity"
    path.write_bytes(make_identity_file(begins_at=now, ends_at=now + timedelta(hours=1)))
    _run_command("add", "--source", "teleport", "--auths", "t.example", "--identity", str(path))
    row = Cluster.objects.get(pk="teleport")
    assert (row.name, row.auths, row.tls_source) == ("Teleport", ["t.example:3025"], "identity")
    assert row.tls_files == {"identity": str(path)}
    assert f"TLS files: Identity file: {path}\n" in _run_command("show", "teleport")
    _run_command("edit", "teleport", "--tls", "identity_upload", "--identity", str(path))
    row.refresh_from_db()
    assert (row.tls_source, row.tls_files) == ("identity_upload", {})
    assert "Identity file: uploaded, CN refloat, expires " in _run_command("show", "teleport")
    assert "PRIVATE" not in row.tls_secrets


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--identity", "/id", "--tls-ca", "/ca"), "--identity is CA, certificate and key at once"),
        (("--identity", "/id", "--tls", "files"), "--identity is CA, certificate and key at once"),
        (("--identity", "/missing", "--tls", "identity_upload"), "--identity: cannot read /missing"),
        (("--identity", ""), "--identity: Enter the path of the identity file"),
    ],
)
def test_wrong_identity_flags_are_refused(arguments: tuple[str, ...], sentence: str) -> None:
    """Nothing is stored."""
    with pytest.raises(CommandError, match=sentence):
        call_command("cluster", "add", "--source", "teleport", "--auths", "t.example", *arguments)
    assert not Cluster.objects.filter(pk="teleport").exists()
