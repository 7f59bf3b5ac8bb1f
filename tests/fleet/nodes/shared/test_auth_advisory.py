"""Answers to the advice to connect to another auth."""

from __future__ import annotations

from fleet.nodes.shared.auth_advisory import OUTCOMES, outcome_of
from fleet.protocol.recovery.auth_move import AuthMoveOutcome
from fleet.wire import fleet_pb2


def test_every_outcome_has_a_number_and_its_name() -> None:
    """A number that a newer agent sends is unknown."""
    for outcome in AuthMoveOutcome:
        assert outcome_of(fleet_pb2.AuthAdvisoryReply(outcome=OUTCOMES[outcome])) == str(outcome)
    assert outcome_of(fleet_pb2.AuthAdvisoryReply()) == "unknown"
