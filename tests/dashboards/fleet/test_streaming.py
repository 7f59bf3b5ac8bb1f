from __future__ import annotations

from asgiref.sync import async_to_sync

from dashboards.fleet.streaming import iterate_in_thread


def test_chunks_arrive_in_order() -> None:
    """Each once."""

    async def collect() -> list[str]:
        return [chunk async for chunk in iterate_in_thread(iter(["a", "b", "c"]))]

    assert async_to_sync(collect)() == ["a", "b", "c"]
