from __future__ import annotations

from typing import Any

import pytest
from django.db.models import QuerySet

from fleet.alerts.runbooks import custom_texts
from fleet.alerts.runbooks.custom_texts import (
    MAX_TEXT_LENGTH,
    RunbookTextChangedError,
    RunbookTextError,
    normalize_text,
    read_custom_texts,
    read_text,
    save_text,
    version_of,
)
from fleet.audit import CONSOLE_ACTOR
from fleet.models.changes import AuditEntry
from fleet.models.runbooks import RunbookText
from fleet.vocabulary.runbooks import RunbookCause

pytestmark = pytest.mark.django_db


def _save(text: str, owner: str = "", **options: Any) -> None:
    save_text(owner, RunbookCause.AUTH, text, CONSOLE_ACTOR, 5.0, **options)


def test_text_of_a_cluster_replaces_that_of_the_installation() -> None:
    """Other clusters, and other runbooks, keep theirs."""
    _save("for all")
    _save("for one", "other")
    assert read_custom_texts("default")[RunbookCause.AUTH].text == "for all"
    assert read_custom_texts("other")[RunbookCause.AUTH].text == "for one"
    assert RunbookCause.PROXY not in read_custom_texts("other")


def test_every_edit_is_logged_with_old_and_new_text() -> None:
    """An empty text removes the row; saving the same text again is no edit."""
    for text in ("first", "first\n", "second", ""):
        _save(text)
    assert not RunbookText.objects.exists()
    entries = AuditEntry.objects.order_by("pk").values_list("action", "subject", "before", "after")
    first, second = ({"cause": "auth", "text": text} for text in ("first", "second"))
    assert list(entries) == [
        ("runbook.update", "Auth failed", None, first),
        ("runbook.update", "Auth failed", first, second),
        ("runbook.update", "Auth failed", second, None),
    ]


def test_edit_of_an_older_version_is_refused() -> None:
    """And logged; the stored text stays."""
    _save("first")
    with pytest.raises(RunbookTextChangedError, match="out of date: somebody changed this text"):
        _save("mine", seen_version=version_of(""))
    _save("second", seen_version=version_of("first"))
    assert read_text("", RunbookCause.AUTH) == "second"
    assert list(AuditEntry.objects.order_by("pk").values_list("outcome", flat=True)) == [
        "succeeded",
        "refused",
        "succeeded",
    ]


@pytest.mark.parametrize("stored_text", ["", "theirs"])
def test_only_one_of_two_simultaneous_edits_wins(stored_text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody writes between reading and writing."""
    if stored_text:
        _save(stored_text)

    def read_and_lose(owner: str, cause: RunbookCause) -> str:
        rows: QuerySet[RunbookText] = RunbookText.objects.filter(cluster=owner, cause=cause.value)
        if not rows.update(text="quicker"):
            RunbookText.objects.create(cluster=owner, cause=cause.value, text="quicker", updated_at=1.0)
        return stored_text

    monkeypatch.setattr(custom_texts, "read_text", read_and_lose)
    with pytest.raises(RunbookTextChangedError):
        _save("mine")
    assert RunbookText.objects.get().text == "quicker"


def test_text_that_is_too_long_is_refused() -> None:
    """The message says how to mend it."""
    with pytest.raises(RunbookTextError, match=r"has 10,003 characters.* Shorten the text by 3, or link"):
        _save("x" * (MAX_TEXT_LENGTH + 3))
    _save("x" * MAX_TEXT_LENGTH + "\n")
    assert len(read_text("", RunbookCause.AUTH)) == MAX_TEXT_LENGTH


def test_text_is_stored_with_line_feeds() -> None:
    """Without NUL characters, which PostgreSQL rejects, and without blanks at the ends of lines."""
    assert normalize_text("\r\n  call \0Ada  \r\nthen\rwait\n\n") == "  call Ada\nthen\nwait"
