"""What the palette finds, as JSON. docs/reference/keys.md, "Palette"."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponseBase, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from dashboards.palette import destinations, objects
from dashboards.palette.entries import EntryGroup, EntryKind, PaletteEntry, match_entries
from dashboards.palette.ranking import normalize
from dashboards.shared import record_reader
from dashboards.shared.pages import signed_in_user_of, url_prefix_of
from dashboards.shared.permissions import requires
from fleet.changes.operations import drains
from fleet.models.access import Permission
from fleet.models.clusters import DEFAULT_CLUSTER
from fleet.monitoring.state import StateError

#: Longest query that is searched; no name is longer.
_MAX_QUERY_LENGTH = 300
#: Entries of one group; the group also has the number of all.
_GROUP_LIMIT = 6
#: Entries of the groups without a query: all pages and actions.
_START_LIMIT = 40


@requires(Permission.VIEW_FLEET)
@require_safe
@never_cache
def palette(request: HttpRequest, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """Send what matches `?q=` as JSON: `groups` (entries.EntryGroup), best first, and `notice`.

    Without a query: the pages, the actions and the other clusters. `notice`: why objects are missing, as a sentence, or
    empty.
    """
    user, prefix = signed_in_user_of(request), url_prefix_of(cluster)
    query = normalize(request.GET.get("q", "")[:_MAX_QUERY_LENGTH])
    limit = _GROUP_LIMIT if query else _START_LIMIT
    pages, actions = (
        list(destinations.list_pages(user, cluster, prefix)),
        list(destinations.list_actions(user, cluster, prefix)),
    )
    groups: list[EntryGroup] = []
    notice = ""
    if query:
        now = record_reader.current_time()
        instances: list[PaletteEntry] = []
        try:
            instances += objects.list_edge_instances(cluster, prefix, now)
            table = record_reader.reader().table(cluster, now)
        except StateError as error:
            notice = f"Agents and instances cannot be searched: {error}."
        else:
            drained_ids = drains.read_requested_ids(cluster)
            actions += destinations.list_instance_actions(user, cluster, prefix, table, drained_ids)
            groups.append(objects.search_agents(table, prefix, query, limit))
            instances = [*objects.list_instances(table, prefix), *instances]
        groups += [
            match_entries(EntryKind.INSTANCE, instances, query, limit),
            objects.search_incidents(cluster, prefix, query, limit),
            objects.search_changes(cluster, prefix, query, limit),
        ]
    groups += [
        match_entries(EntryKind.PAGE, pages, query, limit),
        match_entries(EntryKind.ACTION, actions, query, limit),
        match_entries(EntryKind.CLUSTER, destinations.list_clusters(user, cluster), query, limit),
    ]
    kinds = list(EntryKind)
    groups.sort(key=lambda group: (group.best_rank, kinds.index(group.kind)))
    return JsonResponse({"groups": [group.as_json() for group in groups if group.entries], "notice": notice})
