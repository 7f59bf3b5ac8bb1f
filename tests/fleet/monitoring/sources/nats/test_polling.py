from __future__ import annotations

import pytest

from fleet.monitoring.sources import SourceError
from fleet.monitoring.sources.nats.polling import (
    LEAF_CAPABILITIES,
    PORT_CHECK_SECONDS,
    check_hub,
    list_hubs,
    list_leaves,
)
from fleet.transport.poll_connections import Connections
from fleet.vocabulary.instances import InstanceKind, ServingStatus
from tests.fakes.nats import FakeHub, as_response, context_of, leafz, run_hub, varz


async def test_hubs_of_all_addresses_are_listed(connections: Connections) -> None:
    """Each lists only itself. One that does not respond is left out, and stays known."""
    async with run_hub() as first, run_hub() as second:
        second.set_documents(
            varz=varz(server_id="B", server_name="hub-2", leaf={"host": "10.0.0.2", "port": 7422})
        )
        addresses = (first.address, "127.0.0.1:1", second.address)
        hubs = await list_hubs(context_of(connections, first, addresses=addresses))
    assert [(hub.id, hub.kind, hub.resource.name) for hub in hubs] == [
        ("hub-1", InstanceKind.PROXY, "hub-1"),
        ("hub-2", InstanceKind.PROXY, "hub-2"),
    ]
    assert hubs[0].resource.address == f"127.0.0.1:{first.leaf_port}"
    assert (hubs[1].resource.address, hubs[1].resource.diag_address) == ("10.0.0.2:7422", second.address)
    assert (hubs[1].resource.version, hubs[1].resource.expires_at) == ("2.15.2", None)


async def test_no_hub_responds(connections: Connections) -> None:
    async with run_hub() as hub:
        with pytest.raises(SourceError, match=r"127\.0\.0\.1:1: ") as failure:
            await list_hubs(context_of(connections, hub, addresses=("127.0.0.1:1", "127.0.0.1:2")))
        assert not failure.value.has_response
        hub.set_documents(varz={"product": "other"})
        with pytest.raises(SourceError, match="not from nats-server") as failure:
            await list_hubs(context_of(connections, hub))
        assert failure.value.has_response


async def test_a_hub_with_two_addresses_is_one_instance(connections: Connections) -> None:
    async with run_hub() as hub:
        port = hub.address.rpartition(":")[2]
        hubs = await list_hubs(context_of(connections, hub, addresses=(hub.address, f"localhost:{port}")))
    assert [listed_hub.id for listed_hub in hubs] == ["hub-1"]


async def test_hubs_without_names_of_their_own_have_their_addresses(connections: Connections) -> None:
    """No name, which nats-server replaces with the id of this start; or the same name twice."""
    async with run_hub() as first, run_hub() as second, run_hub() as third:
        first.set_documents(varz=varz(server_id="A", server_name="A"))
        second.set_documents(varz=varz(server_id="B", server_name="nats"))
        third.set_documents(varz=varz(server_id="C", server_name="nats"))
        addresses = (first.address, second.address, third.address)
        hubs = await list_hubs(context_of(connections, first, addresses=addresses))
    assert [hub.id for hub in hubs] == [first.address, f"nats ({second.address})", f"nats ({third.address})"]


async def test_old_hubs_cannot_name_leaf_nodes(connections: Connections) -> None:
    """As long as no hub can: then the rest of the cluster is shown."""
    async with run_hub() as old, run_hub() as new:
        old.set_documents(varz=varz(server_id="OLD", version="2.9.10"))
        context = context_of(connections, old)
        await list_hubs(context)
        assert set(context.missing_capabilities) == LEAF_CAPABILITIES
        assert set(context.missing_capabilities.values()) == {
            "nats-server 2.9.10 does not name leaf nodes in /leafz: update it to 2.9.15 or newer."
        }
        context = context_of(connections, old, addresses=(old.address, new.address))
        await list_hubs(context)
        assert context.missing_capabilities == {}


async def test_leaf_nodes_are_a_full_list_until_nothing_changes(connections: Connections) -> None:
    """The same list again is no change: the record is not written."""
    async with run_hub() as hub:
        hub.set_documents(leafz=leafz("leaf-1", "leaf-2"))
        changes = await list_leaves(context_of(connections, hub))
        assert changes.agents == {"leaf-1": ("leaf-1", 0.0), "leaf-2": ("leaf-2", 0.0)}
        assert (changes.full, changes.complete) == (True, True)
        repeated = await list_leaves(context_of(connections, hub, epoch=changes.epoch))
        assert (repeated.agents, repeated.full, repeated.complete) == ({}, False, True)
        assert repeated.epoch == changes.epoch
        hub.set_documents(leafz=leafz("leaf-1"))
        smaller = await list_leaves(context_of(connections, hub, epoch=changes.epoch))
        assert (set(smaller.agents), smaller.full) == ({"leaf-1"}, True)
        assert smaller.revision != changes.revision == repeated.revision


async def test_two_leaf_nodes_with_one_name_are_one_agent(connections: Connections) -> None:
    async with run_hub() as hub:
        hub.set_documents(leafz=leafz("leaf-1", "leaf-1"))
        assert set((await list_leaves(context_of(connections, hub))).agents) == {"leaf-1"}


async def test_a_long_list_is_read(connections: Connections) -> None:
    """/leafz has no pages: 20,000 leaf nodes come in one response."""
    async with run_hub() as hub:
        hub.set_documents(leafz=leafz(*(f"leaf-{number}" for number in range(20_000))))
        assert len((await list_leaves(context_of(connections, hub))).agents) == 20_000


async def test_a_hub_is_healthy(connections: Connections) -> None:
    async with run_hub() as hub:
        health = await check_hub(context_of(connections, hub))
    assert (health.serving_status, health.problem) == (ServingStatus.SERVING, "")


async def test_a_hub_says_that_it_is_not_healthy(connections: Connections) -> None:
    async with run_hub() as hub:
        hub.responses["/healthz"] = as_response({"status": "unavailable", "error": "no meta leader"}, 503)
        health = await check_hub(context_of(connections, hub))
    assert health.serving_status is ServingStatus.NOT_SERVING
    assert health.problem == "its /healthz returns 503: no meta leader"


@pytest.mark.parametrize("document", [b"<html>", {"healthy": True}])
async def test_health_of_another_server_is_a_failure(connections: Connections, document: object) -> None:
    """Not a verdict on a hub."""
    async with run_hub() as hub:
        hub.set_documents(healthz=document)
        with pytest.raises(SourceError, match="/healthz"):
            await check_hub(context_of(connections, hub))


async def _is_serving(connections: Connections, hub: FakeHub, now: float) -> bool:
    context = context_of(connections, hub, now=now, remaining_seconds=lambda: 2.0)
    return (await check_hub(context)).serving_status is ServingStatus.SERVING


async def test_the_leaf_port_is_checked_when_leaf_nodes_leave(connections: Connections) -> None:
    """And every 30 s. Not in each round: the hub logs each connection. A port that failed is checked each time."""
    async with run_hub() as hub:
        leaf = {"host": "0.0.0.0", "port": hub.leaf_port}
        hub.set_documents(varz=varz(leaf=leaf, leafnodes=3))
        assert await _is_serving(connections, hub, 100.0)
        hub.set_documents(varz=varz(leaf=leaf, leafnodes=4))
        assert await _is_serving(connections, hub, 105.0)
        assert hub.port_checks == 1
        hub.set_documents(varz=varz(leaf=leaf, leafnodes=3))
        assert await _is_serving(connections, hub, 110.0)
        assert hub.port_checks == 2
        hub.first_bytes = None
        assert await _is_serving(connections, hub, 115.0)
        assert not await _is_serving(connections, hub, 110.0 + PORT_CHECK_SECONDS)
        assert not await _is_serving(connections, hub, 145.0)
        assert hub.port_checks == 4


async def test_without_time_the_leaf_port_is_not_judged(connections: Connections) -> None:
    """A slow poller is no evidence against a hub."""
    remaining = iter((20.0, 20.0))
    async with run_hub() as hub:
        with pytest.raises(SourceError, match="no time left"):
            await check_hub(context_of(connections, hub, remaining_seconds=lambda: next(remaining, 0.05)))
        assert hub.port_checks == 0


async def test_a_hub_without_a_leaf_port_is_judged_by_itself(connections: Connections) -> None:
    async with run_hub() as hub:
        hub.set_documents(varz=varz(leaf={}))
        assert await _is_serving(connections, hub, 100.0)
        assert hub.port_checks == 0
