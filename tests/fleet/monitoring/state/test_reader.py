from __future__ import annotations

from dataclasses import replace

import pytest
from redis import Redis

from fleet.monitoring.columns import HEALTH_CHECK, TUNNEL
from fleet.monitoring.evidence import FeedFreshness, ReconnectMode
from fleet.monitoring.state import StateUnavailableError
from fleet.monitoring.state.codec import FeedState, blank_rows
from fleet.monitoring.state.connect import connect
from fleet.monitoring.state.reader import Reader
from fleet.monitoring.state.writer import Writer
from fleet.vocabulary.instances import InstanceResource, InstanceState, Poll, PollAttempt
from fleet.vocabulary.verdicts import Reason, State
from tests.fakes.record import AS_OF, INTERVAL, conclude, fill

STATES = [State.HEALTHY, State.STRANDED, State.RETIRED, State.HEALTHY]


def test_summary_of_a_fresh_round(writer: Writer, reader: Reader) -> None:
    """States without agents have the count 0."""
    fill(writer, STATES)
    summary = reader.summary("default", AS_OF + 1)
    assert not summary.stale
    assert (summary.agent_count, summary.instance_count, summary.as_of, summary.interval) == (
        4,
        4,
        AS_OF,
        INTERVAL,
    )
    assert summary.counts == {
        **dict.fromkeys(State, 0),
        State.HEALTHY: 2,
        State.STRANDED: 1,
        State.RETIRED: 1,
    }


def test_snapshot_of_an_old_round(writer: Writer, reader: Reader) -> None:
    """Old data makes all agents unknown except retired ones."""
    fill(writer, STATES)
    assert reader.snapshot("default", AS_OF + 10).states == bytes(STATES)
    old = reader.snapshot("default", AS_OF + 10.1)
    assert old.stale
    assert old.states == bytes([State.UNKNOWN, State.UNKNOWN, State.RETIRED, State.UNKNOWN])
    assert old.counts[State.UNKNOWN] == 3
    assert old.counts[State.RETIRED] == 1
    assert reader.stream_header("default", AS_OF + 10.1).counts == old.counts


def test_snapshot_has_the_sequence_number_of_its_state(writer: Writer, reader: Reader) -> None:
    """A round that changes no state leaves the sequence number, one that does raises it by one."""
    fill(writer, STATES)
    first = reader.snapshot("default", AS_OF)
    assert conclude(writer, STATES, as_of=AS_OF + 1)
    assert reader.snapshot("default", AS_OF + 1).seq == first.seq
    new_states = [*STATES[:3], State.AT_RISK]
    assert conclude(writer, new_states, as_of=AS_OF + 2)
    last = reader.snapshot("default", AS_OF + 2)
    assert (last.seq, last.states, last.epoch) == (first.seq + 1, bytes(new_states), first.epoch)


def test_home_proxies_in_order_of_discovery(writer: Writer, reader: Reader) -> None:
    """The agents keep their places; instances are numbered in the order in which they were first recorded."""
    fill(writer, STATES)
    table = reader.table("default", AS_OF)
    assert table.ids == ("agent-1-id", "agent-2-id", "agent-3-id", "agent-4-id")
    assert table.names[0] == "agent-1"
    homes = [reader.agent(table, index).home_proxy for index in range(4)]
    assert homes == ["proxy-1-id", "proxy-2-id", "proxy-1-id", "proxy-2-id"]


def test_agents_without_a_verdict_are_left_out(writer: Writer, reader: Reader) -> None:
    """Table and snapshot have the same length."""
    epoch = fill(writer, STATES)
    version = reader.layout_version("default")
    writer.intern_agents("default", epoch, [("new", "new")])
    assert len(reader.table("default", AS_OF).ids) == len(reader.snapshot("default", AS_OF).states) == 4
    assert reader.layout_version("default") == version
    assert conclude(writer, [*STATES, State.HEALTHY], as_of=AS_OF + 1)
    assert reader.layout_version("default") != version
    assert reader.table("default", AS_OF + 1).ids[-1] == "new"


def test_new_record_drops_the_cached_roster(writer: Writer, reader: Reader, redis: Redis) -> None:
    """Rosters of two epochs are not mixed."""
    fill(writer, STATES)
    assert len(reader.table("default", AS_OF).ids) == 4
    before = reader.stream_header("default", AS_OF)
    redis.flushdb()
    assert reader.stream_header("default", AS_OF).agent_count == 0
    fill(writer, STATES[:2])
    after = reader.stream_header("default", AS_OF)
    assert after.epoch != before.epoch
    assert reader.table("default", AS_OF).ids == ("agent-1-id", "agent-2-id")


def test_cluster_without_a_record(reader: Reader) -> None:
    """Empty and stale, not an error."""
    summary = reader.summary("default", AS_OF)
    assert (summary.stale, summary.as_of, summary.agent_count) == (True, None, 0)
    assert reader.snapshot("default", AS_OF).states == b""
    assert reader.table("default", AS_OF).ids == ()


def test_clusters_are_separate(writer: Writer, reader: Reader) -> None:
    """Every key contains its cluster."""
    fill(writer, STATES)
    fill(writer, STATES[:1], cluster="east")
    assert reader.summary("default", AS_OF).agent_count == 4
    assert reader.summary("east", AS_OF).agent_count == 1


def test_redis_down(prefix: str) -> None:
    """The error is a sentence."""
    with pytest.raises(StateUnavailableError):
        Reader(connect("redis://127.0.0.1:1/0"), prefix).stream_header("default", AS_OF)


def test_table_is_kept_until_a_round_concludes(writer: Writer, reader: Reader) -> None:
    """Another table is created after a poll and when the data becomes old."""
    fill(writer, STATES)
    first = reader.table("default", AS_OF + 1)
    assert reader.table("default", AS_OF + 2) is first
    assert conclude(writer, STATES, as_of=AS_OF + 3)
    second = reader.table("default", AS_OF + 3)
    assert second is not first
    old = reader.table("default", AS_OF + 60)
    assert old.stale
    assert set(old.verdicts["state"].tolist()) == {State.UNKNOWN, State.RETIRED}
    assert second.verdicts["state"].tolist() == STATES


def test_instances_with_their_agents(writer: Writer, reader: Reader) -> None:
    """Agents connected to a proxy or an auth, and counts by home proxy."""
    fill(writer, STATES)
    views = reader.instances("default", AS_OF + 1)
    assert [view.facts.name for view in views] == ["auth-1", "auth-2", "proxy-1", "proxy-2"]
    assert [view.state for view in views] == [InstanceState.OK] * 4
    assert [view.agent_count for view in views] == [4, 0, 2, 2]
    assert views[2].counts[State.HEALTHY] == views[2].counts[State.RETIRED] == 1
    assert views[3].counts[State.STRANDED] == 1


def test_auth_counts_the_agents_that_it_strands(writer: Writer, reader: Reader) -> None:
    """Their resources have expired, but their tunnels show that they are alive."""
    epoch = fill(writer, STATES)
    later = AS_OF + 25
    assert reader.instances("default", later)[0].agent_count == 4

    for proxy in (2, 3):
        feed = writer.feed("default", str(proxy))
        after = FeedState(
            freshness=FeedFreshness(attempted_at=AS_OF, responded_at=AS_OF), epoch="tunnels", revision=9
        )
        assert writer.write_tunnels(
            "default", epoch, proxy, feed_before=feed, feed_after=after, rows=blank_rows(TUNNEL, 0)
        )
    assert conclude(writer, STATES, as_of=later)
    assert reader.instances("default", later)[0].agent_count == 0


def test_auth_receives_heartbeats_of_proxies_that_respond(writer: Writer, reader: Reader) -> None:
    """A proxy that ended or hangs sends none, whichever auth received its last one."""
    epoch = fill(writer, STATES)
    resources = {
        index: InstanceResource(
            name=f"proxy-{index - 1}",
            address=f"127.0.0.1:{9000 + index}",
            ttl=10.0,
            expires_at=AS_OF + 10,
            heartbeat_auth="auth-1-id",
        )
        for index in (2, 3)
    }
    failures = tuple(PollAttempt(AS_OF - age, ok=False) for age in (0.1, 5.0, 10.0))
    writer.write_instances("default", epoch, resources=resources, polls={3: Poll(attempts=failures)})
    assert conclude(writer, STATES, as_of=AS_OF)

    views = reader.instances("default", AS_OF + 1)
    assert views[3].state is InstanceState.SILENT
    assert views[0].proxies == ("proxy-1",)


def test_instances_polled_long_ago(writer: Writer, reader: Reader) -> None:
    """Their state is unknown."""
    fill(writer, STATES)
    views = reader.instances("default", AS_OF + 60)
    assert {view.state for view in views} == {InstanceState.UNKNOWN}


def test_list_of_cut_off_auths_is_not_fresh(writer: Writer, reader: Reader) -> None:
    """Polls continue while every auth is cut off, so heartbeats are as old as the list."""
    fill(writer, STATES)
    assert all(view.is_list_fresh for view in reader.instances("default", AS_OF + 1))
    assert conclude(writer, STATES, as_of=AS_OF + 30)
    assert not any(view.is_list_fresh for view in reader.instances("default", AS_OF + 30))


def test_agent_and_its_explanation(writer: Writer, reader: Reader) -> None:
    """The explanation contains every instance that it names."""
    fill(writer, STATES)
    table = reader.table("default", AS_OF + 1)
    view = reader.agent(table, 0)
    assert (view.id, view.name, view.state) == ("agent-1-id", "agent-1", State.HEALTHY)
    assert (view.auth, view.proxies, view.home_proxy) == ("auth-1-id", ("proxy-1-id",), "proxy-1-id")
    assert (view.heartbeat_at, view.expires_at, view.since) == (AS_OF, AS_OF + 20, AS_OF)
    assert "proxy-1" in view.verdict.sentence
    explanation = reader.explain("default", "agent-2-id", AS_OF + 1)
    assert explanation is not None
    assert explanation.evidence.tunnels == (3,)
    assert explanation.opened_at_by_proxy == {3: AS_OF - 60}
    assert set(explanation.instances) == {0, 3}
    # The last poll concluded stranded; newer evidence differs, but only the next poll decides.
    assert explanation.view.state is State.STRANDED
    assert "next round evaluates it" in explanation.view.verdict.sentence
    assert reader.explain("default", "nobody", AS_OF + 1) is None


def test_agent_with_the_policy_of_its_heartbeat(writer: Writer, reader: Reader) -> None:
    """Mode, health check and time; an agent without a heartbeat has none of them."""
    fill(writer, STATES)
    table = reader.table("default", AS_OF + 1)
    view = reader.agent(table, 0)
    assert (view.mode, view.health_check, view.policy_read_at) == (ReconnectMode.UNKNOWN, False, None)
    rows = table.heartbeats.copy()
    rows["mode"][0], rows["flags"][0], rows["policy_read_at"][0] = (
        ReconnectMode.RECONNECT,
        HEALTH_CHECK,
        AS_OF - 5,
    )
    rows["expires_at"][1] = 0
    agent_with_heartbeat, agent_without_heartbeat = reader.agents(replace(table, heartbeats=rows), range(2))
    assert (
        agent_with_heartbeat.mode,
        agent_with_heartbeat.health_check,
        agent_with_heartbeat.policy_read_at,
    ) == (
        ReconnectMode.RECONNECT,
        True,
        AS_OF - 5,
    )
    assert (
        agent_without_heartbeat.mode,
        agent_without_heartbeat.health_check,
        agent_without_heartbeat.policy_read_at,
    ) == (ReconnectMode.UNKNOWN, None, None)


def test_agent_when_data_is_old(writer: Writer, reader: Reader) -> None:
    """Unknown with a reason; a retired agent stays retired."""
    fill(writer, STATES)
    table = reader.table("default", AS_OF + 60)
    view = reader.agent(table, 1)
    assert (view.state, view.verdict.reason) == (State.UNKNOWN, Reason.STALE)
    assert reader.agent(table, 2).state is State.RETIRED


def test_table_without_a_record(reader: Reader) -> None:
    """Empty, not an error."""
    assert reader.table("default", AS_OF).ids == ()
    assert reader.instances("default", AS_OF) == ()
    assert reader.explain("default", "x", AS_OF) is None
