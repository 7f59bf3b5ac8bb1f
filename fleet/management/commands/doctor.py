"""`refloat doctor`: check this installation, and say for each finding what to do. docs/reference/doctor.md."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser
from typing_extensions import override

from fleet.management import startup_checks
from fleet.management.base_command import ConsoleCommand
from fleet.management.doctor.bundle import write_bundle
from fleet.management.doctor.examination import Examination
from fleet.management.doctor.findings import CheckVerdict
from fleet.management.doctor.installation import read_installation, read_secrets, read_versions
from fleet.management.doctor.redaction import Redactor
from fleet.management.doctor.report import format_json, format_text, to_json


class Command(ConsoleCommand):
    """Check settings, files, database, Redis, processes and notification channels."""

    help = (
        "Check settings, files, TLS, database, Redis, processes and notification channels, and say for each "
        "finding what to do. Run it as the user of the console, with the same environment. Changes nothing. "
        "Exit code 1 if there are errors."
    )
    requires_migrations_checks = False

    @override
    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", help="print one JSON object")
        parser.add_argument(
            "--bundle",
            type=Path,
            metavar="FILE",
            help="also write a support bundle: a zip file with findings, versions, settings and logs, without secrets",
        )

    @override
    def handle(self, *args: Any, **options: Any) -> None:
        facts = read_installation()
        examination = Examination(facts, startup_checks.run_setting_checks)
        findings = examination.run(self._show_progress)
        self._show_progress("")
        redis_fields = examination.redis_facts.server_fields if examination.redis_facts else {}
        report = to_json(findings, read_versions(redis_fields))
        if options["json"]:
            self.stdout.write(format_json(report), ending="")
        else:
            self.stdout.write(format_text(findings, with_symbols=self._can_print_symbols()), ending="")
        if options["bundle"] is not None:
            redactor = Redactor(read_secrets(facts, is_database_usable=examination.is_database_usable))
            environment = redactor.redact_environment(facts.environment, facts.setting_names)
            try:
                write_bundle(
                    options["bundle"], report, environment, redis_fields, facts.home / "log", redactor
                )
            except OSError as error:
                self.stderr.write(f"refloat: cannot write {options['bundle']}: {error.strerror}")
                raise SystemExit(2) from None
            self.stderr.write(f"Wrote {options['bundle']}. Read it before you send it.")
        if any(finding.verdict is CheckVerdict.ERROR for finding in findings):
            raise SystemExit(1)

    def _show_progress(self, text: str) -> None:
        """Replace the line on a terminal: some checks wait for a response of another machine."""
        if self.stderr.isatty():
            line = f"\r\033[K{'Checking ' if text else ''}{text}"
            self.stderr.write(line, style_func=str, ending="")
            self.stderr.flush()

    def _can_print_symbols(self) -> bool:
        encoding = getattr(self.stdout, "encoding", None) or "ascii"
        try:
            "".join(verdict.symbol for verdict in CheckVerdict).encode(encoding)
        except (UnicodeEncodeError, LookupError):
            return False
        return True
