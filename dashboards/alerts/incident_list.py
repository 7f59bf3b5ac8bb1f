"""The list of incidents: its tabs, the order of their rows and their pages. Pure.

docs/reference/alerts.md, "Incidents page".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar
from urllib.parse import urlencode

from fleet.vocabulary.incidents import Incident, IncidentState
from fleet.vocabulary.natural_order import natural_sort_key

#: Incidents on one page.
PAGE_SIZE = 50

EntryT = TypeVar("EntryT")


class IncidentTab(StrEnum):
    """A tab of the page. Values are the parameter `tab`."""

    OPEN = "open"
    #: Incidents that send no notifications, because they are silenced or inhibited.
    SUPPRESSED = "suppressed"
    RESOLVED = "resolved"

    @property
    def label(self) -> str:
        """Return the name on the page."""
        return self.value.capitalize()


@dataclass(frozen=True, slots=True)
class TabLink:
    """One tab of the page."""

    tab: IncidentTab
    count: int
    query: str
    is_current: bool


def _sort_key_of_cause(incident: Incident) -> Any:
    return natural_sort_key(incident.cause.name)


#: Sort keys by name of the parameter `sort`; a minus before the name reverses the order.
_SORT_KEYS: Mapping[str, Callable[[Incident], Any]] = {
    "severity": lambda incident: incident.severity,
    "incident": _sort_key_of_cause,
    "affected": lambda incident: (incident.affected_count, incident.peak_count),
    "since": lambda incident: incident.opened_at,
    "state": lambda incident: incident.state.value,
}
SORT_NAMES = tuple(_SORT_KEYS)
#: Column of a resolved incident by name of the parameter `sort`.
RESOLVED_COLUMNS: Mapping[str, str] = {
    "severity": "severity",
    "incident": "cause_name",
    "affected": "peak_count",
    "since": "opened_at",
    "state": "resolved_at",
}


def read_tab(text: str) -> IncidentTab:
    """Return the tab of the parameter `tab`; the tab of open incidents for any other text."""
    return IncidentTab(text) if text in [tab.value for tab in IncidentTab] else IncidentTab.OPEN


def read_sort(text: str) -> tuple[str, bool]:
    """Return the name of the parameter `sort` and whether its order is reversed; an empty name for any other text."""
    name = text.removeprefix("-")
    return (name, text.startswith("-")) if name in _SORT_KEYS else ("", False)


def tab_of(incident: Incident) -> IncidentTab:
    """Return the tab of an incident."""
    if incident.state is IncidentState.RESOLVED:
        return IncidentTab.RESOLVED
    return IncidentTab.SUPPRESSED if incident.silenced_by or incident.inhibited_by else IncidentTab.OPEN


def sort_incidents(
    entries: Sequence[EntryT], incident_of: Callable[[EntryT], Incident], sort_text: str
) -> list[EntryT]:
    """Return unresolved incidents in the order of the parameter `sort`; without it the worst first, pending last."""
    name, is_reversed = read_sort(sort_text)
    # First the default order, which the next sort keeps among equals.
    sorted_entries = sorted(entries, key=lambda entry: _default_key_of(incident_of(entry)))
    if name:
        sorted_entries.sort(key=lambda entry: _SORT_KEYS[name](incident_of(entry)), reverse=is_reversed)
    return sorted_entries


def _default_key_of(incident: Incident) -> tuple[bool, int, int, float]:
    return (
        incident.state is IncidentState.PENDING,
        -incident.severity,
        -incident.affected_count,
        -incident.opened_at,
    )


def resolved_order_of(sort_text: str) -> tuple[str, ...]:
    """Return the database order of resolved incidents: without a valid parameter `sort` the newest first."""
    name, is_reversed = read_sort(sort_text)
    newest_first = ("-resolved_at", "-pk")
    return (f"{'-' if is_reversed else ''}{RESOLVED_COLUMNS[name]}", *newest_first) if name else newest_first


def locate_page(page_text: str, total_count: int) -> tuple[int, int]:
    """Return the number of the requested page, or of the nearest one that exists, and the number of pages."""
    page_count = max(1, -(-total_count // PAGE_SIZE))
    is_number = page_text.isascii() and page_text.isdigit() and len(page_text) < 10
    return (min(max(int(page_text), 1), page_count) if is_number else 1), page_count


def tab_links_of(counts: Mapping[IncidentTab, int], current: IncidentTab) -> list[TabLink]:
    """Return the tabs of the page."""
    return [TabLink(tab, counts[tab], urlencode({"tab": tab.value}), tab is current) for tab in IncidentTab]


def sort_heads_of(tab: IncidentTab, sort_text: str) -> dict[str, dict[str, str]]:
    """Return the column headers by name: `query` of its link (first page, sorted; reversed if sorted) and `aria`."""
    current_name, is_reversed = read_sort(sort_text)
    heads = {}
    for name in _SORT_KEYS:
        is_current = name == current_name
        next_sort = f"-{name}" if is_current and not is_reversed else name
        aria = ("descending" if is_reversed else "ascending") if is_current else ""
        heads[name] = {"query": urlencode({"tab": tab.value, "sort": next_sort}), "aria": aria}
    return heads


def page_query_of(tab: IncidentTab, sort_text: str, page: int) -> str:
    """Return the query of another page of the same tab in the same order."""
    pairs = [
        ("tab", tab.value),
        *([("sort", sort_text)] if read_sort(sort_text)[0] else []),
        ("page", str(page)),
    ]
    return urlencode(pairs)
