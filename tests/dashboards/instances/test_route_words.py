"""Policies of a gateway's rule in words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dashboards.instances import route_words
from fleet.vocabulary.edge_instances import RouteRetry, RouteRule

_RULE = RouteRule("r/0", (), (), ())


@pytest.mark.parametrize(
    ("retry", "sentence"),
    [
        (None, "No retries."),
        (
            RouteRetry(3, ("resource-exhausted", "unavailable"), 0.1),
            (
                "Up to 3 retries after resource-exhausted or unavailable, at least 100 ms after the failure, and at "
                "least twice as long before each further one."
            ),
        ),
        (
            RouteRetry(1, (), 0.025),
            "Up to 1 retry after unavailable or a timeout of the attempt, at least 25 ms after the failure.",
        ),
        (
            RouteRetry(1, ("internal",), 1.0),
            "Up to 1 retry after internal, at least 1 s after the failure.",
        ),
    ],
)
def test_retry_policy(retry: RouteRetry | None, sentence: str) -> None:
    """As GEP-3440 defines it."""
    assert route_words.describe_retry(replace(_RULE, retry=retry)) == sentence


def test_timeouts() -> None:
    """Of the call, of an attempt, or none."""
    assert route_words.describe_timeouts(_RULE) == "No timeouts."
    rule = replace(_RULE, request_timeout=10.0, attempt_timeout=2.0)
    assert (
        route_words.describe_timeouts(rule) == "Timeouts: 10 s for the whole call and 2 s for each attempt."
    )
    assert (
        route_words.describe_timeouts(replace(rule, request_timeout=0.0)) == "Timeouts: 2 s for each attempt."
    )


def test_retry_counts() -> None:
    """By status."""
    assert route_words.describe_retry_counts(_RULE) == ""
    rule = replace(_RULE, retry_counts=(("INTERNAL", 2), ("UNAVAILABLE", 1000)))
    assert route_words.describe_retry_counts(rule) == "2 INTERNAL, 1,000 UNAVAILABLE"


@pytest.mark.parametrize(
    ("share", "text"), [(0.0, "no calls"), (0.001, "1 %"), (0.333, "33 %"), (1.0, "100 %")]
)
def test_share(share: float, text: str) -> None:
    """A small share is not none."""
    assert route_words.format_share(share) == text
