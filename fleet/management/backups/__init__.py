"""Backup and restore of an installation: docs/reference/backup.md."""

from __future__ import annotations


class BackupError(Exception):
    """A backup or a restore that was not carried out; the message says why and what to do."""
