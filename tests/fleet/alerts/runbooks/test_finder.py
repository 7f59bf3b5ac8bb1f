from __future__ import annotations

import pytest

from fleet.alerts.runbooks.finder import RunbookFinder
from fleet.models.clusters import ensure_default_cluster
from fleet.models.incidents import VersionChange
from fleet.vocabulary.incidents import Cause, CauseKind, Incident, IncidentState
from tests.fakes.headline_fleets import table_with
from tests.fakes.small_fleet import NOW

pytestmark = pytest.mark.django_db


def _incident(kind: CauseKind, cause_id: str, opened_at: float = NOW) -> Incident:
    return Incident("default", Cause(kind, cause_id, "name"), 1, IncidentState.FIRING, opened_at)


@pytest.mark.parametrize(
    ("age", "old", "runbook"),
    [
        (60.0, "17.1", "version"),
        (1801.0, "17.1", "proxy"),
        (-1.0, "17.1", "proxy"),
        # The first version that was ever seen is no new one.
        (60.0, "", "proxy"),
    ],
)
def test_new_version_shortly_before_is_the_cause(age: float, old: str, runbook: str) -> None:
    """Within the 30 min before the incident was opened, of the instance itself."""
    VersionChange.objects.create(
        cluster=ensure_default_cluster(),
        instance_id="uuid-proxy-1",
        name="proxy-1",
        old=old,
        new="17.2",
        at=NOW - age,
    )
    finder = RunbookFinder("default", table_with(), NOW)
    assert finder.find(_incident(CauseKind.PROXY, "uuid-proxy-1")) == runbook
    assert finder.find(_incident(CauseKind.PROXY, "uuid-proxy-2")) == "proxy"
    assert finder.find(_incident(CauseKind.BACKEND, "default")) == "backend"


def test_incidents_are_found_without_data() -> None:
    """While the record cannot be read, an incident of agents has the runbook of their hosts."""
    finder = RunbookFinder("default", None, NOW)
    assert finder.find(_incident(CauseKind.AGENTS, "no-tunnel")) == "agents"
    assert finder.find(_incident(CauseKind.REGION, "eu")) == "region"
    assert (
        RunbookFinder("default", table_with(), NOW).find(_incident(CauseKind.AGENTS, "no-tunnel")) == "agents"
    )
