"""Entries of the palette in groups."""

from __future__ import annotations

from dashboards.palette.entries import EntryKind, PaletteEntry, match_entries


def test_matches_by_label_and_other_words() -> None:
    """The best match comes first, and the number of all stands beside the limited list."""
    entries = [
        PaletteEntry("Alert map"),
        PaletteEntry("Map", "/map/"),
        PaletteEntry("Agents", keywords=("map of",)),
    ]
    group = match_entries(EntryKind.PAGE, entries, "map", 2)
    assert [entry.label for entry in group.entries] == ["Map", "Agents"]
    assert (group.total_count, group.best_rank) == (3, 0)
    assert match_entries(EntryKind.PAGE, entries, "nothing", 2).entries == ()


def test_json_leaves_empty_values_out() -> None:
    """The script needs no more."""
    assert PaletteEntry("Map", "/map/").as_json() == {"label": "Map", "url": "/map/"}
    group = match_entries(EntryKind.CLUSTER, [PaletteEntry("B", cluster="b")], "", 5).as_json()
    assert group["label"] == "Switch cluster"
    assert group["entries"] == [{"label": "B", "cluster": "b"}]
