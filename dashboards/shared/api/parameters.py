"""Schemas of the API. Unknown names in requests are errors: a typing mistake must not widen a request.

The string below a field of a schema is its description in the OpenAPI document.
"""

from __future__ import annotations

from typing import Any

import ninja
from pydantic import ConfigDict, ValidationInfo, model_validator


class Schema(ninja.Schema):
    """A document of the API, or a part of one."""

    model_config = ConfigDict(use_attribute_docstrings=True)


class RequestBody(Schema):
    """A request body, in which unknown fields are an error."""

    model_config = ConfigDict(extra="forbid")


class QueryParameters(Schema):
    """Query parameters of a list."""

    @model_validator(mode="before")
    @classmethod
    def _check_names(cls, parameters: Any, validation_info: ValidationInfo) -> Any:
        """Reject unknown parameters; ninja passes on only known ones."""
        request = (validation_info.context or {}).get("request")
        unknown_names = sorted(set(request.GET) - set(cls.model_fields)) if request is not None else []
        if unknown_names:
            unknown_names_text = ", ".join(repr(name[:50]) for name in unknown_names[:5])
            raise ValueError(f"unknown parameter {unknown_names_text}; use {', '.join(cls.model_fields)}")
        return parameters
