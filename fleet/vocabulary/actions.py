"""The actions of the audit log, each declared once: docs/reference/changes.md, "Audit log". Pure."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import NewType

from fleet.vocabulary.changes import ChangeKind, ChangeState
from fleet.vocabulary.tags import TagEnum, Tone

#: An action made of several words; only `action_of_change` and `action_of_request` return one.
ActionName = NewType("ActionName", str)

#: Longest name of an action, characters: the length of its column.
MAX_ACTION_LENGTH = 64


class ChangeError(Exception):
    """An action that was not carried out; the message says why."""


class RefusalError(Exception):
    """An action that a rule does not allow; the message says why."""

    #: The audit log has an entry for this refusal.
    is_logged = False


class AuditAction(StrEnum):
    """The actions that have an audit entry of their own."""

    INSTANCE_DRAIN = "instance.drain"
    INSTANCE_UNDRAIN = "instance.undrain"
    INSTANCE_DEGRADE = "instance.degrade"
    INSTANCE_UNDEGRADE = "instance.undegrade"
    AGENT_RETIRE = "agent.retire"
    AGENT_REINSTATE = "agent.reinstate"
    #: Refloat read a revision that was written outside of Refloat.
    NETWORKING_EXTERNAL_WRITE = "networking-config.external-write"
    NETWORKING_RESET_CLOSING_SUPPORT = "networking-config.reset-closing-support"
    RECONNECT_STOP = "reconnect.stop"
    SILENCE_CREATE = "silence.create"
    SILENCE_EXTEND = "silence.extend"
    SILENCE_END = "silence.end"
    WINDOW_CREATE = "window.create"
    WINDOW_UPDATE = "window.update"
    WINDOW_TOGGLE = "window.toggle"
    WINDOW_REMOVE = "window.remove"
    DELIVERY_RETRY = "delivery.retry"
    CHANNEL_CREATE = "channel.create"
    CHANNEL_UPDATE = "channel.update"
    CHANNEL_TEST = "channel.test"
    CHANNEL_DELETE = "channel.delete"
    ROUTE_CREATE = "route.create"
    ROUTE_UPDATE = "route.update"
    ROUTE_DELETE = "route.delete"
    RULE_CREATE = "alert-rule.create"
    RULE_UPDATE = "alert-rule.update"
    RULE_OVERRIDE = "alert-rule.override"
    RULE_DELETE = "alert-rule.delete"
    RULES_IMPORT = "alert-rules.import"
    #: The custom text of a runbook was written, changed or removed.
    RUNBOOK_UPDATE = "runbook.update"
    ALERTING_IMPORT = "alerting.import"
    AGENT_SET_CREATE = "agent-set.create"
    AGENT_SET_DELETE = "agent-set.delete"
    SAVED_VIEW_CREATE = "saved-view.create"
    SAVED_VIEW_UPDATE = "saved-view.update"
    SAVED_VIEW_DELETE = "saved-view.delete"
    TOKEN_CREATE = "token.create"  # noqa: S105 - an action, not a secret
    TOKEN_REVOKE = "token.revoke"  # noqa: S105
    USER_CREATE = "user.create"
    USER_ROLE = "user.role"
    USER_INVITE = "user.invite"
    #: An invited person set a password.
    USER_ACCEPT = "user.accept-invitation"
    USER_LIMITS = "user.limits"
    USER_END_SESSIONS = "user.end-sessions"
    USER_RESET_SECOND_FACTOR = "user.reset-second-factor"
    USER_ENABLE = "user.enable"
    USER_DISABLE = "user.disable"
    CLUSTER_CREATE = "cluster.create"
    CLUSTER_UPDATE = "cluster.update"
    CLUSTER_PAUSE = "cluster.pause"
    CLUSTER_RESUME = "cluster.resume"
    CLUSTER_REMOVE = "cluster.remove"
    CLUSTER_SET = "cluster.set"
    BACKUP_CREATE = "backup.create"
    BACKUP_RESTORE = "backup.restore"


class ChangeStep(StrEnum):
    """The steps of a change that people take; the other actions of a change end with the state that it moves to."""

    PLAN = "plan"
    CONFIRM = "confirm"
    APPROVE = "approve"
    START = "start"


#: The states whose transition has an audit entry named after the state. Planning and confirming are steps.
AUDITED_STATES = frozenset(ChangeState) - {ChangeState.PLANNED, ChangeState.CONFIRMED}


class AuditOutcome(TagEnum):
    """The outcome of an attempted action."""

    SUCCEEDED = "succeeded", Tone.GOOD
    REFUSED = "refused", Tone.BAD
    FAILED = "failed", Tone.BAD


class RequestOrigin(StrEnum):
    """The origin of a request that changed something, or was refused, without an audit entry of its own."""

    PAGE = "page"
    API = "api"


def action_of_change(kind: ChangeKind | str, step: ChangeStep | ChangeState) -> ActionName:
    """Return the action for a step or a state transition of a change: `policy.confirm`, `reconnect.paused`."""
    return ActionName(f"{kind}.{step.value}")


def action_of_request(origin: RequestOrigin, route_parts: Iterable[str]) -> ActionName:
    """Return the action for a request by its route: `page.incident.acknowledge`, `api.confirm_change`."""
    return ActionName(".".join((origin.value, *filter(None, route_parts)))[:MAX_ACTION_LENGTH])
