"""The env-driven policies that an auth or proxy reports. Pure values. docs/reference/policies.md"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fleet.protocol.policies import env_policies as policies
from fleet.protocol.policies.env_policies import PolicySource, PolicyValue


@dataclass(frozen=True, slots=True)
class PolicyReport:
    """One policy that one instance reports."""

    #: The value in effect.
    current_value: PolicyValue
    #: The value in effect after a restart.
    next_value: PolicyValue
    #: The value in effect without accepted policies; None: not reported.
    fallback_value: PolicyValue | None = None

    def text_after_accepting(self, desired_text: str) -> str:
        """Return the value in effect after the instance accepts `desired_text`, or, if empty, accepts no value."""
        if self.current_value.source is PolicySource.FLAG:
            return self.current_value.text
        if desired_text:
            return desired_text
        if self.fallback_value is not None:
            return self.fallback_value.text
        return "" if self.current_value.source is PolicySource.FILE else self.current_value.text


@dataclass(frozen=True, slots=True)
class NodeReport:
    """The policies that an instance reports."""

    instance_id: str
    role: str
    #: Identifies one run of the process; a new id after each start.
    run_id: str
    #: Uptime of the instance when it reported, seconds.
    uptime_seconds: float
    #: Revision of the accepted policies.
    revision: str
    #: Why the instance does not accept policies over the network; empty when it does.
    refusal_reason: str
    #: Reported policies by name.
    policies: Mapping[str, PolicyReport]

    def describe_drift(self, desired_values: Mapping[str, str]) -> str:
        """Return the first difference from `desired_values`, as a sentence; empty: none.

        A policy without a desired value also differs while an accepted value is still in effect.
        """
        for name in desired_values:
            if name not in self.policies:
                return f"it does not report {name}"
        for name, report in self.policies.items():
            current_value = report.current_value
            if name in desired_values:
                if not policies.is_same_value(name, desired_values[name], current_value.text):
                    return (
                        f"{name} is {current_value.text or 'unset'} ({current_value.source}), not "
                        f"{desired_values[name]}"
                    )
            elif current_value.source is PolicySource.FILE:
                return f"{name} is still {current_value.text}, from its policies.env, and has no desired value any more"
            elif report.fallback_value is not None and not policies.is_same_value(
                name, report.fallback_value.text, current_value.text
            ):
                return (
                    f"{name} is {current_value.text or 'unset'} ({current_value.source}), not "
                    f"{report.fallback_value.text or 'unset'}"
                )
        return ""

    @property
    def accepted_values(self) -> dict[str, str]:
        """Return the accepted policies of the instance, by name, without those that a flag overrides."""
        return {
            name: report.next_value.text
            for name, report in self.policies.items()
            if report.next_value.source is PolicySource.FILE
        }


#: The error of an instance that does not support the call, as Teleport's do not.
UNSUPPORTED_ERROR = "it does not report policies: they come from its environment alone"


@dataclass(frozen=True, slots=True)
class NodeReportResponse:
    """The result of asking an instance for its policies."""

    #: Seconds since the epoch.
    at: float
    #: None when the instance did not respond, or does not support the call.
    report: NodeReport | None
    #: Why there is no report, as a sentence; empty when there is one.
    error: str = ""
