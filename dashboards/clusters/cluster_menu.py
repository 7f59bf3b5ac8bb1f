"""The menu of clusters in the bar of every page, as JSON: state and stranded agents, when the menu is opened."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.http import HttpRequest, HttpResponseBase, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from dashboards.clusters.cluster_rows import ClusterState, judge
from dashboards.shared import record_reader
from dashboards.shared.pages import signed_in_user_of, url_prefix_of
from dashboards.shared.permissions import requires, visible_clusters_of
from fleet.models.access import Permission
from fleet.models.clusters import Cluster
from fleet.monitoring.state import StateError
from fleet.vocabulary.verdicts import State

#: Symbol of each state of a cluster; the others have that of unknown.
_SYMBOLS: Mapping[ClusterState, State] = {
    ClusterState.CONNECTED: State.HEALTHY,
    ClusterState.NOT_INSTALLED: State.AT_RISK,
    ClusterState.TEST_FAILED: State.AT_RISK,
    ClusterState.UNREACHABLE: State.AT_RISK,
}


@requires(Permission.VIEW_FLEET)
@require_safe
@never_cache
def cluster_menu(request: HttpRequest) -> HttpResponseBase:
    """Send `clusters` that the user may see as JSON, in the order of /clusters/; 503 while the record cannot be read.

    Each has `id`, `name`, `prefix` (prefix of links in the cluster), `symbol` (slug of the agent state with the same
    symbol), `state` (label) and `stranded_count`.
    """
    now = record_reader.current_time()
    reader, tests = record_reader.reader(), record_reader.connection_test_store()
    rows = {row.pk: row for row in Cluster.objects.all()}
    entries: list[dict[str, Any]] = []
    try:
        for cluster_id in visible_clusters_of(signed_in_user_of(request)):
            summary = reader.summary(cluster_id, now)
            row = rows.get(cluster_id) or Cluster(id=cluster_id, name=cluster_id)
            state, _sentence = judge(row, summary, tests.read(cluster_id), now)
            stranded_count = summary.counts.get(State.STRANDED, 0)
            symbol = State.STRANDED if stranded_count else _SYMBOLS.get(state, State.UNKNOWN)
            entries.append(
                {
                    "id": cluster_id,
                    "name": row.name,
                    "prefix": url_prefix_of(cluster_id),
                    "symbol": symbol.slug,
                    "state": state.label,
                    "stranded_count": stranded_count,
                }
            )
    except StateError as error:
        return JsonResponse({"detail": f"{error}."}, status=503)
    return JsonResponse({"clusters": entries})
