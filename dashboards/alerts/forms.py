"""Forms of alert rules, agent sets, silences, maintenance windows, notification channels and routes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django import forms
from django.core.exceptions import NON_FIELD_ERRORS, ValidationError
from django.utils.html import format_html
from typing_extensions import override

from dashboards.shared.duration_fields import ReadableDurationField
from dashboards.shared.owners import OwnedForm
from dashboards.shared.pages import sentence_of
from fleet.alerts.channels import SendError
from fleet.alerts.channels.kind import ChannelInput
from fleet.alerts.channels.registry import CHANNEL_INPUTS, CHANNEL_KINDS
from fleet.alerts.digest import DigestPeriod
from fleet.alerts.matchers import CONFIRMATION_WORD, MatcherError, matches_everything, parse_matchers
from fleet.alerts.rules import RuleKind
from fleet.alerts.silences import MAX_WINDOW_LENGTH, WindowError, zone_of
from fleet.alerts.store import window_of
from fleet.models.alerting import (
    AgentSet,
    AlertRule,
    Channel,
    MaintenanceWindow,
    Route,
    filter_applicable_to,
)
from fleet.models.sealed_secrets import UnsealError, seal, unseal
from fleet.vocabulary.incidents import Severity

_SEVERITIES = [(int(severity), severity.slug) for severity in sorted(Severity, reverse=True)]
_MATCHERS_HELP_TEXT = format_html(
    "Example: <code>{}</code>, or <code>{}</code>. The character <code>*</code> matches any text; <code>!=</code> "
    "negates.",
    "cause=proxy-1 severity=critical",
    "agent=web-* agent_set=lab",
)
_CONFIRMATION_HELP_TEXT = "Required only if the matchers silence everything or almost everything."
_SHORTEST_SILENCE_SECONDS = 180.0


def _clean_matchers(text: str, *, is_for_route: bool = False) -> str:
    try:
        parse_matchers(text, is_for_route=is_for_route)
    except MatcherError as error:
        raise ValidationError(sentence_of(error)) from error
    return text.strip()


def _build_unique_name_messages(noun: str) -> dict[str, dict[str, str]]:
    return {NON_FIELD_ERRORS: {"unique_together": f"Another {noun} of this scope already has this name."}}


class RuleForm(OwnedForm):
    """Form of an alert rule; the share of agents is in percent."""

    severity = forms.TypedChoiceField(choices=_SEVERITIES, coerce=int)
    kind = forms.ChoiceField(choices=[(kind.value, kind.label) for kind in RuleKind], label="Condition")
    runbook = forms.URLField(required=False, assume_scheme="https")
    share_percent = forms.FloatField(
        min_value=0, max_value=100, required=False, initial=0, label="Minimum share of agents (%)",
        help_text="The rule matches when both the minimum number and the minimum share of agents are reached.",
    )  # fmt: skip

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
            "recover_seconds": "Resolve after", "group_wait": "Grouping wait",
            "group_interval": "Group interval", "repeat_seconds": "Repeat interval",
        }  # fmt: skip
        error_messages = _build_unique_name_messages("alert rule")

    field_order = ("name", "cluster", "kind", "severity", "enabled", "min_count", "share_percent")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["share_percent"].initial = round(self.instance.min_share * 100, 4)
        if self.instance.builtin or _is_override(self.instance):
            # Built-in rules and overrides are identified by name and kind.
            self.fields["name"].disabled = self.fields["kind"].disabled = True

    @override
    def save(self, commit: bool = True) -> AlertRule:
        """Save the rule, with the share converted from percent to a fraction."""
        self.instance.min_share = (self.cleaned_data.get("share_percent") or 0) / 100
        rule: AlertRule = super().save(commit)
        return rule


def _is_override(rule: AlertRule) -> bool:
    """Return whether a cluster's rule overrides a rule of the whole installation."""
    return bool(rule.pk and rule.cluster) and AlertRule.objects.filter(cluster="", name=rule.name).exists()


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


class SilenceForm(forms.Form):
    """Form of a new silence, with its duration and its start in UTC."""

    field_order = ("matchers", "reason", "duration", "starts", "confirmation")

    duration = ReadableDurationField(
        minimum=_SHORTEST_SILENCE_SECONDS,
        maximum=720 * 3600.0,
        initial=3600,
        help_text="Example: 1 h 30 min.",
    )
    starts = forms.DateTimeField(
        required=False,
        label="Start (UTC)",
        widget=forms.DateTimeInput(attrs={"type": "datetime-local"}, format="%Y-%m-%dT%H:%M"),
        help_text="Empty: the silence starts now.",
    )
    matchers = forms.CharField(
        required=False, max_length=500, label="Matchers", help_text=_MATCHERS_HELP_TEXT
    )
    reason = forms.CharField(max_length=500, help_text="Shown to everyone who opens a silenced incident.")
    confirmation = forms.CharField(
        required=False,
        label=f"Type “{CONFIRMATION_WORD}” to silence everything",
        help_text=_CONFIRMATION_HELP_TEXT,
    )

    def clean_matchers(self) -> str:
        """Return the matchers without surrounding blanks. Raises ValidationError if they are not valid."""
        return _clean_matchers(str(self.cleaned_data["matchers"]))


class WindowForm(forms.ModelForm):  # type: ignore[type-arg] # as above
    """Form of a recurring maintenance window, with its duration."""

    duration = ReadableDurationField(
        minimum=_SHORTEST_SILENCE_SECONDS,
        maximum=MAX_WINDOW_LENGTH.total_seconds(),
        initial=7200,
        help_text="Example: 1 h 30 min.",
    )
    confirmation = forms.CharField(
        required=False,
        label=f"Type “{CONFIRMATION_WORD}” to silence everything",
        help_text=_CONFIRMATION_HELP_TEXT,
    )

    class Meta:
        model = MaintenanceWindow
        fields = ("name", "matchers", "rule", "first_day", "start_time", "time_zone", "reason")
        labels = {
            "rule": "Recurrence rule",
            "start_time": "Start time",
            "time_zone": "Time zone",
            "matchers": "Matchers",
        }
        help_texts = {
            "rule": "RFC 5545 rule, for example FREQ=WEEKLY;BYDAY=SU or FREQ=DAILY.", "matchers": _MATCHERS_HELP_TEXT,
            "time_zone": "IANA name, for example Europe/Berlin. The window keeps its local start time "
            "when daylight saving time begins or ends.",
        }  # fmt: skip
        widgets = {
            "matchers": forms.TextInput,
            "start_time": forms.TimeInput(attrs={"type": "time"}),
            "first_day": forms.DateInput(attrs={"type": "date"}),
        }

    def clean_matchers(self) -> str:
        """Return the matchers without surrounding blanks. Raises ValidationError if they are not valid."""
        return _clean_matchers(str(self.cleaned_data["matchers"]))

    @override
    def clean(self) -> dict[str, Any]:
        """Validate the window, and require the typed confirmation if it silences everything."""
        cleaned_data: dict[str, Any] = super().clean() or self.cleaned_data
        if self.errors:
            return cleaned_data
        if (
            matches_everything(parse_matchers(cleaned_data["matchers"]))
            and cleaned_data.get("confirmation", "").strip().lower() != CONFIRMATION_WORD
        ):
            raise ValidationError(
                "These matchers silence everything or almost everything. "
                f"Type “{CONFIRMATION_WORD}” to confirm."
            )
        self.instance.length = timedelta(seconds=cleaned_data["duration"])
        for name in ("name", "matchers", "rule", "first_day", "start_time", "time_zone"):
            setattr(self.instance, name, cleaned_data[name])
        try:
            window_of(self.instance).check()
        except WindowError as error:
            raise ValidationError(sentence_of(error)) from error
        return cleaned_data


class ChannelForm(OwnedForm):
    """Form of a notification channel. A secret that is left empty keeps its stored value."""

    kind = forms.ChoiceField(choices=[(slug, slug) for slug in CHANNEL_KINDS])
    digest = forms.ChoiceField(
        choices=[("", "never"), *((period.value, period.value) for period in DigestPeriod)],
        required=False,
        initial=DigestPeriod.WEEKLY.value,
        label="Digest",
        help_text="Summary of incidents, including severity info. Sent at 08:00 UTC; weekly digests on Mondays.",
    )
    per_minute = forms.IntegerField(
        min_value=1, max_value=1000, initial=10, label="Rate limit (notifications per minute)"
    )

    class Meta:
        model = Channel
        fields = (
            "name", "cluster", "kind", "enabled", "send_resolved", "digest", "per_minute", "allow_private",
        )  # fmt: skip
        labels = {"allow_private": "Allow private addresses", "send_resolved": "Send resolved notifications"}
        error_messages = _build_unique_name_messages("channel")
        help_texts = {
            "allow_private": "Requires the permission to manage access: notifications could reach internal services. "
            "If a user without that permission changes the host or port, this setting is turned off."
        }

    def __init__(self, *args: Any, can_allow_private: bool, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        row = self.instance
        self._stored_secrets = _unseal_or_empty(row.secrets)
        self.fields |= {
            channel_input.name: _create_channel_field(channel_input) for channel_input in CHANNEL_INPUTS
        }
        # Validating the form writes the new kind into the instance.
        self._previous_kind, self._previous_origin = row.kind, ""
        if row.kind in CHANNEL_KINDS:
            self._previous_origin = CHANNEL_KINDS[row.kind].origin_of(row.config | self._stored_secrets)
            for field in CHANNEL_KINDS[row.kind].fields:
                form_field = self.fields[field.input.name]
                form_field.initial = None if field.is_secret else row.config.get(field.key)
                value_text = "" if field.input.is_hidden else "the full value "
                if field.is_secret and field.key in self._stored_secrets:
                    form_field.widget.attrs["placeholder"] = f"stored; type {value_text}to replace"
        self.fields["allow_private"].disabled = not can_allow_private
        names = (channel_input.name for channel_input in CHANNEL_INPUTS)
        self.order_fields(["name", "cluster", "kind", *names, "enabled", "send_resolved", "digest"])

    @override
    def clean(self) -> dict[str, Any]:
        """Validate the values of the kind, and drop stored secrets if the origin of the address changed."""
        cleaned_data: dict[str, Any] = super().clean() or self.cleaned_data
        kind = CHANNEL_KINDS.get(cleaned_data.get("kind", ""))
        if kind is None:
            return cleaned_data
        entered_values = {field.key: cleaned_data.get(field.input.name, "") for field in kind.fields}
        is_same_kind = kind.slug == self._previous_kind
        stored_secrets = self._stored_secrets if is_same_kind else {}
        self._field_values = {
            key: entered_text or stored_secrets.get(key, "") for key, entered_text in entered_values.items()
        }
        origin = kind.origin_of(self._field_values)
        if origin and not (is_same_kind and origin == self._previous_origin):
            self._field_values = entered_values
            if self.fields["allow_private"].disabled:
                cleaned_data["allow_private"] = False
        for field in kind.fields:
            if field.is_required and not self._field_values[field.key]:
                self.add_error(field.input.name, f"Required for channels of kind {kind.slug}.")
            try:
                if entered_values[field.key]:
                    field.check(entered_values[field.key])
            except SendError as error:
                self.add_error(field.input.name, sentence_of(error))
        if not kind.is_read_by_people:
            # Nobody reads notifications of this kind: a digest would be an alert that never resolves.
            cleaned_data["digest"] = ""
        return cleaned_data

    @override
    def save(self, commit: bool = True) -> Channel:
        """Save the channel, with its secrets sealed."""
        self.instance.config, secrets = CHANNEL_KINDS[self.cleaned_data["kind"]].split_secrets(
            self._field_values
        )
        self.instance.secrets = seal(secrets) if secrets else ""
        channel: Channel = super().save(commit)
        return channel


def _create_channel_field(channel_input: ChannelInput) -> forms.CharField:
    """Return an input whose help text lists what each kind of channel expects."""
    fields_by_kind = [
        (kind.slug, field)
        for kind in CHANNEL_KINDS.values()
        for field in kind.fields
        if field.input == channel_input
    ]
    text = " ".join(f"For {slug}: {field.help}." for slug, field in fields_by_kind)
    if not channel_input.is_hidden:
        return forms.CharField(required=False, label=channel_input.label, help_text=text)
    text = f"{text} Changing the host or port of the address deletes the stored secret."
    widget = forms.PasswordInput(attrs={"autocomplete": "new-password"})
    return forms.CharField(required=False, label=channel_input.label, help_text=text, widget=widget)


def _unseal_or_empty(secrets: str) -> dict[str, str]:
    try:
        return unseal(secrets)
    except UnsealError:
        return {}


class RouteForm(OwnedForm):
    """Form of a notification route, with its escalation time."""

    min_severity = forms.TypedChoiceField(
        choices=_SEVERITIES, coerce=int, initial=1, label="Minimum severity"
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
        return _clean_matchers(str(self.cleaned_data["matchers"]), is_for_route=True)

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
