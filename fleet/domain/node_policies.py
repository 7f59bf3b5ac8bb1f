"""What an auth or proxy says of its env-driven policies. Pure values. docs/policies.md"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fleet.protocol.policies import Source, Value


@dataclass(frozen=True, slots=True)
class PolicyReport:
    """One policy of one instance."""

    #: What it runs with.
    now: Value
    #: What it would run with after a restart.
    following: Value


@dataclass(frozen=True, slots=True)
class NodeReport:
    """All that an instance says of its policies."""

    instance_id: str
    role: str
    #: Another one after each start.
    run_id: str
    #: Seconds since it started, when it was asked.
    up_for: float
    #: Of what it has accepted.
    revision: str
    #: Why it accepts none; empty when it does.
    why_not: str
    #: By name.
    policies: Mapping[str, PolicyReport]

    @property
    def accepted(self) -> dict[str, str]:
        """What its file of accepted policies holds; those that its command line hides are not seen."""
        return {
            name: found.following.text
            for name, found in self.policies.items()
            if found.following.source is Source.FILE
        }


@dataclass(frozen=True, slots=True)
class Observed:
    """What came of asking an instance."""

    #: Seconds since the epoch.
    at: float
    #: None when it did not answer, or does not know the question.
    report: NodeReport | None
    #: Why there is none, as a sentence.
    error: str = ""
