"""The port to which leaf nodes connect: a hub that works sends an INFO line at once.

https://docs.nats.io/reference/reference-protocols/nats-protocol#info
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import ssl
from collections.abc import Callable
from typing import NamedTuple

from typing_extensions import override

from fleet.monitoring.sources.nats.documents import HubDocument, clean
from fleet.protocol.text_limits import cut
from fleet.transport.connection_errors import describe

_MAX_LINE_BYTES = 65536
#: Seconds that a hub with TLS may take for its INFO line; after them TLS is started, which it may expect first.
_INFO_SECONDS = 0.5
#: Shortest time in seconds in which a port can be checked.
MIN_SECONDS = 0.1
#: First byte of a TLS record: an alert, or a handshake.
_TLS_RECORDS = (b"\x15", b"\x16")
_LONGEST_ANSWER = 60


class PortAddress(NamedTuple):
    """Host and port."""

    host: str
    port: int

    @override
    def __str__(self) -> str:
        """Return host:port."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class PortCheck(NamedTuple):
    """Result of a check. `problem`: a clause about the hub, such as `its leaf node port … does not respond`."""

    problem: str
    #: Address that the hub tells leaf nodes to connect to, if it is another one.
    advertised_address: PortAddress | None = None


def find_leaf_address(monitoring_address: str, hub: HubDocument) -> PortAddress | None:
    """Return where a hub listens for leaf nodes, as Refloat reaches it; None without such a port.

    A hub that listens on all addresses has the host of its monitoring address. A port on the loopback address of
    another machine cannot be reached.
    """
    if not hub.leaf_port:
        return None
    monitoring_host = monitoring_address.rpartition(":")[0].strip("[]")
    if _is_unspecified(hub.leaf_host):
        return PortAddress(monitoring_host, hub.leaf_port)
    if _is_loopback(hub.leaf_host) and not _is_loopback(monitoring_host):
        return None
    return PortAddress(hub.leaf_host, hub.leaf_port)


async def check_leaf_ports(
    listener: PortAddress, remaining_seconds: Callable[[], float], *, has_tls: bool
) -> str:
    """Check the port of a hub, and then the one that it advertises; return the problem as a clause, empty without.

    Each has half of the remaining seconds, so that a port that does not respond is found in time.
    """
    check = await check_port(listener, remaining_seconds() / 2, has_tls=has_tls)
    if not check.problem and check.advertised_address is not None and check.advertised_address != listener:
        check = await check_port(check.advertised_address, remaining_seconds() / 2, has_tls=has_tls)
    return check.problem


async def check_port(address: PortAddress, seconds: float, *, has_tls: bool) -> PortCheck:
    """Connect as a leaf node does, and read the first line, within `seconds`."""
    seconds = max(seconds, MIN_SECONDS)
    try:
        async with asyncio.timeout(seconds):
            reader, writer = await asyncio.open_connection(*address, limit=_MAX_LINE_BYTES)
            try:
                return await _read_first_line(
                    address, reader, writer, min(_INFO_SECONDS, seconds / 2), has_tls
                )
            finally:
                writer.close()
    except TimeoutError:
        return PortCheck(f"its leaf node port {address} does not respond")
    except (OSError, UnicodeError) as error:
        reason = describe(error) if isinstance(error, OSError) else "the host name is invalid"
        return PortCheck(f"its leaf node port {address} does not respond: {reason}")


async def _read_first_line(
    address: PortAddress,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    info_seconds: float,
    has_tls: bool,
) -> PortCheck:
    line = asyncio.ensure_future(reader.readuntil(b"\n"))
    try:
        if has_tls:
            await asyncio.wait([line], timeout=info_seconds)
            if not line.done():
                # With `handshake_first` the client begins. Any TLS record is a response, also a refusal.
                line.cancel()
                await asyncio.wait([line])
                writer.write(_create_client_hello())
                first_byte = await reader.readexactly(1)
                return PortCheck("" if first_byte in _TLS_RECORDS else _describe_other(address, first_byte))
        return _parse_info(address, await line)
    except asyncio.IncompleteReadError as error:
        if error.partial:
            return PortCheck(_describe_other(address, error.partial))
        return PortCheck(f"its leaf node port {address} closes connections")
    except asyncio.LimitOverrunError:
        return PortCheck(
            f"its leaf node port {address} responds, but not as nats-server: its first line has no end"
        )
    finally:
        line.cancel()


def _parse_info(address: PortAddress, line: bytes) -> PortCheck:
    command, _, text = line.partition(b" ")
    if command.upper() != b"INFO":
        return PortCheck(_describe_other(address, line))
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return PortCheck(_describe_other(address, line))
    if not isinstance(document, dict):
        return PortCheck(_describe_other(address, line))
    host, port = document.get("host"), document.get("port")
    if isinstance(host, str) and len(host) <= 253 and type(port) is int and 0 < port < 65536:
        return PortCheck("", None if _is_unspecified(host) else PortAddress(host, port))
    return PortCheck("")


def _describe_other(address: PortAddress, first_bytes: bytes) -> str:
    text = cut(clean(first_bytes[:200].decode(errors="replace").strip()), _LONGEST_ANSWER)
    return f"its leaf node port {address} responds, but not as nats-server: {text}"


def _create_client_hello() -> bytes:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    outgoing_bytes = ssl.MemoryBIO()
    connection = context.wrap_bio(ssl.MemoryBIO(), outgoing_bytes)
    try:
        connection.do_handshake()
    except ssl.SSLWantReadError:
        return outgoing_bytes.read()
    raise AssertionError("a handshake needs the response of the server")


def _is_unspecified(host: str) -> bool:
    try:
        return not host or ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
