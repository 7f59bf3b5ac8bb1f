"""The networking config as a form: every field of the spec, as a person writes it, checked at the field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django import forms
from django.forms import BoundField
from typing_extensions import override

from fleet.changes.networking.plan import FOLLOWED
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
class Row:
    """One field in the template."""

    bound: BoundField
    key: str
    #: Its range, and what 0 or nothing means.
    range: str
    #: What holds when it is left empty.
    default: str
    #: What holds now.
    effective: str
    #: Refloat's own nodes follow it.
    followed: bool


class NetworkingForm(forms.Form):
    """All fields; `config` after validation. `base` is the config it started from."""

    revision = forms.CharField(widget=forms.HiddenInput, max_length=128)

    def __init__(
        self, base: NetworkingConfig, *args: Any, closing_known: bool | None = None, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self._base = base
        for field in FIELDS:
            made = _field(field, base)
            if field.name == "graceful_tunnel_closing" and closing_known is False:
                made.disabled = True
                made.help_text += " This cluster does not know the field: the switch stays off."
            self.fields[field.name] = made

    @property
    def config(self) -> NetworkingConfig:
        """What was asked for, after validation."""
        return self._config

    @override
    def clean(self) -> dict[str, Any]:
        """Read every field as its kind, then look at ranges and contradictions."""
        data: dict[str, Any] = super().clean() or {}
        wanted: dict[str, FieldValue] = {}
        for field in FIELDS:
            if field.name in self.errors:
                continue
            try:
                wanted[field.name] = _parsed(field, data.get(field.name, ""))
            except NetworkingConfigError as error:
                self.say({one.key: one.sentence for one in error.problems})
        # A field that could not be read stays as it was: the others are judged all the same.
        self._config = replace(self._base, **wanted)  # type: ignore[arg-type] # names and kinds of one table
        try:
            rules.check(rules.with_defaults(self._config), rules.with_defaults(self._base))
        except NetworkingConfigError as error:
            self.say({one.key: one.sentence for one in error.problems})
        return data

    def say(self, problems: Mapping[str, str]) -> None:
        """Put sentences at their fields, by key; what is about none stands above the form."""
        for key, sentence in problems.items():
            field = next((one for one in FIELDS if one.key == key), None)
            self.add_error(field.name if field else None, f"{sentence[:1].upper()}{sentence[1:]}.")

    def sections(self) -> Sequence[tuple[str, list[Row]]]:
        """The fields as they stand together."""
        return [(heading, [self._row(_BY_NAME[name]) for name in names]) for heading, names in SECTIONS]

    def _row(self, field: ConfigField) -> Row:
        held = self._base.value_of(field)
        effective = (
            ("on" if held else "off") if isinstance(held, bool) else str(rules.format_value(field, held))
        )
        return Row(
            self[field.name],
            field.key,
            _range(field.name),
            field.zero,
            field.zero if held == 0 and field.zero else effective if held != "" else "empty",
            followed=field.name in FOLLOWED,
        )


def initial_of(config: NetworkingConfig, revision: str) -> dict[str, Any]:
    """What a form shows of a config."""
    return {"revision": revision, **{field.name: _shown(field, config.value_of(field)) for field in FIELDS}}


def _shown(field: ConfigField, value: FieldValue) -> FieldValue:
    if field.kind in {FieldKind.DURATION, FieldKind.INTEGER} and value == 0:
        return ""
    return rules.format_value(field, value)


def _parsed(field: ConfigField, said: Any) -> FieldValue:
    if field.kind is FieldKind.SWITCH:
        return bool(said)
    if field.kind is FieldKind.TEXT:
        return str(said).replace("\r\n", "\n")
    text = str(said).strip()
    if not text and field.kind in {FieldKind.DURATION, FieldKind.INTEGER}:
        return 0
    return rules.parse_value(field, text)


def _field(field: ConfigField, base: NetworkingConfig) -> forms.Field:
    label = field.key.rpartition(".")[2] if field.key != "tunnel_strategy.type" else "tunnel_strategy"
    common: dict[str, Any] = {"label": label.replace("_", " "), "help_text": field.help, "required": False}
    if field.kind is FieldKind.SWITCH:
        return forms.BooleanField(**common)
    if field.kind is FieldKind.CHOICE:
        # One that is not known here is kept as the number it is.
        held = str(base.value_of(field))
        choices = dict.fromkeys([*field.choices, *([held] if held else [])])
        return forms.ChoiceField(choices=[(word, word.replace("_", " ")) for word in choices], **common)
    hint = {"placeholder": field.zero, "autocomplete": "off", "spellcheck": "false"}
    widget = forms.Textarea(attrs={"rows": 2}) if field.kind is FieldKind.TEXT else forms.TextInput(attrs=hint)
    return forms.CharField(widget=widget, strip=False, **common)


def _range(name: str) -> str:
    field = _BY_NAME[name]
    if field.kind is FieldKind.DURATION:
        return f"{durations.format_seconds(field.lowest)} to {durations.format_seconds(field.highest)}"
    if field.kind is FieldKind.INTEGER:
        return f"{field.lowest:.0f} to {field.highest:.0f}"
    return f"{field.highest:.0f} characters at most" if field.kind is FieldKind.TEXT else ""
