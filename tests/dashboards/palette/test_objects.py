"""Numbers of objects beyond the newest ones."""

from __future__ import annotations

import pytest

from dashboards.palette import objects
from fleet.models.changes import Change
from fleet.models.clusters import ensure_default_cluster
from fleet.vocabulary.changes import ActorKind, ChangeKind

pytestmark = pytest.mark.django_db


def test_old_changes_are_found_by_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the newest are searched by title."""
    monkeypatch.setattr(objects, "MAX_SEARCHED_ROWS", 1)
    cluster = ensure_default_cluster()
    old, new = (
        Change.objects.create(
            cluster=cluster,
            kind=ChangeKind.RETIRE.value,
            title=title,
            actor_name="a",
            actor_kind=ActorKind.PERSON.value,
        )
        for title in ("old", "new")
    )
    assert objects.search_changes("default", "", "old", 6).entries == ()
    found_entries = objects.search_changes("default", "", f"change {old.pk}", 6).entries
    assert [entry.url for entry in found_entries] == [f"/changes/{old.pk}/"]
    assert objects.search_changes("default", "", "new", 6).entries[0].url == f"/changes/{new.pk}/"
