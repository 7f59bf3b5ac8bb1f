"""Addresses of DNS names: A and AAAA records, and SRV records (RFC 2782) by priority and weight.

The machine's DNS servers and search domains are asked directly, because the system's resolver knows no SRV records.
Names that only the system has, such as those of its hosts file, are asked from the system.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from typing import NamedTuple

import dns.asyncresolver
import dns.exception
import dns.rdtypes.IN.SRV
import dns.resolver

from fleet.clusters.address_entries import AddressEntry, format_address

_WORKERS_NOTE = "on the machines where workers run"


class LookupProblemError(Exception):
    """A name without addresses. Its text is one sentence; `remedy` says what to do."""

    def __init__(self, text: str, remedy: str) -> None:
        super().__init__(text)
        self.remedy = remedy


class _SRVTarget(NamedTuple):
    """In the order of preference: lower priority, then higher weight."""

    priority: int
    negative_weight: int
    host: str
    port: int


async def look_up_addresses(
    entry: AddressEntry, *, timeout_seconds: float, resolver: dns.asyncresolver.Resolver | None = None
) -> list[str]:
    """Return host:port of every IPv4 and IPv6 address of a name, in their own order. Raises LookupProblemError."""
    if _is_ip_address(entry.host):
        return [format_address(*entry)]
    responses = await asyncio.gather(
        *(_query(entry.host, record_type, timeout_seconds, resolver) for record_type in ("A", "AAAA")),
        return_exceptions=True,
    )
    hosts = {record.to_text() for response in responses if isinstance(response, list) for record in response}
    if not hosts:
        errors = [response for response in responses if isinstance(response, BaseException)]
        if not all(isinstance(error, _NoRecordError) for error in errors):
            raise next(error for error in errors if not isinstance(error, _NoRecordError))
        hosts = await _look_up_in_system(entry, timeout_seconds)
    if not hosts:
        raise LookupProblemError(
            f"DNS has no address for {entry.host}.",
            f"Check the spelling, and the DNS servers and search domains {_WORKERS_NOTE}.",
        )
    return [format_address(host, entry.port) for host in sorted(hosts, key=_address_key)]


async def look_up_services(
    name: str, *, timeout_seconds: float, resolver: dns.asyncresolver.Resolver | None = None
) -> list[str]:
    """Return host:port of every target of an SRV record, the preferred first. Raises LookupProblemError."""
    remedy = f"Check the name of the record, and the DNS servers and search domains {_WORKERS_NOTE}."
    try:
        records = await _query(name, "SRV", timeout_seconds, resolver)
    except _NoRecordError:
        raise LookupProblemError(f"DNS has no SRV record {name}.", remedy) from None
    targets = sorted(
        _SRVTarget(
            record.priority, -record.weight, record.target.to_text(omit_final_dot=True).lower(), record.port
        )
        for record in records
    )
    # RFC 2782: the root as the target means that the service is not available.
    if addresses := [
        format_address(target.host, target.port) for target in targets if target.host not in {"", "."}
    ]:
        return addresses
    raise LookupProblemError(f"The SRV record {name} says that the service is not available.", remedy)


async def check_host(entry: AddressEntry, *, timeout_seconds: float) -> None:
    """Have the system resolve a host name, as a connection to it does. Raises LookupProblemError."""
    if _is_ip_address(entry.host):
        return
    remedy = f"Check the spelling, and the DNS servers and the hosts file {_WORKERS_NOTE}."
    try:
        async with asyncio.timeout(timeout_seconds):
            await asyncio.get_running_loop().getaddrinfo(entry.host, entry.port, type=socket.SOCK_STREAM)
    except TimeoutError:
        raise LookupProblemError(
            f"The name {entry.host} does not resolve: no response within {timeout_seconds:g} s.", remedy
        ) from None
    except (OSError, UnicodeError) as error:
        reason = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
        raise LookupProblemError(
            f"The name {entry.host} does not resolve: {reason[:1].lower()}{reason[1:]}.", remedy
        ) from None


class _NoRecordError(Exception):
    """The name does not exist, or has no record of this type."""


async def _query(
    name: str, record_type: str, timeout_seconds: float, resolver: dns.asyncresolver.Resolver | None
) -> list[dns.rdtypes.IN.SRV.SRV]:
    try:
        # Created for each query: the servers of a laptop or a container change.
        resolver = resolver or dns.asyncresolver.Resolver()
        answer = await resolver.resolve(name, record_type, search=True, lifetime=timeout_seconds)
    except (dns.resolver.NXDOMAIN, dns.resolver.NoAnswer):
        raise _NoRecordError from None
    except dns.resolver.NoResolverConfiguration:
        # Without DNS servers there are still the names of the system.
        raise _NoRecordError from None
    except dns.exception.Timeout:
        raise LookupProblemError(
            f"The DNS servers did not respond to a query for {name} within {timeout_seconds:g} s.",
            f"Check that a DNS server is reachable {_WORKERS_NOTE} (/etc/resolv.conf), and that it responds.",
        ) from None
    except (dns.exception.DNSException, OSError) as error:
        raise LookupProblemError(
            f"DNS cannot resolve {name}: {_describe(error)}.",
            f"Check the name, and the DNS servers {_WORKERS_NOTE} (/etc/resolv.conf).",
        ) from None
    return list(answer)


async def _look_up_in_system(entry: AddressEntry, timeout_seconds: float) -> set[str]:
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(timeout_seconds):
            results = await loop.getaddrinfo(entry.host, entry.port, type=socket.SOCK_STREAM)
    except (OSError, TimeoutError, UnicodeError):
        # DNS has already said that it has no such name: that is the answer.
        return set()
    return {str(socket_address[0]) for *_, socket_address in results}


def _describe(error: Exception) -> str:
    if isinstance(error, dns.resolver.NoNameservers):
        return "every DNS server reported a failure"
    return " ".join(str(error).split())[:200].removesuffix(".") or type(error).__name__


def _is_ip_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _address_key(host: str) -> tuple[int, int]:
    address = ipaddress.ip_address(host.partition("%")[0])
    return address.version, int(address)
