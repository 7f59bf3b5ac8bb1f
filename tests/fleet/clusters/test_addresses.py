"""Addresses of a cluster by each kind, and the last results that stay in use."""

from __future__ import annotations

import json
from pathlib import Path

from fleet.clusters.addresses import MOST_ADDRESSES, AddressMemory, resolve
from fleet.vocabulary.clusters import AddressKind
from tests.fakes.dns_server import serve_dns


async def test_static_entries_are_the_addresses() -> None:
    """As given, each once; an invalid one is a problem and does not stop the others."""
    resolution = await resolve(AddressKind.STATIC, ["b.example:2", "a.example:1", "b.example:2", "c"])

    assert resolution.addresses == ("b.example:2", "a.example:1")
    assert resolution.problems == (
        "'c' has no port. Enter host:port, such as auth-1.example:3025. Correct the entry.",
    )


async def test_dns_entries_are_merged() -> None:
    """In the order of the entries; an address of two names occurs once; a missing name does not stop the others."""
    records = {
        ("a.test", "A"): ["192.0.2.2", "192.0.2.1"],
        ("b.test", "A"): ["192.0.2.2", "192.0.2.3"],
    }
    async with serve_dns(records) as server:
        resolution = await resolve(
            AddressKind.DNS, ["b.test:1", "missing.test:1", "a.test:1"], resolver=server.resolver
        )

    assert resolution.addresses == ("192.0.2.2:1", "192.0.2.3:1", "192.0.2.1:1")
    assert [problem.text for problem in resolution.problem_details] == [
        "DNS has no address for missing.test."
    ]


async def test_the_last_result_of_a_name_stays_in_use() -> None:
    """While the name is gone, and until it is back with another address."""
    memory = AddressMemory()
    async with serve_dns({("_auth._tcp.test", "SRV"): ["1 1 3025 a.test."]}) as server:
        await resolve(AddressKind.SRV, ["_auth._tcp.test"], memory, resolver=server.resolver)
        server.records.clear()
        resolution = await resolve(AddressKind.SRV, ["_auth._tcp.test"], memory, resolver=server.resolver)
        assert resolution.addresses == ("a.test:3025",)
        assert (
            resolution.problem_details[0].text
            == "DNS has no SRV record _auth._tcp.test. Refloat still uses the last result (a.test:3025)."
        )

        server.records["_auth._tcp.test", "SRV"] = ["1 1 3025 b.test."]
        resolution = await resolve(AddressKind.SRV, ["_auth._tcp.test"], memory, resolver=server.resolver)

    assert (resolution.addresses, resolution.problems) == (("b.test:3025",), ())


async def test_files_are_read(tmp_path: Path) -> None:
    """A missing file does not stop the others."""
    path = tmp_path / "auths.json"
    path.write_text('[{"targets": ["a.example:1"]}]')

    resolution = await resolve(AddressKind.FILE_SD, [f"{tmp_path}/missing.json", str(path)])

    assert resolution.addresses == ("a.example:1",)
    assert len(resolution.problems) == 1


async def test_the_number_of_addresses_is_bounded(tmp_path: Path) -> None:
    """The rest is a problem."""
    path = tmp_path / "auths.json"
    path.write_text(json.dumps([{"targets": [f"auth-{number}:1" for number in range(MOST_ADDRESSES + 1)]}]))

    resolution = await resolve(AddressKind.FILE_SD, [str(path)])

    assert len(resolution.addresses) == MOST_ADDRESSES
    assert resolution.problems[0].startswith(f"There are {MOST_ADDRESSES + 1} addresses")
