"""Titles of networking config changes, as a person writes them: `Set agent connection count to 2`. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from fleet.protocol import durations
from fleet.protocol.networking.config import ConfigField, FieldKind, FieldValue

#: Changed fields that a title names with their values; of more, it names the fields.
_MAX_CLAUSES = 2
_WAIT_NAMES = ("tunnel_closing_wait_min", "tunnel_closing_wait_max")


def describe_changes(differences: Sequence[tuple[ConfigField, FieldValue, FieldValue]]) -> str:
    """Return what a change does, as a title. `differences`: field, value before and value after, at least one."""
    clauses = _join_waits(differences)
    if len(clauses) > _MAX_CLAUSES:
        labels = ", ".join(label_of(field) for field, _, _ in differences)
        return f"Change {len(differences)} networking fields: {labels}"
    first_clause, *later_clauses = clauses
    return " and ".join([first_clause, *(f"{clause[:1].lower()}{clause[1:]}" for clause in later_clauses)])


def label_of(field: ConfigField) -> str:
    """Return the name of a field as a person writes it: `agent connection count`."""
    return field.name.replace("_", " ").replace("ssh", "SSH")


def format_field_value(field: ConfigField, field_value: FieldValue) -> str:
    """Return a value as people read it; a value of 0 as what it means."""
    if isinstance(field_value, bool):
        return "on" if field_value else "off"
    if field_value in (0, ""):
        return field.zero_meaning or "empty"
    if field.kind is FieldKind.DURATION:
        return durations.format_readable(float(field_value))
    return str(field_value).replace("_", " ") if field.kind is FieldKind.CHOICE else str(field_value)


def _join_waits(differences: Sequence[tuple[ConfigField, FieldValue, FieldValue]]) -> list[str]:
    """Return a clause for each field; the two waits of tunnel closings are one range."""
    texts = {field.name: format_field_value(field, value) for field, _, value in differences}
    clauses = []
    for field, _, value in differences:
        if set(_WAIT_NAMES) <= texts.keys() and field.name in _WAIT_NAMES:
            if field.name == _WAIT_NAMES[0]:
                low, high = (texts[name] for name in _WAIT_NAMES)
                clauses.append(f"Set tunnel closing wait to {low} to {high}")
            continue
        clauses.append(_clause_of(field, value))
    return clauses


def _clause_of(field: ConfigField, value: FieldValue) -> str:
    if isinstance(value, bool):
        return f"Turn {'on' if value else 'off'} {label_of(field)}"
    if field.kind is FieldKind.TEXT:
        return f"Set {label_of(field)}" if value else f"Clear {label_of(field)}"
    text = format_field_value(field, value)
    if text in ("off", "never"):
        return f"Turn off {label_of(field)}"
    return f"Set {label_of(field)} to {text}"
