from __future__ import annotations

from dataclasses import replace

import pytest

from dashboards.shared import presenters
from fleet.monitoring.evidence import ReconnectMode
from fleet.vocabulary.instances import InstanceKind, InstanceState
from fleet.vocabulary.verdicts import Reason, Recovery, State, Verdict, VerdictSentences
from tests.fakes.reader import FakeReader

NOW = 1_700_000_000.0


def _verdict(recovery: Recovery, recovers_at: float | None = None) -> Verdict:
    return Verdict(
        state=State.STRANDED,
        reason=Reason.NO_TUNNEL,
        cause="x",
        recovery=recovery,
        recovers_at=recovers_at,
        strands_at=None,
        sentences=VerdictSentences(""),
    )


def test_in_order_names_every_state() -> None:
    """No state is left out of the tiles, and stranded comes first."""
    entries = presenters.order_counts({State.HEALTHY: 3})
    assert {state for state, _ in entries} == set(State)
    assert entries[0] == (State.STRANDED, 0)
    assert dict(entries)[State.HEALTHY] == 3


@pytest.mark.parametrize(("at", "age"), [(NOW - 1.5, 1500), (NOW + 2, -2000), (None, None), (0.0, None)])
def test_age_ms(at: float | None, age: int | None) -> None:
    """Negative while it is still to come; none when there is no such moment."""
    assert presenters.age_ms_of(at, NOW) == age


@pytest.mark.parametrize(
    ("verdict", "expected"),
    [
        (_verdict(Recovery.NOT_NEEDED), ""),
        (_verdict(Recovery.BY_ITSELF), "Recovers automatically"),
        (_verdict(Recovery.BY_ITSELF, NOW), "Recovers automatically by 22:13:20 UTC"),
        (_verdict(Recovery.ONLY_IF_CAUSE_RECOVERS), "Recovers when auth-2 recovers"),
        (_verdict(Recovery.UNCLEAR), "Unknown"),
    ],
)
def test_recovery_words(verdict: Verdict, expected: str) -> None:
    """Every kind of recovery has its words."""
    assert presenters.describe_recovery(verdict, "auth-2") == expected


@pytest.mark.parametrize(
    ("cause", "expected"),
    [("proxy-1", "proxy-1"), ("", ""), ("backend/prod", "the auth backend of cluster prod")],
)
def test_cause_words(cause: str, expected: str) -> None:
    """An instance by its name, a backend by its cluster."""
    assert presenters.describe_cause(cause) == expected


def test_instance_cards_as_people_count() -> None:
    """Auths and proxies apart, proxy-2 before proxy-10, and the age of the heartbeat from its expiry and TTL."""
    fake = FakeReader(as_of=NOW, proxy_state=InstanceState.SILENT)
    views = list(fake.instances("default", NOW))
    views.append(replace(views[2], facts=replace(views[2].facts, id="p10", name="proxy-10")))
    cards = presenters.instance_cards_of(views, NOW)
    assert [card.name for card in cards["auths"]] == ["auth-1", "auth-2"]
    assert [card.name for card in cards["proxies"]] == ["proxy-1", "proxy-2", "proxy-10"]
    silent = cards["proxies"][0]
    assert (silent.state, silent.heartbeat_age_ms, silent.ttl_ms) == (InstanceState.SILENT, 3000, 10_000)
    assert silent.unhealthy_counts == ((State.STRANDED, 1),)
    unread = presenters.instance_card_of(replace(views[2], is_list_fresh=False), NOW, {}, is_stranding=False)
    assert (silent.is_list_stale, unread.is_list_stale) == (False, True)


def test_of_many_instances_the_failing_ones_come_first() -> None:
    """Of few, each keeps its place, so that a change is seen where it happens."""
    fake = FakeReader(as_of=NOW)
    auth, _, proxy, _ = fake.instances("default", NOW)

    def names_of(count: int, silent_name: str) -> list[str]:
        views = [
            replace(
                proxy,
                facts=replace(proxy.facts, id=f"p{n}", index=n, name=f"proxy-{n}"),
                state=InstanceState.SILENT if f"proxy-{n}" == silent_name else InstanceState.OK,
                counts={},
            )
            for n in range(1, count + 1)
        ]
        return [card.name for card in presenters.instance_cards_of([auth, *views], NOW)["proxies"]]

    assert names_of(12, "proxy-7") == [f"proxy-{n}" for n in range(1, 13)]
    assert names_of(13, "proxy-7") == ["proxy-7", *(f"proxy-{n}" for n in range(1, 14) if n != 7)]


def test_instance_cards_name_the_auth_of_each_heartbeat() -> None:
    """A proxy names its auth, an auth the first of its proxies; by id where the auth is unknown."""
    fake = FakeReader(as_of=NOW)
    auth, _, proxy, other_proxy = fake.instances("default", NOW)
    proxies = tuple(f"proxy-{number}" for number in range(1, 7))
    views = [
        replace(auth, proxies=proxies),
        replace(proxy, facts=replace(proxy.facts, heartbeat_auth=auth.facts.id)),
        replace(other_proxy, facts=replace(other_proxy.facts, heartbeat_auth="unknown-id")),
    ]
    cards = presenters.instance_cards_of(views, NOW)
    assert [card.heartbeat_path for card in cards["auths"]] == [
        "receives heartbeats from proxy-1, proxy-2, proxy-3, proxy-4 and 2 more"
    ]
    assert [card.heartbeat_path for card in cards["proxies"]] == [
        "sends heartbeats to auth-1",
        "sends heartbeats to unknown-id",
    ]
    dead = replace(views[1], state=InstanceState.SILENT)
    dead_card = presenters.instance_card_of(dead, NOW, {auth.facts.id: auth.facts.name}, is_stranding=False)
    assert dead_card.heartbeat_path == "sent heartbeats to auth-1"
    few = presenters.instance_card_of(replace(auth, proxies=proxies[:2]), NOW, {}, is_stranding=False)
    assert few.heartbeat_path == "receives heartbeats from proxy-1, proxy-2"
    assert presenters.instance_card_of(auth, NOW, {}, is_stranding=False).heartbeat_path == ""


def test_frame_counts_agents_without_those_that_are_retired() -> None:
    """They count as nothing but retired, in the total neither."""
    fake = FakeReader(states=[State.HEALTHY, State.RETIRED, State.STRANDED], as_of=NOW)
    frame = presenters.live_page_context_of(fake.summary("default", NOW), NOW, "fleet")
    assert (frame["fleet_size"], frame["retired_count"]) == (2, 1)


def test_rows_and_cards_show_mode_and_generation() -> None:
    """Readable text; empty for unreported values."""
    fake = FakeReader(states=[State.HEALTHY] * 2, as_of=NOW)
    table = fake.table("default", NOW)
    instances = {view.facts.id: view for view in table.instances.values()}
    rows = [presenters.agent_row_of(fake.agent(table, index), instances, NOW) for index in range(2)]
    assert [(row.mode, row.generations) for row in rows] == [
        ("", ()),
        ("reconnect, health check", ("blue 3",)),
    ]
    assert presenters.describe_mode(ReconnectMode.PICK_FIRST, health_check=False) == "pick_first"
    cards = presenters.instance_cards_of(tuple(instances.values()), NOW)["proxies"]
    assert [card.generation for card in cards] == ["", "blue 3"]


def test_rows_leave_out_tunnels_of_silent_proxies_beside_current_ones() -> None:
    """The record keeps the last tunnels of a proxy that does not respond; without others they are said to be past."""
    fake = FakeReader(states=[State.HEALTHY] * 2, as_of=NOW)
    views = list(fake.table("default", NOW).instances.values())
    proxies = [view for view in views if view.facts.kind is InstanceKind.PROXY][:2]
    ids = tuple(view.facts.id for view in proxies)
    instances = {view.facts.id: view for view in proxies}
    assert presenters.select_shown_proxies(ids, instances) == (ids, False)
    instances[ids[0]] = replace(proxies[0], state=InstanceState.SILENT)
    assert presenters.select_shown_proxies(ids, instances) == (ids[1:], False)
    for seconds, expected in ((300.0, ids[1:]), (5.0, ids)):
        for proxy, failed_at in zip(proxies, (NOW - seconds, NOW), strict=True):
            facts = replace(proxy.facts, sick_since=failed_at)
            instances[facts.id] = replace(proxy, state=InstanceState.SILENT, facts=facts)
        assert presenters.select_shown_proxies(ids, instances) == (expected, True)
    row = presenters.agent_row_of(
        replace(fake.agent(fake.table("default", NOW), 0), proxies=ids), instances, NOW
    )
    assert (len(row.proxies), row.are_tunnels_past) == (2, True)
    assert presenters.select_shown_proxies((), instances) == ((), False)


def test_rows_show_version_and_labels() -> None:
    """A list shows the first labels and how many more there are; a key with a colon has no filter."""
    fake = FakeReader(states=[State.HEALTHY] * 3, as_of=NOW)
    table = fake.table("default", NOW)
    row = presenters.agent_row_of(fake.agent(table, 2), {}, NOW)
    assert row.version == "18.9.1"
    assert [(label.text, label.filter) for label in row.labels] == [
        *(("env=dev", "label.env:dev"), ("site=oslo", "label.site:oslo"))
    ]
    assert (row.first_labels, row.more_label_count) == (row.labels, 0)

    labels = {"a:b": "c", **{f"k{number}": "" for number in range(6)}}
    row = presenters.agent_row_of(replace(fake.agent(table, 0), labels=labels), {}, NOW)
    assert (len(row.first_labels), row.more_label_count, row.labels[0].filter) == (5, 2, "")


def test_agent_page_names_instances() -> None:
    """Ids become names; the evidence is words."""
    fake = FakeReader(states=[State.HEALTHY, State.STRANDED], as_of=NOW)
    explanation = fake.explain("default", "id-1", NOW)
    assert explanation is not None
    page = presenters.agent_context_of(explanation, NOW)
    assert page["agent"].proxies == ("proxy-2",)
    assert page["agent"].cause == "proxy-1"
    assert ("Reconnect mode", "reconnect") in page["evidence"]
