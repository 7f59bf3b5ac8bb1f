"""Filters and tags of all templates."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from django import template
from django.db import DatabaseError
from django.template.context import Context
from django.utils.html import escape, format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from dashboards.shared.pages import instance_path_of
from fleet import first_run
from fleet.protocol.durations import format_readable
from fleet.vocabulary import error_texts

register = template.Library()

#: Ages below it have tenths of a second.
_TENTHS_UNTIL = 9.95
#: Differences of clocks below it are those of the request.
_SAME_CLOCK_SECONDS = 0.01
#: Limits in seconds, each with the seconds and the name of the unit below it.
_AGE_UNITS = ((119.5, 1, "s"), (7170, 60, "min"), (169_200, 3600, "h"), (math.inf, 86_400, "d"))
_CODE_SPAN = re.compile(r"`([^`]+)`")
_SPACE_BEFORE_UNIT = re.compile(r"(?<=\d) (?=(?:%|(?:ms|s|min|h|d)\b))")
#: A time less than this in the future is a time of just now: the clocks of two processes differ.
_CLOCKS_DIFFER_MS = 2000


@register.filter
def duration(seconds: float | None) -> str:
    """Return seconds with units, to a tenth of a second: `10 min`, `1.5 s`; empty for None."""
    return "" if seconds is None else format_readable(round(seconds, 1))


@register.filter
def precise_duration(seconds: float | None) -> str:
    """Return seconds with units, below a minute to the millisecond: `85 ms`, `1.25 s`; empty for None."""
    return "" if seconds is None else format_readable(round(seconds, 3))


@register.filter
def clock_offset(seconds: float | None) -> str:
    """Return how far a clock is off: `85 ms ahead`, `3 s behind`, `agrees` below 10 ms; empty for None."""
    if seconds is None:
        return ""
    if abs(seconds) < _SAME_CLOCK_SECONDS:
        return "agrees"
    digits = 2 if abs(seconds) < 1 else 1
    return f"{format_readable(round(abs(seconds), digits))} {'ahead' if seconds > 0 else 'behind'}"


@register.filter
def age(age_ms: float | None) -> str:
    """Return milliseconds as `formatAge` of page.js does: `0.9 s`, `47 s`, `12 min`, `3 h`, `2 d`; empty for None."""
    if age_ms is None:
        return ""
    seconds = abs(age_ms) / 1000
    if seconds < _TENTHS_UNTIL:
        return f"{seconds:.1f} s"
    divisor, unit = next((divisor, unit) for limit, divisor, unit in _AGE_UNITS if seconds < limit)
    return f"{math.floor(seconds / divisor + 0.5)} {unit}"


@register.filter
def unbroken(text: str) -> str:
    """Return a text whose lines do not break between a number and its unit."""
    return _SPACE_BEFORE_UNIT.sub("\N{NO-BREAK SPACE}", text)


@register.filter
def code_spans(text: str) -> SafeString:
    """Return a sentence whose parts between backticks are code."""
    return mark_safe(_CODE_SPAN.sub(r"<code>\1</code>", escape(text)))  # noqa: S308 - the text is escaped


@register.filter
def time_ago(age_ms: float | None) -> str:
    """Return `3 min ago`, `now` or `in 5.0 s`, as page.js updates it; empty for None."""
    if age_ms is None:
        return ""
    if age_ms >= 0:
        return f"{age(age_ms)} ago"
    return "now" if age_ms > -_CLOCKS_DIFFER_MS else f"in {age(age_ms)}"


@register.filter
def time_before(age_ms: float | None) -> str:
    """Return a time relative to the moment of a past page: `3 min before`, `5.0 s after`; empty for None."""
    if age_ms is None:
        return ""
    return f"{age(age_ms)} {'before' if age_ms >= 0 else 'after'}"


@register.filter
def error_summary(text: str | None) -> str:
    """Return a text with a library's error text in it replaced by a few words; empty for None."""
    return error_texts.summarize_error(text or "")


@register.filter
def error_details(text: str | None) -> str:
    """Return the original text, capped, if `error_summary` shortens it; otherwise nothing."""
    return error_texts.error_details(text or "")


@register.simple_tag
def needs_administrator() -> bool:
    """Return whether there are no users; no if the database does not say."""
    try:
        return first_run.needs_administrator()
    except DatabaseError:
        return False


@register.simple_tag(takes_context=True)
def instance_link(context: Context, name: str, instance_id: str = "") -> str:
    """Return the name of an auth or proxy as a link to its page, at the moment of this page; empty without a name.

    Every page that names an instance uses it. Without an id the link has the name, and the page redirects.
    """
    path = instance_path_of(instance_id or name or "")
    if not path:
        return format_html("<bdi>{}</bdi>", name) if name else ""
    return format_html(
        '<a class="instance-name" href="{}{}{}"><bdi>{}</bdi></a>',
        context.get("url_prefix", ""),
        path,
        context.get("at_query", ""),
        name,
    )


@register.simple_tag(takes_context=True)
def link_names(context: Context, text: str, names: Iterable[str]) -> str:
    """Return a sentence in which every name of an auth or proxy is a link to its page."""
    longest_first = sorted({name for name in names if name}, key=len, reverse=True)
    if not text or not longest_first:
        return escape(text)
    pattern = re.compile(rf"(?<![\w./-])({'|'.join(map(re.escape, longest_first))})(?![\w/-])")
    parts = pattern.split(text)
    # With one group, a split returns what is between the names at even positions.
    return format_html_join(
        "", "{}", ((instance_link(context, part) if index % 2 else part,) for index, part in enumerate(parts))
    )
