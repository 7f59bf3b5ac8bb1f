"""The form of the networking config: every field of the spec, with its validation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from django import forms
from django.forms import BoundField
from typing_extensions import override

from dashboards.shared.duration_fields import ReadableDurationField
from fleet.changes.networking.plan import SUPPORTED_FIELDS
from fleet.protocol import durations
from fleet.protocol.networking import config as rules
from fleet.protocol.networking.config import (
    FIELDS,
    ConfigField,
    FieldKind,
    FieldValue,
    NetworkingConfig,
    NetworkingConfigError,
)

#: Sections of the form, by slug, as on the page: names of its fields. Only Teleport's programs read those of the last.
SECTIONS: Mapping[str, tuple[str, ...]] = {
    "closing": (
        "graceful_tunnel_closing",
        "tunnel_closing_wait_min",
        "tunnel_closing_wait_max",
        "tunnel_disconnect_threshold",
    ),
    "tunnels": ("tunnel_strategy", "agent_connection_count"),
    "detection": ("keep_alive_interval", "keep_alive_count_max"),
    "teleport": (
        "client_idle_timeout",
        "idle_timeout_message",
        "web_idle_timeout",
        "session_control_timeout",
        "proxy_listener_mode",
        "proxy_ping_interval",
        "routing_strategy",
        "case_insensitive_routing",
        "ssh_dial_timeout",
        "assist_command_execution_workers",
    ),
}
_NO_FIXED_FIELDS: Mapping[str, str] = MappingProxyType({})
_FIELDS_BY_NAME = {field.name: field for field in FIELDS}


@dataclass(frozen=True, slots=True)
class NetworkingFieldRow:
    """One field of the form in the template."""

    bound_field: BoundField
    key: str
    #: The valid range, in words.
    range_text: str
    #: The value in effect when the field is empty.
    empty_meaning: str
    #: The present value.
    current_text: str
    #: Refloat's own agents and proxies use the field.
    is_supported: bool
    #: The value as the form shows it without edits.
    current_value: str
    #: The form has another value.
    is_changed: bool


@dataclass(frozen=True, slots=True)
class NetworkingFieldProblem:
    """An invalid value of the form."""

    #: Name of its inputs.
    name: str
    #: Ids of its first input and of its message.
    input_id: str
    error_id: str
    sentence: str


class NetworkingForm(forms.Form):
    """All fields of the spec; `config` after validation. `base`: the config that is edited."""

    revision = forms.CharField(widget=forms.HiddenInput, max_length=128)

    def __init__(
        self,
        base: NetworkingConfig,
        *args: Any,
        is_closing_supported: bool | None = None,
        fixed_fields: Mapping[str, str] = _NO_FIXED_FIELDS,
        **kwargs: Any,
    ) -> None:
        """`fixed_fields`: fields that keep their values, by name, each with the reason as a sentence."""
        super().__init__(*args, **kwargs)
        self._base = base
        for field in FIELDS:
            form_field = _create_form_field(field, base)
            if field.name == "graceful_tunnel_closing" and is_closing_supported is False:
                form_field.disabled = True
                form_field.help_text += (
                    " The auths of this cluster do not support this field, so it stays off."
                )
            if field.name in fixed_fields:
                form_field.disabled = True
                form_field.initial = _initial_value_of(field, base.value_of(field))
                form_field.help_text += f" {fixed_fields[field.name]}"
            self.fields[field.name] = form_field

    @property
    def config(self) -> NetworkingConfig:
        """The submitted config, after validation."""
        return self._config

    @override
    def clean(self) -> dict[str, Any]:
        """Parse every field, then check ranges and conflicts between fields."""
        data: dict[str, Any] = super().clean() or {}
        field_values: dict[str, FieldValue] = {}
        for field in FIELDS:
            if field.name in self.errors:
                continue
            try:
                field_values[field.name] = _parse_field_value(field, data.get(field.name, ""))
            except NetworkingConfigError as error:
                self.add_problems({problem.key: problem.sentence for problem in error.problems})
        # A field that cannot be parsed keeps its present value, so that the others are checked too.
        self._config = replace(self._base, **field_values)  # type: ignore[arg-type] # names and kinds of one table
        try:
            rules.check(rules.with_defaults(self._config), rules.with_defaults(self._base))
        except NetworkingConfigError as error:
            self.add_problems({problem.key: problem.sentence for problem in error.problems})
        return data

    def add_problems(self, problems: Mapping[str, str]) -> None:
        """Add errors to their fields, by key; errors without a field are shown above the form."""
        for key, sentence in problems.items():
            field = next((config_field for config_field in FIELDS if config_field.key == key), None)
            self.add_error(field.name if field else None, f"{sentence[:1].upper()}{sentence[1:]}.")

    def build_sections(self) -> dict[str, list[NetworkingFieldRow]]:
        """Return the fields of each section, by its slug."""
        return {
            slug: [self._field_row_of(_FIELDS_BY_NAME[name]) for name in names]
            for slug, names in SECTIONS.items()
        }

    def list_field_problems(self) -> list[NetworkingFieldProblem]:
        """Return the invalid values in the order of the page."""
        names = [name for section in SECTIONS.values() for name in section if name in self.errors]
        return [
            NetworkingFieldProblem(
                bound_field.html_name,
                f"{bound_field.auto_id}_0" if name == "tunnel_strategy" else bound_field.auto_id,
                f"{bound_field.auto_id}_error",
                " ".join(map(str, bound_field.errors)),
            )
            for name in names
            for bound_field in (self[name],)
        ]

    def focus_first_problem(self) -> None:
        """Give the focus to the first invalid field when the page opens; browsers scroll to it."""
        if problems := self.list_field_problems():
            self.fields[problems[0].name].widget.attrs["autofocus"] = True

    @property
    def opens_teleport_section(self) -> bool:
        """Whether a field that only Teleport's programs read has an error or another value."""
        return any(row.is_changed or row.bound_field.errors for row in self.build_sections()["teleport"])

    def _field_row_of(self, field: ConfigField) -> NetworkingFieldRow:
        field_value = self._base.value_of(field)
        current_value = _to_form_text(_initial_value_of(field, field_value))
        current_text = (
            ("on" if field_value else "off")
            if isinstance(field_value, bool)
            else durations.format_exact(float(field_value))
            if field.kind is FieldKind.DURATION
            else str(field_value)
        )
        return NetworkingFieldRow(
            self[field.name],
            field.key,
            _format_field_range(field.name),
            field.zero_meaning,
            field.zero_meaning
            if field_value == 0 and field.zero_meaning
            else current_text
            if field_value != ""
            else "empty",
            is_supported=field.name in SUPPORTED_FIELDS,
            current_value=current_value,
            is_changed=_to_form_text(self[field.name].value()) != current_value,
        )


def initial_values_of(config: NetworkingConfig, revision: str) -> dict[str, Any]:
    """Return the initial values of the form for a config."""
    return {
        "revision": revision,
        **{field.name: _initial_value_of(field, config.value_of(field)) for field in FIELDS},
    }


def _to_form_text(raw_value: Any) -> str:
    """Return a value as a form sends it: a switch that is off as nothing."""
    if raw_value is True:
        return "on"
    return "" if raw_value in (None, False) else str(raw_value)


def _initial_value_of(field: ConfigField, field_value: FieldValue) -> FieldValue:
    if field.kind in {FieldKind.DURATION, FieldKind.INTEGER} and field_value == 0:
        return ""
    return durations.format_exact(float(field_value)) if field.kind is FieldKind.DURATION else field_value


def _parse_field_value(field: ConfigField, raw_value: Any) -> FieldValue:
    if field.kind is FieldKind.SWITCH:
        return bool(raw_value)
    if field.kind is FieldKind.TEXT:
        return str(raw_value).replace("\r\n", "\n")
    if field.kind is FieldKind.DURATION:
        return float(raw_value or 0)
    text = str(raw_value).strip()
    if not text and field.kind is FieldKind.INTEGER:
        return 0
    return rules.parse_value(field, text)


def _create_form_field(field: ConfigField, base: NetworkingConfig) -> forms.Field:
    label = field.key.rpartition(".")[2] if field.key != "tunnel_strategy.type" else "tunnel_strategy"
    label_text = label.replace("_", " ").capitalize().replace("Ssh", "SSH")
    field_options: dict[str, Any] = {"label": label_text, "help_text": field.help, "required": False}
    if field.kind is FieldKind.SWITCH:
        return forms.BooleanField(**field_options)
    if field.kind is FieldKind.CHOICE:
        # A value that this version does not know keeps its number.
        current_choice = str(base.value_of(field))
        choices = dict.fromkeys([*field.choices, *([current_choice] if current_choice else [])])
        return forms.ChoiceField(
            choices=[(choice, choice.replace("_", " ")) for choice in choices], **field_options
        )
    hint = {"placeholder": field.zero_meaning, "autocomplete": "off", "spellcheck": "false"}
    if field.kind is FieldKind.DURATION:
        return ReadableDurationField(
            minimum=None,
            maximum=None,
            widget=forms.TextInput(attrs={"placeholder": field.zero_meaning}),
            **field_options,
        )
    widget = (
        forms.Textarea(attrs={"rows": 2}) if field.kind is FieldKind.TEXT else forms.TextInput(attrs=hint)
    )
    return forms.CharField(widget=widget, strip=False, **field_options)


def _format_field_range(field_name: str) -> str:
    field = _FIELDS_BY_NAME[field_name]
    if field.kind is FieldKind.DURATION:
        return f"{durations.format_readable(field.lowest)} to {durations.format_readable(field.highest)}"
    if field.kind is FieldKind.INTEGER:
        return f"{field.lowest:.0f} to {field.highest:.0f}"
    return f"At most {field.highest:.0f} characters" if field.kind is FieldKind.TEXT else ""
