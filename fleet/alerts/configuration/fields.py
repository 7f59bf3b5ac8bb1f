"""Fields of the YAML document: how each value is read, written and shown in a diff. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import date, time
from typing import Any

from typing_extensions import override

from fleet.protocol.durations import DurationError, format_exact, parse_readable

#: A reference to a secret: the variable that has its value.
_REFERENCE_PATTERN = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
#: Longest text in a message, characters.
_MAX_QUOTE_LENGTH = 60
_MAX_COUNT = 1_000_000_000


class FieldError(ValueError):
    """A value is not valid; the message says what is."""


@dataclass(frozen=True, slots=True)
class Secret:
    """A secret value, which no diff shows."""

    text: str

    @override
    def __repr__(self) -> str:
        """Return a text without the secret."""
        return "Secret(...)"


@dataclass(frozen=True, slots=True)
class SecretReference:
    """A secret that stands in a variable."""

    variable: str


@dataclass(frozen=True, slots=True)
class ChannelReference:
    """A channel of a route; `cluster` None: that of the route's cluster, or else of the whole installation."""

    name: str
    cluster: str | None = None


@dataclass(frozen=True, slots=True)
class FieldSpec:
    """One field of a section."""

    name: str
    #: Returns the value of what stands in the document. Raises FieldError.
    parse: Callable[[Any], Any]
    #: Returns what stands in the document for a value.
    format: Callable[[Any], Any]
    #: Value of a new object whose document lacks the field.
    default: Any = None
    is_required: bool = False

    def describe(self, value: Any) -> str:
        """Return a value for a diff."""
        if isinstance(value, Secret):
            return "stored"
        document_value = self.format(value)
        if isinstance(document_value, bool):
            return "yes" if document_value else "no"
        if isinstance(document_value, list):
            return ", ".join(map(_describe_entry, document_value)) or "none"
        return "none" if document_value in (None, "") else str(document_value)


def _describe_entry(entry: Any) -> str:
    if isinstance(entry, Mapping):
        return f"{entry['name']} (cluster {entry['cluster']})" if entry["cluster"] else str(entry["name"])
    return str(entry)


def quote(value: Any) -> str:
    """Return a value of a document for a message."""
    text = repr(value)
    return text if len(text) <= _MAX_QUOTE_LENGTH else f"{text[: _MAX_QUOTE_LENGTH - 1]}…"


def text_field(name: str, *, max_length: int, default: str = "", is_required: bool = False) -> FieldSpec:
    """Return a field with text."""

    def parse(value: Any) -> str:
        if not isinstance(value, str):
            raise FieldError(f"{quote(value)} is not text. Put it in quotes")
        text = value.strip()
        if len(text) > max_length:
            raise FieldError(f"the text has more than {max_length} characters")
        if not text.isprintable():
            raise FieldError("the text contains unprintable characters")
        if is_required and not text:
            raise FieldError("the text is empty")
        return text

    return FieldSpec(name, parse, str, default, is_required)


def choice_field(
    name: str, choices: Mapping[str, Any], *, default: Any = None, is_required: bool = False
) -> FieldSpec:
    """Return a field with one of some words. `choices`: values by word."""
    word_of_value = {value: term for term, value in choices.items()}

    def parse(value: Any) -> Any:
        if not isinstance(value, str) or value not in choices:
            raise FieldError(f"{quote(value)} is not one of {', '.join(choices)}")
        return choices[value]

    return FieldSpec(name, parse, lambda value: word_of_value[value], default, is_required)


def flag_field(name: str, *, default: bool) -> FieldSpec:
    """Return a field with true or false."""

    def parse(value: Any) -> bool:
        if not isinstance(value, bool):
            raise FieldError(f"{quote(value)} is not true or false")
        return value

    return FieldSpec(name, parse, bool, default)


def count_field(name: str, *, default: int, minimum: int = 0, maximum: int = _MAX_COUNT) -> FieldSpec:
    """Return a field with a whole number."""

    def parse(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise FieldError(f"{quote(value)} is not a whole number")
        if not minimum <= value <= maximum:
            raise FieldError(f"{value} is not between {minimum} and {maximum}")
        return value

    return FieldSpec(name, parse, int, default)


def duration_field(name: str, *, default: float | None) -> FieldSpec:
    """Return a field with a duration and its unit, in seconds; `default` None: the field may be null."""

    def parse(value: Any) -> float | None:
        if value is None and default is None:
            return None
        if isinstance(value, int | float) and not isinstance(value, bool) and value:
            raise FieldError(
                f"the unit is missing in {value}. Write a duration such as {value} s, 15 min or 4 h"
            )
        if not isinstance(value, str | int):
            raise FieldError(f"{quote(value)} is not a duration. Write one such as 30 s, 15 min or 4 h")
        try:
            seconds = parse_readable(str(value))
        except DurationError as error:
            raise FieldError(str(error)) from error
        if seconds < 0:
            raise FieldError("the duration is negative")
        return seconds

    return FieldSpec(name, parse, lambda seconds: None if seconds is None else format_exact(seconds), default)


def share_field(name: str, *, default: float) -> FieldSpec:
    """Return a field with a percentage, stored as a fraction."""

    def parse(value: Any) -> float:
        text = value.strip() if isinstance(value, str) else ""
        try:
            percent = float(text.removesuffix("%")) if text.endswith("%") else -1.0
        except ValueError:
            percent = -1.0
        if not 0 <= percent <= 100:
            raise FieldError(f"{quote(value)} is not a percentage from 0 % to 100 %. Write the unit: 0.5 %")
        return percent / 100

    return FieldSpec(name, parse, lambda share: f"{share * 100:.10g} %", default)


def time_field(name: str, *, is_required: bool = False) -> FieldSpec:
    """Return a field with a time of day; it may be null unless it is required."""

    def parse(value: Any) -> time | None:
        if value is None and not is_required:
            return None
        # YAML reads 22:00 without quotes as a number to the base of 60.
        if not isinstance(value, str):
            raise FieldError("write the time of day in quotes, such as '22:00'")
        try:
            parsed_time = time.fromisoformat(value)
        except ValueError as error:
            raise FieldError(f"{quote(value)} is not a time of day such as '22:00'") from error
        if parsed_time.tzinfo is not None:
            raise FieldError("the time of day is local: write it without a zone")
        return parsed_time.replace(microsecond=0)

    return FieldSpec(name, parse, _format_time, is_required=is_required)


def _format_time(value: time | None) -> str | None:
    return None if value is None else value.isoformat("auto" if value.second else "minutes")


def day_field(name: str) -> FieldSpec:
    """Return a field with a date. A new object without that field gets the date of today."""

    def parse(value: Any) -> date:
        if isinstance(value, str):
            try:
                return date.fromisoformat(value)
            except ValueError as error:
                raise FieldError(f"{quote(value)} is not a date such as 2026-11-22") from error
        if type(value) is not date:
            raise FieldError(f"{quote(value)} is not a date such as 2026-11-22")
        return value

    return FieldSpec(name, parse, lambda value: value)


def channels_field(name: str) -> FieldSpec:
    """Return a field with a list of channels by name."""

    def parse(value: Any) -> tuple[ChannelReference, ...]:
        if not isinstance(value, list):
            raise FieldError("write a list of names of channels, such as [ops, pager]")
        references = tuple(map(_parse_channel, value))
        if len(set(references)) != len(references):
            raise FieldError("a channel is in the list twice")
        return references

    def format_channels(references: Collection[ChannelReference]) -> list[Any]:
        return [
            reference.name
            if reference.cluster is None
            else {"name": reference.name, "cluster": reference.cluster}
            for reference in references
        ]

    return FieldSpec(name, parse, format_channels, ())


def _parse_channel(value: Any) -> ChannelReference:
    if isinstance(value, str):
        return ChannelReference(value)
    is_mapping = isinstance(value, dict) and set(value) == {"name", "cluster"}
    if is_mapping and all(isinstance(part, str) for part in value.values()):
        return ChannelReference(value["name"], value["cluster"])
    raise FieldError(f"{quote(value)} is not the name of a channel, nor a mapping with name and cluster")


def secret_field(name: str, *, max_length: int) -> FieldSpec:
    """Return a field with a secret, or a reference to one: `${NAME}`."""

    def parse(value: Any) -> Secret | SecretReference:
        if not isinstance(value, str) or not value.strip():
            raise FieldError("a secret is text, or ${NAME} for the variable that has it")
        if match := _REFERENCE_PATTERN.fullmatch(value.strip()):
            return SecretReference(match[1])
        if len(value) > max_length or not value.isprintable():
            raise FieldError(f"a secret has at most {max_length} printable characters")
        return Secret(value)

    def format_secret(value: Secret | SecretReference) -> str:
        return f"${{{value.variable}}}" if isinstance(value, SecretReference) else "stored"

    return FieldSpec(name, parse, format_secret)


def find_variables(text: str) -> set[str]:
    """Return the names of all variables that a document may refer to."""
    return set(_REFERENCE_PATTERN.findall(text))


def placeholder_of(cluster: str, channel: str, key: str) -> SecretReference:
    """Return the reference that an export has for a stored secret, and that keeps it: `${REFLOAT_CHANNEL_OPS_URL}`."""
    name_parts = re.sub(r"[^A-Za-z0-9]+", "_", f"{cluster} {channel} {key}".strip()).strip("_")
    return SecretReference(f"REFLOAT_CHANNEL_{name_parts.upper()}")
