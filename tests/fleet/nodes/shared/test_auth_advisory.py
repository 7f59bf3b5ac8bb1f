"""Replies to auth reconnect advisories."""

from __future__ import annotations

from fleet.nodes.shared.auth_advisory import OUTCOMES, outcome_of
from fleet.protocol.recovery.auth_move import AuthMoveOutcome
from fleet.wire import fleet_pb2


def test_outcome_numbers_are_converted_to_names() -> None:
    """A number that only a newer agent knows becomes "unknown"."""
    for outcome in AuthMoveOutcome:
        assert outcome_of(fleet_pb2.AuthAdvisoryReply(outcome=OUTCOMES[outcome])) == str(outcome)
    assert outcome_of(fleet_pb2.AuthAdvisoryReply()) == "unknown"
