from __future__ import annotations

import pytest

from fleet.monitoring.sources import SourceError
from fleet.monitoring.sources.readyz import ReadyzResponse, get_readyz
from fleet.protocol.destination.instance_status import DRAINING_HEADER, InstanceStatus
from fleet.transport.poll_connections import Connections
from tests.fakes.instances import FakeProxy
from tests.fakes.questions import question


async def test_code_is_the_answer(proxy: FakeProxy, connections: Connections) -> None:
    """Whatever it is: 503 is an answer too."""
    for code in (200, 400, 503):
        proxy.readyz = code
        answer = await get_readyz(question(connections, proxy))
        assert answer == ReadyzResponse(code)
    proxy.says = {DRAINING_HEADER: "kernel update"}
    answer = await get_readyz(question(connections, proxy))
    assert answer.status == InstanceStatus(draining_reason="kernel update")


@pytest.mark.parametrize("address", ["127.0.0.1:1", "no such address", "127.0.0.1:x", "x" * 300])
async def test_nobody_there(proxy: FakeProxy, connections: Connections, address: str) -> None:
    """Refused, or no address at all: one exception."""
    proxy.diag_address = address
    with pytest.raises(SourceError):
        await get_readyz(question(connections, proxy))


async def test_no_answer_in_time(proxy: FakeProxy, connections: Connections) -> None:
    """It says so."""
    proxy.held.set()
    with pytest.raises(SourceError, match="in time"):
        await get_readyz(question(connections, proxy, left=lambda: 0.2))
