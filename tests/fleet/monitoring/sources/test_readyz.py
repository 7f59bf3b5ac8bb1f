from __future__ import annotations

import pytest

from fleet.monitoring.sources import SourceError
from fleet.monitoring.sources.readyz import ReadyzResponse, get_readyz
from fleet.protocol.destination.instance_status import DRAINING_HEADER, InstanceStatus
from fleet.transport.poll_connections import Connections
from tests.fakes.instances import FakeProxy
from tests.fakes.source_contexts import make_source_context


async def test_status_code_is_the_response(proxy: FakeProxy, connections: Connections) -> None:
    """Also 503."""
    for code in (200, 400, 503):
        proxy.readyz = code
        answer = await get_readyz(make_source_context(connections, proxy))
        assert answer == ReadyzResponse(code)
    proxy.metadata = {DRAINING_HEADER: "kernel update"}
    answer = await get_readyz(make_source_context(connections, proxy))
    assert answer.declared_status == InstanceStatus(draining_reason="kernel update")


@pytest.mark.parametrize("address", ["127.0.0.1:1", "no such address", "127.0.0.1:x", "x" * 300])
async def test_unreachable_instance_is_an_error(
    proxy: FakeProxy, connections: Connections, address: str
) -> None:
    """Connection refused, or an invalid address."""
    proxy.diag_address = address
    with pytest.raises(SourceError):
        await get_readyz(make_source_context(connections, proxy))


async def test_timeout_is_an_error(proxy: FakeProxy, connections: Connections) -> None:
    proxy.freeze_event.set()
    with pytest.raises(SourceError, match="in time"):
        await get_readyz(make_source_context(connections, proxy, remaining_seconds=lambda: 0.2))
