"""Tunnels that are counted, not named."""

from __future__ import annotations

from typing import Any

import pytest

from fleet.alerts.wording.reported_counts import ReportedCounts, find_reported_counts
from fleet.vocabulary.instances import InstanceFacts, InstanceKind, InstanceState, PollAttempt

_NOW = 1_700_000_000.0


def _proxy(**values: Any) -> InstanceFacts:
    fields: dict[str, Any] = {
        "diag_address": "h:3000",
        "attempts": (PollAttempt(_NOW, ok=True),),
        "connection_counts": (("app", 12), ("db", 0), ("node", 397)),
        "missing_tunnel_count": 3,
        "counted_at": _NOW,
    }
    return InstanceFacts(
        **{
            "id": "p",
            "index": 1,
            "kind": InstanceKind.PROXY,
            "name": "proxy-2",
            "address": "",
            **fields,
            **values,
        }
    )


def test_missing_tunnels_are_a_share_of_the_expected_ones() -> None:
    """Those of SSH nodes: a proxy expects no other ones. The largest type comes first."""
    assert find_reported_counts(_proxy(), InstanceState.OK) == ReportedCounts(
        409,
        "397 node, 12 app",
        "3 of 400 SSH tunnels are missing at proxy-2. The API of the cluster does not name the agents.",
        is_past=False,
    )


@pytest.mark.parametrize("missing_count", [0, None])
def test_no_sentence_without_missing_tunnels(missing_count: int | None) -> None:
    counts = find_reported_counts(_proxy(missing_tunnel_count=missing_count), InstanceState.OK)
    assert counts is not None
    assert counts.missing_sentence == ""


@pytest.mark.parametrize(
    ("values", "state"),
    [({}, InstanceState.SILENT), ({"counted_at": _NOW - 31}, InstanceState.OK)],
)
def test_old_counts_are_past(values: dict[str, Any], state: InstanceState) -> None:
    """Of a proxy that does not respond, or only has no metrics any more: nothing is missing by them."""
    counts = find_reported_counts(_proxy(**values), state)
    assert counts is not None
    assert counts.is_past
    assert counts.missing_sentence == (
        "proxy-2 had 409 tunnels when it last reported them. The API of the cluster does not name the agents."
    )


@pytest.mark.parametrize("values", [{"kind": InstanceKind.AUTH}, {"counted_at": None}, {"diag_address": ""}])
def test_instances_without_counts(values: dict[str, Any]) -> None:
    assert find_reported_counts(_proxy(**values), InstanceState.OK) is None
