"""Every verdict and its reason, the whole way: what instances answer, polled by a real console, into its history.

Instances answer what a test has them answer; beat, worker, alerting, Redis and database are those of an installation.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from grpc_health.v1 import health_pb2

from fleet.management import programs
from fleet.models.moments import to_moment
from fleet.protocol.destination.instance_status import DEGRADED_HEADER
from fleet.protocol.instance_labels import GROUP_ID_LABEL, REGION_LABEL
from fleet.wire import fleet_pb2
from tests.fakes.instances import FakeInstance, agent_entry
from tests.fakes.receivers import run_receiver
from tests.fakes.waiting import eventually_sync
from tests.flow.alerting import add_channel, sql
from tests.flow.producers import Database, Record, produced
from tests.flow.rounds import Console, tunnels_of

pytestmark = pytest.mark.slow

PROXIES = 8
#: Seconds for anything, on a machine that does other things too.
PATIENCE = 180.0
#: What is told of agents by default lasts longer than a test.
LONG = 3600.0
#: That of an agent's heartbeat.
TTL = 20.0
#: Proxies of a group, and proxies of a region, by place; the others are each by themselves.
GROUP, REGION = (2, 3), (4, 5)


@dataclass
class Agent:
    """What the fleet reports on one agent."""

    name: str
    #: Places of the proxies that it has a tunnel to.
    on: tuple[int, ...] = (0,)
    auth: int = 1
    mode: str = "reconnect"
    desired_count: int = 1
    claimed_count: int = 0
    #: When its resource expires.
    expires_at: float = field(default_factory=lambda: time.time() + LONG)

    def entry(self, now: float) -> fleet_pb2.AgentEntry:
        """Its entry in the lists of auths."""
        remaining = self.expires_at - now
        entry = agent_entry(
            f"{self.name}-id", f"auth-{self.auth}-id", expires_in=remaining, desired_count=self.desired_count
        )
        entry.agent.policy.mode = self.mode
        entry.agent.policy.health_check = self.mode == "reconnect"
        entry.agent.tracker.claimed.extend(
            f"proxy-{n + 1}-id" for n in range(self.claimed_count or len(self.on))
        )
        return entry


class Fleet:
    """A console, and the agents that its instances report."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.record = Record(console.reader, time.time)
        self.agents: list[Agent] = []
        self._edition = 0
        for auth in console.auths:
            auth.agents = self._list
        self.list_all()
        self.report()

    def report(self, *agents: Agent) -> None:
        """Let all instances report these agents from now on."""
        self._edition += 1
        self.agents = list(agents)
        for place, proxy in enumerate(self.console.proxies):
            names = [agent.name for agent in agents if place in agent.on]
            proxy.tunnels = tunnels_of(names, f"edition {self._edition}")

    def list_all(self, *, expired_index: int | None = None, gone_index: int | None = None) -> None:
        """Have the auths list all instances, but one that has gone, and one of them as expired; by place."""
        now = time.time()
        for auth in self.console.auths:
            auth.auths = [instance.resource(now + LONG, "60s") for instance in self.console.auths]
            auth.proxies = [
                proxy.resource(now - 1 if place == expired_index else now + LONG, "60s", **_labels(place))
                for place, proxy in enumerate(self.console.proxies)
                if place != gone_index
            ]

    @property
    def instances(self) -> list[FakeInstance]:
        """All of them."""
        return [*self.console.auths, *self.console.proxies]

    def heal(self) -> None:
        """Undo everything that was done to instances."""
        for instance in self.instances:
            instance.freeze_event.clear()
            instance.serving, instance.readyz = health_pb2.HealthCheckResponse.SERVING, 200
            instance.metadata.clear()
        self.list_all()

    def _list(self, request: fleet_pb2.ListAgentsRequest) -> fleet_pb2.ListAgentsResponse:
        epoch, now = f"edition {self._edition}", time.time()
        full = request.epoch != epoch
        entries = [agent.entry(now) for agent in self.agents if agent.expires_at > now]
        return fleet_pb2.ListAgentsResponse(
            epoch=epoch, revision=1, full=full, agents=entries if full else []
        )


def _labels(place: int) -> dict[str, str]:
    if place in GROUP:
        return {GROUP_ID_LABEL: "edge"}
    return {REGION_LABEL: "north"} if place in REGION else {}


def _make_unhealthy(*instances: FakeInstance) -> None:
    """Have them answer that they are not well."""
    for instance in instances:
        instance.serving, instance.readyz = health_pb2.HealthCheckResponse.NOT_SERVING, 503


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """The fleet of all tests here. Alerting fires at once for each cause and notifies nobody."""
    console = Console(tmp_path_factory.mktemp("console"), auths=2, proxies=PROXIES)
    new_fleet = Fleet(console)
    sql(
        console.home,
        "update fleet_alertrule set min_count = 1, min_share = 0, pending_rounds = 1, pending_seconds = 0,"
        " group_wait = 0, recover_seconds = 1",
    )
    console.env["REFLOAT_ALERT_INTERVAL"] = "0.5"
    console.start_polling()
    console.start(programs.create_alerts_program())
    yield new_fleet
    console.stop()


def test_verdicts_of_agent_faults(fleet: Fleet) -> None:
    """All instances are healthy, and each agent has another fault."""
    lonely, stopped_agent, expiring_agent = Agent("lonely"), Agent("killed"), Agent("forgotten")
    pick_first = Agent("forgotten-too", mode="pick_first")
    other_agents = (
        Agent("well"),
        Agent("never", on=()),
        Agent("few", desired_count=2),
        Agent("many", on=(0, 1)),
        Agent("claims", claimed_count=2),
    )
    all_agents = (lonely, stopped_agent, expiring_agent, pick_first, *other_agents)
    fleet.report(*all_agents)
    produced(
        fleet.record,
        seconds=PATIENCE,
        verdicts=("healthy", "never", "degraded", "excess"),
        reasons=("too-few-tunnels", "too-many-tunnels"),
    )
    now = time.time()
    # The last heartbeat of the one, and of the other none after its tunnel was lost.
    lonely.on = stopped_agent.on = ()
    stopped_agent.expires_at = now + TTL
    # What an auth that is well lets expire: nobody is to blame.
    expiring_agent.expires_at = pick_first.expires_at = now + 5
    fleet.report(*all_agents)
    produced(
        Database(fleet.console.home),
        seconds=PATIENCE,
        verdicts=("healthy", "never", "degraded", "excess", "offline", "stranded"),
        reasons=(
            "none",
            "own-host",
            "no-tunnel",
            "resource-expired",
            "policy-off",
            "too-few-tunnels",
            "too-many-tunnels",
            "disagree",
        ),
        recoveries=("not-needed", "unclear"),
        incident_causes=("agents", "fleet"),
    )


def test_verdicts_of_instance_faults(fleet: Fleet) -> None:
    """Agents suffer from an auth, from proxies, from the backend, and from a network that is gone."""
    auths, proxies = fleet.console.auths, fleet.console.proxies
    home = Database(fleet.console.home)
    fleet.report(
        Agent("well"),
        Agent("moves", auth=2),
        Agent("stays", auth=2, mode="pick_first"),
        *(Agent(f"of-proxy-{place + 1}", on=(place,)) for place in range(PROXIES)),
    )
    eventually_sync(lambda: fleet.console.counts().get("healthy", 0) == 3 + PROXIES, seconds=PATIENCE)
    _make_unhealthy(auths[1], *(proxies[place] for place in REGION))
    proxies[1].metadata[DEGRADED_HEADER] = "slow disk"
    for place in GROUP:
        proxies[place].freeze_event.set()
    fleet.list_all(gone_index=6, expired_index=7)
    produced(
        home,
        seconds=PATIENCE,
        verdicts=("at_risk", "stranded", "degraded"),
        reasons=("auth-unhealthy", "proxy-unhealthy", "proxy-expired", "instance-degraded"),
        recoveries=("by-itself", "only-if-cause-recovers"),
        causes=("auth", "proxy"),
        instance_states=("ok", "silent", "unhealthy", "expired", "gone"),
        incident_causes=("auth", "proxy", "proxy-group", "region"),
    )
    _make_unhealthy(auths[0])
    produced(
        home,
        seconds=PATIENCE,
        verdicts=("at_risk",),
        reasons=("backend-down",),
        causes=("backend",),
        incident_causes=("backend",),
    )
    for instance in fleet.instances:
        instance.freeze_event.set()
    produced(
        home,
        seconds=PATIENCE,
        verdicts=("unknown",),
        reasons=("cluster-unreachable",),
        incident_causes=("cluster",),
    )
    fleet.heal()
    produced(home, seconds=PATIENCE, timeline=("firing", "notification", "recovering", "resolved"))


def test_incident_is_opened_and_resolved(fleet: Fleet) -> None:
    """The timeline has the escalation, the deliveries, the end of a silence and a lower severity."""
    console, proxy = fleet.console, fleet.console.proxies[0]
    home = Database(console.home)
    fleet.heal()
    fleet.report(Agent("well"))
    eventually_sync(lambda: set(fleet.record("instance_states")) == {"ok"}, seconds=PATIENCE)
    # What was stronger explains others for a minute after it is over.
    sql(console.home, "delete from fleet_incidentevent")
    sql(console.home, "delete from fleet_incident")
    sql(console.home, "update fleet_alertrule set recover_seconds = 300, severity = 2")
    with run_receiver() as receiver:
        add_channel(console.home, "webhook", "url", receiver.url)
        sql(console.home, "update fleet_route set escalate_after = 0")
        sql(
            console.home,
            "insert into fleet_route_escalate_to (route_id, channel_id)"
            " select r.id, c.id from fleet_route r, fleet_channel c",
        )
        for _ in range(2):
            _make_unhealthy(proxy)
            _await_incident(console, "firing")
            fleet.heal()
            _await_incident(console, "recovering")
        _make_unhealthy(proxy)
        _await_incident(console, "firing")
        produced(home, seconds=PATIENCE, timeline=("firing", "recurred", "flapping", "escalated", "delivery"))

        def is_steady() -> bool:
            """Half an hour without a turn is written, not waited for; who takes the cluster over reads it."""
            sql(console.home, "update fleet_incident set flap_times = '[]' where state = 'firing'")
            sql(
                console.home,
                "update fleet_clusterlease set holder = '', token = token + 1 where purpose = 'alerts'",
            )
            return bool(sql(console.home, "select 1 from fleet_incidentevent where kind = 'stable'"))

        eventually_sync(is_steady, seconds=PATIENCE)
        now = time.time()
        sql(
            console.home,
            "insert into fleet_silence (cluster, matchers, reason, creator, created_at, starts_at, ends_at,"
            " expiry_notified) values ('', ?, 'to see its end', 'ada', ?, ?, ?, 0)",
            *(
                f"cause=proxy/{proxy.id}",
                _to_sqlite_moment(now - 600),
                _to_sqlite_moment(now - 600),
                _to_sqlite_moment(now + LONG),
            ),
        )
        silenced_query = "select 1 from fleet_incident where silenced_by != ''"
        eventually_sync(lambda: bool(sql(console.home, silenced_query)), seconds=PATIENCE)
        sql(console.home, "update fleet_silence set ends_at = ?", _to_sqlite_moment(now + 300))
        produced(home, seconds=PATIENCE, timeline=("stable", "silence ends"))
        sql(console.home, "update fleet_alertrule set severity = 1")
        produced(home, seconds=PATIENCE, timeline=("severity",))


def _to_sqlite_moment(seconds: float) -> str:
    """Return a moment as SQLite keeps it."""
    return str(to_moment(seconds).replace(tzinfo=None))


def _await_incident(console: Console, state: str) -> None:
    """Wait until the incident of the first proxy is in this state."""
    query = "select state from fleet_incident where cause_name = 'proxy-1' and state != 'resolved'"
    eventually_sync(lambda: sql(console.home, query) == [(state,)], seconds=PATIENCE)
