"""One model for each type of response.

ninja creates a model for each operation and status, which are 1,583: the console took half of the time of its start for
them. There are 67 types.
"""

from __future__ import annotations

import functools
from typing import Any

from ninja import Schema
from ninja.operation import Operation


def share_response_models() -> None:
    """Let the operations that are registered from now on share the models of their responses."""
    create = Operation._create_response_model  # noqa: SLF001 - ninja has no public place for it
    if hasattr(create, "__wrapped__"):
        return
    # By identity, since a type with annotations may have no hash; the type is kept, so that its id stays its own.
    models: dict[int, tuple[Any, type[Schema] | None]] = {}

    @functools.wraps(create)
    def share(operation: Operation, response_type: Any) -> type[Schema] | None:
        if id(response_type) not in models:
            models[id(response_type)] = (response_type, create(operation, response_type))
        return models[id(response_type)][1]

    Operation._create_response_model = share  # type: ignore[assignment, method-assign] # noqa: SLF001 - as above
