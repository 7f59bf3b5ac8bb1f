"""teleport.clusterconfig.v1.ClusterConfigService: the cluster's networking config, on every auth.

Teleport's rules, docs/networking-config.md: an update must name the stored revision, who writes makes it `dynamic`,
what comes from the auths' file cannot be reset. Ranges are ours.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Never

import grpc
import grpc.aio
from prometheus_client import Counter

from fleet.nodes.shared import lifecycle, operators
from fleet.nodes.shared.instance import Instance, abort_unavailable
from fleet.nodes.shared.refusals import host_of
from fleet.protocol.networking import config as rules
from fleet.protocol.networking import config_yaml
from fleet.protocol.networking.config import NetworkingConfigError, Origin
from fleet.transport import networking_config, peers
from fleet.transport.backend import Backend, BackendUnavailableError, Condition, UnreadableResourceError
from fleet.transport.networking_config import Message
from fleet.wire import clusterconfig_pb2, clusterconfig_pb2_grpc

log = logging.getLogger(__name__)

Context = grpc.aio.ServicerContext[Any, Any]

#: Upstream tries so often to reset while others write.
_RESET_TRIES = 3
#: A config of more bytes is a mistake.
_LARGEST = 65_536


class ClusterConfigServicer:
    """Method names are those of the .proto."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._backend = instance.backend
        self._writes = Counter(
            "refloat_networking_config_writes",
            "Writes of the networking config, by call and outcome",
            ["call", "outcome"],
            registry=instance.registry,
        )

    def add_to(self, server: grpc.aio.Server) -> None:
        """Serve it."""
        clusterconfig_pb2_grpc.add_ClusterConfigServiceServicer_to_server(self, server)

    async def GetClusterNetworkingConfig(  # noqa: N802
        self, request: clusterconfig_pb2.GetClusterNetworkingConfigRequest, context: Context
    ) -> Message:
        """Answer what is stored."""
        del request
        return await self._read_stored(context)

    async def UpdateClusterNetworkingConfig(  # noqa: N802
        self, request: clusterconfig_pb2.UpdateClusterNetworkingConfigRequest, context: Context
    ) -> Message:
        """Write, if nobody wrote since the caller read."""
        config = await self._read_request(request, "update", context)
        revision = config.metadata.revision
        networking_config.finalize(config, Origin.DYNAMIC, _new_revision())
        if not await self._put(config, context, "is", revision):
            stored_revision = (await self._read_stored(context)).metadata.revision
            await self._refuse(
                context,
                "update",
                grpc.StatusCode.FAILED_PRECONDITION,
                f"metadata.revision: {revision!r} is not the stored one, {stored_revision!r}: somebody else wrote meanwhile",
            )
        return self._record_write("update", config)

    async def UpsertClusterNetworkingConfig(  # noqa: N802
        self, request: clusterconfig_pb2.UpsertClusterNetworkingConfigRequest, context: Context
    ) -> Message:
        """Write, whatever is stored."""
        config = await self._read_request(request, "upsert", context)
        networking_config.finalize(config, Origin.DYNAMIC, _new_revision())
        await self._put(config, context)
        return self._record_write("upsert", config)

    async def ResetClusterNetworkingConfig(  # noqa: N802
        self, request: clusterconfig_pb2.ResetClusterNetworkingConfigRequest, context: Context
    ) -> Message:
        """Go back to the defaults."""
        del request
        await self._admit("reset", context)
        for _ in range(_RESET_TRIES):
            stored_config = await self._read_stored(context)
            refusal = rules.reset_refusal(networking_config.read(stored_config).origin)
            if refusal:
                await self._refuse(context, "reset", grpc.StatusCode.INVALID_ARGUMENT, refusal)
            config = networking_config.defaults(_new_revision())
            if await self._put(config, context, "is", stored_config.metadata.revision):
                return self._record_write("reset", config)
        return await self._refuse(
            context,
            "reset",
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            f"others wrote the networking config {_RESET_TRIES} times meanwhile: try again",
        )

    async def _read_request(
        self,
        request: clusterconfig_pb2.UpdateClusterNetworkingConfigRequest
        | clusterconfig_pb2.UpsertClusterNetworkingConfigRequest,
        call: str,
        context: Context,
    ) -> Message:
        """The config of a request, if it can be used."""
        await self._admit(call, context)
        message = request.cluster_network_config
        refusal = _refusal_of(message) if request.HasField("cluster_network_config") else "missing"
        if refusal:
            await self._refuse(context, call, grpc.StatusCode.INVALID_ARGUMENT, refusal)
        return message

    async def _admit(self, call: str, context: Context) -> None:
        """Refuse all but operators: a certificate stolen from a program must not change a whole cluster."""
        flags = self._instance.flags
        refusal = operators.refusal_of(
            peers.role_of(context), "change the networking config", flags.listen[0], allow_anonymous=flags.anybody
        )
        if refusal:
            await self._refuse(context, call, grpc.StatusCode.PERMISSION_DENIED, refusal)

    async def _read_stored(self, context: Context) -> Message:
        try:
            return await get_or_create(self._backend)
        except BackendUnavailableError as error:
            await abort_unavailable(context, error)

    async def _put(
        self, message: Message, context: Context, condition: Condition = "any", revision: str = ""
    ) -> bool:
        try:
            with self._instance.measure_write("networking-config"):
                return await self._backend.put_networking_config(message, condition, revision)
        except BackendUnavailableError as error:
            await abort_unavailable(context, error)

    def _record_write(self, call: str, message: Message) -> Message:
        self._writes.labels(call, "written").inc()
        log.info("networking-config.written: %s, revision %s", call, message.metadata.revision)
        return message

    async def _refuse(self, context: Context, call: str, code: grpc.StatusCode, reason: str) -> Never:
        self._writes.labels(call, "refused").inc()
        host = host_of(context.peer())
        self._instance.refusals.log_once(
            "networking-config", f"{call} {code.name} {host}", f"{call} from {host}", reason
        )
        await context.abort(code, reason)


async def get_or_create(backend: Backend) -> Message:
    """What is stored; the defaults are written when there is nothing. Raises BackendUnavailable."""
    while True:
        message = await backend.networking_config()
        if message is not None:
            return message
        default_config = networking_config.defaults(_new_revision())
        if await backend.put_networking_config(default_config, "absent"):
            return default_config


class NetworkingConfigCache:
    """The stored config, read from the backend only when its revision is another than that of what is held."""

    def __init__(self, instance: Instance) -> None:
        self._backend = instance.backend
        self._refusals = instance.refusals
        self._message: Message | None = None
        # What cannot be read is not read again for each agent.
        self._unreadable_revision = ""
        # Agents come by the thousand when the config changes: one of them fetches it for all.
        self._read_lock = asyncio.Lock()

    async def get(self, revision: str) -> Message | None:
        """The config of that revision, or a newer one; None when nothing is stored that can be read.

        Raises BackendUnavailable.
        """
        if not revision:
            return None
        async with self._read_lock:
            if revision == self._unreadable_revision:
                return None
            if self._message is None or self._message.metadata.revision != revision:
                try:
                    self._message = await self._backend.networking_config()
                except UnreadableResourceError as error:
                    self._unreadable_revision = revision
                    self._refusals.refuse("networking-config", revision, f"revision {revision}", str(error))
                    return None
            return self._message


@dataclass(frozen=True, slots=True)
class InitialConfig:
    """A config that an auth brings when it starts."""

    message: Message
    origin: Origin

    async def store(self, backend: Backend) -> None:
        """Store it: over everything if it is the auths' configuration, else if there is nothing.

        Raises BackendUnavailable.
        """
        networking_config.finalize(self.message, self.origin, _new_revision())
        condition: Condition = "any" if self.origin is Origin.CONFIG_FILE else "absent"
        await backend.put_networking_config(self.message, condition)


def read_initial_config(configuration: Path | None, bootstrap: Path | None) -> InitialConfig | None:
    """What an auth's flags say. Raises StartError, naming file and fields."""
    if configuration is not None:
        return InitialConfig(_from_file(configuration), Origin.CONFIG_FILE)
    return InitialConfig(_from_file(bootstrap), Origin.DYNAMIC) if bootstrap is not None else None


def _from_file(path: Path) -> Message:
    try:
        resource = config_yaml.from_yaml(path.read_text(encoding="utf-8"))
        rules.check(rules.with_defaults(resource.config))
    except (OSError, UnicodeDecodeError, NetworkingConfigError) as error:
        raise lifecycle.NodeStartError(f"{path}: {error}") from None
    message = Message()
    networking_config.write(resource.config, message)
    networking_config.write_metadata(resource, message)
    return message


def _refusal_of(message: Message) -> str:
    """Why a config cannot be stored; empty when it can."""
    if message.ByteSize() > _LARGEST:
        return f"the config has more than {_LARGEST} bytes"
    for key, actual, expected in (
        ("kind", message.kind, config_yaml.KIND),
        ("version", message.version, config_yaml.VERSION),
        ("metadata.name", message.metadata.name, config_yaml.NAME),
    ):
        if actual not in ("", expected):
            return f"{key}: {actual!r} is not {expected!r}"
    try:
        rules.check(rules.with_defaults(networking_config.read(message).config))
    except NetworkingConfigError as error:
        return str(error)
    return ""


def _new_revision() -> str:
    return secrets.token_hex(8)
