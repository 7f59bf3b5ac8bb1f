from __future__ import annotations

from dataclasses import replace

import pytest

from fleet.alerts.headlines.headline import (
    ActionFinder,
    Headline,
    IncidentDescriber,
    OpenIncident,
    describe_fleet,
    describe_stale_fleet,
)
from fleet.alerts.instance_causes import cause_of_instance, cluster_cause_of
from fleet.monitoring.views import FleetTable
from fleet.vocabulary.instances import READYZ_RECOVERING
from fleet.vocabulary.verdicts import BACKEND_CAUSE, NO_CAUSE, Reason, Recovery, State
from tests.fakes.headline_fleets import HarmedAgents, random_table, table_with
from tests.fakes.reader import FakeReader
from tests.fakes.small_fleet import AUTH_1, EXPIRED, NOW, PROXY_1, PROXY_2, SILENT, UNHEALTHY

STUCK, AUTOMATIC = Recovery.ONLY_IF_CAUSE_RECOVERS, Recovery.BY_ITSELF


def _describe(table: FleetTable) -> Headline:
    return describe_fleet(table, (), NOW)


def test_headline_names_agents_cause_start_recovery_and_help() -> None:
    """The agents of an auth that lost its backend: a campaign helps them; reconnect mode only helps the next time."""
    table = table_with(HarmedAgents(67, State.STRANDED, AUTH_1, STUCK), auth_1=UNHEALTHY)
    headline = describe_fleet(table, (OpenIncident(4, "auth/uuid-auth-1"), OpenIncident(5, "proxy/x")), NOW)
    assert headline.text == (
        "67 agents stranded since 13:45 UTC because auth-1 lost its backend. No automatic recovery."
    )
    assert (headline.state, headline.count, headline.tab_title) == (State.STRANDED, 67, "✖67")
    assert [(action.label, action.path) for action in headline.actions] == [
        ("Reconnect agents of auth-1", "/reconnect/?connection=auth&auth=auth-1")
    ]
    assert (headline.incidents, headline.since) == ((4,), NOW - 60)


def test_headline_of_a_recovering_auth_says_when_its_agents_recover() -> None:
    """They wait for the auth, which reports that it recovers; so does the incident."""
    table = table_with(
        HarmedAgents(67, State.STRANDED, AUTH_1, STUCK), auth_1={**UNHEALTHY, "readyz": READYZ_RECOVERING}
    )
    assert _describe(table).text == (
        "67 agents stranded since 13:45 UTC because auth-1 is recovering. "
        "The agents recover when auth-1 has recovered."
    )
    auth = cause_of_instance(table.instances[AUTH_1])
    incident = IncidentDescriber(table, NOW).describe(auth)
    assert incident is not None
    assert incident.recovery == "The agents recover when auth-1 has recovered."


def test_headline_of_several_causes_has_the_total_first() -> None:
    """How many of them the first cause explains; the others follow."""
    table = table_with(
        HarmedAgents(60, State.STRANDED, AUTH_1, STUCK),
        HarmedAgents(7, State.AT_RISK, AUTH_1, STUCK),
        HarmedAgents(5, State.STRANDED, PROXY_1, AUTOMATIC, since=NOW - 600, recovers_at=NOW + 60),
        auth_1=UNHEALTHY,
        proxy_1=SILENT,
        proxy_2=EXPIRED,
    )
    assert _describe(table).text == (
        "65 agents stranded since 13:36 UTC and 7 at risk, 67 of them because auth-1 lost its backend. "
        "No automatic recovery. Also: 5 agents stranded because proxy-1 is not responding."
    )
    assert _describe(table).lead == (
        "65 agents stranded since 13:36 UTC and 7 at risk, 67 of them because auth-1 lost its backend. "
        "No automatic recovery."
    )
    assert _describe(table).more_count == len(_describe(table).causes) - 1


def test_headline_of_agents_that_recover_offers_only_the_repair() -> None:
    table = table_with(
        HarmedAgents(1, State.STRANDED, PROXY_1, AUTOMATIC, recovers_at=NOW + 60), proxy_1=SILENT
    )
    headline = _describe(table)
    assert headline.text == (
        "1 agent stranded since 13:45 UTC because proxy-1 is not responding. "
        "The agents recover automatically by 13:48 UTC."
    )
    assert ([action.label for action in headline.actions], headline.recovers_at) == (
        ["Repair proxy-1"],
        NOW + 60,
    )


def test_headline_of_agents_that_recover_from_a_past_failure() -> None:
    """The cause stays named while they recover."""
    table = table_with(HarmedAgents(3, State.STRANDED, AUTH_1))
    assert _describe(table).text == (
        "3 agents stranded since 13:45 UTC because auth-1 was failing. The recovery time is not known."
    )
    table = table_with(HarmedAgents(3, State.STRANDED, BACKEND_CAUSE))
    assert "because the auth backend was failing." in _describe(table).text


def test_headline_of_a_failure_without_agents() -> None:
    """The failure itself, with its start."""
    headline = _describe(table_with(proxy_1=SILENT))
    assert headline.text == "No stranded agents, but proxy-1 has not responded since 13:46 UTC."
    assert (headline.state, headline.count, headline.tab_title) == (State.AT_RISK, 0, "▲")


def test_headline_of_agents_at_risk_has_their_deadline() -> None:
    table = table_with(HarmedAgents(3, State.AT_RISK, AUTH_1, STUCK, strands_at=NOW + 600), auth_1=UNHEALTHY)
    assert _describe(table).text == (
        "No stranded agents, but 3 agents at risk since 13:45 UTC because auth-1 lost its backend. "
        "The first become stranded at 13:56 UTC. No automatic recovery."
    )


def test_deadline_in_the_minute_of_the_start_has_seconds() -> None:
    """The reader sees two moments, and how long it is to each from the end of the round."""
    table = table_with(
        HarmedAgents(
            3, State.AT_RISK, AUTH_1, AUTOMATIC, since=NOW - 30, strands_at=NOW + 8, recovers_at=NOW + 700
        ),
        auth_1=UNHEALTHY,
    )
    headline = describe_fleet(table, (), NOW + 5)
    assert headline.text == (
        "No stranded agents, but 3 agents at risk since 13:46 UTC because auth-1 lost its backend. "
        "The first become stranded at 13:46:48 UTC. The agents recover automatically by 13:59 UTC."
    )
    assert headline.remaining == "First stranding in less than 10 s. Recovery in about 12 min."
    assert (headline.strands_at, headline.recovers_at) == (NOW + 8, NOW + 700)


def test_times_that_the_text_does_not_name_have_no_remaining_time() -> None:
    """A deadline while agents are stranded already, and a recovery of which some agents have no part."""
    table = table_with(
        HarmedAgents(3, State.STRANDED, AUTH_1, STUCK),
        HarmedAgents(3, State.AT_RISK, AUTH_1, AUTOMATIC, strands_at=NOW + 8, recovers_at=NOW + 700),
        auth_1=UNHEALTHY,
    )
    headline = _describe(table)
    assert (headline.strands_at, headline.recovers_at, headline.remaining) == (None, None, "")
    unpredicted = HarmedAgents(3, State.STRANDED, PROXY_1, Recovery.UNCLEAR)
    automatic = HarmedAgents(3, State.STRANDED, PROXY_1, AUTOMATIC, recovers_at=NOW + 700)
    assert _describe(table_with(unpredicted, automatic, proxy_1=SILENT)).remaining == ""


def test_headline_of_the_backend() -> None:
    table = table_with(
        HarmedAgents(9, State.STRANDED, BACKEND_CAUSE, STUCK), auth_1=UNHEALTHY, auth_2=UNHEALTHY
    )
    headline = _describe(table)
    assert headline.text == (
        "9 agents stranded since 13:45 UTC because both auths lost their backend. "
        "No automatic recovery: the auth backend must recover first."
    )
    assert [action.label for action in headline.actions] == ["Repair the auth backend"]


def test_headline_of_agents_without_a_failing_instance() -> None:
    table = table_with(HarmedAgents(2, State.STRANDED, NO_CAUSE, STUCK, Reason.NO_TUNNEL))
    assert _describe(table).text == (
        "2 agents stranded since 13:45 UTC because no proxy reports a tunnel to them. No automatic recovery."
    )


def test_headline_of_an_unreachable_cluster() -> None:
    """No count of unknown agents where all are unknown."""
    all_silent = {"auth_1": SILENT, "auth_2": SILENT, "proxy_1": SILENT, "proxy_2": SILENT}
    headline = _describe(table_with(HarmedAgents(4, State.UNKNOWN), healthy_count=0, **all_silent))
    assert headline.text == (
        "Agent states are unknown since 13:45 UTC because no instance of the cluster responds."
    )
    assert [action.label for action in headline.actions] == [
        "Check the network between Refloat and the cluster"
    ]


def test_known_agents_beside_unknown_ones_are_told() -> None:
    headline = _describe(table_with(HarmedAgents(1, State.UNKNOWN), healthy_count=3))
    assert headline.text == "1 agent unknown since 13:45 UTC. No other agents are stranded."


def test_headline_of_other_states() -> None:
    """Offline agents have no cause; nothing is wrong with healthy ones."""
    assert _describe(table_with(HarmedAgents(2, State.OFFLINE))).text == (
        "No stranded agents, but 2 agents offline since 13:45 UTC."
    )
    calm = _describe(table_with())
    assert (calm.text, calm.state, calm.tab_title) == ("No stranded agents.", State.HEALTHY, "")


def test_cluster_that_never_responded_is_not_healthy() -> None:
    """Polls end on time where no auth responds, and find no agents."""
    table = table_with(healthy_count=0)
    headline = _describe(replace(table, instances={}))
    assert (headline.text, headline.state, headline.count) == (
        "No data yet: no auth of this cluster has responded. Check its addresses and its certificates.",
        State.UNKNOWN,
        0,
    )


def test_headline_without_current_data() -> None:
    """Before the first poll, and after polling has stopped: the same with and without a table."""
    table = table_with()
    assert _describe(replace(table, as_of=None)).text == (
        "No data yet: Refloat has not completed a poll of the fleet."
    )
    stale = _describe(replace(table, stale=True))
    assert stale.text == "Agent states are unknown since 13:46 UTC because polling has stopped."
    header = replace(FakeReader([State.HEALTHY], as_of=NOW).stream_header("default", NOW), stale=True)
    assert describe_stale_fleet(header, NOW).text == stale.text
    assert [action.label for action in stale.actions] == ["Open Data health", "Check the pollers of Refloat"]


@pytest.mark.parametrize("seed", range(200))
def test_headline_counts_what_the_table_counts(seed: int) -> None:
    """Every random fleet: the total of its state, and no cause with more agents than there are."""
    table = random_table(seed)
    headline = _describe(table)
    assert sum(headline.counts.values()) == len(table.ids)
    assert headline.count == (headline.counts[headline.state] if headline.state is not State.HEALTHY else 0)
    for state in State:
        assert sum(cause.counts.get(state, 0) for cause in headline.causes) <= headline.counts[state]
    if headline.counts[State.STRANDED]:
        assert headline.state is State.STRANDED
        assert headline.summary.startswith(f"{headline.counts[State.STRANDED]:,} agent")
    assert headline.summary.endswith(".")


def test_incident_is_described_in_the_words_of_the_headline() -> None:
    """The agents of its cause alone."""
    table = table_with(
        HarmedAgents(60, State.STRANDED, AUTH_1, STUCK),
        HarmedAgents(5, State.STRANDED, PROXY_2),
        auth_1=UNHEALTHY,
    )
    cause, describer = cause_of_instance(table.instances[AUTH_1]), IncidentDescriber(table, NOW)
    incident = describer.describe(cause)
    assert incident is not None
    assert (incident.affected_count, incident.summary, incident.recovery) == (
        60,
        "60 agents stranded since 13:45 UTC because auth-1 lost its backend.",
        "No automatic recovery.",
    )
    actions = describer.actions.find(cause.key)
    assert [action.label for action in actions] == ["Reconnect agents of auth-1"]
    assert actions == ActionFinder(table).find("auth/uuid-auth-1")


def test_incident_offers_the_repair_as_long_as_its_instance_fails() -> None:
    """Also when its agents have recovered, as the headline does; none of an instance that is OK, or without data."""
    table = table_with(proxy_1=SILENT)
    cause = cause_of_instance(table.instances[PROXY_1])
    actions = IncidentDescriber(table, NOW).actions.find(cause.key)
    assert [action.label for action in actions] == ["Repair proxy-1"]
    assert actions == _describe(table).actions
    assert IncidentDescriber(table_with(), NOW).actions.find(cause.key) == ()
    assert IncidentDescriber(replace(table, stale=True), NOW).actions.find(cause.key) == ()
    later_table = table_with(HarmedAgents(3, State.STRANDED, PROXY_1, AUTOMATIC, recovers_at=NOW + 9))
    assert IncidentDescriber(later_table, NOW).actions.find(cause.key) == ()


def test_incident_without_agents_or_data_is_not_described() -> None:
    """Its row says what was evaluated last."""
    table = table_with(proxy_1=SILENT)
    cause = cause_of_instance(table.instances[PROXY_1])
    assert IncidentDescriber(table, NOW).describe(cause) is None
    assert IncidentDescriber(table, NOW).describe(cluster_cause_of("default")) is None
    assert IncidentDescriber(replace(table, stale=True), NOW).describe(cause) is None
