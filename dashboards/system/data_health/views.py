"""The page *Data health*. It works without workers and without Redis: that is when people open it."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from dashboards.shared.pages import url_prefix_of
from dashboards.shared.permissions import requires
from dashboards.shared.presenters import to_moment_or_none
from dashboards.system.data_health.current import read_current_health
from dashboards.system.data_health.round_chart import make_chart
from fleet.management.data_health.facts import DataProblem
from fleet.models.access import Permission
from fleet.models.clusters import DEFAULT_CLUSTER
from fleet.models.moments import to_moment
from fleet.monitoring.state.poll_log import FeedResetReason

#: Parts in the order of the page, with their titles.
_PARTS = (
    ("rounds", "Rounds"),
    ("workers", "Workers"),
    ("queues", "Queues and scheduler"),
    ("targets", "Instances"),
    ("clocks", "Clocks"),
    ("feeds", "Feeds"),
    ("evidence", "Evidence"),
    ("services", "Services"),
)
_RESET_WORDS = {
    FeedResetReason.NEW_EPOCH: "new epoch, so the complete list was read",
    FeedResetReason.GAP: "gap, so the complete list was read",
    FeedResetReason.CONFLICT: "recorded by two workers at once, so one answer was dropped",
}
#: Feeds that started over in the list of the page.
_MAX_RESETS = 20
#: Clocks that differ, in the list of the page.
_MAX_CLOCKS = 8


@requires(Permission.VIEW_FLEET)
@require_safe
@never_cache
def data_health(request: HttpRequest, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """Show whether the data of the cluster can be trusted, and if not, what to do.

    Template `dashboards/data_health.html`: `health` (DataHealth), `chart` (RoundChart or None), `problems`
    (DataProblem, URL), `parts` (slug, title, number of problems, error), `target_rows` (TargetRow, since), `resets`
    (FeedReset, when, words), `skewed_clocks` (ClockRow) and `agreeing_count`, `tick_age` (seconds or None), `as_of`
    and `at`.
    """
    health = read_current_health(cluster)
    counts = {slug: sum(problem.part == slug for problem in health.problems) for slug, _ in _PARTS}
    skewed_clocks = [row for row in health.clocks.rows if row.offset]
    context = {
        "page": "data-health",
        "health": health,
        "chart": make_chart(health.rounds, health.at),
        "problems": [(problem, _url_of(problem, cluster)) for problem in health.problems],
        "parts": [(slug, title, counts[slug], getattr(health, slug).error) for slug, title in _PARTS],
        "target_rows": [(row, to_moment_or_none(row.since)) for row in health.targets.rows],
        "skewed_clocks": skewed_clocks[:_MAX_CLOCKS],
        "agreeing_count": health.clocks.count - len(skewed_clocks) - health.clocks.unknown_count,
        "resets": [
            (reset, to_moment(reset.at), _RESET_WORDS[reset.reason])
            for reset in health.feeds.resets[:_MAX_RESETS]
        ],
        "tick_age": None
        if health.queues.ticked_at is None
        else max(0.0, health.at - health.queues.ticked_at),
        "as_of": None if health.rounds.as_of is None else to_moment(health.rounds.as_of),
        "at": to_moment(health.at),
    }
    return render(request, "dashboards/data_health.html", context)


def _url_of(problem: DataProblem, cluster: str) -> str:
    """Return the URL of a problem's link; empty without one. Pages of clusters have no prefix."""
    if not problem.path or problem.path.startswith(("#", "/clusters/")):
        return problem.path
    return f"{url_prefix_of(cluster)}{problem.path}"
