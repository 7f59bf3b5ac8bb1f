"""The kinds of changes, and the actions of operators on a change of any kind.

docs/reference/changes.md, "Kinds of changes".
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from fleet.audit import RequestActor
from fleet.changes import ChangeRefusedError, engine
from fleet.changes.base_kind import ACTIONS, Kind
from fleet.changes.campaigns.kind import ReconnectKind
from fleet.changes.networking.kind import NetworkingKind
from fleet.changes.operations.degrade_kind import DegradeKind
from fleet.changes.operations.retire_kind import RetireKind
from fleet.changes.policies.kind import PolicyKind
from fleet.changes.service.kind import ServiceKind
from fleet.models.changes import Change
from fleet.vocabulary.changes import ChangeKind

KINDS: Mapping[ChangeKind, Kind] = {
    ChangeKind.NETWORKING_CONFIG: NetworkingKind(),
    ChangeKind.POLICY: PolicyKind(),
    ChangeKind.RECONNECT: ReconnectKind(),
    ChangeKind.SERVICE: ServiceKind(),
    ChangeKind.DEGRADE: DegradeKind(),
    ChangeKind.RETIRE: RetireKind(),
}


def kind_of(change: Change) -> Kind:
    """Return the kind of a change."""
    return KINDS[ChangeKind(change.kind)]


def confirm(change: Change, actor: RequestActor, *, reason: str, typed_name: str, now: datetime) -> Change:
    """Confirm a plan and return the change.

    Raises ChangeRefusedError with problems by field, and StaleRevisionError when it is out of date.
    """
    check_plan = kind_of(change).require_current_plan
    return engine.confirm(change, actor, reason=reason, typed_name=typed_name, now=now, check_plan=check_plan)


def run_action(change: Change, action_name: str, actor: RequestActor, now: datetime) -> Change:
    """Perform one of ACTIONS on a change in progress.

    Raises ChangeRefusedError when its kind does not support the action.
    """
    action = kind_of(change).actions.get(action_name)
    if action is None:
        with engine.record_attempt_on(change, ACTIONS[action_name], actor, now):
            raise ChangeRefusedError(
                f"a {ChangeKind(change.kind).label} does not support the action {action_name!r}"
            )
    return action(change, actor, now)
