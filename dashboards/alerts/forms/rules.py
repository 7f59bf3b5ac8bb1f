"""Forms of alert rules and agent sets."""

from __future__ import annotations

from typing import Any

from django import forms
from typing_extensions import override

from dashboards.alerts.forms.shared import SEVERITY_CHOICES, build_unique_name_messages
from dashboards.shared.duration_fields import ReadableDurationField
from dashboards.shared.owners import OwnedForm
from fleet.alerts.rules import Rule, RuleKind, find_rule_problems
from fleet.alerts.setup.rules import has_fixed_identity
from fleet.models.alerting import AgentSet, AlertRule
from fleet.vocabulary.incidents import Severity


class RuleForm(OwnedForm):
    """Form of an alert rule; the share of agents is in percent."""

    severity = forms.TypedChoiceField(choices=SEVERITY_CHOICES, coerce=int)
    kind = forms.ChoiceField(choices=[(kind.value, kind.label) for kind in RuleKind], label="Condition")
    runbook = forms.URLField(required=False, assume_scheme="https")
    share_percent = forms.FloatField(
        min_value=0, max_value=100, required=False, initial=0, label="Minimum share of agents (%)"
    )

    class Meta:
        model = AlertRule
        fields = (
            "name", "kind", "severity", "enabled", "min_count", "agent_set", "cluster", "pending_rounds",
            "pending_seconds", "recover_seconds", "group_wait", "group_interval", "repeat_seconds", "runbook",
        )  # fmt: skip
        field_classes = dict.fromkeys(
            ("pending_seconds", "recover_seconds", "group_wait", "group_interval", "repeat_seconds"),
            ReadableDurationField,
        )
        labels = {
            "min_count": "Minimum number of agents", "agent_set": "Only agents of agent set",
            "pending_rounds": "Consecutive polls before firing", "pending_seconds": "Pending time",
            "recover_seconds": "Resolve after", "group_wait": "Group wait",
            "group_interval": "Group interval", "repeat_seconds": "Repeat interval",
        }  # fmt: skip
        error_messages = build_unique_name_messages("alert rule")

    field_order = ("name", "cluster", "kind", "severity", "enabled", "min_count", "share_percent")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["share_percent"].initial = round(self.instance.min_share * 100, 4)
        if has_fixed_identity(self.instance):
            # Built-in rules and overrides are identified by name and kind.
            self.fields["name"].disabled = self.fields["kind"].disabled = True

    @override
    def clean(self) -> dict[str, Any]:
        """Validate the values as the API and imports do."""
        cleaned_data: dict[str, Any] = super().clean() or self.cleaned_data
        if not self.errors:
            values = {
                name: cleaned_data[name] for name in self.Meta.fields if name not in ("kind", "severity")
            }
            share = (cleaned_data.get("share_percent") or 0) / 100
            severity = Severity(cleaned_data["severity"])
            rule = Rule(kind=RuleKind(cleaned_data["kind"]), severity=severity, min_share=share, **values)
            for name, problem in find_rule_problems(rule).items():
                self.add_error(name, problem)
        return cleaned_data

    @override
    def save(self, commit: bool = True) -> AlertRule:
        """Save the rule, with the share converted from percent to a fraction."""
        self.instance.min_share = (self.cleaned_data.get("share_percent") or 0) / 100
        rule: AlertRule = super().save(commit)
        return rule


class AgentSetForm(forms.ModelForm):  # type: ignore[type-arg] # django-stubs makes it generic, Django does not
    """Form of a pattern of agent names in an agent set."""

    class Meta:
        model = AgentSet
        fields = ("name", "pattern")
        labels = {"name": "Agent set", "pattern": "Agent name or pattern"}
        help_texts = {
            "pattern": "Example: web-*",
            "name": "One stranded agent of the set critical is enough for a critical incident.",
        }
