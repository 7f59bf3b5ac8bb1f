"""GRPCRoute: which rule is for a call, and how that is retried."""

from __future__ import annotations

from fleet.protocol.retry.gep_duration import GepDuration
from fleet.protocol.retry.grpc_route import (
    GRPCRoute,
    GRPCRouteRule,
    Match,
    Retry,
    RouteError,
    RouteProblem,
    Timeouts,
)
from fleet.protocol.retry.policy import DEFAULT_ATTEMPTS, DEFAULT_BACKOFF, NO_RETRY, RetryPolicy, RetryReason

BY_SERVICE = GRPCRouteRule((Match("a.B"),))
BY_METHOD = GRPCRouteRule((Match("a.B", "Get"),))
ANY_GET = GRPCRouteRule((Match(method="Get"), Match(method="List")))
REST = GRPCRouteRule()
ROUTE = GRPCRoute("all", rules=(REST, ANY_GET, BY_SERVICE, BY_METHOD))


def test_most_exact_rule_wins() -> None:
    """First by the service, then by the method; a rule without matches is for what is left."""
    assert ROUTE.rule_for("/a.B/Get") is BY_METHOD
    assert ROUTE.rule_for("/a.B/List") is BY_SERVICE
    assert ROUTE.rule_for("/c.D/List") is ANY_GET
    assert ROUTE.rule_for("/c.D/Put") is REST


def test_first_of_equal_rules_wins() -> None:
    """As the Gateway API says."""
    assert (
        GRPCRoute("", rules=(BY_SERVICE, GRPCRouteRule((Match("a.B"),), Retry()))).rule_for("/a.B/X")
        is BY_SERVICE
    )


def test_call_without_a_rule() -> None:
    """Is not retried."""
    route = GRPCRoute("", rules=(BY_SERVICE,))

    assert route.rule_for("/c.D/Get") is None
    assert route.policy_for("/c.D/Get") is NO_RETRY


def test_policy_of_an_empty_retry() -> None:
    """What was not said is the default that docs/reference/retries.md names."""
    assert GRPCRouteRule(retry=Retry()).policy == RetryPolicy(frozenset(), DEFAULT_ATTEMPTS, DEFAULT_BACKOFF)


def test_policy_without_retry() -> None:
    """Timeouts hold all the same."""
    timeouts = Timeouts(GepDuration.read("2s"), GepDuration.read("500ms"))

    assert GRPCRouteRule(timeouts=timeouts).policy == RetryPolicy(
        attempts=0, request=2.0, backend_request=0.5
    )


def test_policy_of_what_was_said() -> None:
    """Nothing is lost, also when it is zero."""
    retry = Retry((RetryReason.INTERNAL,), 0, GepDuration.read("0s"))

    assert GRPCRouteRule(retry=retry).policy == RetryPolicy(frozenset({RetryReason.INTERNAL}), 0, 0.0)


def test_error_has_every_problem() -> None:
    """With its path."""
    assert (
        str(RouteError([RouteProblem("a[0].b", "is odd"), RouteProblem("c", "too")]))
        == "a[0].b: is odd; c: too"
    )
