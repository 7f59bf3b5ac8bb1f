"""Checks of the TLS files for the fleet: readable, matching, and not expired."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509

from fleet.management.doctor.findings import CheckFinding, error, ok, skip, warning
from fleet.transport.tls import TLSError, TLSFiles, check_files

#: Remaining validity from which to renew a certificate.
RENEWAL_PERIOD = timedelta(days=14)
_RENEWAL_REMEDY = "Install a new certificate in this file: Refloat uses it from the next poll on."


@dataclass(frozen=True, slots=True)
class CertificateValidity:
    """Period in which a certificate is valid, and the setting that names its file."""

    setting: str
    path: Path
    begins_at: datetime
    ends_at: datetime


def check_tls(files: TLSFiles, now: datetime) -> Iterator[CheckFinding]:
    """Yield the findings of REFLOAT_TLS_CA, REFLOAT_TLS_CERT and REFLOAT_TLS_KEY."""
    if not files.enabled:
        yield skip(
            "tls-files",
            "REFLOAT_TLS_CA, _CERT and _KEY are not set: clusters that use the settings are polled without TLS.",
        )
        return
    try:
        check_files(files)
        validities = [
            *read_validities("REFLOAT_TLS_CA", files.authority),
            *read_validities("REFLOAT_TLS_CERT", files.certificate),
        ]
    except (TLSError, OSError, ValueError) as problem:
        text = str(problem)
        yield error(
            "tls-files",
            f"{text[:1].upper()}{text[1:].rstrip('.')}.",
            "Set REFLOAT_TLS_CA, REFLOAT_TLS_CERT and REFLOAT_TLS_KEY to PEM files that this user can read, "
            "with the key that belongs to the certificate.",
        )
        # A key that does not match says nothing about the dates.
        yield from _check_readable_dates(files, now)
        return
    yield ok("tls-files", "The TLS files are readable, and the key belongs to the certificate.")
    yield from check_expiry(validities, now)


def check_expiry(validities: list[CertificateValidity], now: datetime) -> Iterator[CheckFinding]:
    """Yield an error for each expired certificate, and a warning for each that expires within 14 days."""
    has_problem = False
    for validity in validities:
        name = f"The certificate {validity.path} ({validity.setting})"
        if now >= validity.ends_at:
            finding = error("tls-expiry", f"{name} expired on {validity.ends_at:%Y-%m-%d}.", _RENEWAL_REMEDY)
        elif now < validity.begins_at:
            finding = error(
                "tls-expiry",
                f"{name} is valid from {validity.begins_at:%Y-%m-%d %H:%M} UTC only.",
                "Check the clock of this machine, or install a certificate that is valid now.",
            )
        elif validity.ends_at - now < RENEWAL_PERIOD:
            days = (validity.ends_at - now).days
            finding = warning(
                "tls-expiry",
                f"{name} expires on {validity.ends_at:%Y-%m-%d} (in {days} d).",
                _RENEWAL_REMEDY,
            )
        else:
            continue
        has_problem = True
        yield finding
    if validities and not has_problem:
        first = min(validities, key=lambda validity: validity.ends_at)
        yield ok("tls-expiry", f"The first certificate expires on {first.ends_at:%Y-%m-%d}.")


def _check_readable_dates(files: TLSFiles, now: datetime) -> Iterator[CheckFinding]:
    validities: list[CertificateValidity] = []
    for setting, path in (("REFLOAT_TLS_CA", files.authority), ("REFLOAT_TLS_CERT", files.certificate)):
        try:
            validities += read_validities(setting, path)
        except (OSError, ValueError):
            continue
    yield from (finding for finding in check_expiry(validities, now) if finding.remedy)


def read_validities(setting: str, path: Path | None) -> list[CertificateValidity]:
    """Return the validities of the certificates in a file. Raises OSError and ValueError."""
    if path is None:
        return []
    return [
        CertificateValidity(setting, path, certificate.not_valid_before_utc, certificate.not_valid_after_utc)
        for certificate in x509.load_pem_x509_certificates(path.read_bytes())
    ]
