from __future__ import annotations

import pytest
from django.http import QueryDict

from dashboards.alerts.silences.drafts import draft_of_text, read_draft
from fleet.alerts.matchers import MAX_MATCHERS_LENGTH, format_matchers


def _query(text: str, **fields: str) -> QueryDict:
    """Return what a form sends that shows these matchers."""
    query = QueryDict(mutable=True)
    draft = draft_of_text(text)
    query.setlist("condition", [format_matchers([condition]) for condition in draft.conditions or ()])
    query["matchers"] = query["shown_matchers"] = text
    for name, value in fields.items():
        query[name] = value
    return query


def _add(field: str, value: str, operator: str = "is") -> dict[str, str]:
    return {"condition_field": field, "condition_operator": operator, "condition_value": value, "do": "add"}


@pytest.mark.parametrize(
    ("text", "fields", "expected"),
    [
        ("", _add("agent", "web-1"), "agent=web-1"),
        ("agent=web-1", _add("agent", "db 1"), "agent='web-1|db 1'"),
        ("agent=web-1", _add("agent", "web-1"), "agent=web-1"),
        ("severity=critical", _add("kind", "proxy", "is-not"), "severity=critical kind!=proxy"),
        ("agent=web-1|web-2", {"remove": "agent=web-1"}, "agent=web-2"),
        ("agent=web-1", {"remove": "agent=web-1"}, ""),
        ("agent=web-1", {"remove": "agent=gone"}, "agent=web-1"),
        # Text that was edited wins.
        ("agent=web-1", {"matchers": "kind=auth"}, "kind=auth"),
        ("agent=web-1", {"matchers": ""}, ""),
        ("agent=web-* agent=*-eu", {}, "agent=web-* agent=*-eu"),
    ],
)
def test_conditions_are_added_removed_and_edited(text: str, fields: dict[str, str], expected: str) -> None:
    """Conditions and text stay in sync."""
    draft = read_draft(_query(text, **fields))
    assert (draft.text, draft.error) == (expected, "")
    assert draft.value == ""


@pytest.mark.parametrize(
    ("text", "fields", "error"),
    [
        ("cause=proxy-1", _add("agent", "web-1"), "Match either agents"),
        ("agent=web-1", _add("agent", "a|"), "A name is missing beside |"),
        ("agent=web-* agent=*-eu", _add("agent", "web-1"), "Edit these matchers as text"),
        ("", _add("colour", "red"), "Unknown field colour"),
    ],
)
def test_refused_condition_keeps_what_was_typed(text: str, fields: dict[str, str], error: str) -> None:
    """The other conditions stay as they are."""
    draft = read_draft(_query(text, **fields))
    assert draft.condition_error.startswith(error)
    assert (draft.text, draft.value, draft.field) == (
        text,
        fields["condition_value"],
        fields["condition_field"],
    )


@pytest.mark.parametrize("text", ["agent='x", "colour=red", "agent=\0", "agent=" + "x" * MAX_MATCHERS_LENGTH])
def test_invalid_text_is_kept_with_its_error(text: str) -> None:
    """It is edited, not lost."""
    draft = read_draft(_query("agent=web-1", matchers=text))
    assert draft.matchers_error
    assert draft.text == text.replace("\0", "")
    assert draft.conditions is None


def test_text_alone_is_enough() -> None:
    """A link or another program sends matchers without conditions."""
    assert read_draft({"matchers": "kind=proxy"}).text == "kind=proxy"
