"""Entries of the audit log as sentences: `demo retired agent-66`. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from dashboards.changes.audit_text import describe_action, describe_subject
from fleet.vocabulary.actions import AuditAction, AuditOutcome, ChangeStep, RequestOrigin
from fleet.vocabulary.changes import ChangeKind, ChangeState


@dataclass(frozen=True, slots=True)
class _Verb:
    """A verb in the past tense and in the infinitive, and what follows the object."""

    past: str
    infinitive: str
    suffix: str = ""


@dataclass(frozen=True, slots=True)
class AuditSentence:
    """What an actor did: the words around the name of the object."""

    #: `retired`, `tried to drain`.
    verb: str
    #: `the config change`; empty where the name of the object says it.
    noun: str
    #: The object, and the path of its page below the prefix of the cluster; empty: it has none.
    name: str
    path: str
    #: ` as degraded`.
    suffix: str = ""

    @property
    def text(self) -> str:
        """The sentence without its actor."""
        return " ".join(filter(None, (self.verb, self.noun, self.name))) + self.suffix


#: Actions whose object is named without a noun.
_OBJECT_VERBS: Mapping[str, _Verb] = {
    AuditAction.INSTANCE_DRAIN: _Verb("drained", "drain"),
    AuditAction.INSTANCE_UNDRAIN: _Verb("brought", "bring", " back into service"),
    AuditAction.INSTANCE_DEGRADE: _Verb("marked", "mark", " as degraded"),
    AuditAction.INSTANCE_UNDEGRADE: _Verb("cleared the degraded mark of", "clear the degraded mark of"),
    AuditAction.AGENT_RETIRE: _Verb("retired", "retire"),
    AuditAction.AGENT_REINSTATE: _Verb("reinstated", "reinstate"),
    AuditAction.NETWORKING_EXTERNAL_WRITE: _Verb(
        "detected a networking config", "detect a networking config"
    ),
    AuditAction.NETWORKING_RESET_CLOSING_SUPPORT: _Verb(
        "allowed graceful tunnel closing again", "allow graceful tunnel closing again"
    ),
}
#: Verbs of changes, by step and by the state that the change moves to.
_CHANGE_VERBS: Mapping[str, _Verb] = {
    ChangeStep.PLAN: _Verb("planned", "plan"),
    ChangeStep.CONFIRM: _Verb("confirmed", "confirm"),
    ChangeStep.APPROVE: _Verb("approved", "approve"),
    ChangeStep.START: _Verb("started", "start"),
    ChangeState.RUNNING: _Verb("resumed", "resume"),
    ChangeState.PAUSED: _Verb("paused", "pause"),
    ChangeState.VERIFYING: _Verb("applied", "apply"),
    ChangeState.VERIFIED: _Verb("verified", "verify"),
    ChangeState.FAILED: _Verb("marked", "mark", " as failed"),
    ChangeState.CANCELLED: _Verb("cancelled", "cancel"),
    ChangeState.UNDONE: _Verb("marked", "mark", " as undone"),
    "stop": _Verb("stopped", "stop"),
}
#: The verb of a change that was cancelled after it had started.
_ABORT_VERB = _Verb("aborted", "abort")
#: Verbs of other actions, by their last word.
_VERBS: Mapping[str, _Verb] = {
    "create": _Verb("created", "create"),
    "restore": _Verb("restored", "restore"),
    "update": _Verb("updated", "update"),
    "delete": _Verb("deleted", "delete"),
    "remove": _Verb("removed", "remove"),
    "extend": _Verb("extended", "extend"),
    "end": _Verb("ended", "end"),
    "toggle": _Verb("switched", "switch"),
    "test": _Verb("tested", "test"),
    "retry": _Verb("resent", "resend"),
    "override": _Verb("overrode", "override"),
    "import": _Verb("imported", "import"),
    "revoke": _Verb("revoked", "revoke"),
    "role": _Verb("changed the role of", "change the role of"),
    "invite": _Verb("invited", "invite"),
    "accept-invitation": _Verb("accepted the invitation of", "accept the invitation of"),
    "limits": _Verb("changed the cluster limits of", "change the cluster limits of"),
    "end-sessions": _Verb("ended the sessions of", "end the sessions of"),
    "reset-second-factor": _Verb("reset the second factor of", "reset the second factor of"),
    "enable": _Verb("enabled", "enable"),
    "disable": _Verb("disabled", "disable"),
    "set": _Verb("changed", "change"),
    "pause": _Verb("paused", "pause"),
    "resume": _Verb("resumed", "resume"),
}
_CHANGE_WORDS = frozenset(kind.value for kind in ChangeKind)


def describe_entry(
    action: str,
    subject: str,
    outcome: str,
    change_id: int | None = None,
    document: Any = None,
    noun: str = "",
    *,
    has_started: bool = False,
) -> AuditSentence:
    """Return an entry as a sentence.

    `document`: the values after the action, or else before it. `noun`: that of its change, where known; `has_started`:
    that change started, so that it was aborted if it was cancelled.
    """
    first, _, last = action.partition(".")
    path = _path_of(first, change_id, document)
    is_refused = outcome != AuditOutcome.SUCCEEDED
    if first in set(RequestOrigin) or (verb := _find_verb(first, last, action)) is None:
        return AuditSentence(
            "tried to" if is_refused else "requested to", describe_action(action), subject, path
        )
    if last == ChangeState.CANCELLED and has_started:
        verb = _ABORT_VERB
    noun = f"the {noun or describe_subject(first)}" if action not in _OBJECT_VERBS else ""
    if action not in _OBJECT_VERBS:
        subject = f"“{subject}”" if first in _CHANGE_WORDS and subject else subject
    return AuditSentence(
        f"tried to {verb.infinitive}" if is_refused else verb.past, noun, subject, path, verb.suffix
    )


def _find_verb(first: str, last: str, action: str) -> _Verb | None:
    if action in _OBJECT_VERBS:
        return _OBJECT_VERBS[action]
    return (_CHANGE_VERBS if first in _CHANGE_WORDS else _VERBS).get(last)


def _path_of(first: str, change_id: int | None, document: Any) -> str:
    """Return the path of the object's page, below the prefix of the cluster; empty: it has none."""
    if isinstance(document, Mapping) and first in ("agent", "instance"):
        object_id = document.get(first)
        if isinstance(object_id, str):
            return f"/{first}s/{quote(object_id, safe='')}/"
    return "" if change_id is None else f"/changes/{change_id}/"
