"""Changes to clusters: plan, confirm, run, verify, undo. docs/changes.md. Nodes are written to by transport.admin."""

from __future__ import annotations

from fleet.vocabulary.actions import ControlError, Refusal


class Refused(ControlError, Refusal):
    """A rule does not allow it. `problems` names fields, when it is about fields."""

    def __init__(self, sentence: str, problems: dict[str, str] | None = None) -> None:
        super().__init__(sentence)
        self.problems = problems or {}


class WrongState(Refused):
    """The change is not in a state from which that may happen; somebody was quicker, perhaps."""


class Busy(Refused):
    """Another change has the cluster; the sentence names it and who made it."""


class Blind(Refused):
    """Too little is seen of the cluster to foresee anything."""


class Stale(Refused):
    """What it is based on is not what is there any more; `revision` names what is, of `what`."""

    def __init__(self, sentence: str, *, what: str, revision: str) -> None:
        super().__init__(sentence)
        self.what = what
        self.revision = revision
