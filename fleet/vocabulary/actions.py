"""The actions that the log names, each declared once: docs/changes.md, "The log". Pure."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import NewType

from fleet.vocabulary.changes import ChangeKind, ChangeState
from fleet.vocabulary.tags import TagEnum, Tone

#: An action that is made of several words: by `of_change` and `of_request` only.
ActionName = NewType("ActionName", str)

#: Characters of an action: those of its column.
MAX_ACTION_LENGTH = 64


class ChangeError(Exception):
    """Something that was not done; the sentence says why."""


class RefusalError(Exception):
    """A rule does not allow what was tried; the sentence says why."""

    #: The log has a row about it.
    is_logged = False


class AuditAction(StrEnum):
    """What is done, by whoever writes a row with its own words."""

    INSTANCE_DRAIN = "instance.drain"
    INSTANCE_UNDRAIN = "instance.undrain"
    INSTANCE_DEGRADE = "instance.degrade"
    INSTANCE_RESTORE = "instance.restore"
    AGENT_RETIRE = "agent.retire"
    AGENT_UNRETIRE = "agent.unretire"
    #: A revision that was not written through the console was read.
    NETWORKING_SEEN = "networking-config.seen"
    NETWORKING_TRY_CLOSING = "networking-config.try-closing"
    RECONNECT_STOP = "reconnect.stop"
    SILENCE_CREATE = "silence.create"
    SILENCE_EXTEND = "silence.extend"
    SILENCE_END = "silence.end"
    WINDOW_CREATE = "window.create"
    WINDOW_SWITCH = "window.switch"
    WINDOW_REMOVE = "window.remove"
    DELIVERY_AGAIN = "delivery.again"
    CHANNEL_CREATE = "channel.create"
    CHANNEL_CHANGE = "channel.change"
    CHANNEL_TEST = "channel.test"
    CHANNEL_DELETE = "channel.delete"
    ROUTE_CREATE = "route.create"
    ROUTE_CHANGE = "route.change"
    ROUTE_DELETE = "route.delete"
    RULE_CREATE = "alert-rule.create"
    RULE_CHANGE = "alert-rule.change"
    RULE_OVERRIDE = "alert-rule.override"
    RULE_DELETE = "alert-rule.delete"
    RULES_IMPORT = "alert-rules.import"
    LABEL_CREATE = "agent-label.create"
    LABEL_DELETE = "agent-label.delete"
    TOKEN_MAKE = "token.make"  # noqa: S105 - an action, not a secret
    TOKEN_REVOKE = "token.revoke"  # noqa: S105
    USER_CREATE = "user.create"
    USER_ROLE = "user.role"
    USER_ON = "user.on"
    USER_OFF = "user.off"
    CLUSTER_SET = "cluster.set"


class ChangeStep(StrEnum):
    """What people do to a change; the states that it moves to are the other last words of its actions."""

    PLAN = "plan"
    CONFIRM = "confirm"
    APPROVE = "approve"
    START = "start"


#: The states that a change moves to with a row of its own. To be planned and to be confirmed are steps.
LOGGED_STATES = frozenset(ChangeState) - {ChangeState.PLANNED, ChangeState.CONFIRMED}


class AuditOutcome(TagEnum):
    """How an attempt ended."""

    DONE = "done", Tone.GOOD
    REFUSED = "refused", Tone.BAD
    FAILED = "failed", Tone.BAD


class RouteKind(StrEnum):
    """Where a request came in that changed something, or was refused, without a row of its own."""

    PAGE = "page"
    API = "api"


def action_of_change(kind: ChangeKind | str, step: ChangeStep | ChangeState) -> ActionName:
    """Return the action of a step or a move of a change: `policy.confirm`, `reconnect.paused`."""
    return ActionName(f"{kind}.{step.value}")


def action_of_request(kind: RouteKind, parts: Iterable[str]) -> ActionName:
    """Return the action of a request by its route: `page.incident.acknowledge`, `api.confirm`."""
    return ActionName(".".join((kind.value, *filter(None, parts)))[:MAX_ACTION_LENGTH])
