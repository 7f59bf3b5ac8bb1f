"""Words for instances keep their numbers and spellings."""

from __future__ import annotations

import pytest
from grpc_health.v1 import health_pb2

from fleet.vocabulary.instances import (
    CONNECTED_SICK_STATES,
    CUT_OFF_STATES,
    FAULT_STATES,
    LOST_STATES,
    READABLE_STATES,
    SICK_STATES,
    InstanceFacts,
    InstanceKind,
    InstanceState,
    ServingStatus,
    complaint_of,
)


def test_states_keep_their_numbers() -> None:
    """They are in the packed record."""
    assert [state.slug for state in sorted(InstanceState)] == [
        *("unknown", "ok", "silent", "unhealthy", "expired", "gone"),
    ]


def test_labels_are_words() -> None:
    """People read words, not slugs."""
    assert [state.label for state in sorted(InstanceState)] == [
        *("unknown", "OK", "not responding", "unhealthy", "expired", "deregistered"),
    ]


def test_serving_status_matches_grpc() -> None:
    """The same names and numbers as grpc.health.v1."""
    grpc_items = health_pb2.HealthCheckResponse.ServingStatus.items()

    assert {status.name: int(status) for status in ServingStatus} == dict(grpc_items)


def test_kinds_are_auth_and_proxy() -> None:
    """An instance is an auth server or a proxy."""
    assert set(InstanceKind) == {"auth", "proxy"}


def test_sets_of_states() -> None:
    """A new state has to be added to each set here."""
    slugs_by_set = {
        name: {state.slug for state in states}
        for name, states in {
            "sick": SICK_STATES,
            "faults": FAULT_STATES,
            "lost": LOST_STATES,
            "cut off": CUT_OFF_STATES,
            "holding": CONNECTED_SICK_STATES,
            "readable": READABLE_STATES,
            "neither": set(InstanceState) - SICK_STATES,
        }.items()
    }
    assert slugs_by_set == {
        "sick": {"silent", "unhealthy", "expired", "gone"},
        "faults": {"silent", "unhealthy", "expired"},
        "lost": {"expired", "gone"},
        "cut off": {"silent", "gone"},
        "holding": {"unhealthy", "expired"},
        "readable": {"ok", "unknown"},
        "neither": {"ok", "unknown"},
    }


@pytest.mark.parametrize(
    ("kind", "state", "readyz", "complaint"),
    [
        (InstanceKind.AUTH, InstanceState.UNHEALTHY, 503, "lost its backend"),
        (InstanceKind.AUTH, InstanceState.EXPIRED, 503, "lost its backend"),
        (InstanceKind.PROXY, InstanceState.EXPIRED, 503, "cannot send heartbeats"),
        (InstanceKind.AUTH, InstanceState.UNHEALTHY, 400, "is recovering"),
        (InstanceKind.AUTH, InstanceState.UNHEALTHY, 200, "is unhealthy"),
        (InstanceKind.AUTH, InstanceState.EXPIRED, 400, "has expired"),
        (InstanceKind.AUTH, InstanceState.SILENT, 503, "is not responding"),
        (InstanceKind.AUTH, InstanceState.OK, 200, ""),
    ],
)
def test_complaint_names_the_fault(
    kind: InstanceKind, state: InstanceState, readyz: int, complaint: str
) -> None:
    """Not only the state, which changes while the fault lasts."""
    facts = InstanceFacts(id="x", index=0, kind=kind, name="x", address="", readyz=readyz)
    assert complaint_of(facts, state) == complaint
