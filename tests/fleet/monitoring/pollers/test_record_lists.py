from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from fleet.monitoring.pollers.record_lists import is_removed
from fleet.vocabulary.instances import InstanceFacts, InstanceKind, PollAttempt

NOW = 10_000.0
_SILENT = {
    "attempts": (PollAttempt(NOW - 1, ok=False), PollAttempt(NOW - 6, ok=False)),
    "sick_since": NOW - 600,
}


@pytest.mark.parametrize(
    ("facts", "addresses", "expected"),
    [
        (_SILENT, ("hub-2:8222",), True),
        (_SILENT, ("hub-1:8222",), False),
        (_SILENT, None, False),
        (_SILENT | {"sick_since": NOW - 599}, ("hub-2:8222",), False),
        (_SILENT | {"sick_since": None}, ("hub-2:8222",), False),
        (_SILENT | {"expires_at": NOW + 9}, ("hub-2:8222",), False),
        (_SILENT | {"attempts": (PollAttempt(NOW, ok=True),)}, ("hub-2:8222",), False),
    ],
    ids=["removed", "has an address", "by expiry", "too short", "not failing", "has an expiry", "unhealthy"],
)
def test_an_instance_without_an_address_is_removed(
    facts: Mapping[str, Any], addresses: tuple[str, ...] | None, expected: bool
) -> None:
    """When it has not responded for 10 min: an address may be missing for a short time only."""
    instance = InstanceFacts(
        id="hub-1",
        index=0,
        kind=InstanceKind.PROXY,
        name="hub-1",
        address="hub-1:7422",
        diag_address="hub-1:8222",
        **facts,
    )
    assert is_removed(instance, addresses, NOW) is expected
