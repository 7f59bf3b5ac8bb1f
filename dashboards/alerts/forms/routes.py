"""Form of notification routes."""

from __future__ import annotations

from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from typing_extensions import override

from dashboards.alerts.forms.shared import SEVERITY_CHOICES, clean_matchers
from dashboards.shared.duration_fields import ReadableDurationField
from dashboards.shared.owners import OwnedForm
from dashboards.shared.pages import sentence_of
from fleet.alerts.silences import WindowError, zone_of
from fleet.models.alerting import Channel, Route, filter_applicable_to


class RouteForm(OwnedForm):
    """Form of a notification route, with its escalation time."""

    min_severity = forms.TypedChoiceField(
        choices=SEVERITY_CHOICES, coerce=int, initial=1, label="Minimum severity"
    )
    escalate_after = ReadableDurationField(
        required=False,
        minimum=60.0,
        label="Escalate after",
        help_text="Time without acknowledgement, for example 15 min. Leave empty to disable escalation.",
    )
    field_order = (
        "name", "cluster", "parent", "position", "matchers", "min_severity", "channels", "continue_matching",
        "escalate_after", "escalate_to",
    )  # fmt: skip

    class Meta:
        model = Route
        fields = (
            "name", "parent", "position", "cluster", "matchers", "min_severity", "channels", "continue_matching",
            "escalate_to", "quiet_from", "quiet_until", "quiet_zone",
        )  # fmt: skip
        labels = {
            "matchers": "Matchers",
            "parent": "Parent route",
            "continue_matching": "Continue with the next routes",
            "escalate_to": "Escalation channels",
            "quiet_from": "Quiet hours from",
            "quiet_until": "Quiet hours until",
            "quiet_zone": "Time zone of the quiet hours",
        }
        help_texts = {
            "matchers": "Example: kind=proxy cause=proxy-1* agent_set=critical. Leave empty to match all incidents.",
            "position": "Routes with the same parent are tried in ascending order.",
            "channels": "Leave empty to use the channels of the parent route.",
            "quiet_from": "Critical incidents are sent during quiet hours, too.",
        }
        widgets = {
            "matchers": forms.TextInput, "channels": forms.CheckboxSelectMultiple,
            "escalate_to": forms.CheckboxSelectMultiple,
            "quiet_from": forms.TimeInput(attrs={"type": "time"}),
            "quiet_until": forms.TimeInput(attrs={"type": "time"}),
        }  # fmt: skip

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.instance.escalate_after:
            self.fields["escalate_after"].initial = self.instance.escalate_after
        for name, rows in (
            ("parent", Route.objects.all()),
            ("channels", Channel.objects.all()),
            ("escalate_to", Channel.objects.all()),
        ):
            field = self.fields[name]
            assert isinstance(field, forms.ModelChoiceField), "a foreign key, or many"
            field.queryset = filter_applicable_to(rows, self.reference_cluster)

    def clean_matchers(self) -> str:
        """Return the matchers without surrounding blanks. Raises ValidationError if they are not valid."""
        return clean_matchers(str(self.cleaned_data["matchers"]), is_for_route=True)

    @override
    def clean(self) -> dict[str, Any]:
        """Validate quiet hours, time zone and parent, and refuse channels and parents of other owners."""
        cleaned_data: dict[str, Any] = super().clean() or self.cleaned_data
        if (cleaned_data.get("quiet_from") is None) != (cleaned_data.get("quiet_until") is None):
            raise ValidationError("Enter both the start and the end of the quiet hours.")
        try:
            zone_of(cleaned_data.get("quiet_zone") or "UTC")
        except WindowError as error:
            self.add_error("quiet_zone", sentence_of(error))
        parent_route = cleaned_data.get("parent")
        owners = {"", cleaned_data.get("cluster", "")}
        if parent_route is not None and parent_route.cluster not in owners:
            self.add_error(
                "parent", "A route of the whole installation cannot have a parent that belongs to a cluster."
            )
        for name in ("channels", "escalate_to"):
            if {row.cluster for row in cleaned_data.get(name, ())} - owners:
                self.add_error(
                    name, "A route of the whole installation can only use channels of the whole installation."
                )
        while parent_route is not None:
            if parent_route.pk == self.instance.pk:
                raise ValidationError("A route cannot be its own parent, directly or indirectly.")
            parent_route = parent_route.parent
        return cleaned_data

    @override
    def save(self, commit: bool = True) -> Route:
        """Save the route, with the escalation time."""
        self.instance.escalate_after = self.cleaned_data.get("escalate_after")
        route: Route = super().save(commit)
        return route
