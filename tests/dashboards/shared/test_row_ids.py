from __future__ import annotations

import pytest

from dashboards.shared.row_ids import parse_row_id


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("7", 7), ("007", 7), ("9" * 18, 999_999_999_999_999_999), ("9" * 19, 0), ("1" * 5000, 0),
        ("", 0), ("-1", 0), ("1.0", 0), ("²", 0), ("1\0", 0), (" 1", 0),
    ],
)  # fmt: skip
def test_row_id(text: str, expected: int) -> None:
    """What the database can hold; nothing of it raises."""
    assert parse_row_id(text) == expected
