from __future__ import annotations

import pytest

from fleet.alerts.setup.problems import SetupError, find_column_problems, require_no_problems
from fleet.models.alerting import Channel


@pytest.mark.django_db
def test_columns_are_checked_with_a_sentence_for_each_field() -> None:
    """Lengths, ranges, NUL characters, and a name that is taken in the same scope only."""
    Channel.objects.create(name="ops", kind="email")
    excluded_columns = ("config", "secrets", "rate_limited_until")

    def find(**columns: object) -> dict[str, str]:
        row = Channel(**{"name": "ops", "kind": "email", **columns})
        return find_column_problems(row, "channel", excluded_columns=excluded_columns)

    assert find(cluster="default") == {}
    assert find() == {"name": "Another channel of this scope already has this name."}
    assert list(find(name="x" * 101, per_minute=-1)) == ["name", "per_minute"]
    assert find(name="a\0") == {"name": "The name must not contain a NUL character."}


def test_error_has_the_problems_and_one_text() -> None:
    """A sentence that two fields share is in the text once."""
    require_no_problems({})
    with pytest.raises(SetupError) as error_info:
        require_no_problems({"a": "Wrong.", "b": "Wrong.", "c": "Missing."})
    assert str(error_info.value) == "Wrong. Missing."
    assert list(error_info.value.problems) == ["a", "b", "c"]
