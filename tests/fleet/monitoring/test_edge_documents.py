"""Documents of diag ports: what is read, and that any other program's response is an error."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.monitoring.edge_documents import (
    MOST_ENTRIES,
    EdgeDocumentError,
    parse_gateway,
    parse_tunnel_server,
)
from fleet.protocol.destination.health import Health
from fleet.vocabulary.edge_instances import RouteRetry

ROUTES: dict[str, Any] = {
    "file": "/etc/routes.yaml",
    "loaded_at": 1000.0,
    "problems": ["spec.rules: missing"],
    "calls": 4,
    "rules": [
        {
            "rule": "r/0",
            "hostnames": ["a.b"],
            "matches": [{"service": "s", "method": ""}],
            "backends": {"svc:1": {"10.0.0.1:1": 1.0, "10.0.0.2:1": 0.0}},
            "retry": {"attempts": 3, "reasons": ["unavailable"], "backoff": 0.1},
            "timeouts": {"request": 10.0, "backend_request": 2.0},
            "call_count": 340,
            "retry_counts": {"UNAVAILABLE": 10, "INTERNAL": 2},
        }
    ],
}
DESTINATIONS: dict[str, Any] = {
    "destinations": [
        {"address": address, "health": health, "backends": ["svc:1"], "reason": "x", "connections": 1}
        for address, health in (("10.0.0.1:1", "healthy"), ("10.0.0.2:1", "unhealthy"))
    ],
    "unresolved": ["other:1"],
}
TARGETS: dict[str, Any] = {
    "client_count": 1,
    "wires": ["0.2"],
    "targets": [
        {"target": "r:SSH", "registered": True, "client": "edge-1", "forward": "h:1", "session_count": 2}
    ],
}


def test_gateway() -> None:
    """Rules with policies and counters; an address that gets no calls is ejected."""
    report = parse_gateway(ROUTES, DESTINATIONS)
    (rule,) = report.rules
    assert rule.matches == ("s/*",)
    assert rule.retry == RouteRetry(3, ("unavailable",), 0.1)
    assert (rule.request_timeout, rule.attempt_timeout) == (10.0, 2.0)
    assert (rule.call_count, rule.retry_count) == (340, 12)
    assert rule.shares == (("svc:1", (("10.0.0.1:1", 1.0), ("10.0.0.2:1", 0.0))),)
    assert [(row.health, row.is_ejected) for row in report.destinations] == [
        (Health.HEALTHY, False),
        (Health.UNHEALTHY, True),
    ]
    assert report.counts == {"rules": 1, "destinations": 2, "ejected": 1, "problems": 2}


def test_gateway_without_policies_is_read() -> None:
    """An older gateway reports neither policies nor counters."""
    (rule,) = ROUTES["rules"]
    old_rule = {name: rule[name] for name in ("rule", "hostnames", "matches", "backends")}
    report = parse_gateway(ROUTES | {"rules": [old_rule]}, DESTINATIONS)
    assert (report.rules[0].retry, report.rules[0].call_count) == (None, 0)


def test_tunnel_server() -> None:
    """Targets with client and sessions."""
    (target,) = parse_tunnel_server(TARGETS).targets
    assert (target.name, target.client, target.session_count) == ("r:SSH", "edge-1", 2)


def test_targets_of_a_load_balancer_are_no_tunnel_server() -> None:
    """It has `/targets` too."""
    with pytest.raises(EdgeDocumentError, match="is not that of a tunnel server"):
        parse_tunnel_server({"targets": []})


def test_long_lists_are_cut() -> None:
    """One instance must not fill pages and memory."""
    targets = [{"target": f"t-{number}"} for number in range(MOST_ENTRIES + 5)]
    assert len(parse_tunnel_server(TARGETS | {"targets": targets}).targets) == MOST_ENTRIES


def test_control_characters_are_replaced() -> None:
    """Texts are shown in terminals, too."""
    targets = [{"target": "a\x1b[31m", "client": "x" * 1000}]
    (target,) = parse_tunnel_server(TARGETS | {"targets": targets}).targets
    assert target.name == "a [31m"
    assert len(target.client) <= 256


@pytest.mark.parametrize(
    "change",
    [
        {"rules": {}},
        {"rules": [1]},
        {"rules": [{"rule": "r"}]},
        {"problems": "text"},
        {"problems": [1]},
        {"calls": -1},
        {"calls": True},
        {"calls": float("nan")},
        {"loaded_at": "now"},
        {"file": 1},
    ],
)
def test_other_documents_are_errors(change: dict[str, Any]) -> None:
    """Any program may be behind the address."""
    with pytest.raises(EdgeDocumentError):
        parse_gateway(ROUTES | change, DESTINATIONS)


def test_error_is_text_that_pages_can_show() -> None:
    """JSON may have surrogates, which no page and no database can store."""
    rule = {**ROUTES["rules"][0], "retry_counts": {"\ud800": "x"}}
    with pytest.raises(EdgeDocumentError) as caught:
        parse_gateway(ROUTES | {"rules": [rule]}, DESTINATIONS)
    assert str(caught.value).isprintable()


def test_unknown_health_is_an_error() -> None:
    """It would have no symbol on the page."""
    with pytest.raises(EdgeDocumentError, match="no health"):
        parse_gateway(ROUTES, {"destinations": [{"address": "a:1", "health": "fine"}]})


_JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=5),
    lambda children: (
        st.lists(children, max_size=3)
        | st.dictionaries(
            st.sampled_from(["rules", "targets", "backends", "retry", "destinations", "client_count", "x"]),
            children,
            max_size=4,
        )
    ),
    max_leaves=15,
)


@settings(max_examples=40)
@given(document=st.dictionaries(st.sampled_from([*ROUTES, *TARGETS, *DESTINATIONS]), _JSON))
def test_no_document_is_an_exception(document: dict[str, Any]) -> None:
    """Whatever a program responds, there is a report or an EdgeDocumentError."""
    for parse in (lambda: parse_gateway(document, document), lambda: parse_tunnel_server(document)):
        try:
            parse()
        except EdgeDocumentError:
            continue
