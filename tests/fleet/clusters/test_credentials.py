from __future__ import annotations

import gc
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pytest_django import Settings

from fleet.clusters.credentials import tls_files_of
from fleet.models.clusters import Cluster
from fleet.models.sealed_secrets import seal
from fleet.transport.tls import (
    TLSError,
    TLSFiles,
    channel_credentials,
    check_files,
    client_context,
    version_of,
)
from fleet.vocabulary.clusters import TLSSource
from tests.fakes.faulty_certificates import FaultyCertificates
from tests.fakes.identity_files import make_identity_file


@pytest.fixture
def console_files(tmp_path: Path) -> TLSFiles:
    """The CA of a cluster, with Refloat's certificate and key."""
    return FaultyCertificates(tmp_path).of("console", "console")


def contents_of(files: TLSFiles) -> dict[str, str]:
    """Return the PEM of each part."""
    assert files.authority is not None
    assert files.certificate is not None
    assert files.key is not None
    return {
        "authority": files.authority.read_text(),
        "certificate": files.certificate.read_text(),
        "key": files.key.read_text(),
    }


def upload(files: TLSFiles, **changes: str) -> Cluster:
    """Return a cluster with uploaded files."""
    ciphertext = seal({**contents_of(files), **changes})
    return Cluster(id="east", tls_source=TLSSource.UPLOADED, tls_secrets=ciphertext)


def test_settings_are_used_by_default_and_a_cluster_has_its_own_server_name(
    settings: Settings, console_files: TLSFiles
) -> None:
    assert tls_files_of(Cluster(id="default")) is None
    settings.REFLOAT_TLS_CA, settings.REFLOAT_TLS_SERVER_NAME = str(console_files.authority), "all.example"
    assert tls_files_of(Cluster(id="default")) == TLSFiles(
        authority=console_files.authority, server_name="all.example"
    )
    own_name = tls_files_of(Cluster(id="default", tls_server_name="own.example"))
    assert own_name is not None
    assert own_name.server_name == "own.example"


def test_no_tls_ignores_the_settings(settings: Settings, console_files: TLSFiles) -> None:
    settings.REFLOAT_TLS_CA = str(console_files.authority)
    assert tls_files_of(Cluster(id="east", tls_source=TLSSource.NONE)) is None


def test_files_of_a_cluster(console_files: TLSFiles) -> None:
    paths = {"authority": console_files.authority, "certificate": console_files.certificate}
    cluster = Cluster(
        id="east",
        tls_source=TLSSource.FILES,
        tls_files={**{part: str(path) for part, path in paths.items()}, "key": str(console_files.key)},
        tls_server_name="east.example",
    )
    files = tls_files_of(cluster)
    assert files == TLSFiles(
        console_files.certificate, console_files.key, console_files.authority, "east.example"
    )
    check_files(files)


@pytest.mark.parametrize(
    ("paths", "sentence"),
    [
        ({}, "has no TLS files"),
        ({"authority": "/ca.pem", "key": "/k.pem"}, "only one of certificate and key"),
    ],
)
def test_incomplete_files_never_turn_tls_off(paths: dict[str, str], sentence: str) -> None:
    files = tls_files_of(Cluster(id="east", tls_source=TLSSource.FILES, tls_files=paths))
    assert files is not None
    assert files.for_role("auth").enabled
    with pytest.raises(TLSError, match=sentence):
        check_files(files)


def test_uploaded_files_are_readable_while_they_are_in_use(console_files: TLSFiles) -> None:
    cluster = upload(console_files)
    files = tls_files_of(cluster)
    assert files is not None
    check_files(files)
    assert contents_of(files) == contents_of(console_files)
    again = tls_files_of(cluster)
    assert again == files, "the same files are not decrypted again"
    paths = [path for path in (files.authority, files.certificate, files.key) if path is not None]
    role_files = files.for_role("auth")
    del files, again
    gc.collect()
    check_files(role_files)
    del role_files
    gc.collect()
    assert not any(path.exists() for path in paths)


def test_other_uploads_have_other_files(console_files: TLSFiles, tmp_path: Path) -> None:
    first = tls_files_of(upload(console_files))
    other_files = FaultyCertificates(tmp_path).of("console", "console", ca="other-ca")
    second = tls_files_of(upload(other_files))
    assert first is not None
    assert second is not None
    assert contents_of(first) == contents_of(console_files)
    assert contents_of(second) == contents_of(other_files)


def test_uploaded_files_that_do_not_match_are_a_sentence_without_a_path(
    console_files: TLSFiles, tmp_path: Path
) -> None:
    other_key = contents_of(FaultyCertificates(tmp_path).of("other", "console"))["key"]
    files = tls_files_of(upload(console_files, key=other_key))
    assert files is not None
    with pytest.raises(TLSError) as caught:
        check_files(files)
    assert str(caught.value) == ("cannot use certificate (uploaded) with key (uploaded): key values mismatch")


def test_uploaded_files_of_another_secret_key(settings: Settings, console_files: TLSFiles) -> None:
    cluster = upload(console_files)
    settings.SECRET_KEY = "another-key-that-is-long-enough-for-the-checks-of-django"
    files = tls_files_of(cluster)
    assert files is not None
    with pytest.raises(TLSError, match="encrypted with another REFLOAT_SECRET_KEY: upload them again"):
        check_files(files)


def test_systems_without_files_in_memory(monkeypatch: pytest.MonkeyPatch, console_files: TLSFiles) -> None:
    """They have a private folder that ends with the files."""
    monkeypatch.delattr(os, "memfd_create")
    files = tls_files_of(upload(console_files))
    assert files is not None
    check_files(files)
    assert files.key is not None
    folder = files.key.parent
    assert folder.stat().st_mode & 0o077 == 0
    del files
    gc.collect()
    assert not folder.exists()


def _write_identity(path: Path, lifetime: timedelta, **options: bool) -> None:
    now = datetime.now(UTC)
    path.write_bytes(
        make_identity_file(begins_at=now - timedelta(hours=1), ends_at=now + lifetime, **options)
    )


def _identity_cluster(path: Path) -> Cluster:
    return Cluster(
        id="t", source="teleport", tls_source=TLSSource.IDENTITY, tls_files={"identity": str(path)}
    )


def test_identity_file_is_ca_certificate_and_key(tmp_path: Path) -> None:
    """By its path and uploaded, with the server name of the product; gRPC and HTTPS can use it."""
    path = tmp_path / "identity"
    _write_identity(path, timedelta(hours=1))
    uploaded = Cluster(
        id="t",
        source="teleport",
        tls_source=TLSSource.IDENTITY_UPLOADED,
        tls_secrets=seal({"identity": path.read_text()}),
    )
    for row in (_identity_cluster(path), uploaded):
        files = tls_files_of(row)
        assert files is not None
        assert files.identity == files.key == files.certificate == files.authority
        assert files.server_name == "teleport.cluster.local"
        channel_credentials(files)
        assert client_context(files) is not None


def test_renewed_identity_file_is_another_version(tmp_path: Path) -> None:
    """Workers connect anew when the version differs, unless the new file cannot be used."""
    path = tmp_path / "identity"
    _write_identity(path, timedelta(hours=1))
    row = _identity_cluster(path)
    old_version = version_of(tls_files_of(row))
    assert version_of(tls_files_of(row)) == old_version
    renewed = tmp_path / "renewed"
    _write_identity(renewed, timedelta(hours=2))
    renewed.replace(path)
    assert version_of(tls_files_of(row)) != old_version


def test_identity_file_that_cannot_be_used_names_the_file_and_the_remedy(tmp_path: Path) -> None:
    """Expired, without a key, not there, and uploaded: no connection is opened without TLS."""
    path = tmp_path / "identity"
    row = _identity_cluster(path)

    def sentence_of(row: Cluster) -> str:
        files = tls_files_of(row)
        assert files is not None
        with pytest.raises(TLSError) as raised_error:
            channel_credentials(files)
        return str(raised_error.value)

    assert sentence_of(row) == f"cannot read {path}: No such file or directory"
    _write_identity(path, timedelta(seconds=-1))
    sentence = sentence_of(row)
    assert f"cannot use identity file {path}: the identity of user refloat expired" in sentence
    assert "Sign a new identity" in sentence
    row.tls_source, row.tls_secrets = TLSSource.IDENTITY_UPLOADED, seal({"identity": path.read_text()})
    assert "cannot use identity file (uploaded): the identity" in sentence_of(row)
    row.tls_source = TLSSource.IDENTITY
    _write_identity(path, timedelta(hours=1), has_key=False)
    assert "has no private key" in sentence_of(row)
