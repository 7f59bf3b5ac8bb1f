"""The policies of one auth or proxy: read when it starts, reported, accepted into `policies.env` for the next start.

RFD 226's variables, fleet.protocol.policies.env_policies. Service: fleet.v1.NodePolicies. docs/policies.md
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Never

import grpc
import grpc.aio

from fleet.nodes.shared import flags as node_flags
from fleet.nodes.shared import lifecycle, operators
from fleet.nodes.shared.instance import Instance, InstanceFlags
from fleet.processes import folders
from fleet.protocol import durations
from fleet.protocol.policies import env_policies
from fleet.protocol.policies.env_policies import PolicyError, PolicyValue
from fleet.protocol.recovery import announce
from fleet.protocol.recovery.announce import AnnounceError
from fleet.transport.backend import Kind
from fleet.wire import fleet_pb2, fleet_pb2_grpc

log = logging.getLogger(__name__)

Context = grpc.aio.ServicerContext[Any, Any]

#: More values than there are policies are a mistake, and so are longer ones.
_LONGEST = 16_384


@dataclass(frozen=True, slots=True)
class Policies:
    """What one node was started with."""

    role: str
    #: As it was given, without what the file says.
    environment: Mapping[str, str] = field(default_factory=dict)
    #: What its command line fixes, as text.
    flags: Mapping[str, str] = field(default_factory=dict)
    #: Where accepted policies are kept; None: nowhere.
    data_folder: Path | None = None
    #: What it runs with.
    effective_values: tuple[PolicyValue, ...] = ()

    @property
    def path(self) -> Path | None:
        """The file of accepted policies."""
        return self.data_folder / env_policies.FILE_NAME if self.data_folder else None

    def merge_environment(self) -> dict[str, str]:
        """The environment that the node is to read."""
        return env_policies.merge_environment(self.environment, self.effective_values)

    def read_accepted(self) -> dict[str, str]:
        """What the file says now. Raises PolicyError, OSError."""
        return _read(self.path) if self.path else {}

    def accept(self, policy_values: Mapping[str, str]) -> None:
        """Keep them, whole or not at all. Raises OSError."""
        assert self.path is not None, "asked only where there is a data folder"
        new_path = self.path.with_suffix(".new")
        with new_path.open("w", encoding="utf-8") as file:
            file.write(env_policies.format_file(policy_values))
            file.flush()
            os.fsync(file.fileno())
        new_path.replace(self.path)


def load(
    role: str, data_folder: Path | None, environment: Mapping[str, str], flags: Mapping[str, str] | None = None
) -> Policies:
    """Read them, once per start. Raises StartError, naming file or variable."""
    flag_values = flags or {}
    path = data_folder / env_policies.FILE_NAME if data_folder else None
    try:
        if data_folder:
            folders.make_private(data_folder)
        accepted_values = _read(path) if path else {}
    except OSError as error:
        raise lifecycle.NodeStartError(f"--data {data_folder}: {error.strerror}") from None
    except (PolicyError, UnicodeDecodeError) as error:
        raise lifecycle.NodeStartError(f"{path}: {error}") from None
    effective_values = env_policies.effective_values(role, environment, accepted_values, flag_values)
    return Policies(role, dict(environment), dict(flag_values), data_folder, effective_values)


def load_with_ttl(
    role: str, data_folder: Path | None, environment: Mapping[str, str], flag: float | None
) -> tuple[Policies, float]:
    """Read them, and the announce TTL that follows, seconds; `flag` is what the command line says of it.

    Raises StartError.
    """
    variable = {"auth": announce.AUTH_TTL_VARIABLE, "proxy": announce.PROXY_TTL_VARIABLE}[role]
    flags = {} if flag is None else {variable: durations.format_seconds(flag)}
    own = load(role, data_folder, environment, flags)
    try:
        return own, announce.ttl_from(own.merge_environment(), variable)
    except AnnounceError as error:
        raise lifecycle.NodeStartError(str(error)) from None


def run_instance(
    role: Kind,
    serve: Callable[[InstanceFlags, Policies], Coroutine[Any, Any, list[str] | None]],
    *,
    id_: str | None,
    data: Path | None,
    announce_ttl: float | None,
    **options: Any,
) -> None:
    """Run an auth or a proxy by its flags, those of `instance_options`, and its policies.

    `serve` returns the command line of the next run, which begins then; None when there is to be none.
    """

    def work() -> None:
        own, ttl = load_with_ttl(role, data, os.environ, announce_ttl)
        host_id = id_ or node_flags.host_id(options["cluster"], role, options["name"])
        again = lifecycle.on_loop(serve(InstanceFlags(id=host_id, announce_ttl=ttl, **options), own))
        if again:
            lifecycle.replace_process(again)

    lifecycle.run(work)


class NodePoliciesServicer:
    """Method names are those of the .proto."""

    def __init__(
        self, instance: Instance, own: Policies, restart: Callable[[float | None], None] | None
    ) -> None:
        """`restart` ends this run and begins another, with seconds to drain or None; None if that cannot be done."""
        self._instance = instance
        self._own = own
        self._restart = restart
        self._run_id = secrets.token_hex(8)
        self._started_at = time.monotonic()
        self._is_restarting = False

    def add_to(self, server: grpc.aio.Server) -> None:
        """Serve it."""
        fleet_pb2_grpc.add_NodePoliciesServicer_to_server(self, server)

    async def GetPolicies(  # noqa: N802
        self, request: fleet_pb2.GetPoliciesRequest, context: Context
    ) -> fleet_pb2.PoliciesReport:
        """Report."""
        del request, context
        return self._report()

    async def SetPolicies(  # noqa: N802
        self, request: fleet_pb2.SetPoliciesRequest, context: Context
    ) -> fleet_pb2.PoliciesReport:
        """Accept policies for the next start."""
        await operators.require_operator(context, "change its policies", self._instance.flags.listen[0])
        if refusal := self._refusal():
            await self._refuse(context, grpc.StatusCode.FAILED_PRECONDITION, refusal)
        if len(request.values) > len(env_policies.POLICIES) or any(
            len(text) > _LONGEST for text in request.values.values()
        ):
            await self._refuse(context, grpc.StatusCode.INVALID_ARGUMENT, "values: too many, or too long")
        accepted_values, problems = env_policies.check(self._own.role, request.values)
        if problems:
            await self._refuse(
                context, grpc.StatusCode.INVALID_ARGUMENT, "; ".join(str(problem) for problem in problems)
            )
        current_revision = self._revision()
        if request.revision != current_revision:
            await self._refuse(
                context,
                grpc.StatusCode.FAILED_PRECONDITION,
                f"revision: {request.revision!r} is not what is accepted here, {current_revision!r}: somebody else wrote meanwhile",
            )
        try:
            self._own.accept(accepted_values)
        except OSError as error:
            await self._refuse(
                context, grpc.StatusCode.FAILED_PRECONDITION, f"{self._own.path}: {error.strerror}"
            )
        log.info("policies.accepted: %s, revision %s", ", ".join(sorted(accepted_values)) or "none", self._revision())
        return self._report()

    async def Restart(  # noqa: N802
        self, request: fleet_pb2.RestartRequest, context: Context
    ) -> fleet_pb2.RestartResponse:
        """End gracefully and start again."""
        await operators.require_operator(context, "restart it", self._instance.flags.listen[0])
        await operators.require_reason(context, request.reason)
        if request.run_id != self._run_id:
            await self._refuse(
                context,
                grpc.StatusCode.FAILED_PRECONDITION,
                f"run_id: {request.run_id!r} is not this run, {self._run_id!r}",
            )
        if self._restart is None:
            await self._refuse(
                context, grpc.StatusCode.FAILED_PRECONDITION, "this node cannot restart itself"
            )
        elif not self._is_restarting:
            self._is_restarting = True
            log.info("policies.restarting: %s", request.reason or "an operator asked for it")
            self._restart(request.drain_ms / 1000 if request.drain_ms else None)
        return fleet_pb2.RestartResponse()

    def _report(self) -> fleet_pb2.PoliciesReport:
        own = self._own
        current_values = {policy.name: policy for policy in own.effective_values}
        next_values: tuple[PolicyValue, ...] = ()
        with contextlib.suppress(PolicyError, OSError):
            next_values = env_policies.effective_values(own.role, own.environment, own.read_accepted(), own.flags)
        values_beneath = {
            policy.name: policy for policy in env_policies.effective_values(own.role, own.environment, {}, own.flags)
        }
        return fleet_pb2.PoliciesReport(
            instance_id=self._instance.flags.id,
            role=own.role,
            run_id=self._run_id,
            up_for_ms=round((time.monotonic() - self._started_at) * 1000),
            revision=self._revision(),
            why_not=self._refusal(),
            policies=[
                fleet_pb2.PolicyReport(
                    name=policy.name,
                    value=current_values[policy.name].text,
                    source=current_values[policy.name].source.value,
                    next_value=policy.text,
                    next_source=policy.source.value,
                    beneath_value=values_beneath[policy.name].text,
                    beneath_source=values_beneath[policy.name].source.value,
                )
                for policy in next_values or own.effective_values
            ],
        )

    def _revision(self) -> str:
        with contextlib.suppress(PolicyError, OSError):
            return env_policies.revision_of(self._own.read_accepted())
        return "unreadable"

    def _refusal(self) -> str:
        if self._own.path is None:
            return "this node has no data folder (--data): its policies come from its environment alone"
        if self._restart is None:
            return "this node cannot restart itself"
        return ""

    async def _refuse(self, context: Context, code: grpc.StatusCode, reason: str) -> Never:
        log.warning("policies.refused: %s", reason)
        await context.abort(code, reason)


def _read(path: Path) -> dict[str, str]:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    return env_policies.parse_file(text)
