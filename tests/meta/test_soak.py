"""The tool of `make soak`: which faults it plans, and what it calls a violation."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from tests.soak.day import plan_day, play_day
from tests.soak.invariants import (
    Sample,
    SeenIncident,
    Size,
    find_growth,
    find_tracebacks,
    find_wrong_incidents,
    find_wrong_instances,
    find_wrong_notifications,
    find_wrong_verdicts,
    may_cut,
)
from tests.soak.schedule import Fault, Scope, Shape, Step, format_schedule, list_faults, plan

_FREEZE = Fault("freeze", "resume", "proxy-1", Scope.INSTANCE)
_STEP = Step(1, 0.0, 40.0, _FREEZE)


def _samples(states: str, reachable: str) -> list[Sample]:
    """Return a sample every 10 s: `s` stranded, `h` healthy; `y` reachable, `n` not, `?` not known."""
    slugs = {"s": "stranded", "h": "healthy", "u": "unknown"}
    return [
        Sample(
            number * 10.0,
            number * 10.0 + 1.0,
            {"agent-1": slugs[state]},
            {} if truth == "?" else {"agent-1": truth == "y"},
        )
        for number, (state, truth) in enumerate(zip(states, reachable, strict=True))
    ]


def _instance_samples(*states: str, causes: Mapping[str, str] | None = None) -> list[Sample]:
    return [
        Sample(number * 10.0, number * 10.0 + 1.0, {}, {}, {"proxy-1": state}, causes or {})
        for number, state in enumerate(states)
    ]


def test_schedule_is_that_of_its_seed() -> None:
    """A run can be replayed; another seed has another order."""
    assert plan(7, 40.0, Shape()) == plan(7, 40.0, Shape())
    assert plan(7, 40.0, Shape()) != plan(8, 40.0, Shape())
    assert format_schedule(plan(7, 40.0, Shape())).count("\n") + 1 == len(plan(7, 40.0, Shape()))


def test_schedule_plays_every_fault_before_one_comes_again() -> None:
    """Steps follow each other, end in time, and two in a row have different targets."""
    steps = plan(1, 120.0, Shape())
    faults = list_faults(Shape())
    assert {step.fault for step in steps[: len(faults)]} == set(faults)
    assert all(first.at + first.duration < second.at for first, second in pairwise(steps))
    assert all(first.fault.target != second.fault.target for first, second in pairwise(steps))
    assert steps[-1].at + steps[-1].duration <= 7200
    assert any(step.killed_program for step in steps)


def test_short_schedule_has_a_step() -> None:
    """An excerpt is never empty."""
    assert len(plan(1, 0.1, Shape())) == 1


def test_verdict_may_be_wrong_for_a_while_only() -> None:
    """What is shown and what users find may differ for the grace time, on end; what is not known is not judged."""
    assert not find_wrong_verdicts(_samples("hhss", "nnnn"), grace=15.0)
    assert not find_wrong_verdicts(_samples("shshsh", "yyyyyy"), grace=15.0)
    assert not find_wrong_verdicts(_samples("hhhhhh", "nn?nn?"), grace=15.0)
    assert not find_wrong_verdicts(_samples("uuuuuu", "nnnnnn"), grace=15.0)
    (claim,) = find_wrong_verdicts(_samples("ssss", "yyyy"), grace=15.0)
    assert claim == "agent-1 was shown as unreachable, but users reach it, for 29 s"
    (healthy,) = find_wrong_verdicts(_samples("hhhh", "nnnn"), grace=15.0)
    assert "shown as working, but users do not reach it" in healthy


def test_instance_is_shown_as_it_is() -> None:
    """A faulty one that stays OK, and one without fault that fails; one that another explains is not judged."""
    assert not find_wrong_instances(_instance_samples("ok", "silent", "silent"), "proxy-1", 15.0)
    assert not find_wrong_instances(_instance_samples("ok", "ok", "ok"), "", 15.0)
    assert not find_wrong_instances(
        _instance_samples("expired", "expired", "expired", causes={"proxy-1": "auth-1"}), "auth-1", 15.0
    )
    assert (
        "OK in spite of its fault"
        in find_wrong_instances(_instance_samples("ok", "ok", "ok"), "proxy-1", 15.0)[0]
    )
    assert (
        "failing without a fault"
        in find_wrong_instances(_instance_samples("silent", "silent", "silent"), "", 15.0)[0]
    )


def test_one_incident_per_cause() -> None:
    """Two of one cause, one of another cause, and none at all are violations."""
    own = SeenIncident("default/proxy/1/1", "proxy", "proxy-1", 0.0)
    assert not find_wrong_incidents(_STEP, [own], is_expected=True)
    assert not find_wrong_incidents(_STEP, [], is_expected=False)
    assert find_wrong_incidents(_STEP, [], is_expected=True) == ["no incident of proxy-1"]
    again = SeenIncident("default/proxy/1/2", "proxy", "proxy-1", 30.0)
    assert "2 incidents of the one cause" in find_wrong_incidents(_STEP, [own, again], is_expected=True)[0]
    auth = SeenIncident("default/auth/2/1", "auth", "auth-2", 0.0)
    assert find_wrong_incidents(_STEP, [own, auth], is_expected=True) == [
        "an incident of auth auth-2, which had no fault"
    ]


def test_incidents_of_other_faults() -> None:
    """A killed program may blind the console; the backend has an incident of its own; stopped agents have no cause."""
    blind = SeenIncident("default/console/1", "console", "monitoring data", 0.0)
    kill = Step(1, 0.0, 0.0, Fault("kill", "", "worker-polls", Scope.CONSOLE))
    assert not find_wrong_incidents(kill, [blind], is_expected=True)
    assert find_wrong_incidents(_STEP, [blind], is_expected=False)
    backend = SeenIncident("default/backend/1", "backend", "default", 0.0)
    frozen = Step(1, 0.0, 40.0, Fault("freeze", "resume", "backend", Scope.BACKEND))
    assert not find_wrong_incidents(frozen, [backend], is_expected=True)
    agents = SeenIncident("default/agents/no-tunnel/1", "agents", "no-tunnel", 0.0)
    stop = Step(1, 0.0, 40.0, Fault("kill", "restart", "proxy-balancer", Scope.MEMBER))
    assert not find_wrong_incidents(stop, [agents], is_expected=True)


def test_first_notification_comes_once() -> None:
    """A delivery that is repeated keeps its key; a second key is a second notification."""
    first = ("key-1", "default/proxy/1/1", "firing")
    assert not find_wrong_notifications([first, first, ("key-2", "default/proxy/1/1", "resolved")])
    assert find_wrong_notifications([first, ("key-3", "default/proxy/1/1", "firing")]) == [
        "2 notifications 'firing' about incident default/proxy/1/1"
    ]


def test_only_a_kill_on_its_path_may_cut_a_user() -> None:
    """A frozen proxy delays its users; a killed one ends them."""
    path = ("proxy-1", "proxy-balancer", "agents-1")
    assert not may_cut(_STEP, path)
    assert may_cut(Step(1, 0.0, 40.0, Fault("kill", "restart", "proxy-1", Scope.INSTANCE)), path)
    assert not may_cut(Step(1, 0.0, 40.0, Fault("kill", "restart", "proxy-2", Scope.INSTANCE)), path)


def test_growth_is_what_stays() -> None:
    """A pool that fills during a fault is no growth; a process that was measured three times is not judged."""
    files = [20.0, 28.0, 20.0, 30.0, 20.0, 20.0, 29.0, 21.0]
    memory = [100.0, 110.0, 120.0, 130.0, 140.0, 150.0, 160.0, 170.0]
    sizes = [
        Size(
            {
                "web (1) files": count,
                "web (1) bytes": size,
                "table rows": 10.0 * number,
                "web (1) threads": size,
            }
        )
        for number, (count, size) in enumerate(zip(files, memory, strict=True))
    ]
    sizes[-1] = Size({**sizes[-1].amounts, "web (2) bytes": 900.0})
    shares = find_growth(sizes, {"files": 8.0, "bytes": 15.0}, {"rows": 20.0})
    assert shares == {"web (1) files": -9 / 8, "web (1) bytes": 2.0, "table rows": 0.5}


def test_tracebacks_come_with_what_led_to_them() -> None:
    """Two that belong together are one."""
    text = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\n    g()\nOSError: gone'
    chain = f"{text}\n\nDuring handling of the above exception, another exception occurred:\n\n{text}"
    assert find_tracebacks(f"INFO line\n{chain}\nINFO line\n{text}\n") == [chain, text]
    assert not find_tracebacks("WARNING one line\n")


def test_hours_of_alerting_have_one_incident_per_outage() -> None:
    """Timers of full length on a simulated clock; other seeds have other outages."""
    outages = plan_day(3, 2.0)
    assert plan_day(3, 2.0) == outages != plan_day(4, 2.0)
    simulation, sentences = play_day(outages)
    assert not sentences
    assert sum(outage.needs_incident for outage in outages) <= len(simulation.fired_incidents) <= len(outages)
