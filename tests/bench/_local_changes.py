"""Changes of config and policies on the demo's fleet, with what the agents did meanwhile, seen through the API."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from fleet.cli.api import ConsoleClient
from fleet.cli.output import Failure
from fleet.vocabulary.changes import ChangeState
from tests.bench._demo import Demo
from tests.bench.measure import BenchError

CLUSTER = "default"
_POLL_SECONDS = 0.25
#: A change that has not ended after this does not end.
_MAX_SECONDS = 300.0
_ENDED_STATES = frozenset(
    state.value
    for state in (
        ChangeState.VERIFIED,
        ChangeState.FAILED,
        ChangeState.CANCELLED,
        ChangeState.PAUSED,
    )
)


@dataclass(frozen=True, slots=True)
class _Connections:
    """The connections of one agent: ids of its proxies, and its last auth."""

    proxies: frozenset[str]
    auth: str


@dataclass
class Observation:
    """What the agents did during a change."""

    #: The change as the API returns it when it has ended.
    change: dict[str, Any] = field(default_factory=dict)
    closed_count: int = 0
    opened_count: int = 0
    auth_move_count: int = 0
    #: Agents that opened or closed a tunnel, or connected to another auth.
    agents: set[str] = field(default_factory=set)
    #: When the last move happened, seconds since the epoch.
    last_move_at: float = 0.0
    #: Load of each instance at the end, by name.
    loads: dict[str, int] = field(default_factory=dict)

    @property
    def move_seconds(self) -> float:
        """The time from when the change was applied until the last move."""
        return self.last_move_at - datetime.fromisoformat(self.change["ended_at"]).timestamp()

    @property
    def change_seconds(self) -> float:
        """The time from the start of the change until its end."""
        started_at, ended_at = (
            datetime.fromisoformat(self.change[name]) for name in ("started_at", "ended_at")
        )
        return (ended_at - started_at).total_seconds()


class LocalChanges:
    """Plans, confirms and watches changes of a running demo."""

    def __init__(self, demo: Demo) -> None:
        self._console = ConsoleClient(demo.url, demo.token)

    def await_healthy(self, agents: int) -> None:
        """Wait until this many agents are healthy, and the console has read the config. Raises BenchError."""
        deadline = time.monotonic() + _MAX_SECONDS
        while time.monotonic() < deadline:
            with contextlib.suppress(Failure):
                self._console.get("/networking-config")
                if self._console.get("/fleet/summary")["counts"].get("healthy", 0) >= agents:
                    return
            time.sleep(_POLL_SECONDS)
        raise BenchError(f"the demo had not {agents} healthy agents within {_MAX_SECONDS:g} s")

    def plan_config(self, fields: Mapping[str, str]) -> dict[str, Any]:
        """Return the plan of other values of the networking config."""
        revision = self._console.get("/networking-config")["revision"]
        return self._plan("/networking-config/plan", {"fields": dict(fields)}, revision)

    def plan_policies(self, desired_values: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
        """Return the plan of a rollout of other desired values, by role or instance id."""
        revision = self._console.get("/policies")["revision"]
        return self._plan("/policies/plan", {"desired_values": desired_values}, revision)

    def run(self, change: Mapping[str, Any]) -> Observation:
        """Confirm a planned change, and watch the agents until it has ended. Raises BenchError."""
        observation = Observation()
        path = f"/changes/{change['id']}"
        earlier_polled_at, before = self._read_connections()
        self._console.post(
            f"{path}/confirm",
            {"reason": "to measure it", "confirmation": CLUSTER},
            headers={"If-Match": f'"{change["revision"]}"'},
        )
        confirmed_at = time.monotonic()
        while time.monotonic() - confirmed_at < _MAX_SECONDS:
            observation.change = self._console.get(path)
            polled_at, after = self._read_connections()
            if self._count_moves(observation, before, after):
                # The move happened between two polls.
                observation.last_move_at = (earlier_polled_at + polled_at) / 2
            earlier_polled_at = polled_at
            # An agent that is between two auths keeps its last one.
            before = {
                agent: _Connections(
                    now.proxies, now.auth or before[agent].auth if agent in before else now.auth
                )
                for agent, now in after.items()
            }
            if observation.change["state"] in _ENDED_STATES:
                break
            time.sleep(_POLL_SECONDS)
        if observation.change["state"] != ChangeState.VERIFIED.value:
            raise BenchError(
                f"{change['title']} is {observation.change['state']}: {observation.change['detail']}"
            )
        observation.loads = {
            instance["name"]: instance["agent_count"]
            for instance in self._console.get("/instances")["instances"]
        }
        return observation

    def _plan(self, path: str, body: Mapping[str, Any], revision: str) -> dict[str, Any]:
        change: dict[str, Any] = self._console.post(path, body, headers={"If-Match": f'"{revision}"'})
        return change

    def _read_connections(self) -> tuple[float, dict[str, _Connections]]:
        """Return the time of the newest poll, and the connections of each agent then."""
        page = self._console.get("/agents", {"limit": 1000})
        return datetime.fromisoformat(page["as_of"]).timestamp(), {
            agent["id"]: _Connections(
                frozenset(proxy["id"] for proxy in agent["proxies"]), (agent["auth"] or {}).get("id", "")
            )
            for agent in page["agents"]
        }

    def _count_moves(
        self,
        observation: Observation,
        before: Mapping[str, _Connections],
        after: Mapping[str, _Connections],
    ) -> bool:
        """Count what changed between two readings. Return whether anything did."""
        is_changed = False
        for agent, now in after.items():
            earlier = before.get(agent)
            if earlier is None:
                continue
            closed_count = len(earlier.proxies - now.proxies)
            opened_count = len(now.proxies - earlier.proxies)
            is_moved = bool(now.auth and earlier.auth and now.auth != earlier.auth)
            observation.closed_count += closed_count
            observation.opened_count += opened_count
            observation.auth_move_count += is_moved
            if closed_count or opened_count or is_moved:
                observation.agents.add(agent)
                is_changed = True
        return is_changed
