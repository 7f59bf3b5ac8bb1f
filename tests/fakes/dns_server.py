"""A DNS server on localhost with the records of a test, over UDP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import cast

import dns.asyncresolver
import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import dns.rrset
from typing_extensions import override

#: Texts of records by name and type: {("auth.test", "A"): ["192.0.2.1"]}.
Records = Mapping[tuple[str, str], list[str]]


class DNSServer(asyncio.DatagramProtocol):
    """Answers from `records`, which a test may change; with an `rcode` it refuses, and it may be silent."""

    def __init__(self, records: Records) -> None:
        self.records = dict(records)
        self.rcode = dns.rcode.NOERROR
        self.is_silent = False
        self.query_count = 0
        self._transport: asyncio.DatagramTransport | None = None

    @property
    def resolver(self) -> dns.asyncresolver.Resolver:
        """A resolver that asks only this server."""
        assert self._transport is not None, "it serves"
        resolver = dns.asyncresolver.Resolver(configure=False)
        resolver.nameservers = ["127.0.0.1"]
        resolver.port = self._transport.get_extra_info("sockname")[1]
        return resolver

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # The transport of a selector loop is one of datagrams, though it is not declared so.
        self._transport = cast(asyncio.DatagramTransport, transport)

    @override
    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self.query_count += 1
        if self.is_silent:
            return
        query = dns.message.from_wire(data)
        response = dns.message.make_response(query)
        response.flags |= dns.flags.RA
        question = query.question[0]
        name = question.name.to_text(omit_final_dot=True)
        record_type = dns.rdatatype.to_text(question.rdtype)
        if self.rcode != dns.rcode.NOERROR:
            response.set_rcode(self.rcode)
        elif texts := self.records.get((name, record_type)):
            response.answer.append(dns.rrset.from_text(question.name, 60, "IN", record_type, *texts))
        elif not any(name == known_name for known_name, _ in self.records):
            response.set_rcode(dns.rcode.NXDOMAIN)
        assert self._transport is not None, "it serves"
        self._transport.sendto(response.to_wire(), addr)


@asynccontextmanager
async def serve_dns(records: Records) -> AsyncIterator[DNSServer]:
    """Serve records on a free port of localhost."""
    transport, server = await asyncio.get_running_loop().create_datagram_endpoint(
        lambda: DNSServer(records), local_addr=("127.0.0.1", 0)
    )
    try:
        yield server
    finally:
        transport.close()
