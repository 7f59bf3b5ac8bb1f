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
    current_value: PolicyValue
    #: What it would run with after a restart.
    next_value: PolicyValue
    #: What it would run with if it had accepted nothing; None: it does not say.
    fallback_value: PolicyValue | None = None

    def text_with_desired(self, text: str) -> str:
        """What it runs with once it has accepted that, or, with an empty text, once it has accepted nothing."""
        if self.current_value.source is Source.FLAG:
            return self.current_value.text
        if text:
            return text
        if self.fallback_value is not None:
            return self.fallback_value.text
        return "" if self.current_value.source is Source.FILE else self.current_value.text


@dataclass(frozen=True, slots=True)
class NodeReport:
    """All that an instance says of its policies."""

    instance_id: str
    role: str
    #: Another one after each start.
    run_id: str
    #: Seconds since it started, when it was asked.
    uptime_seconds: float
    #: Of what it has accepted.
    revision: str
    #: Why it accepts none; empty when it does.
    refusal_reason: str
    #: By name.
    policies: Mapping[str, PolicyReport]

    def describe_drift(self, desired_values: Mapping[str, str]) -> str:
        """How it runs otherwise than an instance of which exactly this is wanted, as a sentence; empty: it does not.

        What is not wanted must not come from what it accepted: an unset policy is over only when it is not in force.
        """
        for name in desired_values:
            if name not in self.policies:
                return f"it does not say what it has for {name}"
        for name, report in self.policies.items():
            current_value = report.current_value
            if name in desired_values:
                if not policies.is_same_value(name, desired_values[name], current_value.text):
                    return f"{name} is {current_value.text or 'unset'} ({current_value.source}), not {desired_values[name]}"
            elif current_value.source is Source.FILE:
                return f"{name} is still {current_value.text}, as it was accepted once"
            elif report.fallback_value is not None and not policies.is_same_value(name, report.fallback_value.text, current_value.text):
                return f"{name} is {current_value.text or 'unset'} ({current_value.source}), not {report.fallback_value.text or 'unset'}"
        return ""

    @property
    def accepted_values(self) -> dict[str, str]:
        """What its file of accepted policies holds; those that its command line hides are not seen."""
        return {
            name: report.next_value.text
            for name, report in self.policies.items()
            if report.next_value.source is Source.FILE
        }


@dataclass(frozen=True, slots=True)
class NodeReportResponse:
    """What came of asking an instance."""

    #: Seconds since the epoch.
    at: float
    #: None when it did not answer, or does not know the question.
    report: NodeReport | None
    #: Why there is none, as a sentence.
    error: str = ""
