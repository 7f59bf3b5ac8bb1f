"""The kinds of changes, and what operators do to a change of any of them. docs/changes.md, "Kinds"."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from fleet.audit import By
from fleet.changes import Refused, engine
from fleet.changes.base_kind import ACTIONS, Kind
from fleet.changes.campaigns.kind import ReconnectKind
from fleet.changes.networking.kind import NetworkingKind
from fleet.changes.policies.kind import PolicyKind
from fleet.models.changes import Change
from fleet.vocabulary.changes import ChangeKind

KINDS: Mapping[ChangeKind, Kind] = {
    ChangeKind.NETWORKING_CONFIG: NetworkingKind(),
    ChangeKind.POLICY: PolicyKind(),
    ChangeKind.RECONNECT: ReconnectKind(),
}


def kind_of(change: Change) -> Kind:
    """Return the kind of a change."""
    return KINDS[ChangeKind(change.kind)]


def confirm(change: Change, by: By, *, reason: str, typed: str, now: datetime) -> Change:
    """Confirm a plan. Raises Refused with problems by field, and Stale when it does not stand any more."""
    stands = kind_of(change).must_stand
    return engine.confirm(change, by, reason=reason, typed=typed, now=now, stands=stands)


def act(change: Change, word: str, by: By, now: datetime) -> Change:
    """Do one of ACTIONS to a change in progress. Raises Refused when its kind does not take that action."""
    action = kind_of(change).actions.get(word)
    if action is None:
        with engine.attempt_on(change, ACTIONS[word], by, now):
            raise Refused("there is no such thing to do to this change")
    return action(change, by, now)
