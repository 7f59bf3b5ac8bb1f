from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from fleet.alerts.instance_causes import cause_of_instance
from fleet.alerts.runbooks.remedies import RemedyScope, find_buttons, find_main_button
from fleet.alerts.runbooks.texts import RemedyAction
from fleet.protocol.destination.health import DrainRequest
from fleet.vocabulary.incidents import Cause, CauseKind
from fleet.vocabulary.runbooks import RunbookCause
from tests.fakes.headline_fleets import table_with
from tests.fakes.small_fleet import AUTH_1, DEREGISTERED, PROXY_1, SILENT, UNHEALTHY

NOT_SERVING = {**UNHEALTHY, "readyz": 200}


def _button(runbook: RunbookCause, action: RemedyAction, scope: RemedyScope) -> tuple[str, str]:
    """Return label and path of a button; empty and the reason without one."""
    (button,) = (button for button in find_buttons(runbook, scope) if button.remedy.action is action)
    return ("", button.refusal) if button.action is None else (button.action.label, button.action.path)


def _scope_of(index: int, **changes: Mapping[str, Any]) -> RemedyScope:
    table = table_with(**changes)
    view = table.instances[index]
    return RemedyScope(cause=cause_of_instance(view), instance=view, table=table)


@pytest.mark.parametrize("runbook", RunbookCause)
def test_every_runbook_has_buttons_without_an_incident(runbook: RunbookCause) -> None:
    """They lead to a choice; those that need something else say so."""
    buttons = [button for button in find_buttons(runbook, RemedyScope()) if button.remedy.action]
    assert all((button.action is None) == bool(button.refusal) for button in buttons)
    assert any(button.action is not None for button in buttons)


@pytest.mark.parametrize(
    ("index", "changes", "expected"),
    [
        (
            AUTH_1,
            {"auth_1": SILENT},
            ("Reconnect agents of auth-1", "/reconnect/?connection=auth&auth=auth-1"),
        ),
        (
            AUTH_1,
            {"auth_1": SILENT, "auth_2": SILENT},
            ("", "Refloat cannot move the agents of auth-1: no other auth is OK. Repair auth-1."),
        ),
        (
            AUTH_1,
            {"proxy_1": SILENT, "proxy_2": SILENT},
            ("", "Refloat cannot move the agents of auth-1: none of them has a reachable tunnel."),
        ),
        (PROXY_1, {"proxy_1": NOT_SERVING}, ("Reconnect agents of proxy-1", "/reconnect/?proxy=proxy-1")),
        (
            PROXY_1,
            {"proxy_1": SILENT},
            (
                "",
                "Refloat cannot reach the agents of proxy-1 (2 when last known), so it cannot move them.",
            ),
        ),
        (
            PROXY_1,
            {"proxy_1": NOT_SERVING, "proxy_2": SILENT},
            ("", "Refloat cannot move the agents of proxy-1: no other proxy is OK. Repair proxy-1."),
        ),
    ],
)
def test_agents_move_off_the_instance(
    index: int, changes: Mapping[str, Any], expected: tuple[str, str]
) -> None:
    """Or the page says why a campaign cannot move them."""
    runbook = RunbookCause.AUTH if index == AUTH_1 else RunbookCause.PROXY
    assert _button(runbook, RemedyAction.MOVE_AGENTS, _scope_of(index, **changes)) == expected


def test_instance_without_agents_has_nothing_to_move() -> None:
    scope = _scope_of(PROXY_1)
    assert scope.instance is not None
    empty_scope = replace(scope, instance=replace(scope.instance, agent_count=0))
    assert _button(RunbookCause.PROXY, RemedyAction.MOVE_AGENTS, empty_scope) == (
        "",
        "proxy-1 has no agents to move.",
    )


def test_service_change_matches_the_state_of_the_instance() -> None:
    """Take it out, bring it back, or neither."""
    scope, action, path = _scope_of(AUTH_1), RemedyAction.CHANGE_SERVICE, "/instances/uuid-auth-1/service/"
    assert _button(RunbookCause.AUTH, action, scope) == ("Take auth-1 out of service", path)
    assert scope.instance is not None
    drained_scope = replace(
        scope, instance=replace(scope.instance, drain_request=DrainRequest("update", 1.0))
    )
    assert _button(RunbookCause.AUTH, action, drained_scope) == ("Bring auth-1 back into service", path)
    # A frozen instance cannot confirm the drain that was requested.
    assert _button(RunbookCause.AUTH, action, replace(scope, is_drain_requested=True)) == (
        "Bring auth-1 back into service",
        path,
    )
    gone_scope = _scope_of(AUTH_1, auth_1=DEREGISTERED)
    assert _button(RunbookCause.AUTH, action, gone_scope) == (
        "",
        "auth-1 was deregistered: it is out of service.",
    )
    assert _button(RunbookCause.AUTH, action, RemedyScope()) == ("Choose an instance", "/#instances")


@pytest.mark.parametrize(
    ("condition", "is_drain_requested", "expected"),
    [
        (NOT_SERVING, False, "Reconnect agents of proxy-1"),
        (SILENT, False, "View affected agents"),
        (SILENT, True, "Bring proxy-1 back into service"),
        ({}, False, ""),
        ({}, True, "Bring proxy-1 back into service"),
    ],
)
def test_main_button_of_an_instance(
    condition: Mapping[str, Any], is_drain_requested: bool, expected: str
) -> None:
    """What has an effect now; an instance that is not failing needs nothing but to come back into service."""
    scope = replace(_scope_of(PROXY_1, proxy_1=condition), is_drain_requested=is_drain_requested)
    button = find_main_button(find_buttons(RunbookCause.PROXY, scope), scope)
    assert ("" if button is None or button.action is None else button.action.label) == expected


def test_instance_that_does_not_respond_is_drained_later() -> None:
    """The button stays, with the reason why nothing happens yet."""
    scope = _scope_of(PROXY_1, proxy_1=SILENT)
    reasons = {
        button.action.label: button.delay_reason
        for button in find_buttons(RunbookCause.PROXY, scope)
        if button.action is not None
    }
    sentence = "proxy-1 is not responding: a drain begins as soon as it responds."
    assert reasons.pop("Take proxy-1 out of service") == sentence
    assert set(reasons.values()) == {""}
    unhealthy_scope = _scope_of(PROXY_1, proxy_1=NOT_SERVING)
    assert not any(button.delay_reason for button in find_buttons(RunbookCause.PROXY, unhealthy_scope))


def test_main_button_without_an_instance_is_the_first() -> None:
    buttons = find_buttons(RunbookCause.PROXY, RemedyScope())
    assert find_main_button(buttons, RemedyScope()) is next(button for button in buttons if button.action)
    assert find_main_button((), RemedyScope()) is None


@pytest.mark.parametrize(
    ("scope", "expected"),
    [
        (RemedyScope(incident_number=7), ("Silence incident 7", "/incidents/7/silence/")),
        (
            RemedyScope(incident_number=7, is_resolved=True),
            ("", "The incident is resolved and sends no notifications, so it needs no silence."),
        ),
        (
            RemedyScope(cause=Cause(CauseKind.PROXY, "uuid-1", "proxy-1")),
            ("Silence proxy-1", "/silences/new/?matchers=cause%3Dproxy%2Fuuid-1"),
        ),
        (RemedyScope(), ("Create a silence", "/silences/new/")),
    ],
)
def test_silence_is_about_the_incident_or_the_instance(scope: RemedyScope, expected: tuple[str, str]) -> None:
    """A resolved incident needs none."""
    assert _button(RunbookCause.BACKEND, RemedyAction.SILENCE, scope) == expected


@pytest.mark.parametrize(
    ("scope", "query"),
    [
        (RemedyScope(agent_version="18.1"), "q=version%3A18.1"),
        (RemedyScope(agent_version="18 beta"), "q=%22version%3A18+beta%22"),
        (RemedyScope(failing_names=("proxy-1", "proxy-2")), "q=cause%3Aproxy-1+cause%3Aproxy-2"),
        (
            RemedyScope(cause=Cause(CauseKind.AGENTS, "no-tunnel", "agents")),
            "q=state%3Astranded+state%3Aat_risk",
        ),
    ],
)
def test_agents_without_one_instance_are_selected_by_a_filter(scope: RemedyScope, query: str) -> None:
    """By version, by the instances that fail, or by state."""
    assert _button(RunbookCause.VERSION, RemedyAction.MOVE_AGENTS, scope) == (
        "Reconnect affected agents",
        f"/reconnect/?{query}",
    )


def test_affected_agents_are_those_with_the_version() -> None:
    label, path = _button(RunbookCause.VERSION, RemedyAction.VIEW_AFFECTED, RemedyScope(agent_version="18.1"))
    assert (label, path) == ("View agents with version 18.1", "/agents/?q=version%3A18.1")


def test_drift_has_the_instance_and_the_change() -> None:
    """One instance is selected; several are a choice."""
    drift_scope = RemedyScope(drifted_instances=(("id 1", "auth-1"),), undoable_change=4)
    assert _button(RunbookCause.DRIFT, RemedyAction.ROLL_OUT, drift_scope) == (
        "Roll out to auth-1",
        "/policies/id%201/",
    )
    assert _button(RunbookCause.DRIFT, RemedyAction.UNDO_CHANGE, drift_scope) == (
        "Review and undo change 4",
        "/changes/4/",
    )
    assert _button(RunbookCause.DRIFT, RemedyAction.ROLL_OUT, RemedyScope())[1] == "/policies/?drift=1"
    assert _button(RunbookCause.DRIFT, RemedyAction.UNDO_CHANGE, RemedyScope())[0] == ""


def test_affected_agents_and_moments_are_those_of_the_incident() -> None:
    """Excess tunnels are a state of their own."""
    scope = RemedyScope(cause=Cause(CauseKind.PROXY, "uuid-1", "proxy-1"), compare_at="2026-11-23T10:14:07Z")
    assert _button(RunbookCause.PROXY, RemedyAction.VIEW_AFFECTED, scope)[1].endswith("&proxy=proxy-1")
    assert _button(RunbookCause.EXCESS, RemedyAction.VIEW_AFFECTED, scope)[1] == "/agents/?state=excess"
    recovered_scope = replace(scope, affected_count=0)
    assert _button(RunbookCause.PROXY, RemedyAction.VIEW_AFFECTED, recovered_scope) == (
        "",
        "No agents are affected now.",
    )
    assert _button(RunbookCause.VERSION, RemedyAction.COMPARE_MOMENTS, scope) == (
        "Compare with the time before",
        "/history/compare/?a=2026-11-23T10%3A14%3A07Z",
    )
    assert (
        _button(RunbookCause.VERSION, RemedyAction.COMPARE_MOMENTS, RemedyScope())[1] == "/history/compare/"
    )
