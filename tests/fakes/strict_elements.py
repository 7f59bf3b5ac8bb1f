"""Elements of messages that a strict receiver checks: their type, and which keys they have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: Required and optional keys, by type of element.
ElementKeys = Mapping[str, tuple[set[str], set[str]]]


def find_element_problem(element: Any, kinds: set[str], keys: ElementKeys) -> str:
    """Return the rule that an element breaks; empty if it breaks none."""
    if not isinstance(element, dict) or element.get("type") not in kinds:
        return f"type is one of {sorted(kinds)}"
    required, optional = keys[element["type"]]
    if not required <= set(element):
        return f"{element['type']} has {sorted(required)}"
    unknown = set(element) - required - optional
    return f"{element['type']} has no {sorted(unknown)}" if unknown else ""
