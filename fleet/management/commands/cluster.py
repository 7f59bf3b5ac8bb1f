"""`manage.py cluster`: what changes of a cluster ask for, from a shell."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone
from typing_extensions import override

from fleet.audit import record, shell_actor_of
from fleet.models.clusters import Cluster
from fleet.vocabulary.actions import AuditAction, AuditOutcome

_YES_NO = {"yes": True, "no": False}


class Command(BaseCommand):
    """Clusters, without the console."""

    help = "List clusters, and say what changing one asks for."

    @override
    def add_arguments(self, parser: CommandParser) -> None:
        subparsers = parser.add_subparsers(dest="doing", required=True, metavar="list|set")
        subparsers.add_parser("list", help="list clusters with what changing them asks for")
        setting = subparsers.add_parser("set", help="say what changing a cluster asks for")
        setting.add_argument("cluster", help="its id")
        setting.add_argument(
            "--production", choices=_YES_NO, help="its name must be typed, however few are touched"
        )
        setting.add_argument(
            "--second-approver", choices=_YES_NO, help="changes wait until a second person agreed"
        )

    @override
    def handle(self, *args: Any, **options: Any) -> None:
        {"list": self._list, "set": self._set}[options["doing"]](options)

    def _list(self, options: dict[str, Any]) -> None:
        for cluster in Cluster.objects.all():
            self.stdout.write(f"{cluster.pk}  {_format_requirements(cluster)}")

    def _set(self, options: dict[str, Any]) -> None:
        cluster = Cluster.objects.filter(pk=options["cluster"]).first()
        if cluster is None:
            raise CommandError(f"There is no cluster {options['cluster']}.", returncode=2)
        before = _requirements_of(cluster)
        changes = {name: _YES_NO[options[name]] for name in before if options[name] is not None}
        for name, enabled in changes.items():
            setattr(cluster, name, enabled)
        cluster.save(update_fields=[*changes] or None)
        audit_fields = {"before": before, "after": _requirements_of(cluster)}
        attempt = shell_actor_of("cluster").create_attempt(AuditAction.CLUSTER_SET, cluster.pk, cluster.name, **audit_fields)
        record(attempt, AuditOutcome.DONE, timezone.now())
        self.stdout.write(f"{cluster.pk}  {_format_requirements(cluster)}")


def _requirements_of(cluster: Cluster) -> dict[str, bool]:
    return {"production": cluster.production, "second_approver": cluster.second_approver}


def _format_requirements(cluster: Cluster) -> str:
    return "  ".join(f"{name}: {'yes' if enabled else 'no'}" for name, enabled in _requirements_of(cluster).items())
