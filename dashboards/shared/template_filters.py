"""Filters of all templates."""

from __future__ import annotations

from django import template

from fleet.protocol.durations import format_readable

register = template.Library()


@register.filter
def duration(seconds: float | None) -> str:
    """Return seconds with units, to a tenth of a second: `10 min`, `1.5 s`; empty for None."""
    return "" if seconds is None else format_readable(round(seconds, 1))
