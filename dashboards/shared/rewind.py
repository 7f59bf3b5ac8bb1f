"""`?at=`: pages and API show the fleet as it was at a past moment. docs/reference/history.md, "Rewind".

`?peak_of=` with the start of recorded counts leads a page to the moment of their peak.

Views read the fleet through a `Moment`: its reader is that of the record, or of the history, with the same methods.
"""

from __future__ import annotations

import functools
import math
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from threading import Lock
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponseBase, JsonResponse, QueryDict
from django.shortcuts import redirect, render

from dashboards.shared import record_reader
from dashboards.shared.permissions import P, View
from fleet.models.clusters import DEFAULT_CLUSTER
from fleet.models.moments import to_moment
from fleet.monitoring.classify import FleetFrame, prepare_frame
from fleet.monitoring.history.minutes import find_peak_time
from fleet.monitoring.history.past_table import NotRecordedError, read_first_moment, read_past_table
from fleet.monitoring.state.reader import Reader
from fleet.monitoring.state.tables import (
    agent_view_of,
    agent_views_of,
    explanation_of,
    sort_instances,
    summary_of,
)
from fleet.monitoring.views import AgentView, Explanation, FleetTable, InstanceView, Summary

#: Names of the parameters in URLs.
AT_PARAMETER, PEAK_PARAMETER = "at", "peak_of"
#: Past moments that a process keeps: the requests of one page, and the page before, read them once.
_MAX_KEPT_MOMENTS = 4
#: Seconds that a moment may be in the future, because the clock of a browser may be ahead.
_MAX_AHEAD = 5.0


class MomentError(ValueError):
    """`?at=` is no past moment that the history has; the message says why, in one or two sentences."""


class PastReader:
    """Read access to one past moment, with the methods of `fleet.monitoring.state.reader.Reader` that pages use.

    Their arguments `cluster` and `now` are those of the moment, and are ignored.
    """

    def __init__(self, table: FleetTable) -> None:
        self._table = table
        self._frame: FleetFrame = prepare_frame(table.fleet, table.as_of or 0.0)
        self._index_by_id: dict[str, int] = {}

    def table(self, cluster: str, now: float) -> FleetTable:
        """Return all columns."""
        return self._table

    def summary(self, cluster: str, now: float) -> Summary:
        """Return the number of agents by state."""
        return summary_of(self._table)

    def instances(self, cluster: str, now: float) -> tuple[InstanceView, ...]:
        """Return every instance that was known, auths first, by name."""
        return sort_instances(self._table.instances.values())

    def agent(self, table: FleetTable, index: int) -> AgentView:
        """Return an agent. Raises IndexError."""
        return agent_view_of(table, index, self._frame)

    def agents(self, table: FleetTable, indices: Iterable[int]) -> Iterator[AgentView]:
        """Yield agents. Raises IndexError."""
        return agent_views_of(table, indices, self._frame)

    def explain(self, cluster: str, agent_id: str, now: float) -> Explanation | None:
        """Return an agent; None if it was not known. The history keeps no evidence."""
        if not self._index_by_id:
            self._index_by_id = {id_: index for index, id_ in enumerate(self._table.ids)}
        index = self._index_by_id.get(agent_id)
        return None if index is None else explanation_of(self._table, index, self._frame)


@dataclass(frozen=True, slots=True)
class Moment:
    """The moment that a request shows."""

    reader: Reader | PastReader
    #: Current time, or the past moment, seconds since the epoch: ages are measured from here.
    now: float
    #: The past moment; None for the present.
    past_at: float | None


class _PastReaders:
    """The readers of the past moments that were requested last."""

    def __init__(self) -> None:
        #: By cluster, epoch of the present table, and moment: in another epoch, agents have other indices.
        self._readers = OrderedDict[tuple[str, str, float], PastReader]()
        self._lock = Lock()

    def get(self, cluster: str, at: float, now: float) -> PastReader:
        """Return the reader of a moment. Raises NotRecordedError and StateUnavailableError."""
        present = record_reader.reader().table(cluster, now)
        key = (cluster, present.epoch, at)
        with self._lock:
            reader = self._readers.get(key)
            if reader is not None:
                self._readers.move_to_end(key)
                return reader
        reader = PastReader(read_past_table(cluster, at, present))
        with self._lock:
            self._readers[key] = reader
            while len(self._readers) > _MAX_KEPT_MOMENTS:
                self._readers.popitem(last=False)
        return reader


_past_readers = _PastReaders()


def open_moment(at_text: str, cluster: str) -> Moment:
    """Return the moment of `?at=`, or the present if it is empty. Raises MomentError and StateUnavailableError."""
    now = record_reader.current_time()
    at = parse_at(at_text, now)
    if at is None:
        return Moment(record_reader.reader(), now, None)
    try:
        return Moment(_past_readers.get(cluster, at, now), at, at)
    except NotRecordedError as error:
        raise MomentError(_describe_gap(at, error.first_at)) from error


def parse_at(text: str, now: float) -> float | None:
    """Return `?at=` in seconds since the epoch; None when it is empty. Raises MomentError.

    ISO 8601, `2026-11-23T10:14:07Z`; without an offset, UTC.
    """
    if not text:
        return None
    try:
        # In a URL, a plus that was not escaped is a space.
        moment = datetime.fromisoformat(text.replace(" ", "+") if "T" in text else text)
        at = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        if at < 0:
            raise ValueError("before 1970")
    except (ValueError, OverflowError):
        raise MomentError(
            f"Invalid time {text[:40]!r}: write it like 2026-11-23T10:14:07Z (ISO 8601, UTC)."
        ) from None
    if at > now + _MAX_AHEAD:
        raise MomentError(f"{text} is in the future: enter a time in the past.")
    return min(at, now)


def format_at(at: float) -> str:
    """Return a moment as the value of `?at=`, to the millisecond.

    Rounded up, because the state at a moment is that of the last round up to it.
    """
    # A float of milliseconds is not exact: what is a millionth above one is not rounded up.
    milliseconds = math.ceil(round(at * 1000, 2))
    return to_moment(milliseconds / 1000).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def add_at(url: str, past_at: float | None) -> str:
    """Return a link that stays in the moment of a page; None: the present."""
    if past_at is None:
        return url
    return f"{url}{'&' if '?' in url else '?'}{urlencode({AT_PARAMETER: format_at(past_at)})}"


def peak_query_of(start: float) -> str:
    """Return the query string that leads a page to the peak of the counts that start then, seconds since the epoch.

    The peak is found when the link is used: an agent that recovers within seconds is no longer stranded at the end of
    its minute.
    """
    return f"{PEAK_PARAMETER}={format_at(start)}"


def find_peak(start_text: str, cluster: str, now: float) -> float | None:
    """Return the moment of `?peak_of=`, seconds since the epoch; None when it is empty. Raises MomentError."""
    start = parse_at(start_text, now)
    if start is None:
        return None
    peak_time = find_peak_time(cluster, start)
    return start if peak_time is None else min(peak_time, now)


def _query_at_peak(parameters: QueryDict, cluster: str) -> str:
    """Return the parameters of a page with `?at=` instead of `?peak_of=`. Raises MomentError."""
    if parameters.get(AT_PARAMETER):
        raise MomentError(f"Too many parameters: use either {AT_PARAMETER}, or {PEAK_PARAMETER}.")
    peak = find_peak(parameters.get(PEAK_PARAMETER, ""), cluster, record_reader.current_time())
    kept_parameters = parameters.copy()
    kept_parameters.pop(PEAK_PARAMETER)
    kept_parameters.pop(AT_PARAMETER, None)
    if peak is not None:
        kept_parameters[AT_PARAMETER] = format_at(peak)
    return kept_parameters.urlencode(safe=":")


def _describe_gap(at: float, first_at: float | None) -> str:
    if first_at is None:
        return "Refloat has not recorded the fleet yet: the first record is made within a minute after the first poll."
    return (
        f"Refloat has no record of {to_moment(at):%Y-%m-%d %H:%M:%S} UTC: "
        f"the history begins at {to_moment(first_at):%Y-%m-%d %H:%M:%S} UTC."
    )


def shows_moment(view: View[P]) -> View[P]:
    """Let a page show a past moment: 400 with a sentence if it is invalid or was not recorded.

    `?peak_of=` redirects to the moment of that peak.
    """

    @functools.wraps(view)
    def wrapper(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponseBase:
        cluster = str(kwargs.get("cluster", DEFAULT_CLUSTER))
        try:
            if PEAK_PARAMETER in request.GET:
                query = _query_at_peak(request.GET, cluster)
                return redirect(f"{request.path}?{query}" if query else request.path)
            return view(request, *args, **kwargs)
        except MomentError as error:
            first_at = read_first_moment(cluster)
            context = {
                "sentence": str(error),
                "first_at_text": "" if first_at is None else format_at(first_at),
            }
            return render(request, "400_moment.html", context, status=400)

    return wrapper


def answers_moment(view: View[P]) -> View[P]:
    """Let a view that sends data show a past moment: 400 with `detail` if it is invalid or was not recorded."""

    @functools.wraps(view)
    def wrapper(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponseBase:
        try:
            return view(request, *args, **kwargs)
        except MomentError as error:
            return JsonResponse({"detail": str(error)}, status=400)

    return wrapper


def moment_of(request: HttpRequest, cluster: str) -> Moment:
    """Return the moment that a request of a page shows. Raises MomentError and StateUnavailableError.

    `request.past_at` is the past moment, or None, for the frame of the page.
    """
    moment = open_moment(request.GET.get(AT_PARAMETER, ""), cluster)
    request.past_at = moment.past_at  # type: ignore[attr-defined]  # for dashboards.context
    return moment
