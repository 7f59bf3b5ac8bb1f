"""Moves of an agent to another auth, on advice (RFD 226, "Periodic Auth Reconnects").

docs/reference/nodes.md, "Auth connection moves".

Make before break: the agent opens a second auth connection and moves once the auth there has accepted a heartbeat. The
agent stays registered all the time, and its tunnels are not affected.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from fleet.nodes.agent.auth_connection import Heartbeats
from fleet.nodes.agent.metrics import AgentMetrics
from fleet.nodes.shared.auth_advisory import OUTCOMES, outcome_of
from fleet.processes import background
from fleet.protocol.destination import instance_status
from fleet.protocol.recovery import auth_move
from fleet.protocol.recovery.auth_move import AuthMoveOutcome, TrialResult
from fleet.transport.pick_healthy.channel import PickHealthyChannel
from fleet.transport.tls import TLSError
from fleet.wire import fleet_pb2

log = logging.getLogger(__name__)

#: Seconds to connect and to receive the auth's policy and health.
_CONNECT_TIMEOUT = 10.0
#: Seconds for a health check of an auth.
_HEALTH_CHECK_TIMEOUT = 2.0
#: Seconds that a heartbeat in progress on the old connection may take.
_LAST_HEARTBEAT_TIMEOUT = 6.0

SendReply = Callable[[fleet_pb2.AuthAdvisoryReply], Awaitable[None]]


class AuthMoves:
    """Follows the advice to one agent, one move at a time."""

    def __init__(
        self,
        heartbeats: Heartbeats,
        open_channel: Callable[[], PickHealthyChannel],
        address_count: int,
        metrics: AgentMetrics,
    ) -> None:
        """`open_channel` returns a channel to auths that starts with the next of `address_count` addresses."""
        self._heartbeats = heartbeats
        self._open_channel = open_channel
        self._address_count = address_count
        self._metrics = metrics
        self._move_task: asyncio.Task[None] | None = None
        #: Who waits for the result of the current move: the id of the advice, and the function to reply with.
        self._pending_replies: list[tuple[str, SendReply]] = []
        #: Tasks that close the channels the agent has moved away from.
        self._closing_tasks: set[asyncio.Task[None]] = set()
        # A draining auth repeats its advice in every response. After a failed move, ignore it until this monotonic
        # time.
        self._advice_ignored_until = 0.0

    def advise(self, advisory: fleet_pb2.AuthReconnectAdvisory, send_reply: SendReply | None = None) -> None:
        """Follow the advice. If a move is in progress, `send_reply` receives the result of that one."""
        if send_reply is not None:
            self._pending_replies.append((advisory.advisory_id, send_reply))
        elif time.monotonic() < self._advice_ignored_until:
            return
        if self._move_task is None:
            self._move_task = asyncio.create_task(self._follow(advisory), name="move to another auth")
            self._move_task.add_done_callback(self._on_move_end)

    async def close(self) -> None:
        """Cancel a move in progress, and close the connections that the agent has moved away from."""
        await background.stop([*self._closing_tasks, *([] if self._move_task is None else [self._move_task])])

    def _on_move_end(self, task: asyncio.Task[None]) -> None:
        self._move_task = None
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("auth.move-failed: %s failed with an internal error", self._agent_name, exc_info=error)

    @property
    def _agent_name(self) -> str:
        return self._heartbeats.identity.name

    async def _follow(self, advisory: fleet_pb2.AuthReconnectAdvisory) -> None:
        reply = await self._move(advisory)
        self._metrics.auth_moves.labels(outcome_of(reply)).inc()
        log.info(
            "auth.%s: %s: auth %s: %s",
            outcome_of(reply),
            self._agent_name,
            reply.auth_id or "unknown",
            reply.reason or advisory.reason,
        )
        pending_replies, self._pending_replies = self._pending_replies, []
        for advisory_id, send_reply in pending_replies:
            # If the tunnel is gone, nobody can receive the reply, and the campaign checks the agent's auth as well.
            with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
                await send_reply(_with_advisory_id(reply, advisory_id))

    async def _move(self, advisory: fleet_pb2.AuthReconnectAdvisory) -> fleet_pb2.AuthAdvisoryReply:
        """Try auths until one accepts a heartbeat, and move to it."""
        current_auth_id = self._heartbeats.auth_id
        if auth_move.is_on_another_auth(current_auth_id, advisory.leave_auth_id):
            return _build_reply(AuthMoveOutcome.ELSEWHERE, current_auth_id)
        leave_auth_id = advisory.leave_auth_id or current_auth_id
        problems: list[str] = []
        while auth_move.should_try_again(problems, self._address_count):
            try:
                channel = self._open_channel()
            except TLSError as error:  # the TLS files were replaced and cannot be read now
                problems.append(str(error))
                break
            has_moved = False
            try:
                trial = await self._try_auth(channel, leave_auth_id)
                problem = auth_move.unfit_reason(trial, leave_auth_id)
                if not problem:
                    self._close_later(self._heartbeats.switch_channel(channel, trial.auth_id))
                    has_moved = True
                    return _build_reply(AuthMoveOutcome.MOVED, trial.auth_id)
                problems.append(problem)
            finally:
                if not has_moved:
                    await channel.close()
        self._advice_ignored_until = time.monotonic() + self._heartbeats.interval
        return _build_reply(AuthMoveOutcome.STAYED, current_auth_id, auth_move.stay_reason(problems))

    async def _try_auth(self, channel: PickHealthyChannel, leave_auth_id: str) -> TrialResult:
        """Connect, check which auth it is, and send a heartbeat if it is another auth that accepts agents."""
        try:
            async with asyncio.timeout(_CONNECT_TIMEOUT):
                channel.connect()
                # The policy comes first: with it, READY means healthy wherever agents have to check health.
                await channel.config_response_event.wait()
                await channel.channel_ready()
        except TimeoutError:
            return TrialResult(problem="no healthy auth responded in time")
        auth_id = "" if channel.policy is None else channel.policy.auth_id
        if auth_id and auth_id == leave_auth_id:
            return TrialResult(auth_id)
        try:
            if await _is_draining(channel):
                return TrialResult(auth_id, is_draining=True)
            response = await self._heartbeats.send_heartbeat_over(channel)
        except grpc.aio.AioRpcError as error:
            details = error.details() or error.code().name
            return TrialResult(
                auth_id, problem=f"auth {auth_id or 'unknown'} did not accept a heartbeat: {details}"
            )
        is_draining = response.HasField("auth_reconnect_advisory")
        return TrialResult(response.auth_id, is_draining=is_draining)

    def _close_later(self, channel: PickHealthyChannel) -> None:
        task = asyncio.create_task(self._close_when_idle(channel), name="an auth connection that was left")
        self._closing_tasks.add(task)
        task.add_done_callback(self._closing_tasks.discard)

    async def _close_when_idle(self, channel: PickHealthyChannel) -> None:
        """Close an old channel once a heartbeat in progress on it has ended."""
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LAST_HEARTBEAT_TIMEOUT):
                    await self._heartbeats.wait_until_idle()
        finally:
            await channel.close()


async def _is_draining(channel: PickHealthyChannel) -> bool:
    """Return whether the auth accepts no new connections. Raises AioRpcError if it does not respond."""
    call = health_pb2_grpc.HealthStub(channel).Check(
        health_pb2.HealthCheckRequest(), timeout=_HEALTH_CHECK_TIMEOUT
    )
    try:
        await call
    except grpc.aio.AioRpcError as error:
        if error.code() in (grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.NOT_FOUND):
            return False  # no health service: the heartbeat decides
        raise
    return any(key == instance_status.DRAINING_HEADER for key, _ in await call.trailing_metadata() or ())


def _build_reply(outcome: AuthMoveOutcome, auth_id: str, reason: str = "") -> fleet_pb2.AuthAdvisoryReply:
    return fleet_pb2.AuthAdvisoryReply(outcome=OUTCOMES[outcome], auth_id=auth_id, reason=reason)


def _with_advisory_id(reply: fleet_pb2.AuthAdvisoryReply, advisory_id: str) -> fleet_pb2.AuthAdvisoryReply:
    advisory_reply = fleet_pb2.AuthAdvisoryReply()
    advisory_reply.CopyFrom(reply)
    advisory_reply.advisory_id = advisory_id
    return advisory_reply
