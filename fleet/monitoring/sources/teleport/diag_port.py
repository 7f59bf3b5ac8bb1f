"""Process state and metrics of an auth or proxy of Teleport, from its `--diag-addr`: `/readyz` and `/metrics`."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

import aiohttp

from fleet.monitoring.sources import SourceError, map_source_errors
from fleet.monitoring.sources.readyz import ReadyzResponse, get_readyz
from fleet.monitoring.sources.source import EvidenceSource, SourceContext
from fleet.vocabulary.capabilities import Capability
from fleet.vocabulary.instances import READYZ_DEGRADED, READYZ_RECOVERING, Poll

_READYZ_CODES = frozenset({200, READYZ_RECOVERING, READYZ_DEGRADED})
#: Bytes of `/metrics`: that of a busy process has some hundred kilobytes.
LARGEST_METRICS = 8 * 1024 * 1024
#: Types of connections that are kept of an instance, and characters of a type: Teleport has a dozen.
_MOST_TYPES = 32
_LONGEST_TYPE = 64
#: Numbers above this are no counts of connections.
_LARGEST_COUNT = 10_000_000
_CONNECTION_METRICS = frozenset({"teleport_reverse_tunnels_connected", "teleport_connected_resources"})
_MISSING_METRIC = "proxy_missing_ssh_tunnels"
_NAMES = (*_CONNECTION_METRICS, _MISSING_METRIC)
_SAMPLE = re.compile(r"(?P<name>[a-z_]+)(?:\{(?P<labels>[^}]*)\})?[ \t]+(?P<value>\S+)")
_TYPE = re.compile(r'(?:^|,)\s*type="([^"\\]*)"')


@dataclass(frozen=True, slots=True)
class ConnectionCounts:
    """Connections that an instance counts."""

    #: By type of resource, sorted: tunnels of a proxy, connected resources of an auth.
    connection_counts: tuple[tuple[str, int], ...] = ()
    #: SSH nodes whose tunnel a proxy expects and does not have; None without the metric.
    missing_tunnel_count: int | None = None


async def get_process_state(context: SourceContext) -> ReadyzResponse:
    """Request /readyz. Raises SourceError, also for codes that Teleport does not have: another program responds."""
    response = await get_readyz(context)
    if response.code not in _READYZ_CODES:
        raise SourceError(
            f"/readyz responds with {response.code}, so this is not the --diag-addr of Teleport",
            has_response=True,
        )
    return response


async def get_connection_counts(context: SourceContext) -> ConnectionCounts:
    """Request /metrics. Raises SourceError."""
    url = f"http://{context.target.diag_address}/metrics"
    timeout = aiohttp.ClientTimeout(total=max(context.remaining_seconds(), 0.001))
    headers = {"Accept": "text/plain", "Accept-Encoding": "identity"}
    with map_source_errors():
        async with context.connections.session.get(
            url, timeout=timeout, allow_redirects=False, headers=headers
        ) as response:
            if response.status != 200:
                raise SourceError(f"/metrics responds with {response.status}", has_response=True)
            body = bytearray()
            async for chunk in response.content.iter_any():
                body += chunk
                if len(body) > LARGEST_METRICS:
                    raise SourceError(
                        f"/metrics is longer than {LARGEST_METRICS // 2**20} MB", has_response=True
                    )
    return parse_metrics(body.decode("utf-8", "replace").splitlines())


def parse_metrics(lines: Iterable[str]) -> ConnectionCounts:
    """Return the counts in the text format of Prometheus. Samples that are no counts are left out."""
    counts: dict[str, int] = {}
    missing_count = None
    for line in lines:
        if not line.startswith(_NAMES) or (sample := _SAMPLE.match(line)) is None:
            continue
        count = _parse_count(sample["value"])
        if count is None:
            continue
        if sample["name"] == _MISSING_METRIC:
            missing_count = count
        elif sample["name"] in _CONNECTION_METRICS and (type_match := _TYPE.search(sample["labels"] or "")):
            resource_type = type_match[1]
            if 0 < len(resource_type) <= _LONGEST_TYPE and resource_type.isprintable():
                counts[resource_type] = count
    return ConnectionCounts(tuple(sorted(counts.items())[:_MOST_TYPES]), missing_count)


def _parse_count(text: str) -> int | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return int(value) if math.isfinite(value) and 0 <= value <= _LARGEST_COUNT else None


def _update_poll(poll: Poll, response: ConnectionCounts, at: float) -> Poll:
    return replace(
        poll,
        connection_counts=response.connection_counts,
        missing_tunnel_count=response.missing_tunnel_count,
        counted_at=at,
    )


CONNECTION_COUNTS = EvidenceSource(
    "connection-counts",
    get_connection_counts,
    applies_to=lambda target: bool(target.diag_address),
    update_poll=_update_poll,
    capabilities=frozenset({Capability.TUNNEL_COUNTS}),
)
