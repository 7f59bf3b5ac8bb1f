"""DNS names, asked from a real DNS server on localhost."""

from __future__ import annotations

import dns.rcode
import pytest

from fleet.clusters.address_entries import AddressEntry
from fleet.clusters.name_lookup import LookupProblemError, look_up_addresses, look_up_services
from tests.fakes.dns_server import serve_dns

_TIMEOUT = 10.0


async def test_every_address_of_a_name_is_returned() -> None:
    """IPv4 before IPv6, each in the order of numbers, whatever the order of the answer."""
    records = {
        ("auth.test", "A"): ["192.0.2.10", "192.0.2.9"],
        ("auth.test", "AAAA"): ["2001:db8::1"],
        ("four.test", "A"): ["192.0.2.1"],
    }
    async with serve_dns(records) as server:
        addresses = await look_up_addresses(
            AddressEntry("auth.test", 3025), timeout_seconds=_TIMEOUT, resolver=server.resolver
        )
        only_four = await look_up_addresses(
            AddressEntry("four.test", 1), timeout_seconds=_TIMEOUT, resolver=server.resolver
        )

    assert addresses == ["192.0.2.9:3025", "192.0.2.10:3025", "[2001:db8::1]:3025"]
    assert only_four == ["192.0.2.1:1"]


async def test_services_are_ordered_by_priority_and_weight() -> None:
    """RFC 2782: the lowest priority first; then, so that the order is stable, the highest weight."""
    records = {
        ("_auth._tcp.test", "SRV"): [
            "10 5 3025 c.test.",
            "10 50 3026 b.test.",
            "1 0 3027 a.test.",
            "20 0 1 .",
        ]
    }
    async with serve_dns(records) as server:
        addresses = await look_up_services(
            "_auth._tcp.test", timeout_seconds=_TIMEOUT, resolver=server.resolver
        )

    assert addresses == ["a.test:3027", "b.test:3026", "c.test:3025"]


@pytest.mark.parametrize("name", ["missing.test", "other.test"])
async def test_a_name_without_addresses_is_a_problem(name: str) -> None:
    """It does not exist, or has only records of another kind."""
    async with serve_dns({("other.test", "TXT"): ['"x"']}) as server:
        with pytest.raises(LookupProblemError, match=f"DNS has no address for {name}\\.") as raised_error:
            await look_up_addresses(AddressEntry(name, 1), timeout_seconds=_TIMEOUT, resolver=server.resolver)
        with pytest.raises(LookupProblemError, match=f"DNS has no SRV record {name}\\."):
            await look_up_services(name, timeout_seconds=_TIMEOUT, resolver=server.resolver)

    assert "Check the spelling" in raised_error.value.remedy


async def test_a_service_at_the_root_is_not_available() -> None:
    """The only target is the root name."""
    async with serve_dns({("_auth._tcp.test", "SRV"): ["0 0 0 ."]}) as server:
        with pytest.raises(LookupProblemError, match="not available"):
            await look_up_services("_auth._tcp.test", timeout_seconds=_TIMEOUT, resolver=server.resolver)


async def test_a_silent_dns_server_is_a_problem_in_time() -> None:
    """The text has the time, the remedy says where to look."""
    async with serve_dns({}) as server:
        server.is_silent = True
        with pytest.raises(LookupProblemError, match=r"did not respond .* within 0\.2 s") as raised_error:
            await look_up_addresses(
                AddressEntry("auth.test", 1), timeout_seconds=0.2, resolver=server.resolver
            )

    assert "/etc/resolv.conf" in raised_error.value.remedy


async def test_a_failing_dns_server_is_a_problem() -> None:
    """SERVFAIL is not a missing name."""
    async with serve_dns({}) as server:
        server.rcode = dns.rcode.SERVFAIL
        with pytest.raises(LookupProblemError, match="every DNS server reported a failure"):
            await look_up_addresses(
                AddressEntry("auth.test", 1), timeout_seconds=_TIMEOUT, resolver=server.resolver
            )


async def test_a_name_that_only_the_system_has_is_resolved() -> None:
    """The hosts file has localhost, and the DNS server has not."""
    async with serve_dns({}) as server:
        addresses = await look_up_addresses(
            AddressEntry("localhost", 7), timeout_seconds=_TIMEOUT, resolver=server.resolver
        )

        assert server.query_count == 2

    assert "127.0.0.1:7" in addresses


async def test_an_ip_address_is_not_asked_for() -> None:
    """No query is sent."""
    async with serve_dns({}) as server:
        addresses = await look_up_addresses(
            AddressEntry("2001:db8::1", 3025), timeout_seconds=_TIMEOUT, resolver=server.resolver
        )

        assert server.query_count == 0

    assert addresses == ["[2001:db8::1]:3025"]
