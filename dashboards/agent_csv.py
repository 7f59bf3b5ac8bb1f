"""A list of agents as CSV (RFC 4180), for spreadsheets and scripts: one line per agent, times in ISO 8601."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Sequence

from dashboards.presenters import moment
from fleet.domain.views import AgentView, InstanceView

COLUMNS = (
    "id", "name", "state", "reason", "sentence", "cause", "since", "recovery", "recovers_at",
    "auth", "proxies", "home", "heartbeat_at", "expires_at",
)  # fmt: skip
#: What a spreadsheet takes for the beginning of a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def cell(text: str) -> str:
    """Keep a spreadsheet from running what an agent calls itself: an apostrophe says that it is text."""
    return f"'{text}" if text.startswith(_FORMULA) else text


def row(view: AgentView, name: Callable[[str | None], str]) -> list[str]:
    """One agent's cells, in the order of COLUMNS; `name` gives the name of an instance by its id."""
    verdict = view.verdict
    return [
        cell(text)
        for text in (
            view.id,
            view.name,
            view.state.slug,
            verdict.reason.slug,
            verdict.sentence,
            name(verdict.cause),
            _iso(view.since),
            verdict.recovery.name.lower().replace("_", "-"),
            _iso(verdict.recovers_at),
            name(view.auth),
            " ".join(name(proxy) for proxy in view.proxies),
            name(view.home),
            _iso(view.heartbeat_at),
            _iso(view.expires_at),
        )
    ]


def lines(
    views: Iterable[AgentView], instances: Iterable[InstanceView], *, at_once: int = 500
) -> Iterator[str]:
    """The head and then all agents, as pieces of `at_once` lines."""
    names = {known.facts.id: known.facts.name for known in instances}

    def name(instance: str | None) -> str:
        return names.get(instance or "", instance or "")

    rows: list[Sequence[str]] = [COLUMNS]
    for view in views:
        rows.append(row(view, name))
        if len(rows) >= at_once:
            yield _written(rows)
            rows = []
    if rows:
        yield _written(rows)


def _written(rows: Iterable[Sequence[str]]) -> str:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue()


def _iso(at: float | None) -> str:
    when = moment(at)
    return "" if when is None else when.isoformat(timespec="milliseconds").replace("+00:00", "Z")
