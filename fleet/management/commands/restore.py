"""`refloat restore`: restore an archive of `refloat backup`. docs/reference/backup.md."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import CommandParser
from django.db import connection
from typing_extensions import override

from fleet.audit import shell_actor_of, write_entry
from fleet.management.backups import BackupError
from fleet.management.backups.restore import RestoreReport, RestoreTarget, restore_backup
from fleet.management.base_command import ConsoleCommand
from fleet.management.doctor.findings import format_count
from fleet.management.doctor.report import format_json
from fleet.models.alerting import Channel
from fleet.models.clusters import Cluster
from fleet.models.sealed_secrets import UnsealError, unseal
from fleet.vocabulary.actions import AuditAction, AuditOutcome
from fleet.vocabulary.name_lists import join_names

_KEY_VARIABLES = ("REFLOAT_SECRET_KEY", "REFLOAT_SECRET_KEY_FILE")


class Command(ConsoleCommand):
    """Restore an archive into this installation, and prove that it is complete."""

    help = (
        "Restore an archive of `refloat backup` into this installation, and prove that it is complete. Stop the "
        "console first. After an error, the installation is as before."
    )
    requires_migrations_checks = False

    @override
    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", type=Path, metavar="FILE", help="archive")
        parser.add_argument(
            "--force", action="store_true", help="replace the present database, which is kept beside it"
        )
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    @override
    def handle(self, *args: Any, **options: Any) -> None:
        target = RestoreTarget(
            home=settings.REFLOAT_HOME,
            environment=dict(os.environ),
            has_key_file=not any(os.environ.get(name) for name in _KEY_VARIABLES),
        )
        path: Path = options["file"].absolute()
        try:
            report = restore_backup(path, target, datetime.now(UTC), force=options["force"])
        except BackupError as error:
            self.stderr.write(f"refloat: {error}")
            raise SystemExit(2) from None
        if report.is_key_restored:
            settings.SECRET_KEY = (target.home / "secret_key").read_text()
        attempt = shell_actor_of("restore").create_attempt(
            AuditAction.BACKUP_RESTORE, subject=path.name, after={"created_at": report.manifest.created_at}
        )
        write_entry(attempt, AuditOutcome.SUCCEEDED, datetime.now(UTC))
        unreadable_channels = _list_unreadable(Channel.objects.values_list("name", "secrets"))
        unreadable_clusters = _list_unreadable(Cluster.objects.values_list("name", "tls_secrets"))
        connection.close()
        if options["json"]:
            self.stdout.write(
                format_json(_to_json(report, unreadable_channels, unreadable_clusters)), ending=""
            )
            return
        for line in _describe(report, unreadable_channels, unreadable_clusters):
            self.stdout.write(line)


def _list_unreadable(ciphertexts: Iterable[tuple[str, str]]) -> list[str]:
    """Return the names, sorted, of what was encrypted with another key. `ciphertexts`: names and ciphertexts."""
    names: list[str] = []
    for name, ciphertext in sorted(ciphertexts):
        try:
            unseal(ciphertext)
        except UnsealError:
            names.append(name)
    return names


def _to_json(
    report: RestoreReport, unreadable_channels: list[str], unreadable_clusters: list[str]
) -> dict[str, Any]:
    return {
        "version": report.manifest.version,
        "created_at": report.manifest.created_at,
        "database": report.manifest.database,
        "rows": sum(report.manifest.rows.values()),
        "applied_migrations": report.applied_migrations,
        "previous": report.kept_at,
        "is_key_restored": report.is_key_restored,
        "different_settings": report.different_settings,
        "tls_files": str(report.tls_folder or ""),
        "channels_without_secrets": unreadable_channels,
        "clusters_without_uploads": unreadable_clusters,
    }


def _describe(
    report: RestoreReport, unreadable_channels: list[str], unreadable_clusters: list[str]
) -> Iterator[str]:
    """Yield the lines of the report: what was restored and proved, and what remains to do."""
    manifest = report.manifest
    yield (
        f"Restored the archive of {manifest.created_at}, Refloat {manifest.version}: "
        f"{format_count(sum(manifest.rows.values()), 'row')} of {format_count(len(manifest.rows), 'table')}; "
        "checksums, rows and references are complete."
    )
    if report.applied_migrations:
        yield f"Applied {format_count(len(report.applied_migrations), 'migration')}."
    if report.kept_at:
        yield f"The previous database and key are in {report.kept_at}. Delete them when you no longer need them."
    if report.tls_folder:
        yield (
            f"The TLS files are in {report.tls_folder}. Move them to the paths in REFLOAT_TLS_CA, _CERT and _KEY, and "
            "those that begin with a cluster to the paths on its page."
        )
    if report.different_settings:
        yield (
            f"Settings that differ from those of the archive: {join_names(report.different_settings)}. The "
            "member settings.json of the archive has their values."
        )
    if unreadable_channels:
        yield (
            "Enter the secrets of these notification channels again, because they were encrypted with another secret "
            f"key: {join_names(unreadable_channels)}."
        )
    if unreadable_clusters:
        yield (
            "Upload the TLS files of these clusters again, because they were encrypted with another secret key: "
            f"{join_names(unreadable_clusters)}."
        )
    yield "Users sign in again. Start the console with `refloat serve`."
