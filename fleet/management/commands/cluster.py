"""`manage.py cluster`: add, edit, pause, test and remove clusters, and set how their changes are confirmed."""

from __future__ import annotations

import json
import time
from argparse import ArgumentParser
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError, CommandParser
from django.utils import timezone
from typing_extensions import override

from fleet.audit import RequestActor, shell_actor_of, write_entry
from fleet.clusters import service
from fleet.clusters.cluster_values import ClusterValues
from fleet.clusters.diag_addresses import (
    EDGE_FORM,
    INSTANCE_FORM,
    DiagAddressError,
    DiagAddressForm,
    format_lines,
    parse_lines,
)
from fleet.clusters.record_removal import delete_keys_at
from fleet.clusters.test_report import ConnectionTestReport, ConnectionTestStep, StepVerdict, pack_report
from fleet.clusters.test_store import open_test_store, request_test
from fleet.clusters.tls_uploads import IDENTITY_PART, TLS_PARTS, parts_of
from fleet.management.base_command import ConsoleCommand
from fleet.models.clusters import Cluster
from fleet.monitoring.state import StateUnavailableError
from fleet.monitoring.state.reader import open_reader
from fleet.source_plugins.declaration import list_missing
from fleet.source_plugins.registry import SourceNotInstalledError, find_source, label_of, source_labels
from fleet.vocabulary.actions import AuditAction, AuditOutcome, RefusalError
from fleet.vocabulary.capabilities import Capability
from fleet.vocabulary.clusters import AddressKind, TLSSource

_YES_NO = {"yes": True, "no": False}
_LABELS = {"production": "production", "review_required": "review required"}
#: Flags of the TLS files, by part.
_TLS_FLAGS = {"authority": "tls_ca", "certificate": "tls_cert", "key": "tls_key"}
#: Flags of the other values, by field of ClusterValues.
_FLAGS = {
    "name": "--name",
    "source": "--source",
    "address_kind": "--kind",
    "auths": "--auths",
    "tls_source": "--tls",
    "tls_server_name": "--tls-server-name",
    "diag_addresses": "--diag-addresses",
    "edge_instances": "--edge-instances",
    "confirmation": "--confirm",
    "cluster_id": "cluster",
}
#: Seconds between two reads of a connection test.
_POLL_SECONDS = 0.3


class Command(ConsoleCommand):
    """Manage clusters without the console."""

    help = "Add, edit, pause, test and remove clusters, and set how changes to a cluster are confirmed."

    @override
    def add_arguments(self, parser: CommandParser) -> None:
        subparsers = parser.add_subparsers(
            dest="subcommand", required=True, metavar="list|show|add|edit|pause|resume|remove|test|set"
        )
        subparsers.add_parser("list", help="list clusters with their settings")
        show = subparsers.add_parser("show", help="show a cluster, without its uploaded TLS files")
        add = subparsers.add_parser("add", help="add a cluster; Refloat polls it from its next round on")
        edit = subparsers.add_parser("edit", help="change values of a cluster; others stay")
        pause = subparsers.add_parser("pause", help="poll nothing of a cluster, and open no incidents")
        resume = subparsers.add_parser("resume", help="poll a paused cluster again")
        remove = subparsers.add_parser("remove", help="remove a cluster with its history and settings")
        test = subparsers.add_parser("test", help="have a worker test the connection, step by step")
        set_parser = subparsers.add_parser("set", help="change what changes of a cluster require")
        add.add_argument("cluster", nargs="?", help="id of the cluster (default: its --source)")
        for subparser in (show, edit, pause, resume, remove, test, set_parser):
            subparser.add_argument("cluster", help="id of the cluster")
        for subparser in (add, edit):
            _add_value_arguments(subparser)
        for subparser in (add, edit, set_parser):
            _add_requirement_arguments(subparser)
        remove.add_argument("--confirm", required=True, metavar="NAME", help="name of the cluster")
        for subparser in (show, test):
            subparser.add_argument("--json", action="store_true", help="print a JSON object")

    @override
    def handle(self, *args: Any, **options: Any) -> None:
        subcommands = {
            "list": self._list,
            "show": self._show,
            "add": self._add,
            "edit": self._edit,
            "pause": self._pause,
            "resume": self._resume,
            "remove": self._remove,
            "test": self._test,
            "set": self._set,
        }
        try:
            subcommands[options["subcommand"]](options)
        except service.ClusterError as error:
            lines = [f"{_flag_of(field)}: {sentence}" for field, sentence in error.problems.items()]
            raise CommandError("\n".join(lines), returncode=2) from error
        except SourceNotInstalledError as error:
            raise CommandError(f"{error}.", returncode=2) from error
        except (RefusalError, StateUnavailableError) as error:
            raise CommandError(f"{error}. Try again.", returncode=2) from error

    def _list(self, options: dict[str, Any]) -> None:
        for cluster in Cluster.objects.all():
            addresses = ", ".join(cluster.auths) or "no addresses"
            pause_note = "  paused" if cluster.is_paused else ""
            self.stdout.write(f"{cluster.pk}  {_format_requirements(cluster)}  {addresses}{pause_note}")

    def _show(self, options: dict[str, Any]) -> None:
        row = _find(options)
        values = service.audit_values_of(row) | {"tls": service.describe_tls(row)}
        if options["json"]:
            self.stdout.write(json.dumps({"id": row.pk, **values}, indent=2))
            return
        for label, text in (
            ("id", row.pk),
            ("name", row.name),
            ("source", label_of(row.source)),
            (AddressKind(row.address_kind).label, ", ".join(row.auths) or "none"),
            ("TLS files", service.describe_tls(row)),
            ("server name", row.tls_server_name or "by role"),
            ("diag addresses", ", ".join(format_lines(row.diag_addresses)) or "none"),
            ("gateways and tunnel servers", ", ".join(format_lines(row.edge_instances)) or "none"),
            ("paused", "yes" if row.is_paused else "no"),
        ):
            self.stdout.write(f"{label}: {text}")
        self.stdout.write(_format_requirements(row))
        for capability, reason in _missing_capabilities_of(row).items():
            self.stdout.write(f"not available: {capability.label}: {reason}")

    def _add(self, options: dict[str, Any]) -> None:
        cluster_id = options["cluster"] or options["source"]
        if not cluster_id:
            raise CommandError("Enter the id of the cluster, or its --source.", returncode=2)
        name = options["name"] or options["cluster"] or label_of(cluster_id)
        values = _change_values(ClusterValues(name), options)
        self._write_saved(service.create_cluster(cluster_id, values, _actor()))

    def _edit(self, options: dict[str, Any]) -> None:
        row = _find(options)
        values = _change_values(service.values_of(row), options)
        self._write_saved(service.update_cluster(row, values, _actor()))

    def _write_saved(self, row: Cluster) -> None:
        self.stdout.write(f"{row.pk}  {_format_requirements(row)}")
        if row.auths:
            self.stdout.write(f"Test the connection: manage.py cluster test {row.pk}")

    def _pause(self, options: dict[str, Any]) -> None:
        row = service.set_paused(_find(options), True, _actor())
        self.stdout.write(f"{row.pk} is paused.")

    def _resume(self, options: dict[str, Any]) -> None:
        row = service.set_paused(_find(options), False, _actor())
        self.stdout.write(f"{row.pk} is polled again.")

    def _remove(self, options: dict[str, Any]) -> None:
        row = _find(options)
        service.remove_cluster(
            row,
            options["confirm"],
            _actor(),
            partial(delete_keys_at, settings.REDIS_URL, settings.REFLOAT_PREFIX),
        )
        self.stdout.write(f"{options['cluster']} was removed.")

    def _test(self, options: dict[str, Any]) -> None:
        row = _find(options)
        if not row.auths:
            raise CommandError(
                f"The cluster {row.name} has no addresses. Set them with `cluster edit {row.pk} --auths`.",
                returncode=2,
            )
        report = self._follow_test(row.pk, row.source, is_shown=not options["json"])
        if options["json"]:
            self.stdout.write(json.dumps(pack_report(report), indent=2))
        if report.is_lost(time.time()):
            raise CommandError("No worker ran the test. Start the workers.", returncode=2)
        if report.verdict is StepVerdict.FAILED:
            raise CommandError("The connection test failed.", returncode=1)

    def _follow_test(self, cluster: str, source: str, *, is_shown: bool) -> ConnectionTestReport:
        """Request a test, write its steps as they end, and return its report."""
        store = open_test_store(settings.REDIS_URL, settings.REFLOAT_PREFIX)
        test_id = request_test(store, cluster, source)
        shown_count = 0
        while True:
            report = store.read(cluster, test_id)
            if report is None:
                raise CommandError("The cluster was removed during the test.", returncode=2)
            for step in report.steps[shown_count:] if is_shown else ():
                self.stdout.write(_format_step(step))
            shown_count = len(report.steps)
            if not report.is_running(time.time()):
                return report
            time.sleep(_POLL_SECONDS)

    def _set(self, options: dict[str, Any]) -> None:
        cluster = _find(options)
        before = _requirements_of(cluster)
        changes = {name: _YES_NO[options[name]] for name in before if options[name] is not None}
        for name, enabled in changes.items():
            setattr(cluster, name, enabled)
        cluster.save(update_fields=[*changes] or None)
        audit_fields = {"before": before, "after": _requirements_of(cluster)}
        attempt = _actor().create_attempt(AuditAction.CLUSTER_SET, cluster.pk, cluster.name, **audit_fields)
        write_entry(attempt, AuditOutcome.SUCCEEDED, timezone.now())
        self.stdout.write(f"{cluster.pk}  {_format_requirements(cluster)}")


def _add_value_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--name", help="name of the cluster (default: its id)")
    parser.add_argument(
        "--source", choices=list(source_labels()), help="what its auths, proxies and agents run"
    )
    parser.add_argument(
        "--auths",
        help="addresses of some auths (host:port), separated by commas; or the entries of another --kind",
    )
    parser.add_argument(
        "--kind",
        dest="address_kind",
        choices=[kind.value for kind in AddressKind],
        help="static: host:port; dns: host:port with all addresses of the host; srv: names of SRV records; "
        "file_sd: paths of Prometheus file_sd files",
    )
    parser.add_argument(
        "--tls",
        dest="tls_source",
        choices=[source.value for source in TLSSource],
        help="where the TLS files come from; files: paths on the machines of the workers; uploaded: read now, and "
        "encrypted in the database",
    )
    for part, flag in _TLS_FLAGS.items():
        parser.add_argument(_format_flag(flag), metavar="FILE", help=f"{TLS_PARTS[part]}; empty: none")
    parser.add_argument(
        "--identity",
        metavar="FILE",
        help="identity file of Teleport, in place of the other TLS files: its path on the machines of the workers; "
        "with --tls identity_upload it is read now",
    )
    parser.add_argument("--tls-server-name", help="expected name in the certificates; empty: by role")
    parser.add_argument(
        "--diag-addresses",
        help="of a Teleport cluster: instances with the host:port of their --diag-addr, separated by commas, such as "
        "'auth-1 10.0.0.1:3000, proxy-1 10.0.0.2:3000'; empty: none",
    )
    parser.add_argument(
        "--edge-instances",
        help="gateways and tunnel servers: names with the host:port of their --diag-listen, separated by commas, such "
        "as 'edge-1 10.0.0.5:3000'; empty: none",
    )


def _add_requirement_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--production", choices=_YES_NO, help="require the cluster name to confirm any change"
    )
    parser.add_argument(
        "--require-review",
        dest="review_required",
        choices=_YES_NO,
        help="require approval of changes by a second person",
    )


def _change_values(values: ClusterValues, options: dict[str, Any]) -> ClusterValues:
    """Return the values with those of the flags that are set. Raises CommandError for a file that cannot be read."""
    flags: dict[str, Any] = {
        name: options[name]
        for name in ("name", "source", "address_kind", "tls_source", "tls_server_name")
        if options[name] is not None
    }
    flags |= {name: _YES_NO[options[name]] for name in _LABELS if options[name] is not None}
    values = replace(values, **flags)
    if options["auths"] is not None:
        entries = (entry.strip() for entry in options["auths"].split(","))
        values = replace(values, auths=tuple(filter(None, entries)))
    if options["diag_addresses"] is not None:
        addresses = _parse_diag_addresses("--diag-addresses", options["diag_addresses"], INSTANCE_FORM)
        values = replace(values, diag_addresses=addresses)
    if options["edge_instances"] is not None:
        addresses = _parse_diag_addresses("--edge-instances", options["edge_instances"], EDGE_FORM)
        values = replace(values, edge_instances=addresses)
    paths = {part: options[flag] for part, flag in _TLS_FLAGS.items() if options[flag] is not None}
    if options["identity"] is not None:
        return _with_identity(values, options["identity"], paths, options["tls_source"])
    if paths and values.tls_source not in {TLSSource.FILES, TLSSource.UPLOADED}:
        raise CommandError("TLS files need --tls files or --tls uploaded.", returncode=2)
    if values.tls_source == TLSSource.UPLOADED:
        return replace(values, tls_uploads={part: _read(part, path) for part, path in paths.items()})
    parts = parts_of(TLSSource(values.tls_source))
    old_paths = {part: path for part, path in values.tls_files.items() if part in parts}
    return replace(values, tls_files={**old_paths, **paths})


def _with_identity(
    values: ClusterValues, path: str, other_paths: Mapping[str, str], tls_source: str | None
) -> ClusterValues:
    """Return the values with an identity file: read now with --tls identity_upload, otherwise by its path."""
    source = tls_source or TLSSource.IDENTITY
    if other_paths or source not in {TLSSource.IDENTITY, TLSSource.IDENTITY_UPLOADED}:
        raise CommandError(
            "--identity is CA, certificate and key at once: leave --tls-ca, --tls-cert and --tls-key out, and use it "
            "with --tls identity or --tls identity_upload.",
            returncode=2,
        )
    values = replace(values, tls_source=source)
    if source == TLSSource.IDENTITY_UPLOADED:
        return replace(values, tls_uploads={IDENTITY_PART: _read(IDENTITY_PART, path)})
    return replace(values, tls_files={IDENTITY_PART: str(Path(path).absolute()) if path else ""})


def _parse_diag_addresses(flag: str, text: str, form: DiagAddressForm) -> dict[str, str]:
    try:
        return parse_lines(text.split(","), form)
    except DiagAddressError as error:
        raise CommandError(f"{flag}: {error}", returncode=2) from error


def _read(part: str, path: str) -> str:
    """Return the content of a TLS file; empty without a path, which removes the stored file."""
    if not path:
        return ""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        flag = _flag_of(f"tls_uploads.{part}")
        raise CommandError(f"{flag}: cannot read {path}: {error.strerror}.", returncode=2) from error


def _find(options: dict[str, Any]) -> Cluster:
    row = Cluster.objects.filter(pk=options["cluster"]).first()
    if row is None:
        raise CommandError(
            f"Cluster {options['cluster']} was not found. `cluster list` shows all clusters.", returncode=2
        )
    return row


def _missing_capabilities_of(row: Cluster) -> dict[Capability, str]:
    """Return what the source of a cluster does not have there; without Redis only what it never has."""
    source = find_source(row.source)
    if source is None:
        return {}
    try:
        findings = open_reader(settings.REDIS_URL, settings.REFLOAT_PREFIX).missing_capabilities(row.pk)
    except StateUnavailableError:
        findings = {}
    return list_missing(source, findings)


def _actor() -> RequestActor:
    return shell_actor_of("cluster")


def _flag_of(field: str) -> str:
    """Return the flag of a field with a problem: `--tls-key` of `tls_uploads.key`."""
    _, _, part = field.partition(".")
    if part == IDENTITY_PART:
        return "--identity"
    return _format_flag(_TLS_FLAGS[part]) if part in _TLS_FLAGS else _FLAGS.get(field, _format_flag(field))


def _format_flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _format_step(step: ConnectionTestStep) -> str:
    line = f"{step.verdict.label:<8} {step.label}: {step.text}"
    return f"{line}\n{'':9}What to do: {step.remedy}" if step.remedy else line


def _requirements_of(cluster: Cluster) -> dict[str, bool]:
    return {"production": cluster.production, "review_required": cluster.review_required}


def _format_requirements(cluster: Cluster) -> str:
    return "  ".join(
        f"{_LABELS[name]}: {'yes' if enabled else 'no'}"
        for name, enabled in _requirements_of(cluster).items()
    )
