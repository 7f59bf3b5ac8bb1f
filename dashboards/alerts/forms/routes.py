"""Form of notification routes."""

from __future__ import annotations

from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from typing_extensions import override

from dashboards.shared.duration_fields import ReadableDurationField
from dashboards.shared.owners import OwnedForm
from dashboards.shared.row_ids import parse_row_id
from fleet.alerts.setup.routes import (
    MAX_ROUTE_NAME_LENGTH,
    MIN_ESCALATION_SECONDS,
    RouteValues,
    find_route_problems,
    is_below,
    name_route,
)
from fleet.models.alerting import Channel, Route, filter_applicable_to
from fleet.vocabulary.incidents import Severity

_SEVERITY_CHOICES = [
    (int(Severity.CRITICAL), "Critical incidents"),
    (int(Severity.WARNING), "Critical incidents and warnings"),
    (int(Severity.INFO), "All incidents"),
]
_MAIN_NAMES = ("min_severity", "channels", "includes_parent_channels", "escalate_after", "escalate_to")


class RouteForm(OwnedForm):
    """Form of a notification route, with its escalation time."""

    name = forms.CharField(
        required=False,
        max_length=MAX_ROUTE_NAME_LENGTH,
        help_text="Empty: Refloat names the route after its incidents.",
    )
    min_severity = forms.TypedChoiceField(
        choices=_SEVERITY_CHOICES,
        coerce=int,
        initial=int(Severity.CRITICAL),
        label="Incidents",
        widget=forms.RadioSelect,
        help_text="Incidents of severity info are sent in digests only, whatever the route.",
    )
    escalate_after = ReadableDurationField(
        required=False,
        minimum=MIN_ESCALATION_SECONDS,
        label="Escalate after",
        help_text="Time without acknowledgement, for example 15 min. Only critical incidents escalate. "
        "Empty: the escalation of the parent route, if it has one.",
    )

    class Meta:
        model = Route
        fields = (
            "min_severity", "channels", "includes_parent_channels", "escalate_to", "matchers", "name", "parent",
            "position", "continue_matching", "quiet_from", "quiet_until", "quiet_zone", "cluster",
        )  # fmt: skip
        labels = {
            "channels": "Notify",
            "includes_parent_channels": "Also notify the channels of the parent route",
            "matchers": "Only incidents that match",
            "parent": "Parent route",
            "continue_matching": "Continue with the next routes",
            "escalate_to": "Then notify",
            "quiet_from": "Quiet hours from",
            "quiet_until": "Quiet hours until",
            "quiet_zone": "Time zone of the quiet hours",
        }
        help_texts = {
            "matchers": "Example: kind=proxy cause=proxy-1* agent_set=critical. Empty: all incidents.",
            "position": "Routes with the same parent are tried in ascending order.",
            "channels": "Choose none to use the channels of the parent route.",
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
            ("parent", Route.objects.exclude(pk=self.instance.pk)),
            ("channels", Channel.objects.all()),
            ("escalate_to", Channel.objects.all()),
        ):
            field = self.fields[name]
            assert isinstance(field, forms.ModelChoiceField), "a foreign key, or many"
            field.queryset = filter_applicable_to(rows, self.reference_cluster)
        self.fields["position"].required = False
        parent_route = Route.objects.filter(pk=parse_row_id(str(self["parent"].value() or ""))).first()
        if parent_route is None:
            self.fields["channels"].help_text = "Choose none to notify nobody."
        else:
            self.fields["includes_parent_channels"].label = f"Also notify the channels of {parent_route.name}"
            self.fields[
                "channels"
            ].help_text = f"Choose none to notify only the channels of {parent_route.name}."
        self.order_fields([*_MAIN_NAMES, "matchers", "name"])

    @property
    def advanced_fields(self) -> list[forms.BoundField]:
        """The fields below *More options*."""
        return [self[name] for name in self.fields if name not in _MAIN_NAMES]

    @property
    def is_advanced_open(self) -> bool:
        """Return whether a field below *More options* has an error or selects incidents."""
        return any(field.errors for field in self.advanced_fields) or bool(self["matchers"].value())

    def clean_matchers(self) -> str:
        """Return the matchers without surrounding blanks."""
        return str(self.cleaned_data["matchers"]).strip()

    def clean_position(self) -> int:
        """Return the position; an empty one is 0."""
        return self.cleaned_data.get("position") or 0

    @override
    def clean(self) -> dict[str, Any]:
        """Validate the values together, and name the route if it has no name."""
        cleaned_data: dict[str, Any] = super().clean() or self.cleaned_data
        for name, problem in find_route_problems(self._values_of(cleaned_data)).items():
            if name not in self.errors:
                self.add_error(name, problem)
        if self.instance.pk and is_below(cleaned_data.get("parent"), self.instance):
            raise ValidationError("A route cannot be its own parent, directly or indirectly.")
        if not cleaned_data.get("name") and not self.errors:
            cleaned_data["name"] = name_route(cleaned_data["matchers"], cleaned_data["min_severity"])
        return cleaned_data

    @staticmethod
    def _values_of(cleaned_data: dict[str, Any]) -> RouteValues:
        parent_route = cleaned_data.get("parent")
        channels, escalate_to = cleaned_data.get("channels") or (), cleaned_data.get("escalate_to") or ()
        return RouteValues(
            cluster=cleaned_data.get("cluster", ""),
            matchers=cleaned_data.get("matchers", ""),
            channels=channels,
            escalate_after=cleaned_data.get("escalate_after"),
            escalate_to=escalate_to,
            quiet_from=cleaned_data.get("quiet_from"),
            quiet_until=cleaned_data.get("quiet_until"),
            quiet_zone=cleaned_data.get("quiet_zone") or "",
            channel_clusters=[channel.cluster for channel in channels],
            escalation_clusters=[channel.cluster for channel in escalate_to],
            parent_cluster=None if parent_route is None else parent_route.cluster,
        )

    @override
    def save(self, commit: bool = True) -> Route:
        """Save the route, with the escalation time."""
        self.instance.escalate_after = self.cleaned_data.get("escalate_after")
        self.instance.name = self.cleaned_data["name"]
        route: Route = super().save(commit)
        return route
