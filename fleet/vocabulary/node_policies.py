"""What an auth or proxy says of its env-driven policies. Pure values. docs/policies.md"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fleet.protocol.policies import env_policies as policies
from fleet.protocol.policies.env_policies import Source, PolicyValue


@dataclass(frozen=True, slots=True)
class PolicyReport:
    """One policy of one instance."""

    #: What it runs with.
    now: PolicyValue
    #: What it would run with after a restart.
    following: PolicyValue
    #: What it would run with if it had accepted nothing; None: it does not say.
    beneath: PolicyValue | None = None

    def with_wanted(self, text: str) -> str:
        """What it runs with once it has accepted that, or, with an empty text, once it has accepted nothing."""
        if self.now.source is Source.FLAG:
            return self.now.text
        if text:
            return text
        if self.beneath is not None:
            return self.beneath.text
        return "" if self.now.source is Source.FILE else self.now.text


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

    def differs(self, wanted: Mapping[str, str]) -> str:
        """How it runs otherwise than an instance of which exactly this is wanted, as a sentence; empty: it does not.

        What is not wanted must not come from what it accepted: an unset policy is over only when it is not in force.
        """
        for name in wanted:
            if name not in self.policies:
                return f"it does not say what it has for {name}"
        for name, found in self.policies.items():
            now = found.now
            if name in wanted:
                if not policies.is_same_value(name, wanted[name], now.text):
                    return f"{name} is {now.text or 'unset'} ({now.source}), not {wanted[name]}"
            elif now.source is Source.FILE:
                return f"{name} is still {now.text}, as it was accepted once"
            elif found.beneath is not None and not policies.is_same_value(name, found.beneath.text, now.text):
                return f"{name} is {now.text or 'unset'} ({now.source}), not {found.beneath.text or 'unset'}"
        return ""

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
