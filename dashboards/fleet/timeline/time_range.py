"""The time range of the History page: read from the URL, moved, and written back. Pure.

Times are seconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

from dashboards.shared.rewind import MomentError, format_at, parse_at
from fleet.protocol.durations import format_readable

#: Length of the ranges that end now, by their name in the URL: the first one is the default.
RANGES = {"24h": 86_400.0, "6h": 21_600.0, "7d": 604_800.0, "30d": 2_592_000.0, "90d": 7_776_000.0}
#: The same, the shortest first, with their names on the page.
RANGE_LABELS = (("6h", "6 h"), ("24h", "24 h"), ("7d", "7 days"), ("30d", "30 days"), ("90d", "90 days"))
_DEFAULT_RANGE = next(iter(RANGES))
#: Names of the parameters in URLs.
RANGE_PARAMETER, SINCE_PARAMETER, UNTIL_PARAMETER = "range", "since", "until"
#: Counts are recorded once a minute, and kept for years at most.
MIN_SECONDS, MAX_SECONDS = 300.0, 400 * 86_400.0


@dataclass(frozen=True, slots=True)
class TimeRange:
    """What the page shows."""

    since: float
    until: float
    #: Name in RANGES of a range that ends now; empty: the URL has start and end.
    name: str = ""

    @property
    def seconds(self) -> float:
        """Return its length."""
        return self.until - self.since

    def query(self) -> str:
        """Return the query string that shows the range as it is now."""
        return query_of(self.since, self.until)

    def earlier(self) -> TimeRange:
        """Return the range of the same length that ends where this range begins."""
        return TimeRange(max(self.since - self.seconds, 0.0), max(self.until - self.seconds, self.seconds))

    def later(self, now: float) -> TimeRange | None:
        """Return the range of the same length after this range, at most up to now; None: this range ends now."""
        # Less than that is no step, only time that passed since the page was loaded.
        if self.until > now - MIN_SECONDS / 5:
            return None
        until = min(self.until + self.seconds, now)
        return TimeRange(until - self.seconds, until)

    def wider(self, now: float) -> TimeRange | None:
        """Return a range three times as long around this range; None: it would be too long."""
        if self.seconds * 3 > MAX_SECONDS:
            return None
        until = min(self.until + self.seconds, now)
        return TimeRange(max(until - self.seconds * 3, 0.0), until)


def query_of(since: float, until: float) -> str:
    """Return the query string of a time range."""
    parameters = {SINCE_PARAMETER: format_at(since), UNTIL_PARAMETER: format_at(until)}
    return urlencode(parameters, safe=":")


def parse_range(parameters: Mapping[str, str], now: float) -> TimeRange:
    """Return the range of `?range=`, or of `?since=` and `?until=` (default: now). Raises MomentError."""
    name = parameters.get(RANGE_PARAMETER, "")
    since_text, until_text = (parameters.get(key, "") for key in (SINCE_PARAMETER, UNTIL_PARAMETER))
    if name and (since_text or until_text):
        raise MomentError("Too many parameters: use either range, or since and until.")
    if not since_text:
        if until_text:
            raise MomentError(
                "The start of the range is missing: add since, like since=2026-11-23T10:14:07Z."
            )
        if (name or _DEFAULT_RANGE) not in RANGES:
            raise MomentError(
                f"Unknown range {name[:40]!r}: use {', '.join(key for key, _ in RANGE_LABELS)}."
            )
        return TimeRange(now - RANGES[name or _DEFAULT_RANGE], now, name or _DEFAULT_RANGE)
    since = parse_at(since_text, now)
    until = parse_at(until_text, now)
    assert since is not None, "the text is not empty"
    until = now if until is None else until
    check_range(since, until)
    return TimeRange(since, until)


def check_range(since: float, until: float) -> None:
    """Raise MomentError for a range that is empty, reversed, too short or too long."""
    if until <= since:
        raise MomentError("The range ends before it starts: enter a since that is earlier than until.")
    if until - since < MIN_SECONDS:
        raise MomentError(
            f"The range is too short: counts are recorded once a minute. Enter at least {format_readable(MIN_SECONDS)}."
        )
    if until - since > MAX_SECONDS:
        raise MomentError(f"The range is too long: enter at most {MAX_SECONDS / 86_400:.0f} days.")
