"""The policies of one auth or proxy: loaded at the start, reported, and set in `policies.env` for the next start.

They are RFD 226's environment variables (fleet.protocol.policies.env_policies). Service: fleet.v1.NodePolicies.
docs/reference/policies.md
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
from fleet.transport.backend import AuthOrProxy
from fleet.wire import fleet_pb2, fleet_pb2_grpc

log = logging.getLogger(__name__)

Context = grpc.aio.ServicerContext[Any, Any]

#: Longest value, in characters. Longer values, or more values than there are policies, are a mistake.
_MAX_VALUE_LENGTH = 16_384


@dataclass(frozen=True, slots=True)
class Policies:
    """The policies that one instance was started with."""

    role: str
    #: The environment at the start, without the values of policies.env.
    environment: Mapping[str, str] = field(default_factory=dict)
    #: Values that the command line sets, as text.
    flag_values: Mapping[str, str] = field(default_factory=dict)
    #: Directory of policies.env; None: the instance accepts no policies.
    data_folder: Path | None = None
    #: The policies that the instance runs with.
    effective_values: tuple[PolicyValue, ...] = ()

    @property
    def path(self) -> Path | None:
        """The file of accepted policies."""
        return self.data_folder / env_policies.FILE_NAME if self.data_folder else None

    def merge_environment(self) -> dict[str, str]:
        """Return the environment variables that the instance must read."""
        return env_policies.merge_environment(self.environment, self.effective_values)

    def read_accepted_values(self) -> dict[str, str]:
        """Return the values in policies.env now. Raises PolicyError, OSError."""
        return _read_file(self.path) if self.path else {}

    def accept(self, policy_values: Mapping[str, str]) -> None:
        """Write policies.env atomically. Raises OSError."""
        assert self.path is not None, "policies are accepted only with a data directory"
        new_path = self.path.with_suffix(".new")
        with new_path.open("w", encoding="utf-8") as file:
            file.write(env_policies.format_file(policy_values))
            file.flush()
            os.fsync(file.fileno())
        new_path.replace(self.path)


def load(
    role: str,
    data_folder: Path | None,
    environment: Mapping[str, str],
    flags: Mapping[str, str] | None = None,
) -> Policies:
    """Load the policies at a start. Raises NodeStartError, naming the file or variable."""
    flag_values = flags or {}
    path = data_folder / env_policies.FILE_NAME if data_folder else None
    try:
        if data_folder:
            folders.create_private_folder(data_folder)
        accepted_values = _read_file(path) if path else {}
    except OSError as error:
        raise lifecycle.NodeStartError(f"cannot use --data {data_folder}: {error.strerror}") from None
    except (PolicyError, UnicodeDecodeError) as error:
        raise lifecycle.NodeStartError(f"{path}: {error}") from None
    effective_values = env_policies.effective_values(role, environment, accepted_values, flag_values)
    return Policies(role, dict(environment), dict(flag_values), data_folder, effective_values)


def load_with_ttl(
    role: str, data_folder: Path | None, environment: Mapping[str, str], flag: float | None
) -> tuple[Policies, float]:
    """Load the policies, and return them with the announce TTL in seconds. `flag` is the TTL on the command line.

    Raises NodeStartError.
    """
    variable = {"auth": announce.AUTH_TTL_VARIABLE, "proxy": announce.PROXY_TTL_VARIABLE}[role]
    flags = {} if flag is None else {variable: durations.format_seconds(flag)}
    policies = load(role, data_folder, environment, flags)
    try:
        return policies, announce.ttl_from(policies.merge_environment(), variable)
    except AnnounceError as error:
        raise lifecycle.NodeStartError(str(error)) from None


def run_instance(
    role: AuthOrProxy,
    serve: Callable[[InstanceFlags, Policies], Coroutine[Any, Any, list[str] | None]],
    *,
    id_: str | None,
    data: Path | None,
    announce_ttl: float | None,
    **options: Any,
) -> None:
    """Run an auth or a proxy with its flags (those of `instance_options`) and its policies.

    `serve` returns the command line of the next run, which starts then; None: no next run.
    """

    def work() -> None:
        policies, ttl = load_with_ttl(role, data, os.environ, announce_ttl)
        host_id = id_ or node_flags.host_id(options["cluster"], role, options["name"])
        next_argv = lifecycle.run_on_loop(
            serve(InstanceFlags(id=host_id, announce_ttl=ttl, **options), policies)
        )
        if next_argv:
            lifecycle.replace_process(next_argv)

    lifecycle.run(work)


class NodePoliciesServicer:
    """The gRPC service. Method names are those of the .proto."""

    def __init__(
        self, instance: Instance, policies: Policies, restart: Callable[[float | None], None] | None
    ) -> None:
        """`restart` starts the next run after a drain time in seconds (None: the default); None: cannot restart."""
        self._instance = instance
        self._policies = policies
        self._restart = restart
        self._run_id = secrets.token_hex(8)
        self._started_at = time.monotonic()
        self._is_restarting = False

    def add_to(self, server: grpc.aio.Server) -> None:
        """Register the service on a gRPC server."""
        fleet_pb2_grpc.add_NodePoliciesServicer_to_server(self, server)

    async def GetPolicies(  # noqa: N802
        self, request: fleet_pb2.GetPoliciesRequest, context: Context
    ) -> fleet_pb2.PoliciesReport:
        """Report the policies of this run and of the next one."""
        del request, context
        return self._make_report()

    async def SetPolicies(  # noqa: N802
        self, request: fleet_pb2.SetPoliciesRequest, context: Context
    ) -> fleet_pb2.PoliciesReport:
        """Accept policies for the next start."""
        await operators.require_operator(context, "change policies", self._instance.flags.listen[0])
        if refusal := self._refusal():
            await self._refuse(context, grpc.StatusCode.FAILED_PRECONDITION, refusal)
        if len(request.values) > len(env_policies.POLICIES) or any(
            len(text) > _MAX_VALUE_LENGTH for text in request.values.values()
        ):
            await self._refuse(
                context, grpc.StatusCode.INVALID_ARGUMENT, "values: too many values, or a value is too long"
            )
        accepted_values, problems = env_policies.check(self._policies.role, request.values)
        if problems:
            await self._refuse(
                context, grpc.StatusCode.INVALID_ARGUMENT, "; ".join(str(problem) for problem in problems)
            )
        current_revision = self._read_revision()
        if request.revision != current_revision:
            await self._refuse(
                context,
                grpc.StatusCode.FAILED_PRECONDITION,
                f"revision: {request.revision!r} is out of date; the stored revision is "
                f"{current_revision!r}. Read the policies "
                "and try again",
            )
        try:
            self._policies.accept(accepted_values)
        except OSError as error:
            await self._refuse(
                context, grpc.StatusCode.FAILED_PRECONDITION, f"{self._policies.path}: {error.strerror}"
            )
        log.info(
            "policies.accepted: %s, revision %s",
            ", ".join(sorted(accepted_values)) or "none",
            self._read_revision(),
        )
        return self._make_report()

    async def Restart(  # noqa: N802
        self, request: fleet_pb2.RestartRequest, context: Context
    ) -> fleet_pb2.RestartResponse:
        """Stop gracefully and start again."""
        await operators.require_operator(context, "restart instances", self._instance.flags.listen[0])
        await operators.require_reason(context, request.reason)
        if request.run_id != self._run_id:
            await self._refuse(
                context,
                grpc.StatusCode.FAILED_PRECONDITION,
                f"run_id: {request.run_id!r} is out of date; this run is {self._run_id!r}",
            )
        if self._restart is None:
            await self._refuse(
                context, grpc.StatusCode.FAILED_PRECONDITION, "this instance cannot restart itself"
            )
        elif not self._is_restarting:
            self._is_restarting = True
            log.info("policies.restarting: %s", request.reason or "requested by an operator")
            self._restart(request.drain_ms / 1000 if request.drain_ms else None)
        return fleet_pb2.RestartResponse()

    def _make_report(self) -> fleet_pb2.PoliciesReport:
        policies = self._policies
        current_by_name = {policy.name: policy for policy in policies.effective_values}
        next_values: tuple[PolicyValue, ...] = ()
        with contextlib.suppress(PolicyError, OSError):
            next_values = env_policies.effective_values(
                policies.role, policies.environment, policies.read_accepted_values(), policies.flag_values
            )
        fallback_by_name = {
            policy.name: policy
            for policy in env_policies.effective_values(
                policies.role, policies.environment, {}, policies.flag_values
            )
        }
        return fleet_pb2.PoliciesReport(
            instance_id=self._instance.flags.id,
            role=policies.role,
            run_id=self._run_id,
            uptime_ms=round((time.monotonic() - self._started_at) * 1000),
            revision=self._read_revision(),
            refusal_reason=self._refusal(),
            policies=[
                fleet_pb2.PolicyReport(
                    name=policy.name,
                    value=current_by_name[policy.name].text,
                    source=current_by_name[policy.name].source.value,
                    next_value=policy.text,
                    next_source=policy.source.value,
                    fallback_value=fallback_by_name[policy.name].text,
                    fallback_source=fallback_by_name[policy.name].source.value,
                )
                for policy in next_values or policies.effective_values
            ],
        )

    def _read_revision(self) -> str:
        with contextlib.suppress(PolicyError, OSError):
            return env_policies.revision_of(self._policies.read_accepted_values())
        return "unreadable"

    def _refusal(self) -> str:
        if self._policies.path is None:
            return (
                "this instance has no data directory (--data), so its policies come from its environment only"
            )
        if self._restart is None:
            return "this instance cannot restart itself"
        return ""

    async def _refuse(self, context: Context, code: grpc.StatusCode, reason: str) -> Never:
        log.warning("policies.refused: %s", reason)
        await context.abort(code, reason)


def _read_file(path: Path) -> dict[str, str]:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    return env_policies.parse_file(text)
