"""Agents' replies to the advice to connect to another auth: their enum values on the wire and their names in logs."""

from __future__ import annotations

from fleet.protocol.recovery.auth_move import AuthMoveOutcome
from fleet.wire import fleet_pb2

OUTCOMES = {
    AuthMoveOutcome.MOVED: fleet_pb2.AuthAdvisoryReply.OUTCOME_MOVED,
    AuthMoveOutcome.STAYED: fleet_pb2.AuthAdvisoryReply.OUTCOME_STAYED,
    AuthMoveOutcome.ELSEWHERE: fleet_pb2.AuthAdvisoryReply.OUTCOME_ELSEWHERE,
}


def outcome_of(reply: fleet_pb2.AuthAdvisoryReply) -> str:
    """Return the name of a reply for metrics and logs."""
    return next((str(outcome) for outcome, number in OUTCOMES.items() if number == reply.outcome), "unknown")
