"""Addresses of a cluster's first auths: given, from DNS, or from files of Prometheus' file_sd."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import dns.asyncresolver

from fleet.clusters.address_entries import MOST_ENTRIES, AddressEntryError, parse_entry
from fleet.clusters.file_sd import FileReader
from fleet.clusters.name_lookup import LookupProblemError, look_up_addresses, look_up_services
from fleet.vocabulary.clusters import AddressKind

#: Addresses that Refloat uses of one cluster: it needs one auth that responds, which lists all others.
MOST_ADDRESSES = 100
#: Seconds for all queries of one DNS name.
DNS_TIMEOUT_SECONDS = 3.0


class AddressProblem(NamedTuple):
    """What went wrong, and what to do: sentences."""

    text: str
    remedy: str


@dataclass(frozen=True, slots=True)
class ResolvedAddresses:
    """Addresses as host:port, each once, in a stable order. There may be both addresses and problems."""

    addresses: tuple[str, ...] = ()
    problem_details: tuple[AddressProblem, ...] = ()

    @property
    def problems(self) -> tuple[str, ...]:
        """Return the problems, each with what to do."""
        return tuple(f"{problem.text} {problem.remedy}" for problem in self.problem_details)


@dataclass(slots=True)
class AddressMemory:
    """The last results of one cluster's entries, which stay in use when a name or file cannot be read later."""

    addresses_by_name: dict[tuple[AddressKind, str], tuple[str, ...]] = field(default_factory=dict)
    file_reader: FileReader = field(default_factory=FileReader)


async def resolve(
    kind: AddressKind,
    entries: Sequence[str],
    memory: AddressMemory | None = None,
    *,
    resolver: dns.asyncresolver.Resolver | None = None,
    dns_timeout_seconds: float = DNS_TIMEOUT_SECONDS,
) -> ResolvedAddresses:
    """Return the addresses of a cluster's entries; problems are part of the result.

    `resolver` has other DNS servers than the machine's. A file on a file system that hangs is waited for.
    """
    memory = memory or AddressMemory()
    resolutions = await asyncio.gather(
        *(
            _resolve_entry(kind, entry, memory, resolver, dns_timeout_seconds)
            for entry in entries[:MOST_ENTRIES]
        )
    )
    addresses = tuple(
        dict.fromkeys(address for resolution in resolutions for address in resolution.addresses)
    )
    problems = [problem for resolution in resolutions for problem in resolution.problem_details]
    if len(addresses) > MOST_ADDRESSES:
        problems.append(
            AddressProblem(
                f"There are {len(addresses)} addresses, of which Refloat uses the first {MOST_ADDRESSES}.",
                "Enter the addresses of a few auths: they list all others.",
            )
        )
    return ResolvedAddresses(addresses[:MOST_ADDRESSES], tuple(problems))


async def _resolve_entry(
    kind: AddressKind,
    text: str,
    memory: AddressMemory,
    resolver: dns.asyncresolver.Resolver | None,
    timeout_seconds: float,
) -> ResolvedAddresses:
    try:
        entry = parse_entry(kind, text)
    except AddressEntryError as error:
        return ResolvedAddresses((), (AddressProblem(str(error), "Correct the entry."),))
    key = (kind, text)
    try:
        match kind:
            case AddressKind.STATIC:
                return ResolvedAddresses((text,))
            case AddressKind.FILE_SD:
                addresses, file_problems = await asyncio.to_thread(memory.file_reader.read, entry.host)
                return ResolvedAddresses(
                    tuple(addresses), tuple(AddressProblem(*problem) for problem in file_problems)
                )
            case AddressKind.DNS:
                addresses = await look_up_addresses(entry, timeout_seconds=timeout_seconds, resolver=resolver)
            case AddressKind.SRV:
                addresses = await look_up_services(
                    entry.host, timeout_seconds=timeout_seconds, resolver=resolver
                )
    except LookupProblemError as error:
        last_addresses = memory.addresses_by_name.get(key, ())
        note = f" Refloat still uses the last result ({', '.join(last_addresses)})." if last_addresses else ""
        return ResolvedAddresses(last_addresses, (AddressProblem(f"{error}{note}", error.remedy),))
    memory.addresses_by_name[key] = tuple(addresses)
    return ResolvedAddresses(tuple(addresses))
