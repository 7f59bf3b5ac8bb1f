from __future__ import annotations

import pytest

from dashboards.alerts.channel_cards import describe_usages


@pytest.mark.parametrize(
    ("usages", "digest", "sentence"),
    [
        ([], "", "No route uses it: it receives no notifications."),
        (
            ["weekly digest"],
            "weekly",
            "No route uses it: it receives the weekly digest only, and no notifications of incidents.",
        ),
        (["Everything", "weekly digest"], "weekly", "Used by Everything; weekly digest"),
        (["Everything"], "", "Used by Everything"),
    ],
)
def test_usages_say_whether_incidents_arrive(usages: list[str], digest: str, sentence: str) -> None:
    assert describe_usages(usages, digest) == sentence
