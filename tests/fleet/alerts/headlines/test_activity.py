from __future__ import annotations

from dataclasses import replace

import pytest

from fleet.alerts.headlines.activity import (
    Activity,
    ChangeProgress,
    RecentRecovery,
    describe_activity,
    describe_changes,
    describe_recoveries,
    link_activity,
)
from fleet.alerts.headlines.headline import describe_fleet
from fleet.vocabulary.campaigns import ConnectionKind
from fleet.vocabulary.changes import ChangeKind, ChangeState
from fleet.vocabulary.rollouts import RolloutStepState
from fleet.vocabulary.verdicts import Recovery, State
from tests.fakes.headline_fleets import HarmedAgents, table_with
from tests.fakes.small_fleet import AUTH_1, NOW, OK, PROXY_1, PROXY_2, SILENT, UNHEALTHY

CAMPAIGN = ChangeProgress(
    number=3,
    kind=ChangeKind.RECONNECT,
    state=ChangeState.RUNNING,
    title="Reconnect 15 agents of proxy-1",
    actor_name="demo",
    started_at=NOW - 60,
    total_count=15,
    finished_count=5,
    instances_to_leave=("proxy-1",),
)
ROLLOUT = ChangeProgress(
    number=4,
    kind=ChangeKind.POLICY,
    state=ChangeState.RUNNING,
    title="Set 1 policy of all proxies; restart 4 instances",
    actor_name="demo",
    started_at=NOW - 60,
    total_count=4,
    finished_count=1,
    steps=(("proxy-2", RolloutStepState.RESTARTING),),
    instances_noun="proxies",
)
CONFIG_CHANGE = ChangeProgress(
    number=5,
    kind=ChangeKind.NETWORKING_CONFIG,
    state=ChangeState.RUNNING,
    title="agent_connection_count 1 → 2",
    actor_name="demo",
    started_at=NOW - 60,
)
RECOVERY = RecentRecovery(
    6, "15 agents were stranded because proxy-2 was not responding", "proxy-2", NOW - 60
)


def _sentence(change: ChangeProgress) -> str:
    (headline_change,) = describe_changes(Activity((change,)), NOW)
    return headline_change.sentence


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            CAMPAIGN,
            "Campaign 3, started by demo at 13:45 UTC, is moving 15 agents off proxy-1: 5 of 15 moved.",
        ),
        (
            replace(
                CAMPAIGN,
                detail="the first agent must succeed",
                finished_count=6,
                failed_count=1,
            ),
            (
                "Campaign 3, started by demo at 13:45 UTC, is moving 15 agents off proxy-1: 5 of 15 moved, 1 failed "
                "(the first agent must succeed)."
            ),
        ),
        (
            replace(CAMPAIGN, instances_to_leave=(), connection=ConnectionKind.AUTH),
            "Campaign 3, started by demo at 13:45 UTC, is moving 15 agents to other auths: 5 of 15 moved.",
        ),
        (
            replace(CAMPAIGN, instances_to_leave=("a", "b", "c", "d")),
            "Campaign 3, started by demo at 13:45 UTC, is moving 15 agents to other proxies: 5 of 15 moved.",
        ),
        (
            replace(CAMPAIGN, state=ChangeState.PAUSED, detail="paused by demo"),
            "Campaign 3, started by demo at 13:45 UTC, is paused: 5 of 15 moved (paused by demo).",
        ),
        (
            replace(CAMPAIGN, state=ChangeState.PAUSED, detail="paused: one of the first agents failed"),
            (
                "Campaign 3, started by demo at 13:45 UTC, is paused: 5 of 15 moved (one of the first agents failed)."
            ),
        ),
        (
            replace(CAMPAIGN, state=ChangeState.VERIFIED, ended_at=NOW, finished_count=15),
            "Campaign 3 ended at 13:46 UTC: 15 of 15 agents moved off proxy-1.",
        ),
        (
            replace(CAMPAIGN, state=ChangeState.CANCELLED, ended_at=NOW),
            "Campaign 3 was aborted at 13:46 UTC: 5 of 15 agents moved off proxy-1.",
        ),
        (
            replace(CAMPAIGN, state=ChangeState.FAILED, ended_at=NOW, detail="3 of 20 agents failed."),
            "Campaign 3 failed at 13:46 UTC: 3 of 20 agents failed.",
        ),
        (
            ROLLOUT,
            (
                "Rollout 4, started by demo at 13:45 UTC, is restarting 4 proxies: proxy-2 is restarting, "
                "1 of 4 finished."
            ),
        ),
        (
            replace(ROLLOUT, steps=(("proxy-2", RolloutStepState.VERIFYING),)),
            (
                "Rollout 4, started by demo at 13:45 UTC, is restarting 4 proxies: proxy-2 has restarted and must stay "
                "healthy, 1 of 4 finished."
            ),
        ),
        (
            replace(ROLLOUT, steps=(("proxy-2", RolloutStepState.VERIFYING),), checks_end_at=NOW + 5),
            (
                "Rollout 4, started by demo at 13:45 UTC, is restarting 4 proxies: proxy-2 has restarted and must stay "
                "healthy until 13:46:45 UTC, 1 of 4 finished."
            ),
        ),
        (
            replace(ROLLOUT, state=ChangeState.VERIFIED, ended_at=NOW, finished_count=4, steps=()),
            "Rollout 4 ended at 13:46 UTC: 4 of 4 proxies restarted.",
        ),
        (
            replace(ROLLOUT, state=ChangeState.CANCELLED, ended_at=NOW, finished_count=0, skipped_count=3),
            (
                "Rollout 4 was aborted at 13:46 UTC: 0 of 4 proxies restarted, 3 skipped; proxy-2 is restarting."
            ),
        ),
        (
            CONFIG_CHANGE,
            "Config change 5, started by demo at 13:45 UTC, is in progress: agent_connection_count 1 → 2.",
        ),
        (
            replace(CONFIG_CHANGE, state=ChangeState.VERIFIED, ended_at=NOW),
            "Config change 5 ended at 13:46 UTC: agent_connection_count 1 → 2.",
        ),
        (
            replace(CONFIG_CHANGE, state=ChangeState.VERIFYING, ended_at=NOW),
            "Config change 5 was applied at 13:46 UTC and is being verified: agent_connection_count 1 → 2.",
        ),
    ],
)
def test_sentence_says_who_started_a_change_what_it_does_and_how_far_it_is(
    change: ChangeProgress, sentence: str
) -> None:
    assert _sentence(change) == sentence


@pytest.mark.parametrize(
    ("names", "start"),
    [
        (["proxy-4"], "proxy-4 has no agents yet: agents stay at the other proxies until"),
        (
            ["proxy-3", "proxy-4"],
            "proxy-3 and proxy-4 have no agents yet: agents stay at the other proxies",
        ),
        (["a", "b", "c"], "a, b and c have no agents yet"),
        (["a", "b", "c", "d"], "4 proxies have no agents yet"),
    ],
)
def test_ended_rollout_says_why_proxies_have_no_agents(names: list[str], start: str) -> None:
    """Nothing moves agents back to a proxy that has restarted."""
    rollout = replace(ROLLOUT, state=ChangeState.VERIFIED, ended_at=NOW, finished_count=4, steps=())
    campaign = replace(CAMPAIGN, state=ChangeState.VERIFIED, ended_at=NOW)
    running_rollout, ended_rollout, ended_campaign = describe_changes(
        Activity((ROLLOUT, rollout, campaign)), NOW, names
    )
    assert ended_rollout.sentence.startswith(
        f"Rollout 4 ended at 13:46 UTC: 4 of 4 proxies restarted. {start}"
    )
    assert not any("no agents yet" in change.sentence for change in (running_rollout, ended_campaign))


@pytest.mark.parametrize("agent_count", [0, 1, 9])
def test_planned_restart_is_no_alarm(agent_count: int) -> None:
    """While the rollout runs; when it is paused, or when another instance fails too, the headline warns as usual."""
    rollout = replace(ROLLOUT, steps=(("auth-1", RolloutStepState.RESTARTING),))
    harmed_agents = HarmedAgents(agent_count, State.AT_RISK, AUTH_1, Recovery.BY_ITSELF, strands_at=NOW + 60)
    table = table_with(harmed_agents, auth_1=UNHEALTHY)
    headline = describe_fleet(table, (), NOW, Activity((rollout,)))
    assert headline.state is State.WORKING
    assert headline.summary.startswith("No stranded agents.")
    assert ("because of a restart" in headline.summary) is bool(agent_count)
    assert (headline.strands_at, headline.actions) == (None, ())
    paused_rollout = replace(rollout, state=ChangeState.PAUSED)
    assert describe_fleet(table, (), NOW, Activity((paused_rollout,))).state is State.AT_RISK
    other_table = table_with(harmed_agents, auth_1=UNHEALTHY, proxy_1=SILENT)
    assert describe_fleet(other_table, (), NOW, Activity((rollout,))).state is State.AT_RISK


def test_headline_tells_of_the_newest_ended_change_only() -> None:
    """And of all that are running; the others are links."""
    ended_changes = [
        replace(CONFIG_CHANGE, number=number, state=ChangeState.VERIFIED, ended_at=NOW) for number in (9, 8)
    ]
    changes = describe_changes(Activity((*ended_changes, CAMPAIGN)), NOW)
    text = describe_activity(changes)
    assert text.startswith("Campaign 3, started by demo")
    assert "Config change 9 ended" in text
    assert "Config change 8" not in text


def test_only_a_proxy_that_accepts_tunnels_counts_as_empty() -> None:
    """While another proxy has some: a source may not tell of tunnels at all."""
    rollout = replace(ROLLOUT, state=ChangeState.VERIFIED, ended_at=NOW, finished_count=4, steps=())

    def text_of(agent_count: int, *, is_silent: bool = False) -> str:
        table = table_with(proxy_1=SILENT if is_silent else OK)
        views = dict(table.instances)
        views[PROXY_1] = replace(views[PROXY_1], agent_count=0)
        views[PROXY_2] = replace(views[PROXY_2], agent_count=agent_count)
        return describe_fleet(replace(table, instances=views), (), NOW, Activity((rollout,))).text

    assert "restarted. proxy-1 has no agents yet" in text_of(3)
    assert "no agents yet" not in text_of(0)
    assert "no agents yet" not in text_of(3, is_silent=True)


def test_change_of_a_past_moment_has_no_progress() -> None:
    past_campaign = replace(CAMPAIGN, total_count=0, finished_count=0)
    assert _sentence(past_campaign) == (
        "Campaign 3, started by demo at 13:45 UTC, is moving agents off proxy-1."
    )


def test_running_changes_come_first_and_name_the_instances_they_act_on() -> None:
    ended_change = replace(ROLLOUT, state=ChangeState.VERIFIED, ended_at=NOW, steps=())
    changes = describe_changes(Activity((ended_change, CAMPAIGN)), NOW)
    assert [(change.number, change.is_running) for change in changes] == [(3, True), (4, False)]
    assert [dict(change.instances) for change in changes] == [{"proxy-1": "agents moving away"}, {}]
    (rollout,) = describe_changes(Activity((ROLLOUT,)), NOW)
    assert dict(rollout.instances) == {"proxy-2": "restarting"}
    aborted_rollout = replace(ROLLOUT, state=ChangeState.CANCELLED, ended_at=NOW)
    (rollout,) = describe_changes(Activity((aborted_rollout,)), NOW)
    assert dict(rollout.instances) == {"proxy-2": "restarting"}


def test_links_open_changes_and_recent_incidents() -> None:
    changes = describe_changes(Activity((CAMPAIGN,)), NOW)
    assert [(link.label, link.path) for link in link_activity(changes, [RECOVERY])] == [
        ("Open campaign 3", "/changes/3/"),
        ("Open incident 6 (proxy-2)", "/incidents/6/"),
    ]
    assert describe_recoveries(Activity((), (RECOVERY,)), NOW) == (
        "Recovered at 13:45 UTC: 15 agents were stranded because proxy-2 was not responding."
    )


def test_several_incidents_that_ended_are_counted_without_their_agents() -> None:
    """An agent that moved from one failing proxy to the next one belonged to both."""
    earlier = RecentRecovery(5, "12 agents were stranded because proxy-3 was unhealthy", "proxy-3", NOW - 99)
    assert describe_recoveries(Activity((), (RECOVERY, earlier)), NOW) == (
        "2 incidents ended, the last at 13:45 UTC: proxy-2 and proxy-3."
    )
    recoveries = (RECOVERY, earlier, replace(earlier, number=4, cause_name="auth-1"))
    assert describe_recoveries(Activity((), recoveries, 7), NOW) == (
        "7 incidents ended, the last at 13:45 UTC: proxy-2, proxy-3, auth-1 and 4 more."
    )
    again = (RECOVERY, replace(RECOVERY, number=4, recovered_at=NOW - 300))
    assert describe_recoveries(Activity((), again, 2), NOW) == (
        "2 incidents ended, the last at 13:45 UTC: proxy-2."
    )


def test_headline_of_a_healthy_fleet_tells_of_the_change_and_of_what_ended() -> None:
    """The symbol is that of agents that move, until the change ends."""
    headline = describe_fleet(table_with(), (), NOW, Activity((CAMPAIGN,), (RECOVERY,)))
    assert headline.text == (
        f"No stranded agents. {_sentence(CAMPAIGN)} "
        "Recovered at 13:45 UTC: 15 agents were stranded because proxy-2 was not responding."
    )
    assert (headline.state, headline.count, headline.tab_title) == (State.WORKING, 0, "")
    assert [link.label for link in headline.links] == ["Open campaign 3", "Open incident 6 (proxy-2)"]
    ended_change = replace(CAMPAIGN, state=ChangeState.VERIFIED, ended_at=NOW)
    assert describe_fleet(table_with(), (), NOW, Activity((ended_change,))).state is State.HEALTHY


def test_headline_of_a_failure_names_changes_after_it_and_nothing_that_recovered() -> None:
    table = table_with(
        HarmedAgents(67, State.STRANDED, AUTH_1, Recovery.ONLY_IF_CAUSE_RECOVERS), auth_1=UNHEALTHY
    )
    headline = describe_fleet(table, (), NOW, Activity((ROLLOUT,), (RECOVERY,)))
    assert headline.text.endswith(f"No automatic recovery. {_sentence(ROLLOUT)}")
    assert headline.state is State.STRANDED
    assert [link.label for link in headline.links] == ["Open rollout 4"]


def test_headline_without_current_data_tells_of_nothing_that_recovered() -> None:
    stale_fleet = replace(table_with(), stale=True)
    assert describe_fleet(stale_fleet, (), NOW, Activity((), (RECOVERY,))).links == ()
