"""Documents of the diag ports of gateways and tunnel servers: `/routes`, `/destinations` and `/targets`. Pure.

Any program may be behind an address, so every field is checked, and long lists are cut.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from fleet.protocol.destination.health import Health
from fleet.protocol.text_limits import LONGEST_TEXT, cut
from fleet.vocabulary.edge_instances import (
    GatewayDestination,
    GatewayReport,
    RouteRetry,
    RouteRule,
    TunnelServerReport,
    TunnelTarget,
)

Document: TypeAlias = Mapping[str, Any]

#: Most entries of a list that are kept.
MOST_ENTRIES = 1_000
_LARGEST_NUMBER = 1e15


class EdgeDocumentError(Exception):
    """A document is not that of a gateway or a tunnel server; the text is a sentence without its full stop."""


def parse_gateway(routes: Document, destinations: Document) -> GatewayReport:
    """Return what `/routes` and `/destinations` report. Raises EdgeDocumentError."""
    rules = tuple(_rule_of(rule) for rule in _objects(routes, "rules"))
    share_by_address: dict[str, float] = {}
    for rule in rules:
        for _, shares in rule.shares:
            for address, share in shares:
                share_by_address[address] = share_by_address.get(address, 0.0) + share
    return GatewayReport(
        routes_file=_text(routes, "file"),
        problems=_texts(routes, "problems"),
        loaded_at=_optional_number(routes, "loaded_at"),
        open_call_count=_count(routes, "calls"),
        rules=rules,
        destinations=tuple(
            _destination_of(destination, share_by_address)
            for destination in _objects(destinations, "destinations")
        ),
        unresolved_backends=_texts(destinations, "unresolved"),
    )


def parse_tunnel_server(targets: Document) -> TunnelServerReport:
    """Return what `/targets` reports. Raises EdgeDocumentError."""
    if "client_count" not in targets:
        # A load balancer has `/targets`, too.
        raise EdgeDocumentError("/targets is not that of a tunnel server")
    return TunnelServerReport(
        client_count=_count(targets, "client_count"),
        wires=_texts(targets, "wires"),
        targets=tuple(
            TunnelTarget(
                name=_text(target, "target"),
                is_registered=target.get("registered") is True,
                client=_text(target, "client"),
                service=_text(target, "service"),
                forward=_text(target, "forward"),
                session_count=_count(target, "session_count"),
            )
            for target in _objects(targets, "targets")
        ),
    )


def _rule_of(rule: Document) -> RouteRule:
    backends = rule.get("backends")
    if not isinstance(backends, dict):
        raise EdgeDocumentError("a rule of /routes has no backends")
    # Older gateways do not report these three.
    timeouts = _object(rule, "timeouts")
    retry = _object(rule, "retry")
    retry_counts = _object(rule, "retry_counts")
    return RouteRule(
        name=_text(rule, "rule"),
        hostnames=_texts(rule, "hostnames"),
        matches=tuple(
            f"{_text(match, 'service') or '*'}/{_text(match, 'method') or '*'}"
            for match in _objects(rule, "matches")
        ),
        shares=tuple(
            (_clean(backend), tuple((_clean(address), _share_of(shares, address)) for address in shares))
            for backend, shares in list(backends.items())[:MOST_ENTRIES]
            if isinstance(shares, dict)
        ),
        retry=RouteRetry(_count(retry, "attempts"), _texts(retry, "reasons"), _number(retry, "backoff"))
        if retry
        else None,
        request_timeout=_number(timeouts, "request"),
        attempt_timeout=_number(timeouts, "backend_request"),
        call_count=_count(rule, "call_count"),
        retry_counts=tuple(
            (_clean(status), _count(retry_counts, status)) for status in list(retry_counts)[:MOST_ENTRIES]
        ),
    )


def _destination_of(destination: Document, share_by_address: Mapping[str, float]) -> GatewayDestination:
    address, health = _text(destination, "address"), _text(destination, "health")
    if health not in set(Health):
        raise EdgeDocumentError(f"{health!r:.50} in /destinations is no health")
    return GatewayDestination(
        address=address,
        backends=_texts(destination, "backends"),
        health=Health(health),
        reason=_text(destination, "reason"),
        error=_text(destination, "error"),
        is_draining=destination.get("draining") is True,
        connection_count=_count(destination, "connections"),
        is_ejected=address in share_by_address and share_by_address[address] <= 0,
    )


def _share_of(shares: Document, address: str) -> float:
    return min(_number(shares, address), 1.0)


def _objects(document: Document, name: str) -> Iterable[Document]:
    entries = document.get(name)
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise EdgeDocumentError(f"the response has no list of {name}")
    return entries[:MOST_ENTRIES]


def _object(document: Document, name: str) -> Document:
    part = document.get(name)
    return part if isinstance(part, dict) else {}


def _texts(document: Document, name: str) -> tuple[str, ...]:
    entries = document.get(name, [])
    if not isinstance(entries, list) or not all(isinstance(entry, str) for entry in entries):
        raise EdgeDocumentError(f"{name} is no list of texts")
    return tuple(cut(_clean(entry), LONGEST_TEXT) for entry in entries[:MOST_ENTRIES])


def _text(document: Document, name: str) -> str:
    text = document.get(name) or ""
    if not isinstance(text, str):
        raise EdgeDocumentError(f"{name} is no text")
    return cut(_clean(text), LONGEST_TEXT)


def _clean(text: str) -> str:
    return "".join(character if character.isprintable() else " " for character in text[:LONGEST_TEXT])


def _optional_number(document: Document, name: str) -> float | None:
    return None if document.get(name) is None else _number(document, name)


def _number(document: Document, name: str) -> float:
    number = document.get(name, 0)
    # A bool is an int, too.
    if not isinstance(number, (int, float)) or isinstance(number, bool):
        raise EdgeDocumentError(f"{_clean(name):.50} is no number")
    if not (math.isfinite(number) and 0 <= number <= _LARGEST_NUMBER):
        raise EdgeDocumentError(f"{_clean(name):.50} is out of range")
    return float(number)


def _count(document: Document, name: str) -> int:
    return int(_number(document, name))
