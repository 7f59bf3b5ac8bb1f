"""Which incidents the routes above leave to a route."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.alerts.matchers import parse_matchers
from fleet.alerts.routing.reach import iterate_reach
from fleet.alerts.routing.tree import Route, make_trial_incident, match_routes
from fleet.vocabulary.incidents import Cause, CauseKind, Severity

_C, _W, _I = Severity.CRITICAL, Severity.WARNING, Severity.INFO


def _route(name: str, matchers: str = "", severity: Severity = _W, **values: object) -> Route:
    route = Route(name, matchers=parse_matchers(matchers, is_for_route=True), min_severity=severity)
    return replace(route, **values)


@pytest.mark.parametrize(
    ("above", "route", "expected_severities", "taking_count", "overlapping_count"),
    [
        (_route("a", severity=_C), _route("b"), {_W}, 1, 0),
        (_route("a", severity=_C), _route("b", severity=_I), {_W, _I}, 1, 0),
        (_route("a"), _route("b", severity=_C), set(), 1, 0),
        (_route("a", severity=_C, should_continue=True), _route("b"), {_C, _W}, 0, 0),
        (_route("a", "kind=proxy"), _route("b"), {_C, _W}, 0, 1),
        (_route("a", "kind=proxy"), _route("b", "kind=proxy cause=x"), set(), 1, 0),
        (_route("a", "kind=proxy|auth", _C), _route("b", "kind=auth"), {_W}, 1, 0),
        (_route("a", "kind=proxy"), _route("b", "kind=auth"), {_C, _W}, 0, 0),
        (_route("a", "kind!=proxy"), _route("b", "kind=proxy"), {_C, _W}, 0, 0),
        (_route("a", "cause=proxy-1"), _route("b", "cause=proxy-2"), {_C, _W}, 0, 0),
        (_route("a", "cause=proxy-*"), _route("b", "cause=proxy-2"), {_C, _W}, 0, 1),
        (_route("a", "severity=warning"), _route("b"), {_C}, 1, 0),
        (_route("a", "severity=critical kind=proxy"), _route("b", "severity=warning"), {_W}, 0, 0),
        (_route("a", cluster="eu"), _route("b"), {_C, _W}, 0, 1),
        (_route("a", cluster="eu"), _route("b", cluster="us"), {_C, _W}, 0, 0),
    ],
)
def test_route_above_takes_incidents(
    above: Route, route: Route, expected_severities: set[Severity], taking_count: int, overlapping_count: int
) -> None:
    """All of some severities, some of them, or none."""
    ((_, first_reach), (_, reach)) = iterate_reach((above, route))
    assert not first_reach.taking_routes
    assert (reach.severities, len(reach.taking_routes), len(reach.overlapping_routes)) == (
        expected_severities,
        taking_count,
        overlapping_count,
    )


def test_nested_route_has_the_conditions_of_its_parents() -> None:
    """And the routes above a parent take its incidents, too; those below have nothing to do with it."""
    child = _route("child", "kind=proxy", _I)
    parent = _route("parent", severity=_W, children=(child,))
    roots = (_route("first", "kind=proxy", _C), parent, _route("last"))
    reach = {route.name: reach for route, reach in iterate_reach(roots)}
    assert (reach["child"].severities, reach["child"].taken_severities) == ({_W}, {_C})
    assert [route.name for route in reach["parent"].overlapping_routes] == ["first"]
    assert not reach["last"].severities


_MATCHER_TEXTS = (
    "",
    "kind=proxy",
    "kind!=proxy",
    "kind=auth",
    "cause=a",
    "cause=b",
    "severity=critical",
    "cause=a|b",
)
_single_routes = st.builds(
    _route,
    st.just("x"),
    st.sampled_from(_MATCHER_TEXTS),
    st.sampled_from(Severity),
    should_continue=st.booleans(),
)
_nested_routes = st.builds(
    lambda route, children: replace(route, children=tuple(children)),
    _single_routes,
    st.lists(_single_routes, max_size=2),
)


@given(st.lists(_nested_routes, min_size=1, max_size=4))
def test_incident_ends_only_at_routes_that_its_severity_reaches(branches: list[Route]) -> None:
    """For every tree, kind, cause and severity."""
    counter = iter(range(1, 100))

    def number(route: Route) -> Route:
        return replace(route, number=next(counter), children=tuple(map(number, route.children)))

    roots = tuple(map(number, branches))
    severities = {route.number: reach.severities for route, reach in iterate_reach(roots)}
    for kind in (CauseKind.PROXY, CauseKind.AUTH):
        for name in ("a", "b", "c"):
            for severity in Severity:
                incident = make_trial_incident("default", Cause(kind, "id", name), severity, "", "", 0.0)
                for matched in match_routes(roots, incident):
                    assert severity in severities[matched.route.number]
