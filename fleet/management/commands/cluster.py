"""`manage.py cluster`: the confirmation that changes of a cluster require."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.utils import timezone
from typing_extensions import override

from fleet.audit import shell_actor_of, write_entry
from fleet.management.base_command import ConsoleCommand
from fleet.models.clusters import Cluster
from fleet.vocabulary.actions import AuditAction, AuditOutcome

_YES_NO = {"yes": True, "no": False}
_LABELS = {"production": "production", "review_required": "review required"}


class Command(ConsoleCommand):
    """Manage clusters without the console."""

    help = "List clusters, and set how changes to a cluster are confirmed and reviewed."

    @override
    def add_arguments(self, parser: CommandParser) -> None:
        subparsers = parser.add_subparsers(dest="subcommand", required=True, metavar="list|set")
        subparsers.add_parser("list", help="list clusters with their settings")
        set_parser = subparsers.add_parser("set", help="change the settings of a cluster")
        set_parser.add_argument("cluster", help="id of the cluster")
        set_parser.add_argument(
            "--production", choices=_YES_NO, help="require the cluster name to confirm any change"
        )
        set_parser.add_argument(
            "--require-review",
            dest="review_required",
            choices=_YES_NO,
            help="require approval of changes by a second person",
        )

    @override
    def handle(self, *args: Any, **options: Any) -> None:
        {"list": self._list, "set": self._set}[options["subcommand"]](options)

    def _list(self, options: dict[str, Any]) -> None:
        for cluster in Cluster.objects.all():
            self.stdout.write(f"{cluster.pk}  {_format_requirements(cluster)}")

    def _set(self, options: dict[str, Any]) -> None:
        cluster = Cluster.objects.filter(pk=options["cluster"]).first()
        if cluster is None:
            raise CommandError(
                f"Cluster {options['cluster']} was not found. `cluster list` shows all clusters.",
                returncode=2,
            )
        before = _requirements_of(cluster)
        changes = {name: _YES_NO[options[name]] for name in before if options[name] is not None}
        for name, enabled in changes.items():
            setattr(cluster, name, enabled)
        cluster.save(update_fields=[*changes] or None)
        audit_fields = {"before": before, "after": _requirements_of(cluster)}
        attempt = shell_actor_of("cluster").create_attempt(
            AuditAction.CLUSTER_SET, cluster.pk, cluster.name, **audit_fields
        )
        write_entry(attempt, AuditOutcome.SUCCEEDED, timezone.now())
        self.stdout.write(f"{cluster.pk}  {_format_requirements(cluster)}")


def _requirements_of(cluster: Cluster) -> dict[str, bool]:
    return {"production": cluster.production, "review_required": cluster.review_required}


def _format_requirements(cluster: Cluster) -> str:
    return "  ".join(
        f"{_LABELS[name]}: {'yes' if enabled else 'no'}"
        for name, enabled in _requirements_of(cluster).items()
    )
