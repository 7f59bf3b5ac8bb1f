"""Certificates and keys as text, of a CA that a test creates."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from django.utils import timezone

from fleet.transport.certificate_authority import ensure_authority, issue


class PemFiles(NamedTuple):
    """PEM of a CA, and of two certificates with their keys."""

    authority: str
    certificate: str
    key: str
    other_certificate: str
    other_key: str


def create_pem_files(folder: Path) -> PemFiles:
    """Issue two client certificates in a folder."""
    now = timezone.now()
    authority = ensure_authority(folder, now=now)
    pair, other_pair = (issue(authority, name, role="console", now=now) for name in ("console", "other"))
    paths = (authority.ca, pair.certificate, pair.key, other_pair.certificate, other_pair.key)
    return PemFiles(*(path.read_text() for path in paths))
