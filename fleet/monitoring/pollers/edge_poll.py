"""Polls of edge instances: all at the same time, each by four requests to its diag port, within one deadline.

The responses tell the kind: a gateway has `/routes`, a tunnel server has `/targets`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp

from fleet.monitoring.edge_documents import Document, EdgeDocumentError, parse_gateway, parse_tunnel_server
from fleet.monitoring.sources import SourceError, map_source_errors
from fleet.vocabulary.edge_instances import EdgeResponse

READYZ, ROUTES, DESTINATIONS, TARGETS = PATHS = ("/readyz", "/routes", "/destinations", "/targets")
#: Bytes of a response: a gateway with 1,000 rules has about 500 kB.
LARGEST_RESPONSE = 1024 * 1024
_NOT_FOUND = 404


@dataclass(frozen=True, slots=True)
class EdgeAnswer:
    """Response to the requests of one attempt."""

    response: EdgeResponse
    #: The documents of the kind by path, as they were received; None without a usable report.
    documents: Mapping[str, Document] | None = None


@dataclass(frozen=True, slots=True)
class PathResponse:
    """Response to one request; `document` is None if it is not a JSON object, or the status is not 200."""

    status: int
    document: Document | None = None


#: Response, or why there is none or it cannot be used.
PathResult = PathResponse | SourceError


async def poll_edge_instances(
    session: aiohttp.ClientSession, addresses: Mapping[str, str], deadline: float
) -> dict[str, EdgeAnswer]:
    """Poll the edge instances (host:port of the diag port by name) and return their answers by name."""
    answers = await asyncio.gather(
        *(_poll(session, address, deadline) for address in addresses.values()),
    )
    return dict(zip(addresses, answers, strict=True))


async def _poll(session: aiohttp.ClientSession, address: str, deadline: float) -> EdgeAnswer:
    results = await asyncio.gather(*(_request(session, address, path, deadline) for path in PATHS))
    return interpret(address, dict(zip(PATHS, results, strict=True)))


def interpret(address: str, results: Mapping[str, PathResult]) -> EdgeAnswer:
    """Return what the results of one attempt mean."""
    readyz = results[READYZ]
    if isinstance(readyz, SourceError):
        if not readyz.has_response:
            return EdgeAnswer(EdgeResponse(None, None, f"{address}: {readyz}"))
        return EdgeAnswer(EdgeResponse(0, None, f"{address}: {readyz}"))
    routes, targets = results[ROUTES], results[TARGETS]
    paths = (TARGETS,) if _is_missing(routes) else (ROUTES, DESTINATIONS)
    if _is_missing(routes) and _is_missing(targets):
        return EdgeAnswer(
            EdgeResponse(
                readyz.status,
                None,
                f"{address} has neither {ROUTES} nor {TARGETS}. Enter the --diag-listen address of a gateway or "
                "tunnel server",
            )
        )
    try:
        documents = {path: _require_document(path, results[path]) for path in paths}
        report = (
            parse_gateway(documents[ROUTES], documents[DESTINATIONS])
            if ROUTES in documents
            else parse_tunnel_server(documents[TARGETS])
        )
    except (SourceError, EdgeDocumentError) as error:
        return EdgeAnswer(EdgeResponse(readyz.status, None, f"{address}: {error}"))
    return EdgeAnswer(EdgeResponse(readyz.status, report, ""), documents)


def _is_missing(path_result: PathResult) -> bool:
    return isinstance(path_result, PathResponse) and path_result.status == _NOT_FOUND


def _require_document(path: str, path_result: PathResult) -> Document:
    if isinstance(path_result, SourceError):
        raise path_result
    if path_result.document is None:
        code = "" if path_result.status == 200 else f" (HTTP {path_result.status})"
        raise SourceError(f"{path} is no JSON object{code}", has_response=True)
    return path_result.document


async def _request(session: aiohttp.ClientSession, address: str, path: str, deadline: float) -> PathResult:
    timeout = aiohttp.ClientTimeout(total=deadline)
    headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
    try:
        with map_source_errors():
            try:
                async with session.get(
                    f"http://{address}{path}", timeout=timeout, allow_redirects=False, headers=headers
                ) as response:
                    if path == READYZ:
                        return PathResponse(response.status)
                    if response.status != 200:
                        return PathResponse(response.status)
                    if response.headers.get("Content-Encoding", "identity") != "identity":
                        raise SourceError(f"{path} is compressed, which was not requested", has_response=True)
                    body = await _read(response.content, path)
            except (aiohttp.InvalidURL, ValueError) as error:
                raise SourceError(f"this is not an address: {error}", has_response=False) from None
    except SourceError as error:
        return error
    return PathResponse(200, _parse_object(body))


async def _read(content: aiohttp.StreamReader, path: str) -> bytes:
    body = bytearray()
    async for chunk in content.iter_any():
        body += chunk
        if len(body) > LARGEST_RESPONSE:
            raise SourceError(f"{path} is longer than {LARGEST_RESPONSE // 2**20} MB", has_response=True)
    return bytes(body)


def _parse_object(body: bytes) -> dict[str, Any] | None:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None
