"""Plans as lines of text; tests of the commands see the lines of the other kinds."""

from __future__ import annotations

from fleet.cli.plan_text import format_plan
from fleet.vocabulary.changes import ChangeKind

_CAMPAIGN_PLAN = {
    "reconnect_count": 1200,
    "duration_seconds": 61.2,
    "agents_by_instance": {"auth-1": 1200},
    "loads": [
        {"name": "auth-1", "kind": "auth", "before": 1200, "after": 0, "is_leaving": True},
        {"name": "auth-2", "kind": "auth", "before": 40, "after": 1240, "is_leaving": False},
    ],
    "skipped_by_reason": {
        "it is retired": 1,
        "unavailable: failed to connect to all addresses; last error: UNKNOWN: ipv4:10.0.0.1:1: Connection refused": 2,
    },
}


def test_lines_of_a_campaign() -> None:
    change = {"kind": "reconnect", "plan": _CAMPAIGN_PLAN}
    assert format_plan(change) == [
        "1,200 agents will reconnect, within about 1 min 1 s",
        "  1,200 leave auth-1",
        "  auth-1: 1,200 agents now, 0 afterwards",
        "  auth-2: 40 agents now, about 1,240 afterwards",
        "  1 skipped: it is retired",
        "  2 skipped: connection refused",
    ]


def test_every_kind_of_change_has_a_text() -> None:
    empty_plans = {
        ChangeKind.NETWORKING_CONFIG: {"notes": ["nothing closes"]},
        ChangeKind.POLICY: {"restarts": [], "manual_restarts": [], "notes": ["nothing restarts"]},
        ChangeKind.RECONNECT: _CAMPAIGN_PLAN,
        ChangeKind.SERVICE: {"notes": ["proxy-1 keeps its tunnels."]},
        ChangeKind.DEGRADE: {"notes": ["Load balancers prefer other instances."]},
        ChangeKind.RETIRE: {"notes": ["Retired agents raise no alerts."]},
    }
    assert all(format_plan({"kind": kind.value, "plan": empty_plans[kind]}) for kind in ChangeKind)


def test_rollout_states_the_agents_at_risk() -> None:
    """Only where instances restart."""
    plan = {
        "restarts": [{"name": "proxy-1", "agent_count": 3}],
        "manual_restarts": [],
        "duration_seconds": 9.5,
        "reconnect_sentence": "Agents reconnect about 3 times.",
        "loads": [],
        "risk_sentences": ["At most about 3 agents are at risk."],
    }
    assert format_plan({"kind": "policy", "plan": plan}) == [
        "  proxy-1 restarts (3 agents)",
        "  takes about 10 s. Agents reconnect about 3 times.",
        "  At most about 3 agents are at risk.",
    ]
