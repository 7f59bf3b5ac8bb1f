"""The instances' backend: presence of auths, proxies and agents in the fleet's own Valkey, with real expiries.

Agents are a list by epoch and revision inside the backend itself, so every auth serves the same list. All errors become
BackendUnavailableError within `TIMEOUT`, so that a caller gets its response within a second. A read whose connection is
lost is sent a second time. A write is not: it may have taken effect, and the error says so. docs/reference/nodes.md,
"Backend".
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import redis.asyncio as redis
from google.protobuf.message import DecodeError
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import BusyLoadingError, RedisError, ResponseError

from fleet.transport import backend_scripts
from fleet.transport.backend_pool import BackendConnectionPool, NotSentError
from fleet.wire import fleet_pb2, types_pb2

#: Maximum duration of a call, seconds. Waiting for a connection ends a little earlier: then nothing was sent.
TIMEOUT = 0.7
_SOCKET_TIMEOUT = 0.5
_MOST_CONNECTIONS = 32
#: Number of deleted agents that are remembered for readers by revision.
_MOST_REMOVED_IDS = 10_000
#: Maximum number of agents in a page: the script blocks the backend while it reads them (about 2 us each).
MOST_AGENTS_PER_PAGE = 2_000
#: Maximum bytes of all agents in a page: a gRPC client accepts 4 MiB by default.
_MOST_BYTES_PER_PAGE = 2 * 1024 * 1024

#: Errors of a command whose connection is lost. uvloop raises RuntimeError for a write to a connection that was reset.
#: redis-py's TimeoutError is not among them.
_LOST_CONNECTION_ERRORS = (redis.ConnectionError, OSError, RuntimeError)

AuthOrProxy = Literal["auth", "proxy"]
_Resource = TypeVar("_Resource", types_pb2.ServerV2, fleet_pb2.AgentEntry)
#: Condition of a write: none, that nothing is stored, or that the stored revision is the given one.
WriteCondition = Literal["any", "absent", "is"]


class BackendUnavailableError(Exception):
    """The backend cannot be reached, or does not answer in time; the message says which.

    `is_uncertain`: a write was sent without a response, and may have taken effect.
    """

    def __init__(self, sentence: str, *, is_uncertain: bool = False) -> None:
        super().__init__(f"{sentence}; the write may have taken effect" if is_uncertain else sentence)
        self.is_uncertain = is_uncertain


class BackendTimeoutError(BackendUnavailableError):
    """The backend did not answer in time: it may be running, but blocked."""


class UnreadableResourceError(BackendUnavailableError):
    """A stored value cannot be read: another program wrote it, or it is damaged."""


@dataclass(frozen=True, slots=True)
class AgentPage:
    """One page of the agent list; see `fleet.v1.AgentFeed`."""

    epoch: str
    revision: int
    full: bool
    more: bool
    agents: tuple[fleet_pb2.AgentEntry, ...]
    removed_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HeartbeatRevisions:
    """Revisions that an agent's heartbeat returns."""

    #: Revision of the agent in the list.
    revision: int
    #: Revision of the networking config; empty if none is stored.
    networking_revision: str


class Backend:
    """Presence data of one cluster. Safe to share by all tasks of one event loop."""

    def __init__(
        self,
        url: str,
        cluster: str,
        *,
        prefix: str = "nodes",
        password: str | None = None,
        on_unreadable_resource: Callable[[str, str], None] = lambda name, reason: None,
    ) -> None:
        """Configure the client; it connects on first use. Raises ValueError for an invalid redis URL.

        `password` is used if the URL has none. `on_unreadable_resource` is called with the name of each resource that
        cannot be read, and why; it is left out of the list.
        """
        self._on_unreadable_resource = on_unreadable_resource
        self.address = url.rpartition("@")[2].removeprefix("redis://")
        self._key_prefix = ":".join((prefix, cluster))
        self._pool: BackendConnectionPool = BackendConnectionPool.from_url(
            url,
            password=password,
            max_connections=_MOST_CONNECTIONS,
            timeout=_SOCKET_TIMEOUT,
            # With a timeout of its own redis-py sends through `asyncio.wait_for`. Before Python 3.12 that can lose a
            # cancellation at the end of a send, and `TIMEOUT` would have no effect.
            socket_timeout=None,
            socket_connect_timeout=_SOCKET_TIMEOUT,
            # The caller retries by its own schedule: a failed heartbeat must be reported in time.
            retry=Retry(NoBackoff(), 0),
        )
        self._redis = redis.Redis.from_pool(self._pool)
        register = self._redis.register_script
        self._put_instance_script = register(backend_scripts.PUT_INSTANCE)
        self._delete_instance_script = register(backend_scripts.DELETE_INSTANCE)
        self._list_instances_script = register(backend_scripts.LIST_INSTANCES)
        self._put_agent_script = register(backend_scripts.PUT_AGENT)
        self._delete_agent_script = register(backend_scripts.DELETE_AGENT)
        self._list_agents_script = register(backend_scripts.LIST_AGENTS)
        self._put_singleton_script = register(backend_scripts.PUT_SINGLETON)

    async def close(self) -> None:
        """Close all connections."""
        await self._redis.aclose()

    async def put_instance(self, kind: AuthOrProxy, server: types_pb2.ServerV2, ttl: float) -> None:
        """Write the resource of an auth or a proxy; it expires in `ttl` seconds. Raises BackendUnavailableError."""
        name = server.metadata.name
        await self._write(
            self._put_instance_script,
            [self._key(kind, name), self._key(f"{kind}s")],
            [server.SerializeToString(), _milliseconds(ttl), name],
        )

    async def delete_instance(self, kind: AuthOrProxy, name: str) -> bool:
        """Delete the resource of an auth or a proxy; return whether there was one. Raises BackendUnavailableError."""
        keys = [self._key(kind, name), self._key(f"{kind}s")]
        return bool(await self._write(self._delete_instance_script, keys, [name]))

    async def list_instances(self, kind: AuthOrProxy) -> tuple[types_pb2.ServerV2, ...]:
        """Return every unexpired auth or proxy that can be read, by name. Raises BackendUnavailableError."""
        reply = await self._read_script(
            self._list_instances_script, [self._key(f"{kind}s")], [self._key(kind, "")]
        )
        return tuple(
            server
            for name, body in zip(reply[::2], reply[1::2], strict=True)
            if (server := self._parse(types_pb2.ServerV2, f"{kind} {name.decode(errors='replace')}", body))
        )

    async def put_agent(self, agent: fleet_pb2.AgentResource, auth_id: str) -> HeartbeatRevisions:
        """Write an agent's resource; it expires after the agent's own TTL. Raises BackendUnavailableError."""
        entry = fleet_pb2.AgentEntry(agent=agent, auth_id=auth_id)
        revision, networking = await self._write(
            self._put_agent_script,
            [
                self._key("agent", agent.agent_id),
                *self._agent_keys("epoch", "revision", "by-revision", "by-expiry", "removed"),
                self._key("networking-config"),
            ],
            [entry.SerializeToString(), max(agent.ttl_ms, 1), agent.agent_id, secrets.token_hex(8)],
        )
        return HeartbeatRevisions(int(revision), networking.decode(errors="replace"))

    async def delete_agent(self, agent_id: str) -> None:
        """Delete an agent's resource. Raises BackendUnavailableError."""
        await self._write(
            self._delete_agent_script,
            [
                self._key("agent", agent_id),
                *self._agent_keys("revision", "by-revision", "by-expiry", "removed", "floor"),
            ],
            [agent_id, _MOST_REMOVED_IDS],
        )

    async def get_agent(self, agent_id: str) -> fleet_pb2.AgentEntry | None:
        """Return an agent's unexpired resource; None also if it cannot be read. Raises BackendUnavailableError."""
        body: Any = await self._read(lambda: self._redis.get(self._key("agent", agent_id)))
        return None if body is None else self._parse(fleet_pb2.AgentEntry, f"agent {agent_id}", body)

    async def list_agents(self, epoch: str, since: int, limit: int) -> AgentPage:
        """Return agents changed after revision `since` of `epoch`, or the first page of the full list.

        Raises BackendUnavailableError.
        """
        limit = min(limit or MOST_AGENTS_PER_PAGE, MOST_AGENTS_PER_PAGE)
        current_epoch, revision, full, more, removed_ids, *rest = await self._read_script(
            self._list_agents_script,
            self._agent_keys("epoch", "revision", "by-revision", "removed", "floor"),
            [epoch, since, limit, secrets.token_hex(8), self._key("agent", ""), _MOST_BYTES_PER_PAGE],
        )
        return AgentPage(
            epoch=current_epoch.decode(),
            revision=int(revision),
            full=bool(full),
            more=bool(more),
            agents=tuple(
                entry
                for body, expires_in_ms in zip(rest[::2], rest[1::2], strict=True)
                if (entry := self._parse_entry(body, expires_in_ms))
            ),
            removed_ids=tuple(name.decode() for name in removed_ids),
        )

    async def put_tunnel_connection(self, cluster: str, name: str, body: bytes, ttl: float) -> None:
        """Write a tunnel connection of a leaf cluster; it expires in `ttl` seconds. Raises BackendUnavailableError."""
        member = f"{cluster}/{name}"
        await self._write(
            self._put_instance_script,
            [self._key("tunnel-connection", member), self._key("tunnel-connections")],
            [body, _milliseconds(ttl), member],
        )

    async def delete_tunnel_connection(self, cluster: str, name: str) -> bool:
        """Delete a tunnel connection; return whether there was one. Raises BackendUnavailableError."""
        member = f"{cluster}/{name}"
        keys = [self._key("tunnel-connection", member), self._key("tunnel-connections")]
        return bool(await self._write(self._delete_instance_script, keys, [member]))

    async def list_tunnel_connections(self) -> tuple[bytes, ...]:
        """Return every unexpired tunnel connection, by cluster and name. Raises BackendUnavailableError."""
        reply = await self._read_script(
            self._list_instances_script,
            [self._key("tunnel-connections")],
            [self._key("tunnel-connection", "")],
        )
        return tuple(reply[1::2])

    async def get_networking_config(self) -> types_pb2.ClusterNetworkingConfigV2 | None:
        """Return the networking config of the cluster; None if none is stored.

        Raises BackendUnavailableError, in particular UnreadableResourceError if the stored config cannot be read.
        """
        body: Any = await self._read(lambda: self._redis.hget(self._key("networking-config"), "body"))
        try:
            return None if body is None else types_pb2.ClusterNetworkingConfigV2.FromString(body)
        except DecodeError as error:
            raise UnreadableResourceError(
                f"cannot read the networking config in the backend at {self.address}: {error}"
            ) from error

    async def get_networking_revision(self) -> str:
        """Return the revision of the networking config; empty if none is stored. Raises BackendUnavailableError."""
        revision: Any = await self._read(lambda: self._redis.hget(self._key("networking-config"), "revision"))
        return "" if revision is None else str(revision.decode(errors="replace"))

    async def put_networking_config(
        self,
        config: types_pb2.ClusterNetworkingConfigV2,
        condition: WriteCondition = "any",
        revision: str = "",
    ) -> bool:
        """Write the networking config if the condition holds; return whether it was written.

        Raises BackendUnavailableError.
        """
        is_written = await self._write(
            self._put_singleton_script,
            [self._key("networking-config")],
            [config.SerializeToString(), config.metadata.revision, condition, revision],
        )
        return bool(is_written)

    def _key(self, *parts: str) -> str:
        return ":".join((self._key_prefix, *parts))

    def _agent_keys(self, *names: str) -> list[str]:
        return [self._key("agents", name) for name in names]

    async def _write(self, script: Any, keys: Sequence[str], args: Sequence[object]) -> Any:
        """Run a script that writes, once: it may take effect even if its response is lost."""
        return await self._call(lambda: script(keys=keys, args=args), is_write=True)

    async def _read_script(self, script: Any, keys: Sequence[str], args: Sequence[object]) -> Any:
        """Run a script that reads."""
        return await self._read(lambda: script(keys=keys, args=args))

    async def _read(self, command: Callable[[], Awaitable[Any]]) -> Any:
        """Run a command that reads; if its connection is lost, once more on a new connection."""

        async def with_second_attempt() -> Any:
            try:
                return await command()
            except _LOST_CONNECTION_ERRORS:
                if _is_being_cancelled():
                    raise
            await self._pool.empty()
            return await command()

        return await self._call(with_second_attempt, is_write=False)

    async def _call(self, command: Callable[[], Awaitable[Any]], *, is_write: bool) -> Any:
        """Run a command within `TIMEOUT`. After a failure, later commands use new connections."""
        with self._map_errors(is_write=is_write):
            try:
                async with asyncio.timeout(TIMEOUT):
                    return await command()
            except (*_LOST_CONNECTION_ERRORS, NotSentError, redis.TimeoutError):
                await self._pool.empty()
                raise

    def _parse(self, kind: type[_Resource], name: str, body: bytes) -> _Resource | None:
        """Return a resource; report one that cannot be read and return None, so that it does not hide the others."""
        try:
            return kind.FromString(body)
        except DecodeError as error:
            self._on_unreadable_resource(name, str(error))
            return None

    def _parse_entry(self, body: bytes, expires_in_ms: int) -> fleet_pb2.AgentEntry | None:
        entry = self._parse(fleet_pb2.AgentEntry, "an agent", body)
        if entry is not None:
            entry.expires_in_ms = expires_in_ms
        return entry

    @contextlib.contextmanager
    def _map_errors(self, *, is_write: bool) -> Iterator[None]:
        """Translate every error of the redis client to BackendUnavailableError."""
        task = asyncio.current_task()
        before = task.cancelling() if task is not None else 0
        try:
            yield
        except NotSentError as error:
            raise self._unavailable(error.__cause__ or error, is_uncertain=False) from error
        except (RedisError, *_LOST_CONNECTION_ERRORS) as error:
            is_answer = isinstance(error, (ResponseError, BusyLoadingError))
            raise self._unavailable(error, is_uncertain=is_write and not is_answer) from error
        finally:
            # The client may take a cancellation for its own timeout: the task would never end.
            if task is not None and task.cancelling() > before:
                raise asyncio.CancelledError

    def _unavailable(self, error: BaseException, *, is_uncertain: bool) -> BackendUnavailableError:
        if isinstance(error, (TimeoutError, redis.TimeoutError)):
            return BackendTimeoutError(
                f"the backend at {self.address} did not answer in time", is_uncertain=is_uncertain
            )
        sentence = f"the backend at {self.address} cannot be used: {str(error).rstrip('.')}"
        return BackendUnavailableError(sentence, is_uncertain=is_uncertain)


def _milliseconds(seconds: float) -> int:
    return max(int(seconds * 1000), 1)


def _is_being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
