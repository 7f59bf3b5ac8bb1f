"""GRPCRoute: the rule for a call, and its retry policy."""

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
EVERY_CALL = GRPCRouteRule()
ROUTE = GRPCRoute("all", rules=(EVERY_CALL, ANY_GET, BY_SERVICE, BY_METHOD))


def test_most_exact_rule_wins() -> None:
    """The service decides first, then the method; a rule without matches takes the remaining calls."""
    assert ROUTE.rule_for("/a.B/Get") is BY_METHOD
    assert ROUTE.rule_for("/a.B/List") is BY_SERVICE
    assert ROUTE.rule_for("/c.D/List") is ANY_GET
    assert ROUTE.rule_for("/c.D/Put") is EVERY_CALL


def test_first_of_equal_rules_wins() -> None:
    """The Gateway API prescribes this order."""
    assert (
        GRPCRoute("", rules=(BY_SERVICE, GRPCRouteRule((Match("a.B"),), Retry()))).rule_for("/a.B/X")
        is BY_SERVICE
    )


def test_call_without_a_rule_is_not_retried() -> None:
    route = GRPCRoute("", rules=(BY_SERVICE,))

    assert route.rule_for("/c.D/Get") is None
    assert route.policy_for("/c.D/Get") is NO_RETRY


def test_empty_retry_uses_the_defaults() -> None:
    """docs/reference/retries.md documents these defaults."""
    assert GRPCRouteRule(retry=Retry()).policy == RetryPolicy(frozenset(), DEFAULT_ATTEMPTS, DEFAULT_BACKOFF)


def test_timeouts_apply_without_retry() -> None:
    timeouts = Timeouts(GepDuration.read("2s"), GepDuration.read("500ms"))

    assert GRPCRouteRule(timeouts=timeouts).policy == RetryPolicy(
        attempts=0, request=2.0, backend_request=0.5
    )


def test_values_of_retry_are_kept() -> None:
    """Zero is kept as well."""
    retry = Retry((RetryReason.INTERNAL,), 0, GepDuration.read("0s"))

    assert GRPCRouteRule(retry=retry).policy == RetryPolicy(frozenset({RetryReason.INTERNAL}), 0, 0.0)


def test_error_lists_every_problem_with_its_path() -> None:
    assert (
        str(RouteError([RouteProblem("a[0].b", "is odd"), RouteProblem("c", "too")]))
        == "a[0].b: is odd; c: too"
    )
