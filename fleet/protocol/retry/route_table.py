"""Lookup of the GRPCRoute rule for a call, by host, service and method, in the Gateway API's order. Pure.

https://gateway-api.sigs.k8s.io/reference/spec/#grpcrouterule, "matches".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fleet.protocol.retry.grpc_route import GRPCRoute, GRPCRouteRule, Match


@dataclass(frozen=True, slots=True)
class RouteEntry:
    """A rule with its route and its index in it."""

    route: GRPCRoute
    rule: GRPCRouteRule
    rule_index: int

    @property
    def name(self) -> str:
        """Name for logs and metrics: the route and the index of the rule, from 0 as in paths of fields."""
        space = f"{self.route.namespace}/" if self.route.namespace else ""
        return f"{space}{self.route.name}/{self.rule_index}"


#: Precedence of a rule: characters of the host without a wildcard, of the host, of the service, of the method.
_Precedence = tuple[int, int, int, int]


class RouteTable:
    """The routes of a gateway."""

    def __init__(self, routes: Iterable[GRPCRoute]) -> None:
        self.routes = tuple(routes)

    @property
    def rules(self) -> list[RouteEntry]:
        """All rules of all routes."""
        return [
            RouteEntry(route, rule, rule_index)
            for route in self.routes
            for rule_index, rule in enumerate(route.rules)
        ]

    def find(self, authority: str, path: str) -> RouteEntry | None:
        """Return the rule for a call of `/service/method` at a host: the most specific, then the first; else None."""
        host = host_of(authority)
        service, _, method = path.removeprefix("/").rpartition("/")
        best_precedence: _Precedence = (-1, -1, -1, -1)
        entry = None
        for route in self.routes:
            host_precedence = _host_precedence(route, host)
            if host_precedence is None:
                continue
            for rule_index, rule in enumerate(route.rules):
                for match in rule.matches or (Match(),):
                    precedence = (*host_precedence, *match.precedence)
                    if precedence > best_precedence and match.matches(service, method):
                        best_precedence, entry = precedence, RouteEntry(route, rule, rule_index)
        return entry


def host_of(authority: str) -> str:
    """Return the host of `host:port`, in lower case."""
    host, colon, port = authority.rpartition(":")
    return (host if colon and port.isdigit() else authority).lower()


def _host_precedence(route: GRPCRoute, host: str) -> tuple[int, int] | None:
    """Return how specifically a route matches a host; None: not at all."""
    if not route.hostnames:
        return 0, 0
    matching_hostnames = [name for name in route.hostnames if name == host or _matches_wildcard(name, host)]
    return max(
        ((0 if name.startswith("*.") else len(name), len(name)) for name in matching_hostnames), default=None
    )


def _matches_wildcard(name: str, host: str) -> bool:
    """Return whether a wildcard matches a host: it stands for one or more labels."""
    return name.startswith("*.") and host.endswith(name[1:]) and len(host) > len(name) - 1
