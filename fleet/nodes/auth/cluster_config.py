"""teleport.clusterconfig.v1.ClusterConfigService: the cluster's networking config, served by every auth.

Teleport's rules (docs/reference/networking-config.md): an update names the stored revision, every write sets the origin
`dynamic`, and a config from the auths' file cannot be reset. The limits of values are Refloat's own.
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
from fleet.transport.backend import Backend, BackendUnavailableError, UnreadableResourceError, WriteCondition
from fleet.transport.networking_config import Message
from fleet.wire import clusterconfig_pb2, clusterconfig_pb2_grpc

log = logging.getLogger(__name__)

Context = grpc.aio.ServicerContext[Any, Any]

#: Most attempts to reset while others write, as in Teleport.
_RESET_TRIES = 3
#: Largest accepted config, in bytes.
_MAX_CONFIG_BYTES = 65_536


class ClusterConfigServicer:
    """The gRPC service. Method names are those of the .proto."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._backend = instance.backend
        self._writes = Counter(
            "refloat_networking_config_writes",
            "Writes of the networking config, by RPC and outcome",
            ["call", "outcome"],
            registry=instance.registry,
        )

    def add_to(self, server: grpc.aio.Server) -> None:
        """Register the service on a gRPC server."""
        clusterconfig_pb2_grpc.add_ClusterConfigServiceServicer_to_server(self, server)

    async def GetClusterNetworkingConfig(  # noqa: N802
        self, request: clusterconfig_pb2.GetClusterNetworkingConfigRequest, context: Context
    ) -> Message:
        """Return the stored config."""
        del request
        return await self._read_stored(context)

    async def UpdateClusterNetworkingConfig(  # noqa: N802
        self, request: clusterconfig_pb2.UpdateClusterNetworkingConfigRequest, context: Context
    ) -> Message:
        """Write the config if the stored revision is the one that the caller read."""
        config = await self._admit_and_read_config(request, "update", context)
        revision = config.metadata.revision
        networking_config.finalize(config, Origin.DYNAMIC, _new_revision())
        if not await self._put(config, context, "is", revision):
            stored_revision = (await self._read_stored(context)).metadata.revision
            await self._refuse(
                context,
                "update",
                grpc.StatusCode.FAILED_PRECONDITION,
                f"metadata.revision: {revision!r} is out of date; the stored revision is "
                f"{stored_revision!r}. Read the config and "
                "try again",
            )
        return self._record_write("update", config)

    async def UpsertClusterNetworkingConfig(  # noqa: N802
        self, request: clusterconfig_pb2.UpsertClusterNetworkingConfigRequest, context: Context
    ) -> Message:
        """Write the config, whatever is stored."""
        config = await self._admit_and_read_config(request, "upsert", context)
        networking_config.finalize(config, Origin.DYNAMIC, _new_revision())
        await self._put(config, context)
        return self._record_write("upsert", config)

    async def ResetClusterNetworkingConfig(  # noqa: N802
        self, request: clusterconfig_pb2.ResetClusterNetworkingConfigRequest, context: Context
    ) -> Message:
        """Replace the stored config with the defaults."""
        del request
        await self._admit("reset", context)
        for _ in range(_RESET_TRIES):
            stored_config = await self._read_stored(context)
            refusal = rules.reset_refusal_of(networking_config.read(stored_config).origin)
            if refusal:
                await self._refuse(context, "reset", grpc.StatusCode.INVALID_ARGUMENT, refusal)
            config = networking_config.default_message(_new_revision())
            if await self._put(config, context, "is", stored_config.metadata.revision):
                return self._record_write("reset", config)
        return await self._refuse(
            context,
            "reset",
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            f"the networking config changed {_RESET_TRIES} times during the reset; try again",
        )

    async def _admit_and_read_config(
        self,
        request: clusterconfig_pb2.UpdateClusterNetworkingConfigRequest
        | clusterconfig_pb2.UpsertClusterNetworkingConfigRequest,
        call: str,
        context: Context,
    ) -> Message:
        """Return the config of a request. Ends the RPC if the caller may not write or the config is invalid."""
        await self._admit(call, context)
        message = request.cluster_network_config
        refusal = (
            _refusal_of(message)
            if request.HasField("cluster_network_config")
            else "cluster_network_config: missing"
        )
        if refusal:
            await self._refuse(context, call, grpc.StatusCode.INVALID_ARGUMENT, refusal)
        return message

    async def _admit(self, call: str, context: Context) -> None:
        """End the RPC unless the caller is an operator: a stolen certificate must not change the cluster."""
        flags = self._instance.flags
        refusal = operators.refusal_of(
            peers.role_of(context),
            "change the networking config",
            flags.listen[0],
            allow_anonymous=flags.allow_anonymous,
        )
        if refusal:
            await self._refuse(context, call, grpc.StatusCode.PERMISSION_DENIED, refusal)

    async def _read_stored(self, context: Context) -> Message:
        try:
            return await get_or_create(self._backend)
        except BackendUnavailableError as error:
            await abort_unavailable(context, error)

    async def _put(
        self, message: Message, context: Context, condition: WriteCondition = "any", revision: str = ""
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
    """Return the stored config; store the defaults first if there is none. Raises BackendUnavailableError."""
    while True:
        message = await backend.get_networking_config()
        if message is not None:
            return message
        default_config = networking_config.default_message(_new_revision())
        if await backend.put_networking_config(default_config, "absent"):
            return default_config


class NetworkingConfigCache:
    """The stored config, cached. It is read from the backend only when its revision has changed."""

    def __init__(self, instance: Instance) -> None:
        self._backend = instance.backend
        self._refusals = instance.refusals
        self._config: Message | None = None
        # Revision that could not be read: it is not read again for each agent.
        self._unreadable_revision = ""
        # Thousands of agents ask at once when the config changes: one read serves all of them.
        self._read_lock = asyncio.Lock()

    async def get(self, revision: str) -> Message | None:
        """Return the config of that revision or a newer one; None if no readable config is stored.

        Raises BackendUnavailableError.
        """
        if not revision:
            return None
        async with self._read_lock:
            if revision == self._unreadable_revision:
                return None
            if self._config is None or self._config.metadata.revision != revision:
                try:
                    self._config = await self._backend.get_networking_config()
                except UnreadableResourceError as error:
                    self._unreadable_revision = revision
                    self._refusals.record("networking-config", revision, f"revision {revision}", str(error))
                    return None
            return self._config


@dataclass(frozen=True, slots=True)
class InitialNetworkingConfig:
    """The config from an auth's flags, stored when the auth starts."""

    message: Message
    origin: Origin

    async def store(self, backend: Backend) -> None:
        """Store the config: always if it is the auths' config file, else only if nothing is stored.

        Raises BackendUnavailableError.
        """
        networking_config.finalize(self.message, self.origin, _new_revision())
        condition: WriteCondition = "any" if self.origin is Origin.CONFIG_FILE else "absent"
        await backend.put_networking_config(self.message, condition)


def read_initial_networking_config(
    config_path: Path | None, bootstrap_path: Path | None
) -> InitialNetworkingConfig | None:
    """Return the config that the flags name; None if there is none. Raises NodeStartError, naming file and fields."""
    if config_path is not None:
        return InitialNetworkingConfig(_from_file(config_path), Origin.CONFIG_FILE)
    return (
        InitialNetworkingConfig(_from_file(bootstrap_path), Origin.DYNAMIC)
        if bootstrap_path is not None
        else None
    )


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
    """Return why a config cannot be stored; empty if it can."""
    if message.ByteSize() > _MAX_CONFIG_BYTES:
        return f"the config is larger than {_MAX_CONFIG_BYTES} bytes"
    for key, actual, expected in (
        ("kind", message.kind, config_yaml.KIND),
        ("version", message.version, config_yaml.VERSION),
        ("metadata.name", message.metadata.name, config_yaml.NAME),
    ):
        if actual not in ("", expected):
            return f"{key}: must be {expected!r}, not {actual!r}"
    try:
        rules.check(rules.with_defaults(networking_config.read(message).config))
    except NetworkingConfigError as error:
        return str(error)
    return ""


def _new_revision() -> str:
    return secrets.token_hex(8)
