from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from fleet.monitoring.pollers.shard_poll import query_source
from fleet.monitoring.sources.source import EvidenceSource, PollTarget, SourceContext, SourcePolling
from fleet.source_plugins.declaration import ClusterSource
from fleet.source_plugins.registry import load_object
from fleet.transport.poll_connections import Connections
from fleet.vocabulary.instances import InstanceKind, ServingStatus
from tests.meta.house import ROOT


async def _query(_: SourceContext) -> int:
    return 1


async def _query_differently(_: SourceContext) -> int:
    return 2


def test_sources_are_equal_by_name() -> None:
    """Also if their queries differ."""
    responses = {EvidenceSource("tunnels", _query_differently, time_share=0.5): 2}
    assert responses[EvidenceSource("tunnels", _query)] == 2
    assert EvidenceSource("health", _query) not in responses


def test_new_target_asks_for_a_feed_from_its_beginning() -> None:
    """Without an epoch, and from revision 0 on."""
    target = PollTarget(None, InstanceKind.AUTH, "a:1")
    assert (target.feed_epoch, target.feed_revision) == ("", 0)


async def test_modules_of_the_how_to_are_a_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, connections: Connections
) -> None:
    """The declaration and the polling of docs/how-to/add-an-evidence-source.md fit, and read a hub."""
    text = (ROOT / "docs/how-to/add-an-evidence-source.md").read_text()
    declaration, polling_module, *_ = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    folder = tmp_path / "refloat_hubs"
    folder.mkdir()
    (folder / "__init__.py").write_text(declaration)
    (folder / "polling.py").write_text(polling_module)
    monkeypatch.syspath_prepend(tmp_path)
    source = load_object("refloat_hubs:SOURCE", ClusterSource)
    polling = load_object(source.polling, SourcePolling)
    assert polling.capabilities == source.capabilities
    responses = {
        "/varz": {"name": "hub-1"},
        "/leafz": {"leafs": [{"name": "leaf-1"}]},
        "/healthz": {"status": "ok"},
    }
    async with _serve_json(responses) as address:
        target = PollTarget(0, InstanceKind.PROXY, address, address)
        health, tunnels = polling.instance_sources
        [lists] = polling.list_sources

        async def query(evidence_source: EvidenceSource[Any]) -> Any:
            addresses = (address, "127.0.0.1:1")
            return await query_source(
                connections, target, evidence_source, lambda: 5.0, lambda: 9.0, addresses
            )

        [hub] = await query(lists)
        assert (hub.id, hub.resource.address) == ("hub-1", address)
        assert (await query(tunnels)).agents == {"leaf-1": ("leaf-1", 0.0)}
        assert (await query(health)).serving_status is ServingStatus.SERVING
        responses["/healthz"] = {"status": "unavailable"}
        assert (await query(health)).serving_status is ServingStatus.NOT_SERVING
    assert str(await query(lists)) == "no hub responds"


@asynccontextmanager
async def _serve_json(responses: Mapping[str, object]) -> AsyncIterator[str]:
    async def respond(request: web.Request) -> web.Response:
        return web.json_response(responses[request.path])

    application = web.Application()
    application.router.add_get("/{path}", respond)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    try:
        yield f"{host}:{port}"
    finally:
        await runner.cleanup()
