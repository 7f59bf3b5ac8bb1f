"""The forms of alerts: rules, labels, silences, windows, channels, routes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from typing_extensions import override

from dashboards.shared.owners import OwnedForm
from fleet.alerts.channels import SendError
from fleet.alerts.channels.kind import Input
from fleet.alerts.channels.registry import INPUTS, KINDS
from fleet.alerts.digest import DigestPeriod
from fleet.alerts.matchers import CONFIRMATION_WORD, MatchError, matches_everything, parse_matchers
from fleet.alerts.rules import RuleKind
from fleet.alerts.silences import WindowError, zone_of
from fleet.alerts.store import window_of
from fleet.models.alerting import AgentLabel, AlertRule, Channel, MaintenanceWindow, Route, filter_by_cluster
from fleet.models.sealed_secrets import SealError, seal, unseal
from fleet.vocabulary.incidents import Severity

_SEVERITIES = [(int(severity), severity.slug) for severity in sorted(Severity, reverse=True)]
_MATCHERS_HELP = (
    "cause=proxy-1 severity=critical, or agent=web-* label=lab; * stands for anything, != for all but."
)


def _clean_matchers(text: str, *, of_routes: bool = False) -> str:
    try:
        parse_matchers(text, of_routes=of_routes)
    except MatchError as error:
        raise ValidationError(f"{error}.".capitalize()) from error
    return text.strip()


class RuleForm(OwnedForm):
    """One rule."""

    severity = forms.TypedChoiceField(choices=_SEVERITIES, coerce=int)
    kind = forms.ChoiceField(choices=[(kind.value, kind.label) for kind in RuleKind], label="Looks at")
    runbook = forms.URLField(required=False, assume_scheme="https")
    share_percent = forms.FloatField(
        min_value=0, max_value=100, required=False, initial=0, label="Share of the cluster, %",
        help_text="It holds from this share or that number on, whichever is more agents.",
    )  # fmt: skip

    class Meta:
        model = AlertRule
        fields = (
            "name", "kind", "severity", "enabled", "min_count", "label", "cluster", "pending_rounds",
            "pending_seconds", "recover_seconds", "group_wait", "group_interval", "repeat_seconds", "runbook",
        )  # fmt: skip
        labels = {
            "min_count": "Agents, at least", "label": "Only agents with the label",
            "pending_rounds": "Rounds in a row", "pending_seconds": "And for seconds",
            "recover_seconds": "Over after quiet seconds", "group_wait": "First message after seconds",
            "group_interval": "Further ones after seconds", "repeat_seconds": "Said again after seconds",
        }  # fmt: skip

    field_order = ("name", "cluster", "kind", "severity", "enabled", "min_count", "share_percent")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["share_percent"].initial = round(self.instance.min_share * 100, 4)
        # 300 seconds, not 300.0.
        for name, initial_value in self.initial.items():
            if isinstance(initial_value, float) and initial_value.is_integer():
                self.initial[name] = int(initial_value)
        if self.instance.builtin or _is_override(self.instance):
            # What it is called and looks at is how it is found again.
            self.fields["name"].disabled = self.fields["kind"].disabled = True

    @override
    def save(self, commit: bool = True) -> AlertRule:
        """Keep it, the share as a fraction."""
        self.instance.min_share = (self.cleaned_data.get("share_percent") or 0) / 100
        rule: AlertRule = super().save(commit)
        return rule


def _is_override(rule: AlertRule) -> bool:
    """Whether a rule of a cluster takes the place of one of the installation."""
    return bool(rule.pk and rule.cluster) and AlertRule.objects.filter(cluster="", name=rule.name).exists()


class LabelForm(forms.ModelForm):  # type: ignore[type-arg] # django-stubs makes it generic, Django does not
    """Agents that have a label."""

    class Meta:
        model = AgentLabel
        fields = ("pattern", "label")
        labels = {"pattern": "Agents named"}
        help_texts = {"pattern": "A name, or a pattern: web-*", "label": "critical pages for a single agent"}


class SilenceForm(forms.Form):
    """A silence: of what, why, for how long."""

    field_order = ("matchers", "reason", "hours", "starts", "typed")

    hours = forms.FloatField(min_value=0.05, max_value=720, initial=1, label="For hours")
    starts = forms.DateTimeField(
        required=False,
        label="Begins, in UTC",
        widget=forms.DateTimeInput(attrs={"type": "datetime-local"}, format="%Y-%m-%dT%H:%M"),
        help_text="Empty: now.",
    )
    matchers = forms.CharField(required=False, max_length=500, label="What", help_text=_MATCHERS_HELP)
    reason = forms.CharField(max_length=500, help_text="Somebody will read it at three in the morning.")
    typed = forms.CharField(
        required=False,
        label=f"Type “{CONFIRMATION_WORD}” to silence everything",
        help_text="Only needed when nothing is left out.",
    )

    def clean_matchers(self) -> str:
        """Read them as they will be read."""
        return _clean_matchers(str(self.cleaned_data["matchers"]))


class WindowForm(forms.ModelForm):  # type: ignore[type-arg] # as above
    """Quiet that recurs."""

    hours = forms.FloatField(min_value=0.05, max_value=36, initial=2, label="For hours")
    typed = forms.CharField(required=False, label=f"Type “{CONFIRMATION_WORD}” if it matches everything")

    class Meta:
        model = MaintenanceWindow
        fields = ("name", "matchers", "rule", "first_day", "starts", "zone", "reason")
        labels = {"rule": "On which days", "starts": "At", "zone": "Time zone", "matchers": "What"}
        help_texts = {
            "rule": "RFC 5545: FREQ=WEEKLY;BYDAY=SU or FREQ=DAILY", "matchers": _MATCHERS_HELP,
            "zone": "IANA: Europe/Berlin. By the clock on the wall, also when clocks change.",
        }  # fmt: skip
        widgets = {
            "matchers": forms.TextInput,
            "starts": forms.TimeInput(attrs={"type": "time"}),
            "first_day": forms.DateInput(attrs={"type": "date"}),
        }

    def clean_matchers(self) -> str:
        """Read them as they will be read."""
        return _clean_matchers(str(self.cleaned_data["matchers"]))

    @override
    def clean(self) -> dict[str, Any]:
        """Refuse a window that cannot be, and one of everything that is not meant."""
        cleaned_data: dict[str, Any] = super().clean() or self.cleaned_data
        if self.errors:
            return cleaned_data
        if (
            matches_everything(parse_matchers(cleaned_data["matchers"]))
            and cleaned_data.get("typed", "").strip().lower() != CONFIRMATION_WORD
        ):
            raise ValidationError(
                f"This keeps everything quiet: type the word {CONFIRMATION_WORD} if that is meant."
            )
        self.instance.length = timedelta(hours=cleaned_data["hours"])
        for name in ("name", "matchers", "rule", "first_day", "starts", "zone"):
            setattr(self.instance, name, cleaned_data[name])
        try:
            window_of(self.instance).check()
        except WindowError as error:
            raise ValidationError(f"{error}.".capitalize()) from error
        return cleaned_data


class ChannelForm(OwnedForm):
    """A channel. A secret that is left empty stays as it is."""

    kind = forms.ChoiceField(choices=[(slug, slug) for slug in KINDS])
    digest = forms.ChoiceField(
        choices=[("", "never"), *((period.value, period.value) for period in DigestPeriod)],
        required=False,
        initial=DigestPeriod.WEEKLY.value,
        label="Digest",
        help_text="What happened, and what is not worth a message of its own; at 08:00 UTC, weekly on Mondays.",
    )
    per_minute = forms.IntegerField(min_value=1, max_value=1000, initial=10, label="Messages in a minute")

    class Meta:
        model = Channel
        fields = (
            "name", "cluster", "kind", "enabled", "send_resolved", "digest", "per_minute", "allow_private",
        )  # fmt: skip
        labels = {"allow_private": "May lie in a private network", "send_resolved": "Say when it is over"}
        help_texts = {
            "allow_private": "Needs the right to manage access: messages could reach services inside. "
            "Without that right, a change of host or port clears it."
        }

    def __init__(self, *args: Any, may_allow_private: bool, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        row = self.instance
        self._stored_secrets = _unseal_or_empty(row.secrets)
        self.fields |= {entry.name: _input_field(entry) for entry in INPUTS}
        # Validating the form writes the new kind into the instance.
        self._previous_kind, self._previous_origin = row.kind, ""
        if row.kind in KINDS:
            self._previous_origin = KINDS[row.kind].origin(row.config | self._stored_secrets)
            for field in KINDS[row.kind].fields:
                form_field = self.fields[field.input.name]
                form_field.initial = None if field.is_secret else row.config.get(field.key)
                extent_text = "" if field.input.is_hidden else "all of it "
                if field.is_secret and field.key in self._stored_secrets:
                    form_field.widget.attrs["placeholder"] = f"kept; type {extent_text}to replace"
        self.fields["allow_private"].disabled = not may_allow_private
        names = (entry.name for entry in INPUTS)
        self.order_fields(["name", "cluster", "kind", *names, "enabled", "send_resolved", "digest"])

    @override
    def clean(self) -> dict[str, Any]:
        """Refuse values with which the kind cannot send, and drop what was given for another origin."""
        cleaned_data: dict[str, Any] = super().clean() or self.cleaned_data
        kind = KINDS.get(cleaned_data.get("kind", ""))
        if kind is None:
            return cleaned_data
        entered_values = {field.key: cleaned_data.get(field.input.name, "") for field in kind.fields}
        is_same_kind = kind.slug == self._previous_kind
        stored_secrets = self._stored_secrets if is_same_kind else {}
        self._field_values = {key: field_value or stored_secrets.get(key, "") for key, field_value in entered_values.items()}
        origin = kind.origin(self._field_values)
        if origin and not (is_same_kind and origin == self._previous_origin):
            self._field_values = entered_values
            if self.fields["allow_private"].disabled:
                cleaned_data["allow_private"] = False
        for field in kind.fields:
            if field.is_required and not self._field_values[field.key]:
                self.add_error(field.input.name, f"A channel of kind {kind.slug} needs it.")
            try:
                if entered_values[field.key]:
                    field.check(entered_values[field.key])
            except SendError as error:
                self.add_error(field.input.name, f"{error}.".capitalize())
        if not kind.is_read:
            # Nobody reads there: it would be an alert that never ends.
            cleaned_data["digest"] = ""
        return cleaned_data

    @override
    def save(self, commit: bool = True) -> Channel:
        """Store the values, secret ones sealed."""
        self.instance.config, secrets = KINDS[self.cleaned_data["kind"]].split_secrets(self._field_values)
        self.instance.secrets = seal(secrets) if secrets else ""
        channel: Channel = super().save(commit)
        return channel


def _input_field(entry: Input) -> forms.CharField:
    """Return an input whose help says what each kind takes there."""
    fields = [(kind.slug, field) for kind in KINDS.values() for field in kind.fields if field.input == entry]
    text = "; ".join(f"{slug}: {field.help}" for slug, field in fields)
    if not entry.is_hidden:
        return forms.CharField(required=False, label=entry.label, help_text=f"{text}.")
    text = f"{text}. A change of the address to another host or port removes the stored secret."
    widget = forms.PasswordInput(attrs={"autocomplete": "new-password"})
    return forms.CharField(required=False, label=entry.label, help_text=text, widget=widget)


def _unseal_or_empty(secrets: str) -> dict[str, str]:
    try:
        return unseal(secrets)
    except SealError:
        return {}


class RouteForm(OwnedForm):
    """A node of the tree."""

    least = forms.TypedChoiceField(choices=_SEVERITIES, coerce=int, initial=1, label="From severity")
    escalate_minutes = forms.FloatField(
        required=False, min_value=1, label="Call in others after minutes without acknowledgement"
    )
    field_order = (
        "name", "cluster", "parent", "position", "matchers", "least", "channels", "goes_on",
        "escalate_minutes", "escalate_to",
    )  # fmt: skip

    class Meta:
        model = Route
        fields = (
            "name", "parent", "position", "cluster", "matchers", "least", "channels", "goes_on",
            "escalate_to", "quiet_from", "quiet_until", "quiet_zone",
        )  # fmt: skip
        labels = {
            "matchers": "Only incidents with",
            "goes_on": "Those after it hear, too",
            "escalate_to": "Whom it calls in then",
        }
        help_texts = {
            "matchers": "kind=proxy cause=proxy-1* label=critical; empty: all",
            "channels": "None: those of the parent.",
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
            self.fields["escalate_minutes"].initial = self.instance.escalate_after / 60
        for name, rows in (
            ("parent", Route.objects.all()),
            ("channels", Channel.objects.all()),
            ("escalate_to", Channel.objects.all()),
        ):
            field = self.fields[name]
            assert isinstance(field, forms.ModelChoiceField), "a foreign key, or many"
            field.queryset = filter_by_cluster(rows, self.reach)

    def clean_matchers(self) -> str:
        """Read them as they will be read."""
        return _clean_matchers(str(self.cleaned_data["matchers"]), of_routes=True)

    @override
    def clean(self) -> dict[str, Any]:
        """Refuse half of quiet hours, zones that are none, a tree that bites its tail, and what others own."""
        cleaned_data: dict[str, Any] = super().clean() or self.cleaned_data
        if (cleaned_data.get("quiet_from") is None) != (cleaned_data.get("quiet_until") is None):
            raise ValidationError("Quiet hours have a beginning and an end.")
        try:
            zone_of(cleaned_data.get("quiet_zone") or "UTC")
        except WindowError as error:
            self.add_error("quiet_zone", f"{error}.".capitalize())
        parent_route = cleaned_data.get("parent")
        owners = {"", cleaned_data.get("cluster", "")}
        if parent_route is not None and parent_route.cluster not in owners:
            self.add_error("parent", "A route of the whole installation stands below none of a cluster.")
        for name in ("channels", "escalate_to"):
            if {row.cluster for row in cleaned_data.get(name, ())} - owners:
                self.add_error(
                    name, "A route of the whole installation leads to channels of the installation only."
                )
        while parent_route is not None:
            if parent_route.pk == self.instance.pk:
                raise ValidationError("A route cannot stand below itself.")
            parent_route = parent_route.parent
        return cleaned_data

    @override
    def save(self, commit: bool = True) -> Route:
        """Keep it, times in seconds."""
        minutes = self.cleaned_data.get("escalate_minutes")
        self.instance.escalate_after = None if minutes is None else minutes * 60
        route: Route = super().save(commit)
        return route
