from __future__ import annotations

import pytest

from fleet.changes.networking.refusals import describe_refusal


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        ("admin-level API request requires MFA verification", "Use the identity of a bot"),
        (
            'access denied to perform action "update" on "cluster_networking_config"',
            "the verb update for cluster_networking_config",
        ),
        ("proxy peering is an enterprise-only feature", "Choose agent mesh"),
    ],
)
def test_refusal_says_what_to_do(error: str, remedy: str) -> None:
    """After the words of the auth."""
    text = describe_refusal(error)
    assert text.startswith(f"the auth refused the config: {error}. ")
    assert remedy in text
    assert not text.endswith(".")


def test_refusal_that_refloat_does_not_know_has_the_words_of_the_auth() -> None:
    assert describe_refusal("no reason.") == "the auth refused the config: no reason"
