"""Looks of agent states on the map, for the script that paints the cells."""

from __future__ import annotations

from typing import Any

from fleet.vocabulary.verdicts import AFFECTED_STATES, STATES_BY_URGENCY, State

#: States that rest on tunnels: while the instance of their block does not respond, the map shows them as doubtful.
DOUBTED_STATES = frozenset({State.HEALTHY, State.EXCESS, State.DEGRADED})


def looks_as_json() -> list[dict[str, Any]]:
    """Return every state's colours (light, dark), mark and urgency, by the state's number."""
    return [
        {
            "cell": state.look.cell_colours or state.look.colours,
            "tone": state.look.colours,
            "mark": state.look.mark,
            # 0 is the most urgent state: a cell of several agents has the colour of its most urgent one.
            "rank": STATES_BY_URGENCY.index(state),
            # In small cells, only states that must not be overlooked are marked.
            "loud": state in AFFECTED_STATES,
            "doubted": state in DOUBTED_STATES,
        }
        for state in State
    ]
