"""Changes to clusters: plan, confirm, run, verify, undo.

docs/reference/changes.md. `transport.admin` writes to instances.
"""

from __future__ import annotations

from fleet.vocabulary.actions import ChangeError, RefusalError
from fleet.vocabulary.capabilities import Capability


class ChangeRefusedError(ChangeError, RefusalError):
    """A rule does not allow the action. `problems`: sentences by field, where the refusal is about fields."""

    def __init__(self, sentence: str, problems: dict[str, str] | None = None) -> None:
        super().__init__(sentence)
        self.problems = problems or {}


class WrongStateError(ChangeRefusedError):
    """The state of the change does not allow the action, for example because another person acted first."""


class ClusterBusyError(ChangeRefusedError):
    """Another change of the cluster is running; the message names the change and its author."""


class NoEvidenceError(ChangeRefusedError):
    """Refloat has no current data of the cluster, so it cannot plan a change."""


class CapabilityMissingError(ChangeRefusedError):
    """The source of the cluster does not have a capability there; the message is the reason."""

    def __init__(self, capability: Capability, reason: str) -> None:
        super().__init__(reason.removesuffix("."))
        self.capability = capability


class StaleRevisionError(ChangeRefusedError):
    """The plan is out of date. `resource`: the document that changed; `revision`: its present revision."""

    def __init__(self, sentence: str, *, resource: str, revision: str) -> None:
        super().__init__(sentence)
        self.resource = resource
        self.revision = revision
