"""What the palette lists: entries in groups, each group of one kind."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from dashboards.palette.ranking import normalize, rank_best


class EntryKind(StrEnum):
    """Kind of the entries of one group, in the order of the groups when matches are equally good."""

    PAGE = "page"
    ACTION = "action"
    AGENT = "agent"
    INSTANCE = "instance"
    INCIDENT = "incident"
    CHANGE = "change"
    CLUSTER = "cluster"

    @property
    def label(self) -> str:
        """Heading of the group."""
        return "Switch cluster" if self is EntryKind.CLUSTER else f"{self.value.capitalize()}s"


@dataclass(frozen=True, slots=True)
class PaletteEntry:
    """A page, an object or an action."""

    label: str
    #: Address of the page; empty for an action that needs none.
    url: str = ""
    #: What tells it apart from others with the same label: state, id or number.
    note: str = ""
    #: Slug of its state, for the symbol; empty: it has none.
    state: str = ""
    #: Other words that find it.
    keywords: tuple[str, ...] = ()
    #: Its page opens in a dialog.
    is_dialog: bool = False
    #: Its page can show a past moment.
    has_past: bool = False
    #: The cluster to switch to, or the theme to choose; empty for other entries.
    cluster: str = ""
    theme: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return what the script of the palette needs, without empty values."""
        values = {
            "label": self.label,
            "url": self.url,
            "note": self.note,
            "state": self.state,
            "is_dialog": self.is_dialog,
            "has_past": self.has_past,
            "cluster": self.cluster,
            "theme": self.theme,
        }
        return {key: value for key, value in values.items() if value}


@dataclass(frozen=True, slots=True)
class EntryGroup:
    """The best entries of one kind, and how many match in all."""

    kind: EntryKind
    entries: tuple[PaletteEntry, ...] = ()
    total_count: int = 0
    #: Rank of the best entry, for the order of the groups.
    best_rank: int = 0
    #: Page with all matches; empty: there is none.
    all_url: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return the group for the script of the palette."""
        return {
            "kind": self.kind.value,
            "label": self.kind.label,
            "count": self.total_count,
            "all_url": self.all_url,
            "entries": [entry.as_json() for entry in self.entries],
        }


def match_entries(kind: EntryKind, entries: Iterable[PaletteEntry], query: str, limit: int) -> EntryGroup:
    """Return the group of the entries that match a normalized query, best first; equal ones keep their order."""
    ranked_entries = [
        (rank, position, entry)
        for position, entry in enumerate(entries)
        if (rank := rank_best(map(normalize, (entry.label, *entry.keywords)), query)) is not None
    ]
    ranked_entries.sort(key=lambda ranked_entry: ranked_entry[:2])
    return EntryGroup(
        kind,
        tuple(entry for _, _, entry in ranked_entries[:limit]),
        len(ranked_entries),
        int(ranked_entries[0][0]) if ranked_entries else 0,
    )
