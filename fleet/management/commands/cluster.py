"""`manage.py cluster`: what changes of a cluster ask for, from a shell."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone
from typing_extensions import override

from fleet.audit import record, shell
from fleet.models.clusters import Cluster
from fleet.vocabulary.actions import AuditAction, AuditOutcome

_YES = {"yes": True, "no": False}


class Command(BaseCommand):
    """Clusters, without the console."""

    help = "List clusters, and say what changing one asks for."

    @override
    def add_arguments(self, parser: CommandParser) -> None:
        doing = parser.add_subparsers(dest="doing", required=True, metavar="list|set")
        doing.add_parser("list", help="list clusters with what changing them asks for")
        setting = doing.add_parser("set", help="say what changing a cluster asks for")
        setting.add_argument("cluster", help="its id")
        setting.add_argument(
            "--production", choices=_YES, help="its name must be typed, however few are touched"
        )
        setting.add_argument(
            "--second-approver", choices=_YES, help="changes wait until a second person agreed"
        )

    @override
    def handle(self, *args: Any, **options: Any) -> None:
        {"list": self._list, "set": self._set}[options["doing"]](options)

    def _list(self, options: dict[str, Any]) -> None:
        for cluster in Cluster.objects.all():
            self.stdout.write(f"{cluster.pk}  {_said(cluster)}")

    def _set(self, options: dict[str, Any]) -> None:
        cluster = Cluster.objects.filter(pk=options["cluster"]).first()
        if cluster is None:
            raise CommandError(f"There is no cluster {options['cluster']}.", returncode=2)
        before = _asks(cluster)
        given = {name: _YES[options[name]] for name in before if options[name] is not None}
        for name, value in given.items():
            setattr(cluster, name, value)
        cluster.save(update_fields=[*given] or None)
        values = {"before": before, "after": _asks(cluster)}
        attempt = shell("cluster").attempt(AuditAction.CLUSTER_SET, cluster.pk, cluster.name, **values)
        record(attempt, AuditOutcome.DONE, timezone.now())
        self.stdout.write(f"{cluster.pk}  {_said(cluster)}")


def _asks(cluster: Cluster) -> dict[str, bool]:
    return {"production": cluster.production, "second_approver": cluster.second_approver}


def _said(cluster: Cluster) -> str:
    return "  ".join(f"{name}: {'yes' if on else 'no'}" for name, on in _asks(cluster).items())
