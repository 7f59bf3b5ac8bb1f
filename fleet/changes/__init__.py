"""Changes to clusters: plan, confirm, run, verify, undo. docs/changes.md. Nodes are written to by transport.admin."""

from __future__ import annotations

from fleet.vocabulary.actions import ChangeError, RefusalError


class ChangeRefusedError(ChangeError, RefusalError):
    """A rule does not allow it. `problems` names fields, when it is about fields."""

    def __init__(self, sentence: str, problems: dict[str, str] | None = None) -> None:
        super().__init__(sentence)
        self.problems = problems or {}


class WrongStateError(ChangeRefusedError):
    """The change is not in a state from which that may happen; somebody was quicker, perhaps."""


class ClusterBusyError(ChangeRefusedError):
    """Another change has the cluster; the sentence names it and who made it."""


class NoEvidenceError(ChangeRefusedError):
    """Too little is seen of the cluster to foresee anything."""


class StaleRevisionError(ChangeRefusedError):
    """What it is based on is not what is there any more; `revision` names what is, of `what`."""

    def __init__(self, sentence: str, *, resource: str, revision: str) -> None:
        super().__init__(sentence)
        self.resource = resource
        self.revision = revision
