from __future__ import annotations

from dataclasses import replace

import pytest

from fleet.monitoring.sources import SourceError
from fleet.monitoring.sources.readyz import ReadyzResponse, find_clock_offset, get_readyz
from fleet.protocol.destination.instance_status import DRAINING_HEADER, InstanceStatus
from fleet.transport.poll_connections import Connections
from tests.fakes.instances import FakeProxy
from tests.fakes.source_contexts import make_source_context


async def test_status_code_is_the_response(proxy: FakeProxy, connections: Connections) -> None:
    """Also 503; with the difference of the clocks, which its Date header tells."""
    for code in (200, 400, 503):
        proxy.readyz = code
        answer = await get_readyz(make_source_context(connections, proxy))
        assert answer.clock_offset is not None
        assert replace(answer, clock_offset=None) == ReadyzResponse(code)
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


#: Sun, 29 Nov 2026 01:00:05 GMT.
_AT = 1795914005.0
_DATE = "Sun, 29 Nov 2026 01:00:05 GMT"


@pytest.mark.parametrize(
    ("now", "offset"), [(_AT, 0.0), (_AT + 0.99, 0.0), (_AT - 2, 2.0), (_AT + 31, -30.0), (_AT + 1.04, 0.0)]
)
def test_clock_is_known_to_the_second(now: float, offset: float) -> None:
    """Within the second of the header, the clocks agree."""
    assert find_clock_offset(_DATE, now) == offset


@pytest.mark.parametrize("text", ["", "soon", "Sun, 29 Nov 99999999999 01:00:05 GMT", "\x00", "0"])
def test_other_text_is_no_date(text: str) -> None:
    assert find_clock_offset(text, _AT) is None
