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
from tests.fakes.receivers import receiving
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
    """What the fleet says of one agent."""

    name: str
    #: Places of the proxies that it has a tunnel to.
    on: tuple[int, ...] = (0,)
    auth: int = 1
    mode: str = "reconnect"
    desired: int = 1
    claimed: int = 0
    #: When its resource expires.
    expires_at: float = field(default_factory=lambda: time.time() + LONG)

    def entry(self, now: float) -> fleet_pb2.AgentEntry:
        """Its entry in the lists of auths."""
        left = self.expires_at - now
        entry = agent_entry(f"{self.name}-id", f"auth-{self.auth}-id", expires_in=left, desired=self.desired)
        entry.agent.policy.mode = self.mode
        entry.agent.policy.health_check = self.mode == "reconnect"
        entry.agent.tracker.claimed.extend(f"proxy-{n + 1}-id" for n in range(self.claimed or len(self.on)))
        return entry


class Fleet:
    """A console, and what its instances say of agents."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.record = Record(console.reader, time.time)
        self.agents: list[Agent] = []
        self._edition = 0
        for auth in console.auths:
            auth.agents = self._list
        self.list_all()
        self.say()

    def say(self, *agents: Agent) -> None:
        """Have all instances say this from now on."""
        self._edition += 1
        self.agents = list(agents)
        for place, proxy in enumerate(self.console.proxies):
            names = [agent.name for agent in agents if place in agent.on]
            proxy.tunnels = tunnels_of(names, f"edition {self._edition}")

    def list_all(self, *, expired: int | None = None, gone: int | None = None) -> None:
        """Have the auths list all instances, but one that has gone, and one of them as expired; by place."""
        now = time.time()
        for auth in self.console.auths:
            auth.auths = [one.resource(now + LONG, "60s") for one in self.console.auths]
            auth.proxies = [
                proxy.resource(now - 1 if place == expired else now + LONG, "60s", **_labels(place))
                for place, proxy in enumerate(self.console.proxies)
                if place != gone
            ]

    @property
    def instances(self) -> list[FakeInstance]:
        """All of them."""
        return [*self.console.auths, *self.console.proxies]

    def heal(self) -> None:
        """Undo everything that was done to instances."""
        for one in self.instances:
            one.held.clear()
            one.serving, one.readyz = health_pb2.HealthCheckResponse.SERVING, 200
            one.says.clear()
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


def _unwell(*instances: FakeInstance) -> None:
    """Have them answer that they are not well."""
    for one in instances:
        one.serving, one.readyz = health_pb2.HealthCheckResponse.NOT_SERVING, 503


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """One for all tests here. Alerting fires at once, for each cause, and tells nobody."""
    console = Console(tmp_path_factory.mktemp("console"), auths=2, proxies=PROXIES)
    made = Fleet(console)
    sql(
        console.home,
        "update fleet_alertrule set min_count = 1, min_share = 0, pending_rounds = 1, pending_seconds = 0,"
        " group_wait = 0, recover_seconds = 1",
    )
    console.env["REFLOAT_ALERT_INTERVAL"] = "0.5"
    console.start_polling()
    console.start(programs.alerts())
    yield made
    console.stop()


def test_trouble_of_an_agents_own(fleet: Fleet) -> None:
    """All instances are well, and each agent has another trouble."""
    lonely, killed, forgotten = Agent("lonely"), Agent("killed"), Agent("forgotten")
    pick_first = Agent("forgotten-too", mode="pick_first")
    others = (
        Agent("well"),
        Agent("never", on=()),
        Agent("few", desired=2),
        Agent("many", on=(0, 1)),
        Agent("claims", claimed=2),
    )
    everybody = (lonely, killed, forgotten, pick_first, *others)
    fleet.say(*everybody)
    produced(
        fleet.record,
        seconds=PATIENCE,
        verdicts=("healthy", "never", "degraded", "excess"),
        reasons=("too-few-tunnels", "too-many-tunnels"),
    )
    now = time.time()
    # The last heartbeat of the one, and of the other none after its tunnel was lost.
    lonely.on = killed.on = ()
    killed.expires_at = now + TTL
    # What an auth that is well lets expire: nobody is to blame.
    forgotten.expires_at = pick_first.expires_at = now + 5
    fleet.say(*everybody)
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


def test_trouble_of_instances(fleet: Fleet) -> None:
    """Agents suffer from an auth, from proxies, from the backend, and from a network that is gone."""
    auths, proxies = fleet.console.auths, fleet.console.proxies
    home = Database(fleet.console.home)
    fleet.say(
        Agent("well"),
        Agent("moves", auth=2),
        Agent("stays", auth=2, mode="pick_first"),
        *(Agent(f"of-proxy-{place + 1}", on=(place,)) for place in range(PROXIES)),
    )
    eventually_sync(lambda: fleet.console.counts().get("healthy", 0) == 3 + PROXIES, seconds=PATIENCE)
    _unwell(auths[1], *(proxies[place] for place in REGION))
    proxies[1].says[DEGRADED_HEADER] = "slow disk"
    for place in GROUP:
        proxies[place].held.set()
    fleet.list_all(gone=6, expired=7)
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
    _unwell(auths[0])
    produced(
        home,
        seconds=PATIENCE,
        verdicts=("at_risk",),
        reasons=("backend-down",),
        causes=("backend",),
        incident_causes=("backend",),
    )
    for one in fleet.instances:
        one.held.set()
    produced(
        home,
        seconds=PATIENCE,
        verdicts=("unknown",),
        reasons=("cluster-unreachable",),
        incident_causes=("cluster",),
    )
    fleet.heal()
    produced(home, seconds=PATIENCE, timeline=("firing", "notice", "recovering", "resolved"))


def test_incident_that_comes_and_goes(fleet: Fleet) -> None:
    """Its timeline says so, who was called in, what was sent, and that a silence of it ends."""
    console, proxy = fleet.console, fleet.console.proxies[0]
    home = Database(console.home)
    fleet.heal()
    fleet.say(Agent("well"))
    eventually_sync(lambda: set(fleet.record("instance_states")) == {"ok"}, seconds=PATIENCE)
    # What was stronger explains others for a minute after it is over.
    sql(console.home, "delete from fleet_incidentevent")
    sql(console.home, "delete from fleet_incident")
    sql(console.home, "update fleet_alertrule set recover_seconds = 300, severity = 2")
    with receiving() as receiver:
        add_channel(console.home, "webhook", "url", receiver.url)
        sql(console.home, "update fleet_route set escalate_after = 0")
        sql(
            console.home,
            "insert into fleet_route_escalate_to (route_id, channel_id)"
            " select r.id, c.id from fleet_route r, fleet_channel c",
        )
        for _ in range(2):
            _unwell(proxy)
            _await_incident(console, "firing")
            fleet.heal()
            _await_incident(console, "recovering")
        _unwell(proxy)
        _await_incident(console, "firing")
        produced(home, seconds=PATIENCE, timeline=("firing", "back", "flapping", "escalated", "delivery"))

        def is_steady() -> bool:
            """Half an hour without a turn is written, not waited for; who takes the cluster over reads it."""
            sql(console.home, "update fleet_incident set flips = '[]' where state = 'firing'")
            sql(
                console.home,
                "update fleet_clusterlease set holder = '', token = token + 1 where purpose = 'alerts'",
            )
            return bool(sql(console.home, "select 1 from fleet_incidentevent where kind = 'steady'"))

        eventually_sync(is_steady, seconds=PATIENCE)
        now = time.time()
        sql(
            console.home,
            "insert into fleet_silence (cluster, matchers, reason, creator, created_at, starts_at, ends_at, warned)"
            " values ('', ?, 'to see its end', 'ada', ?, ?, ?, 0)",
            *(f"cause=proxy/{proxy.id}", _column(now - 600), _column(now - 600), _column(now + LONG)),
        )
        silenced = "select 1 from fleet_incident where silenced_by != ''"
        eventually_sync(lambda: bool(sql(console.home, silenced)), seconds=PATIENCE)
        sql(console.home, "update fleet_silence set ends_at = ?", _column(now + 300))
        produced(home, seconds=PATIENCE, timeline=("steady", "silence ends"))


def _column(seconds: float) -> str:
    """Return a moment as SQLite keeps it."""
    return str(to_moment(seconds).replace(tzinfo=None))


def _await_incident(console: Console, state: str) -> None:
    """Wait until the incident of the first proxy is in this state."""
    query = "select state from fleet_incident where cause_name = 'proxy-1' and state != 'resolved'"
    eventually_sync(lambda: sql(console.home, query) == [(state,)], seconds=PATIENCE)
