"""What agents lose if an instance fails now, in words. Pure. docs/reference/instance.md, "If the instance fails"."""

from __future__ import annotations

from dataclasses import dataclass
from shlex import quote

import numpy as np

from fleet.monitoring.failure_impact import (
    CONNECTED_STATES,
    AuthFailureImpact,
    has_other_ok_instance,
    mask_only_tunnels,
    predict_auth_failure,
)
from fleet.monitoring.last_tunnels import find_proxy_agents, is_responding
from fleet.monitoring.views import FleetTable, InstanceView
from fleet.vocabulary.counts import format_agent_count
from fleet.vocabulary.instances import SICK_STATES, InstanceKind
from fleet.vocabulary.verdicts import State


@dataclass(frozen=True, slots=True)
class FailureForecast:
    """What happens to agents if an instance fails now, or what its failure means to them."""

    #: The agents that lose their only tunnel, or their auth.
    agent_count: int
    #: `If proxy-2 fails now, 37 agents lose their only tunnel.`
    sentence: str
    #: More sentences: who moves automatically, and what prevents it.
    details: tuple[str, ...]
    #: Agent query of these agents; empty without agents.
    query: str
    #: Of an auth; None for a proxy.
    auth_impact: AuthFailureImpact | None = None


def forecast_failure(table: FleetTable, view: InstanceView, query_term: str) -> FailureForecast | None:
    """Return the forecast for an instance; None if there are no current data.

    `query_term`: what agent queries call the instance.
    """
    if table.stale:
        return None
    if view.facts.kind is InstanceKind.PROXY:
        return _forecast_proxy(table, view, query_term)
    return _forecast_auth(table, view, query_term)


def _forecast_proxy(table: FleetTable, view: InstanceView, query_term: str) -> FailureForecast:
    name = view.facts.name
    count = int(np.count_nonzero(mask_only_tunnels(table, [view.facts.index])))
    query = quote(f"only-proxy:{query_term}") if count else ""
    if view.state in SICK_STATES:
        subject = format_agent_count(count) if count else "No agent"
        verb, pronoun = ("has", "its") if count <= 1 else ("have", "their")
        verb = verb if is_responding(view) else "had"
        return FailureForecast(
            count,
            f"{subject} {verb} {pronoun} only tunnel with {name}.",
            tuple(_describe_moved_agents(table, view)),
            query,
        )
    sentence = _describe_loss(table, name, count, "only tunnel")
    details = (
        ("No other proxy accepts connections, so they cannot open a new one.",)
        if count and not table.is_past and not has_other_ok_instance(table, view)
        else ()
    )
    return FailureForecast(count, sentence, details, query)


def _describe_loss(table: FleetTable, name: str, count: int, loss: str) -> str:
    """Return the forecast of a failure as a sentence; `loss`: what each of the agents has only there."""
    agents = format_agent_count(count) if count else "no agent"
    pronoun = "its" if count <= 1 else "their"
    if table.is_past:
        return f"If {name} had failed then, {agents} would have lost {pronoun} {loss}."
    return f"If {name} fails now, {agents} {'loses' if count <= 1 else 'lose'} {pronoun} {loss}."


def _describe_moved_agents(table: FleetTable, view: InstanceView) -> list[str]:
    """Return how many agents have left a proxy that does not respond."""
    moved_count = len(find_proxy_agents(table, view).moved_agents)
    if not moved_count:
        return []
    verb = "has" if moved_count == 1 else "have"
    moved_text = f"{format_agent_count(moved_count)} that had a tunnel with {view.facts.name}"
    return [f"{moved_text} {verb} already connected elsewhere."]


def _forecast_auth(table: FleetTable, view: InstanceView, query_term: str) -> FailureForecast:
    name, has_failed = view.facts.name, view.state in SICK_STATES
    agent_states = (*CONNECTED_STATES, State.STRANDED) if has_failed else CONNECTED_STATES
    impact = predict_auth_failure(table, view, agent_states)
    count = impact.agent_count
    sentence = (
        _describe_dependence(table, name, count) if has_failed else _describe_loss(table, name, count, "auth")
    )
    if not count:
        return FailureForecast(0, sentence, (), "", impact)
    states = " ".join(f"state:{state.slug}" for state in agent_states)
    return FailureForecast(
        count,
        sentence,
        () if table.is_past else tuple(_describe_moves(name, impact)),
        f"{quote(f'auth:{query_term}')} {states}",
        impact,
    )


def _describe_dependence(table: FleetTable, name: str, count: int) -> str:
    """Return how many agents have an auth that failed, as a sentence."""
    subject = format_agent_count(count) if count else "No agent"
    singular, plural = ("depended", "depended") if table.is_past else ("depends", "depend")
    return f"{subject} {singular if count <= 1 else plural} on {name}."


def _describe_moves(name: str, impact: AuthFailureImpact) -> list[str]:
    if not impact.has_other_auth:
        return ["No other auth accepts connections, so they cannot move."]
    sentences = []
    if impact.automatic_count:
        sentences.append(
            f"{_subject_of(impact.automatic_count, impact)} to another auth automatically (reconnect, health check)."
        )
    if impact.waiting_count:
        stays = "stays" if impact.waiting_count == 1 else "stay"
        sentences.append(
            f"{_count_of(impact.waiting_count, impact)} {stays} until {name} closes the connection "
            "(pick_first, or no health check)."
        )
    if impact.unreported_count == impact.agent_count > 1:
        sentences.append(
            "None of them reports a reconnect mode, so Refloat cannot predict whether they move."
        )
    elif impact.unreported_count:
        is_single = impact.unreported_count == 1
        subject = f"{_count_of(impact.unreported_count, impact)} {'does' if is_single else 'do'}"
        moves = "it moves" if is_single else "they move"
        sentences.append(f"{subject} not report a reconnect mode, so Refloat cannot predict whether {moves}.")
    return sentences


def _subject_of(count: int, impact: AuthFailureImpact) -> str:
    return f"{_count_of(count, impact)} {'moves' if count == 1 else 'move'}"


def _count_of(count: int, impact: AuthFailureImpact) -> str:
    if count == impact.agent_count:
        return "It" if count == 1 else "All of them" if count > 2 else "Both"
    return f"{count:,} of them"
