"""The networking config as a form: every field of the spec, as a person writes it, checked at the field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django import forms
from django.forms import BoundField
from typing_extensions import override

from fleet.changes.networking.plan import SUPPORTED_FIELDS
from fleet.protocol import durations
from fleet.protocol.networking import config as rules
from fleet.protocol.networking.config import (
    FIELDS,
    ConfigField,
    FieldKind,
    NetworkingConfig,
    NetworkingConfigError,
    FieldValue,
)

#: How the fields stand together: heading, and what their names begin with.
SECTIONS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Tunnels", ("tunnel_strategy", "agent_connection_count")),
    (
        "Closing tunnels",
        (
            "graceful_tunnel_closing",
            "tunnel_closing_wait_min",
            "tunnel_closing_wait_max",
            "tunnel_disconnect_threshold",
        ),
    ),
    ("Noticing dead peers", ("keep_alive_interval", "keep_alive_count_max")),
    (
        "Sessions",
        ("client_idle_timeout", "idle_timeout_message", "web_idle_timeout", "session_control_timeout"),
    ),
    (
        "Proxies and routing",
        (
            "proxy_listener_mode",
            "proxy_ping_interval",
            "routing_strategy",
            "case_insensitive_routing",
            "ssh_dial_timeout",
            "assist_command_execution_workers",
        ),
    ),
)
_BY_NAME = {field.name: field for field in FIELDS}


@dataclass(frozen=True, slots=True)
class NetworkingFieldRow:
    """One field in the template."""

    bound: BoundField
    key: str
    #: Its range, and what 0 or nothing means.
    range: str
    #: What holds when it is left empty.
    empty_meaning: str
    #: What holds now.
    current_text: str
    #: Refloat's own nodes follow it.
    is_supported: bool


class NetworkingForm(forms.Form):
    """All fields; `config` after validation. `base` is the config it started from."""

    revision = forms.CharField(widget=forms.HiddenInput, max_length=128)

    def __init__(
        self, base: NetworkingConfig, *args: Any, is_closing_supported: bool | None = None, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self._base = base
        for field in FIELDS:
            form_field = _create_form_field(field, base)
            if field.name == "graceful_tunnel_closing" and is_closing_supported is False:
                form_field.disabled = True
                form_field.help_text += " This cluster does not know the field: the switch stays off."
            self.fields[field.name] = form_field

    @property
    def config(self) -> NetworkingConfig:
        """What was asked for, after validation."""
        return self._config

    @override
    def clean(self) -> dict[str, Any]:
        """Read every field as its kind, then look at ranges and contradictions."""
        data: dict[str, Any] = super().clean() or {}
        field_values: dict[str, FieldValue] = {}
        for field in FIELDS:
            if field.name in self.errors:
                continue
            try:
                field_values[field.name] = _parse_field(field, data.get(field.name, ""))
            except NetworkingConfigError as error:
                self.add_problems({problem.key: problem.sentence for problem in error.problems})
        # A field that could not be read stays as it was: the others are judged all the same.
        self._config = replace(self._base, **field_values)  # type: ignore[arg-type] # names and kinds of one table
        try:
            rules.check(rules.with_defaults(self._config), rules.with_defaults(self._base))
        except NetworkingConfigError as error:
            self.add_problems({problem.key: problem.sentence for problem in error.problems})
        return data

    def add_problems(self, problems: Mapping[str, str]) -> None:
        """Put sentences at their fields, by key; what is about none stands above the form."""
        for key, sentence in problems.items():
            field = next((config_field for config_field in FIELDS if config_field.key == key), None)
            self.add_error(field.name if field else None, f"{sentence[:1].upper()}{sentence[1:]}.")

    def sections(self) -> Sequence[tuple[str, list[NetworkingFieldRow]]]:
        """The fields as they stand together."""
        return [(heading, [self._field_row_of(_BY_NAME[name]) for name in names]) for heading, names in SECTIONS]

    def _field_row_of(self, field: ConfigField) -> NetworkingFieldRow:
        field_value = self._base.value_of(field)
        current_text = (
            ("on" if field_value else "off") if isinstance(field_value, bool) else str(rules.format_value(field, field_value))
        )
        return NetworkingFieldRow(
            self[field.name],
            field.key,
            _format_range(field.name),
            field.zero,
            field.zero if field_value == 0 and field.zero else current_text if field_value != "" else "empty",
            is_supported=field.name in SUPPORTED_FIELDS,
        )


def initial_values_of(config: NetworkingConfig, revision: str) -> dict[str, Any]:
    """What a form shows of a config."""
    return {"revision": revision, **{field.name: _initial_value_of(field, config.value_of(field)) for field in FIELDS}}


def _initial_value_of(field: ConfigField, field_value: FieldValue) -> FieldValue:
    if field.kind in {FieldKind.DURATION, FieldKind.INTEGER} and field_value == 0:
        return ""
    return rules.format_value(field, field_value)


def _parse_field(field: ConfigField, raw_value: Any) -> FieldValue:
    if field.kind is FieldKind.SWITCH:
        return bool(raw_value)
    if field.kind is FieldKind.TEXT:
        return str(raw_value).replace("\r\n", "\n")
    text = str(raw_value).strip()
    if not text and field.kind in {FieldKind.DURATION, FieldKind.INTEGER}:
        return 0
    return rules.parse_value(field, text)


def _create_form_field(field: ConfigField, base: NetworkingConfig) -> forms.Field:
    label = field.key.rpartition(".")[2] if field.key != "tunnel_strategy.type" else "tunnel_strategy"
    field_options: dict[str, Any] = {"label": label.replace("_", " "), "help_text": field.help, "required": False}
    if field.kind is FieldKind.SWITCH:
        return forms.BooleanField(**field_options)
    if field.kind is FieldKind.CHOICE:
        # One that is not known here is kept as the number it is.
        current_choice = str(base.value_of(field))
        choices = dict.fromkeys([*field.choices, *([current_choice] if current_choice else [])])
        return forms.ChoiceField(choices=[(choice, choice.replace("_", " ")) for choice in choices], **field_options)
    hint = {"placeholder": field.zero, "autocomplete": "off", "spellcheck": "false"}
    widget = forms.Textarea(attrs={"rows": 2}) if field.kind is FieldKind.TEXT else forms.TextInput(attrs=hint)
    return forms.CharField(widget=widget, strip=False, **field_options)


def _format_range(name: str) -> str:
    field = _BY_NAME[name]
    if field.kind is FieldKind.DURATION:
        return f"{durations.format_seconds(field.lowest)} to {durations.format_seconds(field.highest)}"
    if field.kind is FieldKind.INTEGER:
        return f"{field.lowest:.0f} to {field.highest:.0f}"
    return f"{field.highest:.0f} characters at most" if field.kind is FieldKind.TEXT else ""
