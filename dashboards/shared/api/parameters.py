"""What callers of the API send. A name that nobody reads is refused: a typing mistake must not widen what is asked."""

from __future__ import annotations

from typing import Any

from ninja import Schema
from pydantic import ConfigDict, ValidationInfo, model_validator


class Body(Schema):
    """A document that is sent."""

    model_config = ConfigDict(extra="forbid")


class Parameters(Schema):
    """The parameters of a list, behind the question mark."""

    @model_validator(mode="before")
    @classmethod
    def _check_names(cls, parameters: Any, info: ValidationInfo) -> Any:
        """Refuse others; ninja itself passes on only those it knows."""
        request = (info.context or {}).get("request")
        unknown = sorted(set(request.GET) - set(cls.model_fields)) if request is not None else []
        if unknown:
            names = ", ".join(repr(name[:50]) for name in unknown[:5])
            raise ValueError(f"there is no parameter {names}; there are {', '.join(cls.model_fields)}")
        return parameters
