"""Verdicts are on the wire and in the record: neither numbers nor names may move."""

from __future__ import annotations

import pytest

from fleet.vocabulary.verdicts import BACKEND_CAUSE, NO_CAUSE, STATES_BY_URGENCY, Reason, Recovery, State
from tests.meta.house import ROOT


def test_states_keep_their_numbers_and_slugs() -> None:
    """Byte vectors in browsers and columns in Redis hold the numbers, URLs and the API the slugs."""
    assert [state.slug for state in sorted(State)] == [
        *("unknown", "retired", "never", "stranded", "offline"),
        *("at_risk", "working", "degraded", "excess", "healthy"),
    ]
    assert [int(state) for state in sorted(State)] == list(range(10))


def test_labels_are_words() -> None:
    """People read words, not slugs."""
    assert State.AT_RISK.label == "at risk"
    assert [state.label for state in (State.WORKING, State.NEVER, State.EXCESS)] == [
        *("reconnecting", "never connected", "excess tunnels"),
    ]


def test_verdicts_are_read_as_people_write_them() -> None:
    """Hyphens, spaces, capitals and labels are no error; a word that is no verdict is, with the list of slugs."""
    assert State.parse(" At-Risk") is State.parse("at risk") is State.parse("at_risk") is State.AT_RISK
    for state in State:
        assert State.parse(state.slug) is State.parse(state.label) is state
    with pytest.raises(
        ValueError,
        match=r"Unknown state 'calm'\. Use one of: unknown, retired, never_connected, stranded, offline, at_risk",
    ):
        State.parse("calm")


def test_reading_order_has_every_verdict_once_and_what_needs_people_first() -> None:
    """Two verdicts in one place would change places from page to page."""
    assert STATES_BY_URGENCY[:3] == (State.STRANDED, State.AT_RISK, State.DEGRADED)
    for places in (
        [state.look.page_order for state in State],
        [state.look.headline_order for state in State if state.look.headline_order],
    ):
        assert len(set(places)) == len(places)


@pytest.mark.parametrize("state", State)
def test_ground_of_each_verdict_is_in_the_style_sheet(state: State) -> None:
    """A missing custom property would leave the tile without a background."""
    sheet = ROOT / "dashboards/static/dashboards/css/tokens.css"
    assert f"--wash-{state.look.wash}: light-dark(" in sheet.read_text()


def test_reasons_fit_their_bits() -> None:
    """A packed verdict has five bits for the reason and three for the recovery."""
    assert max(Reason) < 32
    assert max(Recovery) < 8


def test_reason_and_recovery_slugs_are_codes() -> None:
    """Codes with hyphens, as design and API spell them."""
    assert Reason.AUTH_UNHEALTHY.slug == "auth-unhealthy"
    assert Recovery.ONLY_IF_CAUSE_RECOVERS.slug == "only-if-cause-recovers"


def test_every_reason_has_a_label_of_its_own() -> None:
    """A reason that covers several states of an instance is not named after one of them."""
    assert len({reason.label for reason in Reason}) == len(Reason)
    assert Reason.AUTH_UNHEALTHY.label == "auth failing"
    assert not any("unhealthy" in reason.label for reason in Reason)


def test_marks_are_no_instance() -> None:
    """The marks differ and are larger than any index."""
    assert NO_CAUSE != BACKEND_CAUSE
    assert min(NO_CAUSE, BACKEND_CAUSE) > 10_000
