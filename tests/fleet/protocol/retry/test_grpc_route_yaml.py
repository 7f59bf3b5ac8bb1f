"""GRPCRoute in YAML: the GEP's own example, and mistakes that are reported with their path."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.protocol.retry import grpc_route_yaml
from fleet.protocol.retry.gep_duration import LONGEST_MS, GepDuration
from fleet.protocol.retry.grpc_route import (
    BackendRef,
    GRPCRoute,
    GRPCRouteRule,
    Match,
    Retry,
    RouteError,
    SessionPersistence,
    SessionType,
    Timeouts,
)
from fleet.protocol.retry.policy import RetryReason

#: The example of GEP-3440, unchanged.
EXAMPLE = """\
apiVersion: gateway.networking.k8s.io/v1
kind: GRPCRoute
metadata:
  name: foo-route
spec:
  parentRefs:
  - name: example-gateway
  hostnames:
  - "foo.example.com"
  rules:
  - matches:
    - method:
        service: com.example
        method: Login
    retry:
      reasons:
      - cancelled
      - deadline-exceeded
      - internal
      - resource-exhausted
      - unavailable
      attempts: 3
      backoff: 100ms
    backendRefs:
    - name: foo-svc
      port: 50051
"""
ROUTE = GRPCRoute(
    "foo-route",
    "",
    ("example-gateway",),
    ("foo.example.com",),
    (
        GRPCRouteRule(
            (Match("com.example", "Login"),),
            Retry(tuple(RetryReason), 3, GepDuration("100ms", 100)),
            Timeouts(),
            (BackendRef("foo-svc", 50051),),
        ),
    ),
)


def test_gep_example_round_trips() -> None:
    assert grpc_route_yaml.from_yaml(EXAMPLE) == (ROUTE,)
    assert grpc_route_yaml.from_yaml(grpc_route_yaml.to_yaml([ROUTE])) == (ROUTE,)


@pytest.mark.parametrize(
    ("spelling", "correct"),
    [("UNAVAILABLE", "unavailable"), ("Unavailable", "unavailable"), ("canceled", "cancelled")],
)
def test_other_spelling_of_a_reason_is_refused(spelling: str, correct: str) -> None:
    """The GEP's schema refuses it too; the error has the correct spelling."""
    assert f"{RULE}.retry.reasons[4]: '{spelling}' is not a retry reason. Use {correct}" in yaml_error(
        EXAMPLE.replace("- unavailable", f"- {spelling}")
    )


def test_session_persistence() -> None:
    """Persistence is by header or cookie, with a name or the default; unsupported keys are refused."""
    persistence = "    sessionPersistence: {}\n    retry:"

    def read(yaml_text: str) -> SessionPersistence | None:
        (route,) = grpc_route_yaml.from_yaml(
            EXAMPLE.replace("    retry:", persistence.replace("{}", yaml_text))
        )
        assert grpc_route_yaml.from_yaml(grpc_route_yaml.to_yaml([route])) == (route,)
        return route.rules[0].sessions

    assert read("{}") == SessionPersistence("refloat-session", SessionType.COOKIE)
    assert read("{type: Header, sessionName: X-User}") == SessionPersistence("X-User", SessionType.HEADER)
    for yaml_text, expected_error in {
        "{type: header}": "type: 'header' is not a session type. Use Cookie or Header",
        "{type: []}": "type: a list is not a session type. Use Cookie or Header",
        "{sessionName: grpc-status}": "sessionName: 'grpc-status' is not a valid name",
        "{sessionName: 'a b'}": "sessionName: 'a b' is not a valid name",
        "{idleTimeout: 1h}": "idleTimeout: is not a known or supported key",
        "": "is empty. Write {} or leave it out",
    }.items():
        error = yaml_error(EXAMPLE.replace("    retry:", persistence.replace("{}", yaml_text)))
        assert f"{RULE}.sessionPersistence" in error
        assert expected_error in error


def test_duration_is_written_as_it_was() -> None:
    """GEP-2257: a duration keeps the form that the user wrote."""
    text = grpc_route_yaml.to_yaml(grpc_route_yaml.from_yaml(EXAMPLE.replace("100ms", "0s50ms050ms")))

    assert "backoff: 0s50ms050ms\n" in text


_durations = st.none() | st.integers(0, LONGEST_MS).map(GepDuration.of)
_names = st.from_regex(r"[a-z][a-z0-9]{0,5}", fullmatch=True)
_rules = st.builds(
    GRPCRouteRule,
    st.lists(st.builds(Match, _names, _names), max_size=2).map(tuple),
    st.none()
    | st.builds(
        Retry,
        st.lists(st.sampled_from(RetryReason), unique=True).map(tuple),
        st.none() | st.integers(0, 10**9),
        _durations,
    ),
    st.builds(Timeouts, _durations, st.none() | st.just(GepDuration.read("0s"))),
    st.lists(st.builds(BackendRef, _names, st.integers(1, 65_535), st.integers(0, 10**6)), max_size=2).map(
        tuple
    ),
    st.none() | st.builds(SessionPersistence, _names.map("x-{}".format), st.sampled_from(SessionType)),
)
_lists = st.lists(_names, max_size=2).map(tuple)
_routes = st.builds(
    GRPCRoute, _names, st.just("") | _names, _lists, _lists, st.lists(_rules, max_size=2).map(tuple)
)


@given(
    st.lists(_routes, min_size=1, max_size=2, unique_by=lambda route: (route.namespace, route.name)).map(
        tuple
    )
)
def test_routes_round_trip(routes: tuple[GRPCRoute, ...]) -> None:
    """Several routes in a file keep every field; names such as `null` and `true` stay names."""
    assert grpc_route_yaml.from_yaml(grpc_route_yaml.to_yaml(routes)) == routes


RULE = "spec.rules[0]"


@pytest.mark.parametrize(
    ("before", "after", "expected_error"),
    [
        ("- internal", "- not-found", f"{RULE}.retry.reasons[2]: 'not-found' is not a retry reason"),
        ("- internal", "- 13", f"{RULE}.retry.reasons[2]: '13' is not a retry reason"),
        ("attempts: 3", "attempts: -1", f"{RULE}.retry.attempts: -1 is out of range. Use 0 or more"),
        ("attempts: 3", "attempts: -0x" + "f" * 5000, "the number is longer than 40 characters"),
        ("attempts: 3", "attempts: 3.0", f"{RULE}.retry.attempts: 3.0 is not a whole number"),
        ("attempts: 3", "attempts: yes", f"{RULE}.retry.attempts: True is not a whole number"),
        ("attempts: 3", "attempts: '3'", f"{RULE}.retry.attempts: '3' is not a whole number"),
        ("attempts: 3", "attempts:", f"{RULE}.retry.attempts: None is not a whole number"),
        ("attempts: 3", "attempt: 3", f"{RULE}.retry.attempt: is not a known or supported key"),
        ("100ms", "1.5h", f"{RULE}.retry.backoff: '1.5h' is not a duration. Use"),
        ("100ms", '"5ms\\n"', f"{RULE}.retry.backoff: '5ms\\\\n' is not a duration. Use"),
        ("100ms", "99999h99999h", f"{RULE}.retry.backoff: '99999h99999h' is longer than 99999h59m59s999ms"),
        ("100ms", "999999h", f"{RULE}.retry.backoff: '999999h' is not a duration"),
        ("100ms", "100", f"{RULE}.retry.backoff: 100 is not a duration. Use a form like 100ms"),
        ("100ms", "1:30", f"{RULE}.retry.backoff: 90 is not a duration. Use a form like 100ms"),
        ("port: 50051", "port: 0", f"{RULE}.backendRefs[0].port: 0 is out of range. Use 1 to 65535"),
        ("port: 50051", "weight: 1", f"{RULE}.backendRefs[0].port: is missing"),
        ("name: foo-svc", "name: ''", f"{RULE}.backendRefs[0].name: '' is not a valid name"),
        ("service: com.example", "service: a/b", f"{RULE}.matches[0].method.service: 'a/b' is not a valid name"),
        ("service: com.example", "type: RegularExpression", "is not supported. Use Exact"),
        ("foo.example.com", "127.0.0.1", "spec.hostnames[0]: '127.0.0.1' is an IP address"),
        ("foo.example.com", "Foo:80", "spec.hostnames[0]: 'Foo:80' is not a host name"),
        ("kind: GRPCRoute", "kind: HTTPRoute", "kind: 'HTTPRoute' is not supported. Use GRPCRoute"),
        ("name: foo-route", "labels: {}", "metadata.name: is missing"),
        ("  rules:", "  rules: {}\n  more:", "spec.rules: is not a list; spec.more: is not a known or supported key"),
        ("    retry:", "    filters: []\n    retry:", f"{RULE}.filters: is not a known or supported key"),
        ("    retry:", "    timeouts: []\n    retry:", f"{RULE}.timeouts: is not a mapping"),
        ("    retry:", "    timeouts:\n    retry:", f"{RULE}.timeouts: is empty. Write {{}} or leave it out"),
        ("- name: foo-svc", "- name: 'foo svc'", f"{RULE}.backendRefs[0].name: 'foo svc' is neither a DNS name"),
        ("name: foo-svc", "name: http://a:1", f"{RULE}.backendRefs[0].name: 'http://a:1' is neither a DNS name"),
        ("name: foo-svc", "name: " + "a" * 64, f"{RULE}.backendRefs[0].name: '" + "a" * 64 + "' is neither"),
        ("name: foo-svc", 'name: "\\ud800"', f"{RULE}.backendRefs[0].name: '\\ud800' is neither a DNS name"),
        ("spec:", "spec:\n  spec:", "spec.spec: is not a known or supported key"),
        ("attempts: 3", "attempts: 3\n      attempts: 4", "YAML: line 23: the key 'attempts' occurs twice"),
    ],
)  # fmt: skip
def test_mistake_is_reported_with_its_path(before: str, after: str, expected_error: str) -> None:
    """Each error uses the keys of the file."""
    assert before in EXAMPLE
    error = yaml_error(EXAMPLE.replace(before, after, 1))
    for part in expected_error.replace("\\\\", "\\").split("; "):
        assert part in error


def test_all_mistakes_are_reported_at_once() -> None:
    error = yaml_error(EXAMPLE.replace("attempts: 3", "attempts: -3").replace("100ms", "1d"))

    assert f"{RULE}.retry.attempts: " in error
    assert f"{RULE}.retry.backoff: " in error


def test_timeouts() -> None:
    """An attempt's timeout may not exceed the request's; zero means no timeout, so any other fits."""
    timeouts = "    timeouts: {{request: {}, backendRequest: {}}}\n    retry:"

    (route,) = grpc_route_yaml.from_yaml(EXAMPLE.replace("    retry:", timeouts.format("2s", "2000ms")))
    assert route.rules[0].policy.request == route.rules[0].policy.backend_request == 2.0
    (route,) = grpc_route_yaml.from_yaml(EXAMPLE.replace("    retry:", timeouts.format("0s", "1h")))
    assert route.rules[0].policy.request == 0.0
    assert f"{RULE}.timeouts.backendRequest: 3s is longer than timeouts.request, 2s" in yaml_error(
        EXAMPLE.replace("    retry:", timeouts.format("2s", "3s"))
    )


def test_match_without_service_and_method_is_refused() -> None:
    head, tail = EXAMPLE.split("    - method:\n        service: com.example\n        method: Login\n")
    assert f"{RULE}.matches[0].method: has neither" in yaml_error(
        f"{head}    - method: {{type: Exact}}\n{tail}"
    )


def test_error_names_the_document() -> None:
    second_route = EXAMPLE.replace("foo-route", "bar-route")
    error = yaml_error(f"{EXAMPLE}---\n{second_route.replace('100ms', 'soon')}")

    assert error.startswith(f"document 2: {RULE}.retry.backoff: 'soon'")


def test_two_routes_of_one_name_are_refused() -> None:
    """Within a namespace neither people nor metrics could distinguish them."""
    assert (
        yaml_error(f"{EXAMPLE}---\n{EXAMPLE}")
        == "document 2: metadata.name: 'foo-route' is also the name of document 1"
    )
    elsewhere = EXAMPLE.replace("name: foo-route", "name: foo-route\n  namespace: elsewhere")
    assert len(grpc_route_yaml.from_yaml(f"{EXAMPLE}---\n{elsewhere}")) == 2


def test_truncated_file_is_refused() -> None:
    """A truncated file is often valid YAML: without a rule it would refuse every call."""
    lines = EXAMPLE.splitlines(keepends=True)
    rule = lines.index("        method: Login\n")

    assert all(_is_refused("".join(lines[:number])) for number in range(1, rule))
    assert not _is_refused("".join(lines[: rule + 1]))  # a rule without a backend is one: UNAVAILABLE


@pytest.mark.parametrize("name", ["10.0.0.1", "::1", "foo_svc", "foo.bar.svc.cluster.local", "A-1"])
def test_valid_backend_names(name: str) -> None:
    """A name is resolved by DNS or mapped by a flag."""
    text = EXAMPLE.replace("name: foo-svc", f"name: '{name}'")
    assert grpc_route_yaml.from_yaml(text)[0].rules[0].backends[0].name == name


@pytest.mark.parametrize("line_ending", ["\r\n", "\r"])
def test_line_endings_and_byte_order_mark_are_accepted(line_ending: str) -> None:
    assert grpc_route_yaml.from_yaml("\ufeff" + EXAMPLE.replace("\n", line_ending)) == (ROUTE,)


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n", "[", "- a", "5", "a: &a [*a]"])
def test_file_without_a_route_is_refused(text: str) -> None:
    """The error is a RouteError, never another exception."""
    assert yaml_error(text)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text("abhms0159.-", max_size=6),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    ["spec", "rules", "retry", "attempts", "backoff", "reasons", "matches", "method"]
                ),
                inner,
                max_size=4,
            )
        ),
        max_leaves=20,
    )
)
def test_any_document_gives_only_route_problems(document: object) -> None:
    """No document raises another exception."""
    problems: list[object] = []
    grpc_route_yaml._RouteReader(problems, "").route(document)  # type: ignore[arg-type]

    assert problems


def _is_refused(text: str) -> bool:
    try:
        grpc_route_yaml.from_yaml(text)
    except RouteError:
        return True
    return False


def yaml_error(text: str) -> str:
    with pytest.raises(RouteError) as caught:
        grpc_route_yaml.from_yaml(text)
    return str(caught.value)
