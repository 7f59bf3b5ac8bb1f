"""Many balanced channels in a process of their own, for the bench `recovery`.

    python -m tests.bench._recovery_clients HOST:PORT COUNT FIRST_WAIT|upstream

Says `{"ready": COUNT}` when all are connected and healthy. For each line on stdin, which names a sick auth, it answers
at once, and again when the first RPC of each channel was answered by another: `{"answered": [...]}`, by the machine's
monotonic clock.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

import uvloop

from fleet.protocol.pick_healthy import Settings
from fleet.transport.pick_healthy.channel import PickHealthyChannel
from fleet.transport.pick_healthy.opening import open_channel
from tests.bench._recovery_auths import WHO

#: Connecting at once is not what is measured.
_CONNECTING = asyncio.Semaphore(50)
_GIVE_UP = 30.0


class Client:
    """One agent's auth connection. As an agent's heartbeat does, its RPC follows the move."""

    def __init__(self, address: tuple[str, int], settings: Settings) -> None:
        self._changed = asyncio.Event()
        self.channel: PickHealthyChannel = open_channel(
            [address], settings=settings, changed=self._changed.set
        )

    async def connect(self) -> None:
        """Connect, and be healthy."""
        async with _CONNECTING:
            await self.channel.channel_ready()

    async def answered_by_another(self, sick: str) -> float:
        """When an RPC was first answered by another auth."""
        who = self.channel.unary_unary(WHO)
        while True:
            self._changed.clear()
            policy = self.channel.policy
            if policy is not None and policy.auth_id != sick:
                answer: bytes = await who(b"", timeout=_GIVE_UP)
                if answer.decode() != sick:
                    return time.monotonic()
            await self._changed.wait()


async def run(address: str, count: int, settings: Settings) -> None:
    """Connect all, then follow commands until stdin ends."""
    host, _, port = address.rpartition(":")
    clients = [Client((host, int(port)), settings) for _ in range(count)]
    await asyncio.gather(*(client.connect() for client in clients))
    print(json.dumps({"ready": count}), flush=True)
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    while sick := (await reader.readline()).decode().strip():
        waiting = [asyncio.wait_for(client.answered_by_another(sick), _GIVE_UP) for client in clients]
        print(json.dumps({"waiting": count}), flush=True)
        seen = await asyncio.gather(*waiting, return_exceptions=True)
        print(json.dumps({"answered": [at for at in seen if isinstance(at, float)]}), flush=True)
    await asyncio.gather(*(client.channel.close() for client in clients))


if __name__ == "__main__":
    wait = sys.argv[3]
    uvloop.run(
        run(sys.argv[1], int(sys.argv[2]), Settings(first_wait=None if wait == "upstream" else float(wait)))
    )
