"""`refloat backup`: write an archive of this installation. docs/reference/backup.md."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import CommandParser
from django.db import DatabaseError
from typing_extensions import override

from fleet.audit import shell_actor_of, write_entry
from fleet.management.backups import BackupError
from fleet.management.backups.backup import BackupSecrets, write_backup
from fleet.management.backups.contents import name_cluster_files, select_settings
from fleet.management.base_command import ConsoleCommand
from fleet.management.doctor.findings import format_count
from fleet.management.doctor.installation import read_installation, read_secrets
from fleet.management.doctor.redaction import Redactor
from fleet.management.doctor.report import format_json
from fleet.models.clusters import Cluster
from fleet.vocabulary.actions import AuditAction, AuditOutcome
from fleet.vocabulary.clusters import PATH_SOURCES

_WITHOUT_SECRETS = (
    "The archive has no secret key. After a restore with another key, enter the secrets of notification channels "
    "again. `--with-secrets` includes the key."
)
_WITH_SECRETS = (
    "The archive has the secret key, the keys of certificates and secret settings. Store it like a password."
)


class Command(ConsoleCommand):
    """Write an archive of the database and the settings, while the console runs."""

    help = (
        "Write an archive of the database and the settings, while the console runs. Run it as the user of the console, "
        "with the same environment."
    )
    requires_migrations_checks = False

    @override
    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--to",
            type=Path,
            metavar="FILE",
            help="new file (default: refloat-backup-TIME.tar.gz in the current folder)",
        )
        parser.add_argument(
            "--with-secrets",
            action="store_true",
            help="include the secret key, the TLS files and secret settings",
        )
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    @override
    def handle(self, *args: Any, **options: Any) -> None:
        now = datetime.now(UTC)
        path: Path = (options["to"] or Path(f"refloat-backup-{now:%Y%m%dT%H%M%SZ}.tar.gz")).absolute()
        facts = read_installation()
        redactor = Redactor(read_secrets(facts, is_database_usable=True))
        with_secrets: bool = options["with_secrets"]
        selected_settings = select_settings(
            facts.environment, facts.setting_names, redactor, with_secrets=with_secrets
        )
        backup_secrets = (
            BackupSecrets(settings.SECRET_KEY, facts.tls, self._find_cluster_files())
            if with_secrets
            else None
        )
        try:
            manifest = write_backup(path, selected_settings, backup_secrets, now)
        except BackupError as error:
            self.stderr.write(f"refloat: {error}")
            raise SystemExit(2) from None
        self._write_audit_entry(path, with_secrets=with_secrets)
        row_count = sum(manifest.rows.values())
        if options["json"]:
            document = {
                "file": str(path),
                "version": manifest.version,
                "created_at": manifest.created_at,
                "database": manifest.database,
                "rows": row_count,
                "bytes": path.stat().st_size,
                "has_secrets": manifest.has_secrets,
            }
            self.stdout.write(format_json(document), ending="")
            return
        self.stdout.write(
            f"{path}: {format_count(row_count, 'row')} of {format_count(len(manifest.rows), 'table')}, "
            f"{path.stat().st_size / 1024:.0f} KiB"
        )
        self.stdout.write(_WITH_SECRETS if with_secrets else _WITHOUT_SECRETS)

    def _find_cluster_files(self) -> dict[str, Path]:
        """Return the TLS files at paths of clusters; warn about those that only other machines have."""
        rows = Cluster.objects.filter(tls_source__in=PATH_SOURCES)
        files = name_cluster_files({row.pk: row.tls_files for row in rows})
        for path in files.values():
            if not os.access(path, os.R_OK):
                self.stderr.write(f"warning: {path} is not in the archive: this process cannot read it")
        return {name: path for name, path in files.items() if os.access(path, os.R_OK)}

    def _write_audit_entry(self, path: Path, *, with_secrets: bool) -> None:
        attempt = shell_actor_of("backup").create_attempt(
            AuditAction.BACKUP_CREATE, subject=path.name, after={"with_secrets": with_secrets}
        )
        try:
            write_entry(attempt, AuditOutcome.SUCCEEDED, datetime.now(UTC))
        except DatabaseError as error:
            self.stderr.write(
                f"The audit log has no entry of this backup, because the database cannot be written: {error}"
            )
