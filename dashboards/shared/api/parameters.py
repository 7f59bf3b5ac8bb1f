"""Schemas of the API. Unknown names in requests are errors: a typing mistake must not widen a request.

The string below a field of a schema is its description in the OpenAPI document.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import ninja
from pydantic import ConfigDict, ValidationInfo, model_validator


class Schema(ninja.Schema):
    """A document of the API, or a part of one."""

    model_config = ConfigDict(use_attribute_docstrings=True)


class RequestBody(Schema):
    """A request body, in which unknown fields are an error."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _check_names(cls, document: Any) -> Any:
        """Reject unknown fields with the valid ones, which pydantic's own error does not name."""
        if isinstance(document, dict):
            _require_known_names("field", document, cls)
        return document


class QueryParameters(Schema):
    """Query parameters of a list."""

    @model_validator(mode="before")
    @classmethod
    def _check_names(cls, parameters: Any, validation_info: ValidationInfo) -> Any:
        """Reject unknown parameters; ninja passes on only known ones."""
        request = (validation_info.context or {}).get("request")
        if request is not None:
            _require_known_names("parameter", request.GET, cls)
        return parameters


def _require_known_names(noun: str, names: Iterable[str], schema: type[Schema]) -> None:
    """Raise ValueError for names that are not fields of a schema. `noun`: what the names are names of."""
    unknown_names = sorted(set(names) - set(schema.model_fields))
    if unknown_names:
        unknown_names_text = ", ".join(repr(name[:50]) for name in unknown_names[:5])
        raise ValueError(f"unknown {noun} {unknown_names_text}; use {', '.join(schema.model_fields)}")
