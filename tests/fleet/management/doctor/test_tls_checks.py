from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fleet.management.doctor.findings import CheckFinding, CheckVerdict
from fleet.management.doctor.tls_checks import CertificateValidity, check_expiry, check_tls
from fleet.transport import certificate_authority
from fleet.transport.tls import TLSFiles

_NOW = datetime(2026, 3, 1, tzinfo=UTC)


def _issue(folder: Path, name: str, now: datetime = _NOW) -> TLSFiles:
    authority = certificate_authority.ensure_authority(folder, now=now)
    pair = certificate_authority.issue(authority, name, role="console", now=now)
    return TLSFiles(pair.certificate, pair.key, pair.ca)


def _check(files: TLSFiles, now: datetime = _NOW) -> list[CheckFinding]:
    return list(check_tls(files, now))


def test_valid_files(tmp_path: Path) -> None:
    """The report has the date of the first that expires."""
    findings = _check(_issue(tmp_path, "console"))

    assert [(finding.name, finding.verdict) for finding in findings] == [
        ("tls-files", CheckVerdict.OK),
        ("tls-expiry", CheckVerdict.OK),
    ]
    assert "2027-03-01" in findings[1].summary


def test_key_of_another_certificate(tmp_path: Path) -> None:
    """The error names both files."""
    files = _issue(tmp_path, "console")
    other_key = _issue(tmp_path, "other").key

    (finding,) = _check(replace(files, key=other_key))

    assert finding.verdict is CheckVerdict.ERROR
    assert str(files.certificate) in finding.summary
    assert str(other_key) in finding.summary
    assert "key values mismatch" in finding.summary


def test_expired_certificate_with_a_wrong_key_has_both_errors(tmp_path: Path) -> None:
    files = _issue(tmp_path, "console", _NOW - timedelta(days=800))
    findings = _check(replace(files, key=_issue(tmp_path, "other", _NOW - timedelta(days=800)).key))

    assert [finding.name for finding in findings] == ["tls-files", "tls-expiry", "tls-expiry"]


def test_absent_file_is_an_error(tmp_path: Path) -> None:
    (finding,) = _check(TLSFiles(authority=tmp_path / "absent.crt"))

    assert finding.verdict is CheckVerdict.ERROR
    assert "absent.crt" in finding.summary


def test_no_files_are_skipped() -> None:
    assert _check(TLSFiles())[0].verdict is CheckVerdict.SKIPPED


@pytest.mark.parametrize(
    ("begins_in_days", "ends_in_days", "verdict"),
    [
        (-100, 100, CheckVerdict.OK),
        (-100, 15, CheckVerdict.OK),
        (-100, 13, CheckVerdict.WARNING),
        (-100, 0, CheckVerdict.ERROR),
        (-100, -3, CheckVerdict.ERROR),
        (1, 100, CheckVerdict.ERROR),
    ],
)
def test_dates(begins_in_days: int, ends_in_days: int, verdict: CheckVerdict) -> None:
    """Two weeks are time to renew a certificate."""
    begins_at, ends_at = (_NOW + timedelta(days=days) for days in (begins_in_days, ends_in_days))

    (finding,) = check_expiry([CertificateValidity("REFLOAT_TLS_CA", Path("ca"), begins_at, ends_at)], _NOW)

    assert finding.verdict is verdict
    assert bool(finding.remedy) == (verdict is not CheckVerdict.OK)
