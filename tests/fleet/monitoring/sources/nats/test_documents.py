from __future__ import annotations

import json

import pytest

from fleet.monitoring.sources.nats.documents import (
    NATSDocumentError,
    OldVersionError,
    find_health_problem,
    make_id,
    parse_hub,
    parse_leaves,
)
from tests.fakes.nats import leafz, varz

_MARKUP = "<script>alert(1)</script>"
#: As nats-server 2.9.10 and 2.15.2 list them.
_OLD_LEAF = {"account": "$G", "ip": "127.0.0.1", "port": 52112, "rtt": "452µs", "subscriptions": 5}


def test_a_hub_reports_itself() -> None:
    """Name, version, port for leaf nodes, number of them, and its clock with nanoseconds."""
    hub = parse_hub(varz(leaf={"host": "10.0.0.1", "port": 7422, "tls_required": True}, leafnodes=2))
    assert (hub.name, hub.version, hub.has_name, hub.names_leaves) == ("hub-1", "2.15.2", True, True)
    assert (hub.leaf_host, hub.leaf_port, hub.has_leaf_tls, hub.leaf_count) == ("10.0.0.1", 7422, True, 2)
    assert hub.now == pytest.approx(100.123456)


@pytest.mark.parametrize(
    ("version", "names_leaves"),
    [
        ("2.9.14", False),
        ("2.9.15", True),
        ("2.10.0-beta.3", True),
        ("3.0.0", True),
        ("next", True),
        ("1.4.1", False),
    ],
)
def test_versions_that_name_leaf_nodes(version: str, names_leaves: bool) -> None:
    """An unknown version is not called old."""
    assert parse_hub(varz(version=version)).names_leaves is names_leaves


def test_a_server_without_a_name_is_named_by_its_id() -> None:
    assert not parse_hub(varz(server_name="HUB")).has_name


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"status": "ok"},
        varz(server_id=7),
        varz(version=None),
        {"server_id": "x", "version": "1"},
    ],
)
def test_a_document_of_another_server_is_refused(document: dict[str, object]) -> None:
    with pytest.raises(NATSDocumentError, match="not from nats-server"):
        parse_hub(document)


@pytest.mark.parametrize(
    "leaf", [None, "7422", [], {"port": "7422"}, {"port": 0}, {"port": 70000}, {"port": True}]
)
def test_a_port_that_is_none_is_no_port(leaf: object) -> None:
    assert parse_hub(varz(leaf=leaf)).leaf_port == 0


@pytest.mark.parametrize(
    "now", ["", "9999-99-99", "0001-01-01T00:00:00Z", "yesterday", 5, "2026-11-28T18:58:26"]
)
def test_a_clock_that_cannot_be_read_is_no_clock_or_a_time(now: object) -> None:
    """Without a time zone too."""
    moment = parse_hub(varz(now=now)).now
    assert moment is None or moment < 0


def test_leaf_nodes_keep_their_id_over_reconnects() -> None:
    """The port of the connection changes, and with it the digest of the list."""
    before, after = leafz("leaf-1"), leafz("leaf-0", "leaf-1")
    after["leafs"].pop(0)
    first, second = parse_leaves(before), parse_leaves(after)
    assert [leaf.agent_id for leaf in first.connections] == ["leaf-1"]
    assert [leaf.agent_id for leaf in second.connections] == ["leaf-1"]
    assert first.digest != second.digest


def test_the_order_of_the_list_changes_nothing() -> None:
    """nats-server lists the connections in random order."""
    document = leafz("leaf-1", "leaf-2")
    digest = parse_leaves(document).digest
    document["leafs"].reverse()
    assert parse_leaves(document).digest == digest


def test_accounts_of_one_leaf_node_are_agents_of_their_own() -> None:
    """Each account has a connection, which can be cut off alone. The default account is not named."""
    document = leafz("leaf-1", "leaf-1")
    document["leafs"][1]["account"] = "ORDERS"
    leaf_list = parse_leaves(document)
    assert [(leaf.agent_id, leaf.name) for leaf in leaf_list.connections] == [
        ("leaf-1", "leaf-1"),
        ("leaf-1@ORDERS", "leaf-1 (ORDERS)"),
    ]


def test_a_hub_above_is_not_a_leaf_node() -> None:
    """A hub that is a leaf node of another hub lists that connection, with itself as the spoke."""
    document = leafz("top", "leaf-1")
    document["leafs"][0]["is_spoke"] = True
    assert [leaf.name for leaf in parse_leaves(document).connections] == ["leaf-1"]


def test_an_old_version_names_no_leaf_nodes() -> None:
    with pytest.raises(OldVersionError, match=r"update it to 2\.9\.15 or newer"):
        parse_leaves(leafz(leafs=[_OLD_LEAF]))


def test_a_leaf_node_without_a_name_is_counted() -> None:
    leaf_list = parse_leaves(leafz("leaf-1", ""))
    assert (len(leaf_list.connections), leaf_list.unnamed_count) == (1, 1)


def test_a_name_that_is_a_server_id_is_unstable() -> None:
    leaf_list = parse_leaves(leafz("NDD5NQE2WAMPEA7N5V56BA7LNHOCWXHXB2IVMRNXONGDKFILRFJPLSMI", "N-1"))
    assert [leaf.is_named_by_id for leaf in leaf_list.connections] == [True, False]


@pytest.mark.parametrize("leafs", [{}, "x", 5, [5], [None], [[]]])
def test_a_list_that_is_none_is_refused(leafs: object) -> None:
    if not leafs:
        assert parse_leaves(leafz(leafs=leafs)).connections == ()
        return
    with pytest.raises(NATSDocumentError):
        parse_leaves(leafz(leafs=leafs))


@pytest.mark.parametrize(
    "name",
    ["n" * 300, _MARKUP, "a/b", "..", " x", "a\nb\tc", "\u202eevil", json.loads('"\\ud800"'), "\0"],
)
def test_names_become_ids_that_fit_everywhere(name: str) -> None:
    """Short, printable, and one part of an address of a page; other names have other ids."""
    document = leafz(name, f"{name}2")
    document["leafs"][1] |= {"ip": ["x"] * 1000, "port": {"a": 1}}
    first, second = parse_leaves(document).connections
    for leaf in (first, second):
        assert 0 < len(leaf.agent_id) <= 128
        assert leaf.agent_id.isprintable()
        assert leaf.agent_id not in {".", ".."}
        assert "/" not in leaf.agent_id
        assert leaf.name.isprintable()
        assert len(leaf.name) <= 256
        leaf.agent_id.encode()
        assert len(leaf.endpoint) < 100
    assert first.agent_id != second.agent_id
    assert parse_leaves(document).digest == parse_leaves(document).digest


def test_usable_names_are_ids() -> None:
    """What an operator wrote into the configuration stands in addresses of pages."""
    for name in ("leaf-1", "Berlin Süd", "store.example.com", "a" * 128):
        assert make_id(name) == name


@pytest.mark.parametrize(
    ("status", "document", "problem"),
    [
        (200, {"status": "ok"}, ""),
        (
            503,
            {"status": "unavailable", "error": "JetStream is not current"},
            "its /healthz returns 503: JetStream is not current",
        ),
        (500, {"status": "error"}, "its /healthz returns 500: error"),
        (200, {"status": "x" * 1000}, f"its /healthz returns 200: {'x' * 49}…"),
        (503, {"status": "ok", "error": "e" * 1000}, f"its /healthz returns 503: {'e' * 199}…"),
    ],
)
def test_health(status: int, document: dict[str, object], problem: str) -> None:
    assert find_health_problem(status, document) == problem


def test_health_of_another_server_is_refused() -> None:
    with pytest.raises(NATSDocumentError):
        find_health_problem(200, {"healthy": True})
