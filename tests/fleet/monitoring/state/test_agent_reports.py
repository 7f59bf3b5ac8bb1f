from __future__ import annotations

import numpy as np

from fleet.monitoring.agent_report import Answer, parse
from fleet.monitoring.columns import HEALTH_CHECK, HEARTBEAT, LIST_PARITY, MEMORY
from fleet.monitoring.evidence import Mode
from fleet.monitoring.state.agent_reports import overlay, pack_answer, pack_told, told_of, unpack_answer
from fleet.monitoring.state.codec import blank

REPORT = parse(
    b'{"agent_id": "a", "policy": {"mode": "reconnect", "health_check": true, "read_age_ms": 5000}, "tracker":'
    b' {"desired_count": 300, "claimed": ["p"], "ttl_seen_ms": 2500,'
    b' "proxies": [{"proxy_id": "p"}, {"proxy_id": "q"}]}}'
)


def test_answer_kept_and_read() -> None:
    """With a report, and without one."""
    for answer in (Answer(10.5, 3, REPORT), Answer(10.5, 3, None, "unavailable: the agent went away")):
        assert unpack_answer(pack_answer(answer).encode()) == answer


def test_overlay_what_is_newer_than_the_heartbeat() -> None:
    """What the agent told since its heartbeat counts; what it told before, or did not, does not."""
    heartbeats, memory = blank(HEARTBEAT, 3), blank(MEMORY, 3)
    # Written at 100.
    heartbeats["expires_at"], heartbeats["ttl"] = 120.0, 20.0
    heartbeats["desired"], heartbeats["mode"] = 1, Mode.PICK_FIRST
    heartbeats["flags"] = LIST_PARITY
    answers = {
        b"0": Answer(101.0, 7, REPORT),
        b"1": Answer(99.0, 7, REPORT),
        b"2": Answer(101.0, 7, None, "no"),
    }
    told = told_of({agent: pack_told(answer) for agent, answer in answers.items()}, 3)
    after, remembered = overlay(heartbeats, memory, told)
    assert after["desired"].tolist() == [255, 1, 1]
    assert after["claimed"].tolist() == [1, 0, 0]
    assert after["mode"].tolist() == [Mode.RECONNECT, Mode.PICK_FIRST, Mode.PICK_FIRST]
    assert after["flags"].tolist() == [LIST_PARITY | HEALTH_CHECK, LIST_PARITY, LIST_PARITY]
    assert (after["policy_read_at"][0], after["ttl_seen"][0]) == (96.0, 2.5)
    assert remembered["tracked"].tolist() == [2, 0, 0]
    assert heartbeats["desired"].tolist() == [1, 1, 1]


def test_nothing_told_copies_nothing() -> None:
    """A fleet of which nobody was asked costs no copy of its columns."""
    heartbeats, memory = blank(HEARTBEAT, 2), blank(MEMORY, 2)
    after = overlay(heartbeats, memory, told_of({}, 2))
    assert after[0] is heartbeats
    assert after[1] is memory


def test_told_of_agents_beyond_the_columns() -> None:
    """An agent that the columns do not have yet is left out."""
    kept = {b"0": pack_told(Answer(1.0, 7, REPORT)), b"5": pack_told(Answer(1.0, 7, REPORT))}
    told = told_of(kept, 3)
    assert told.agents.tolist() == [0]
    assert np.count_nonzero(told.rows["at"]) == 1
