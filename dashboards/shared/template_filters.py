"""Filters of all templates."""

from __future__ import annotations

from django import template

from fleet.protocol.durations import format_readable
from fleet.vocabulary import error_texts

register = template.Library()


@register.filter
def duration(seconds: float | None) -> str:
    """Return seconds with units, to a tenth of a second: `10 min`, `1.5 s`; empty for None."""
    return "" if seconds is None else format_readable(round(seconds, 1))


@register.filter
def error_summary(text: str | None) -> str:
    """Return a text with a library's error text in it replaced by a few words; empty for None."""
    return error_texts.summarize_error(text or "")


@register.filter
def error_details(text: str | None) -> str:
    """Return the original text, capped, if `error_summary` shortens it; otherwise nothing."""
    return error_texts.error_details(text or "")
