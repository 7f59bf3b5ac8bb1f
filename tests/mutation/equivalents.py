"""Mutants that behave like the program, each with the reason; they count as killed."""

from __future__ import annotations

from collections.abc import Mapping

#: Reason by module, changed line before and after, without indentation.
EQUIVALENTS: Mapping[tuple[str, str, str], str] = {}
