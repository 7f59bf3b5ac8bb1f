from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from fleet.clusters.identity_expiry import read_validity
from fleet.monitoring.state.identities import IdentityValidity
from fleet.transport.tls import TLSFiles
from tests.fakes.identity_files import make_identity_file


def test_validity_of_an_identity_file_is_that_of_its_user(tmp_path: Path) -> None:
    """Not that of the CAs in the file; also when it has expired."""
    begins_at = datetime(2026, 1, 1, tzinfo=UTC)
    path = tmp_path / "identity"
    path.write_bytes(make_identity_file(begins_at=begins_at, ends_at=begins_at + timedelta(hours=1)))
    validity = IdentityValidity("refloat", begins_at.timestamp(), begins_at.timestamp() + 3600)
    assert read_validity(TLSFiles(path, path, path)) == validity


def test_no_identity(tmp_path: Path) -> None:
    """Without TLS, without a client certificate, and for a file that cannot be read."""
    path = tmp_path / "identity"
    assert read_validity(None) is None
    assert read_validity(TLSFiles(authority=path)) is None
    assert read_validity(TLSFiles(path, path, path)) is None
    path.write_text("no PEM")
    assert read_validity(TLSFiles(path, path, path)) is None
