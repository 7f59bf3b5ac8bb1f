"""Route table: the rule for a call among several routes."""

from __future__ import annotations

import pytest

from fleet.protocol.retry.grpc_route import GRPCRoute, GRPCRouteRule, Match
from fleet.protocol.retry.route_table import RouteTable, host_of

TABLE = RouteTable(
    [
        GRPCRoute("any", rules=(GRPCRouteRule(), GRPCRouteRule((Match("a.B", "Special"),)))),
        GRPCRoute("wild", hostnames=("*.example.com",), rules=(GRPCRouteRule((Match("a.B"),)),)),
        GRPCRoute("deep", hostnames=("*.deep.example.com",), rules=(GRPCRouteRule(),)),
        GRPCRoute("exact", hostnames=("foo.example.com",), rules=(GRPCRouteRule((Match(method="Login"),)),)),
        GRPCRoute("twin", hostnames=("foo.example.com",), rules=(GRPCRouteRule((Match(method="Login"),)),)),
    ]
)


@pytest.mark.parametrize(
    ("authority", "path", "name"),
    [
        ("elsewhere:80", "/a.B/C", "any/0"),
        ("elsewhere", "/a.B/Special", "any/1"),
        ("x.example.com", "/a.B/Special", "wild/0"),
        ("x.y.example.com:443", "/a.B/C", "wild/0"),
        ("example.com", "/a.B/C", "any/0"),
        ("x.example.com", "/other/C", "any/0"),
        ("x.deep.example.com", "/a.B/C", "deep/0"),
        ("FOO.example.com:50051", "/a.B/Login", "exact/0"),
        ("foo.example.com", "/a.B/C", "wild/0"),
        (".example.com", "/a.B/C", "any/0"),
        ("", "", "any/0"),
    ],
)
def test_most_exact_rule_wins(authority: str, path: str, name: str) -> None:
    """Order: exact host, wildcard host, service, method; among equals the first."""
    rule = TABLE.find(authority, path)

    assert rule is not None
    assert rule.name == name


def test_call_that_matches_no_rule() -> None:
    table = RouteTable([GRPCRoute("a", hostnames=("a.b",), rules=(GRPCRouteRule(),)), GRPCRoute("empty")])

    assert table.find("b.a", "/a/b") is None
    assert [rule.name for rule in table.rules] == ["a/0"]


def test_host_of_an_authority_has_no_port() -> None:
    """Letters become lower case."""
    assert host_of("A.b:80") == "a.b"
    assert host_of("[::1]:80") == "[::1]"
    assert host_of("a") == "a"
