"""Sentences for requests that do not match their schema. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

#: What a value must be, by pydantic's type of the error; `{...}` are fields of the error's context.
_RULES = {
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "datetime_from_date_parsing": "must be a date and time, such as 2026-08-01T12:00:00Z",
    "datetime_parsing": "must be a date and time, such as 2026-08-01T12:00:00Z",
    "datetime_type": "must be a date and time, such as 2026-08-01T12:00:00Z",
    "dict_type": "must be a JSON object",
    "enum": "must be {expected}",
    "extra_forbidden": "is unknown",
    "finite_number": "must be a finite number",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
    "greater_than": "must be greater than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "int_from_float": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_parsing_size": "is too large a number",
    "int_type": "must be a whole number",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "list_type": "must be a list",
    "literal_error": "must be {expected}",
    "missing": "is missing",
    "model_attributes_type": "must be a JSON object",
    "model_type": "must be a JSON object",
    "string_pattern_mismatch": "has a wrong form",
    "string_too_long": "must have at most {max_length} characters",
    "string_too_short": "must have at least {min_length} characters",
    "string_type": "must be a string",
    "string_unicode": "must be valid Unicode",
    "timezone_aware": "must have a time zone, such as Z or +02:00",
}


def describe_validation_errors(errors: Sequence[Mapping[str, Any]]) -> str:
    """Return one sentence about errors of pydantic, with the name of each parameter or field."""
    return f"Invalid request: {'; '.join(dict.fromkeys(map(_describe_error, errors)))}."


def _describe_error(error: Mapping[str, Any]) -> str:
    source, *path = error["loc"]
    if source == "body":
        path = path[1:]  # the name of the function's argument
    name = ".".join(str(part) for part in path) or ("the request body" if source == "body" else "")
    if error["type"] == "value_error":
        return str(error["msg"]).removeprefix(
            "Value error, "
        )  # raised by `parameters`: it names what is wrong
    rule = _RULES.get(error["type"])
    return f"{name} {rule.format_map(error.get('ctx', {}))}" if rule else f"{name}: {error['msg']}"
