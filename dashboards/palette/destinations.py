"""Pages and actions of the palette, by the permissions of the user."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from django.contrib.auth.models import User
from django.urls import NoReverseMatch, reverse

from dashboards.palette.entries import PaletteEntry
from dashboards.palette.object_links import service_url
from dashboards.shared.permissions import visible_clusters_of
from fleet.models.access import Permission, can_write, has_permission
from fleet.models.clusters import DEFAULT_CLUSTER, Cluster
from fleet.monitoring.views import FleetTable
from fleet.vocabulary.instances import InstanceState

#: Path within the cluster, label, other words, whether it shows a past moment, and the permission beside VIEW_FLEET.
_CLUSTER_PAGES: tuple[tuple[str, str, tuple[str, ...], bool, Permission | None], ...] = (
    ("/", "Fleet now", ("home", "overview", "dashboard"), True, None),
    ("/map/", "Map", ("topology",), True, None),
    ("/agents/", "Agents", ("list of agents",), True, None),
    ("/agents/?q=state:stranded", "Stranded agents", (), True, None),
    ("/incidents/", "Incidents", ("alerts",), False, None),
    ("/history/", "History", ("timeline", "replay"), False, None),
    ("/history/compare/", "Compare two moments", ("diff",), False, None),
    ("/networking/", "Networking", ("clusternetworkingconfig", "tunnel strategy"), False, None),
    ("/policies/", "Policies", ("environment variables",), False, None),
    ("/changes/", "Changes", ("campaigns", "rollouts"), False, None),
    ("/audit/", "Audit log", (), False, Permission.VIEW_AUDIT),
    ("/silences/", "Silences and maintenance windows", ("mute",), False, None),
    ("/alerts/rules/", "Alert rules", (), False, None),
    ("/alerts/channels/", "Notification channels and routes", ("slack", "email", "webhook"), False, None),
    ("/alerts/runbooks/", "Runbooks", (), False, None),
)
#: Pages of the whole installation: path, label, other words.
_PAGES = (
    ("/clusters/", "Clusters", ()),
    ("/tokens/", "API tokens", ("access tokens",)),
    ("/api/v1/docs", "API reference", ("openapi", "swagger")),
)
#: Pages of the account: route, which may be switched off, and label.
_ACCOUNT_PAGES = (("mfa_index", "Two-factor authentication"), ("account_change_password", "Change password"))


def list_pages(user: User, cluster: str, prefix: str) -> Iterator[PaletteEntry]:
    """Yield the pages that the user may open. `prefix`: prefix of links in the cluster."""
    for path, label, keywords, has_past, permission in _CLUSTER_PAGES:
        if permission is None or has_permission(user, permission, cluster):
            yield PaletteEntry(label, f"{prefix}{path}", keywords=keywords, has_past=has_past)
    for path, label, keywords in _PAGES:
        yield PaletteEntry(label, path, keywords=keywords)
    for route, label in _ACCOUNT_PAGES:
        try:
            yield PaletteEntry(label, reverse(route), keywords=("account",))
        except NoReverseMatch:
            continue


def list_actions(user: User, cluster: str, prefix: str) -> Iterator[PaletteEntry]:
    """Yield the actions that the user may start; those of single instances are `list_instance_actions`."""
    if has_permission(user, Permission.ACT_ON_FLEET, cluster):
        yield PaletteEntry(
            "New silence…", f"{prefix}/silences/new/", keywords=("mute alerts",), is_dialog=True
        )
        yield PaletteEntry(
            "New maintenance window…", f"{prefix}/silences/windows/new/", keywords=("planned work",)
        )
        yield PaletteEntry("Reconnect agents…", f"{prefix}/reconnect/", keywords=("new reconnect campaign",))
    if can_write(user, Permission.MANAGE_ACCESS, ""):
        yield PaletteEntry("Add cluster…", "/clusters/new/", keywords=("new cluster",))
    for theme in ("light", "dark", "system"):
        yield PaletteEntry(f"Theme: {theme}", theme=theme, keywords=("colours colors mode",))


def list_instance_actions(
    user: User, cluster: str, prefix: str, table: FleetTable, drained_ids: Collection[str]
) -> Iterator[PaletteEntry]:
    """Yield taking each instance out of service, or bringing it back. `drained_ids`: requested by operators."""
    if not has_permission(user, Permission.ACT_ON_FLEET, cluster):
        return
    for view in table.instances.values():
        if view.state is InstanceState.GONE:
            continue
        name, is_drained = view.facts.name, view.drain_request is not None or view.facts.id in drained_ids
        yield PaletteEntry(
            f"Bring back {name}…" if is_drained else f"Take out of service {name}…",
            service_url(prefix, view.facts.id),
            keywords=(f"undrain {name}",) if is_drained else (f"drain {name}", f"take {name} out of service"),
            is_dialog=True,
        )


def list_clusters(user: User, cluster: str) -> Iterator[PaletteEntry]:
    """Yield the other clusters that the user may see."""
    names = dict(Cluster.objects.values_list("pk", "name"))
    for cluster_id in visible_clusters_of(user):
        if cluster_id == cluster:
            continue
        name = names.get(cluster_id) or cluster_id
        yield PaletteEntry(
            f"Switch to cluster {name}",
            "/" if cluster_id == DEFAULT_CLUSTER else f"/c/{cluster_id}/",
            note="" if name == cluster_id else cluster_id,
            keywords=(name, cluster_id),
            cluster=cluster_id,
        )
