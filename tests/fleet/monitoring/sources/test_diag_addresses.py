"""Which instances have a diag address, and what a cluster lacks without."""

from __future__ import annotations

import pytest

from fleet.monitoring.sources.diag_addresses import (
    KnownInstance,
    find_diag_address,
    find_missing_by_diag_addresses,
    find_unknown_names,
)
from fleet.vocabulary.capabilities import Capability
from fleet.vocabulary.instances import InstanceKind

_AUTH = KnownInstance("a-uuid", "auth-1", InstanceKind.AUTH)
_PROXY = KnownInstance("p-uuid", "proxy-1", InstanceKind.PROXY)
_CAPABILITIES = (Capability.HEALTH, Capability.TUNNEL_COUNTS)


def test_instance_is_found_by_id_or_name() -> None:
    """The id counts before the name; without an entry there is no address."""
    addresses = {"auth-1": "a:1", "a-uuid": "b:1"}
    assert find_diag_address(addresses, "a-uuid", "auth-1") == "b:1"
    assert find_diag_address(addresses, "other", "auth-1") == "a:1"
    assert find_diag_address(addresses, "other", "other") == ""
    assert find_unknown_names({**addresses, "auth-9": "c:1"}, [_AUTH]) == ["auth-9"]


@pytest.mark.parametrize(
    ("addresses", "expected"),
    [
        (
            {},
            {
                Capability.HEALTH: "of its auths and proxies",
                Capability.TUNNEL_COUNTS: "of its proxies: enter",
            },
        ),
        ({"auth-1": "a:1"}, {Capability.TUNNEL_COUNTS: "Refloat has no diag addresses of its proxies"}),
        ({"p-uuid": "a:1"}, {}),
        (
            {"auth-9": "a:1"},
            {
                Capability.HEALTH: "name no instance that it lists",
                Capability.TUNNEL_COUNTS: "name no instance",
            },
        ),
    ],
)
def test_missing_capabilities(addresses: dict[str, str], expected: dict[Capability, str]) -> None:
    """One diag address gives the health of instances, that of a proxy also counts of tunnels."""
    reasons = find_missing_by_diag_addresses(addresses, [_AUTH, _PROXY], _CAPABILITIES)
    assert reasons.keys() == expected.keys()
    for capability, part_of_reason in expected.items():
        assert part_of_reason in reasons[capability]
