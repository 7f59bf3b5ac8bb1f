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
from fleet.alerts.digest import Period
from fleet.alerts.matchers import EVERYTHING, MatchError, is_everything, parse
from fleet.alerts.rules import RuleKind
from fleet.alerts.silences import WindowError, zone_of
from fleet.alerts.store import window_of
from fleet.models.alerting import AgentLabel, AlertRule, Channel, MaintenanceWindow, Route, in_cluster
from fleet.models.sealed_secrets import SealError, seal, unseal
from fleet.vocabulary.incidents import Severity

_SEVERITIES = [(int(severity), severity.slug) for severity in sorted(Severity, reverse=True)]
_MATCHERS_HELP = (
    "cause=proxy-1 severity=critical, or agent=web-* label=lab; * stands for anything, != for all but."
)


def _matchers(text: str, *, of_routes: bool = False) -> str:
    try:
        parse(text, of_routes=of_routes)
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
        for name, value in self.initial.items():
            if isinstance(value, float) and value.is_integer():
                self.initial[name] = int(value)
        if self.instance.builtin or _overrides(self.instance):
            # What it is called and looks at is how it is found again.
            self.fields["name"].disabled = self.fields["kind"].disabled = True

    @override
    def save(self, commit: bool = True) -> AlertRule:
        """Keep it, the share as a fraction."""
        self.instance.min_share = (self.cleaned_data.get("share_percent") or 0) / 100
        saved: AlertRule = super().save(commit)
        return saved


def _overrides(rule: AlertRule) -> bool:
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
        label=f"Type “{EVERYTHING}” to silence everything",
        help_text="Only needed when nothing is left out.",
    )

    def clean_matchers(self) -> str:
        """Read them as they will be read."""
        return _matchers(str(self.cleaned_data["matchers"]))


class WindowForm(forms.ModelForm):  # type: ignore[type-arg] # as above
    """Quiet that recurs."""

    hours = forms.FloatField(min_value=0.05, max_value=36, initial=2, label="For hours")
    typed = forms.CharField(required=False, label=f"Type “{EVERYTHING}” if it matches everything")

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
        return _matchers(str(self.cleaned_data["matchers"]))

    @override
    def clean(self) -> dict[str, Any]:
        """Refuse a window that cannot be, and one of everything that is not meant."""
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        if self.errors:
            return cleaned
        if (
            is_everything(parse(cleaned["matchers"]))
            and cleaned.get("typed", "").strip().lower() != EVERYTHING
        ):
            raise ValidationError(
                f"This keeps everything quiet: type the word {EVERYTHING} if that is meant."
            )
        self.instance.length = timedelta(hours=cleaned["hours"])
        for name in ("name", "matchers", "rule", "first_day", "starts", "zone"):
            setattr(self.instance, name, cleaned[name])
        try:
            window_of(self.instance).check()
        except WindowError as error:
            raise ValidationError(f"{error}.".capitalize()) from error
        return cleaned


class ChannelForm(OwnedForm):
    """A channel. A secret that is left empty stays as it is."""

    kind = forms.ChoiceField(choices=[(slug, slug) for slug in KINDS])
    digest = forms.ChoiceField(
        choices=[("", "never"), *((period.value, period.value) for period in Period)],
        required=False,
        initial=Period.WEEKLY.value,
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
        self._opened = _unsealed(row.secrets)
        self.fields |= {entry.name: _input_field(entry) for entry in INPUTS}
        # Validating the form writes the new kind into the instance.
        self._kind_before, self._origin_before = row.kind, ""
        if row.kind in KINDS:
            self._origin_before = KINDS[row.kind].origin(row.config | self._opened)
            for field in KINDS[row.kind].fields:
                shown = self.fields[field.input.name]
                shown.initial = None if field.is_secret else row.config.get(field.key)
                whole = "" if field.input.is_hidden else "all of it "
                if field.is_secret and field.key in self._opened:
                    shown.widget.attrs["placeholder"] = f"kept; type {whole}to replace"
        self.fields["allow_private"].disabled = not may_allow_private
        names = (entry.name for entry in INPUTS)
        self.order_fields(["name", "cluster", "kind", *names, "enabled", "send_resolved", "digest"])

    @override
    def clean(self) -> dict[str, Any]:
        """Refuse values with which the kind cannot send, and drop what was given for another origin."""
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        kind = KINDS.get(cleaned.get("kind", ""))
        if kind is None:
            return cleaned
        typed = {field.key: cleaned.get(field.input.name, "") for field in kind.fields}
        is_same_kind = kind.slug == self._kind_before
        kept = self._opened if is_same_kind else {}
        self._values = {key: value or kept.get(key, "") for key, value in typed.items()}
        origin = kind.origin(self._values)
        if origin and not (is_same_kind and origin == self._origin_before):
            self._values = typed
            if self.fields["allow_private"].disabled:
                cleaned["allow_private"] = False
        for field in kind.fields:
            if field.is_required and not self._values[field.key]:
                self.add_error(field.input.name, f"A channel of kind {kind.slug} needs it.")
            try:
                if typed[field.key]:
                    field.check(typed[field.key])
            except SendError as error:
                self.add_error(field.input.name, f"{error}.".capitalize())
        if not kind.is_read:
            # Nobody reads there: it would be an alert that never ends.
            cleaned["digest"] = ""
        return cleaned

    @override
    def save(self, commit: bool = True) -> Channel:
        """Store the values, secret ones sealed."""
        self.instance.config, secrets = KINDS[self.cleaned_data["kind"]].stored(self._values)
        self.instance.secrets = seal(secrets) if secrets else ""
        saved: Channel = super().save(commit)
        return saved


def _input_field(entry: Input) -> forms.CharField:
    """Return an input whose help says what each kind takes there."""
    fields = [(kind.slug, field) for kind in KINDS.values() for field in kind.fields if field.input == entry]
    text = "; ".join(f"{slug}: {field.help}" for slug, field in fields)
    if not entry.is_hidden:
        return forms.CharField(required=False, label=entry.label, help_text=f"{text}.")
    text = f"{text}. A change of the address to another host or port removes the stored secret."
    widget = forms.PasswordInput(attrs={"autocomplete": "new-password"})
    return forms.CharField(required=False, label=entry.label, help_text=text, widget=widget)


def _unsealed(secrets: str) -> dict[str, str]:
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
            field.queryset = in_cluster(rows, self.reach)

    def clean_matchers(self) -> str:
        """Read them as they will be read."""
        return _matchers(str(self.cleaned_data["matchers"]), of_routes=True)

    @override
    def clean(self) -> dict[str, Any]:
        """Refuse half of quiet hours, zones that are none, a tree that bites its tail, and what others own."""
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        if (cleaned.get("quiet_from") is None) != (cleaned.get("quiet_until") is None):
            raise ValidationError("Quiet hours have a beginning and an end.")
        try:
            zone_of(cleaned.get("quiet_zone") or "UTC")
        except WindowError as error:
            self.add_error("quiet_zone", f"{error}.".capitalize())
        above = cleaned.get("parent")
        owners = {"", cleaned.get("cluster", "")}
        if above is not None and above.cluster not in owners:
            self.add_error("parent", "A route of the whole installation stands below none of a cluster.")
        for name in ("channels", "escalate_to"):
            if {row.cluster for row in cleaned.get(name, ())} - owners:
                self.add_error(
                    name, "A route of the whole installation leads to channels of the installation only."
                )
        while above is not None:
            if above.pk == self.instance.pk:
                raise ValidationError("A route cannot stand below itself.")
            above = above.parent
        return cleaned

    @override
    def save(self, commit: bool = True) -> Route:
        """Keep it, times in seconds."""
        minutes = self.cleaned_data.get("escalate_minutes")
        self.instance.escalate_after = None if minutes is None else minutes * 60
        saved: Route = super().save(commit)
        return saved
