"""History for pages, alerts and statistics: changes of agents and instances, counts per minute, and keyframes.

docs/reference/history.md says what is kept, how long, and in how many bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.db import models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.backends.ddl_references import Statement
from typing_extensions import override

from fleet.models.clusters import Cluster
from fleet.models.inventory import Agent
from fleet.models.moments import CompactSecondsField, SecondsField
from fleet.models.partitions import day_of, ensure_partitions
from fleet.protocol.destination.health import Health
from fleet.vocabulary.instances import InstanceState
from fleet.vocabulary.verdicts import State

#: Table that PostgreSQL partitions by day.
AGENT_CHANGE_TABLE = "fleet_agentchange"
#: `cause` of a change without a cause, and with the backend of all auths as its cause.
NO_CAUSE_KEY, BACKEND_CAUSE_KEY = 0, -1
#: `auth` of an agent that no auth has listed.
NO_AUTH_KEY = 0
#: Bit of an entry of `proxies`: the agent's last proxy, of an agent without tunnels.
LAST_PROXY_BIT = 0x8000_0000

_INSTANCE_STATES = [(state.slug, state.slug) for state in InstanceState]
_HEALTHS = [(health.value, health.value) for health in Health]


class TimeIndex(models.Index):
    """Index by time of a table whose rows arrive in the order of time: a block range index on PostgreSQL."""

    @override
    def create_sql(
        self,
        model: type[models.Model],
        schema_editor: BaseDatabaseSchemaEditor,
        using: str = "",
        **kwargs: Any,
    ) -> Statement:
        if schema_editor.connection.vendor == "postgresql":
            using = " USING brin"
        return super().create_sql(model, schema_editor, using=using, **kwargs)


class CompactForeignKey(models.ForeignKey[Any, Any]):
    """Foreign key of four bytes that the database does not check, for tables of many rows."""

    @override
    def db_type(self, connection: Any) -> str:
        return "integer"


class AgentChangeQuerySet(models.QuerySet["AgentChange"]):
    """Rows of agent changes, with the partitions that they need."""

    @override
    def bulk_create(self, objs: Iterable[AgentChange], *args: Any, **kwargs: Any) -> list[AgentChange]:
        """Insert rows; create the missing partitions of their days."""
        rows = list(objs)
        ensure_partitions(AGENT_CHANGE_TABLE, {day_of(row.at) for row in rows}, self.db)
        return super().bulk_create(rows, *args, **kwargs)


class AgentChange(models.Model):
    """Change of an agent's verdict or place; at most one per agent and round.

    `old` equals `new` if the agent only moved, or only the reason, recovery, cause or presence changed.
    """

    pk = models.CompositePrimaryKey("agent_id", "at")
    #: When the round was concluded.
    at: models.Field[float, float] = CompactSecondsField()
    agent = CompactForeignKey(
        Agent, on_delete=models.CASCADE, db_constraint=False, db_index=False, related_name="changes"
    )
    #: Id of an Instance, NO_CAUSE_KEY or BACKEND_CAUSE_KEY.
    cause = models.IntegerField()
    #: Id of the Instance that received the last heartbeat, or NO_AUTH_KEY; None: not recorded.
    auth = models.IntegerField(null=True)
    #: From `at` to the predicted recovery, in milliseconds; 0: no prediction.
    recovers_after_ms = models.IntegerField(default=0)
    #: Numbers of State, Reason and Recovery.
    old = models.SmallIntegerField()
    new = models.SmallIntegerField()
    reason = models.SmallIntegerField()
    recovery = models.SmallIntegerField()
    #: Ids of the Instances that report a tunnel to the agent, packed as `<u4`, the current proxy first; without
    #: tunnels its last proxy with LAST_PROXY_BIT. None: not recorded.
    proxies = models.BinaryField(null=True)
    #: What the sentence of the verdict names besides: AGENT_EVIDENCE and `change_rows.EVIDENCE_TAIL`. Empty: the agent
    #: is healthy, and its resource unexpired. None: not recorded.
    evidence = models.BinaryField(null=True)

    objects = AgentChangeQuerySet.as_manager()

    class Meta:
        db_table = AGENT_CHANGE_TABLE
        default_permissions = ()
        ordering = ("-at",)
        indexes = (TimeIndex(fields=("at",), name="agent_change_by_time"),)

    @override
    def __str__(self) -> str:
        return f"{self.agent_id}: {State(self.old).slug} to {State(self.new).slug}"

    @override
    def save(self, **options: Any) -> None:
        """Write the row; create the missing partition of its day."""
        ensure_partitions(AGENT_CHANGE_TABLE, {day_of(self.at)}, options.get("using") or "default")
        super().save(**options)

    @property
    def recovers_at(self) -> float | None:
        """Return the predicted recovery in seconds since the epoch; None without a prediction."""
        return self.at + self.recovers_after_ms / 1000 if self.recovers_after_ms else None


class InstanceChange(models.Model):
    """Change of an instance's state, destination health, drain, or their reasons; at most one per instance and round.

    The backend and the cluster have rows too.
    """

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="instance_changes")
    #: Instance id, `backend/<cluster>` or `cluster/<cluster>`; the last two are `ok`, `silent` or `unknown`.
    instance = models.CharField(max_length=80)
    old = models.CharField(max_length=16, choices=_INSTANCE_STATES)
    new = models.CharField(max_length=16, choices=_INSTANCE_STATES)
    #: Destination health after the change; empty: not recorded.
    health = models.CharField(max_length=16, choices=_HEALTHS, blank=True, default="")
    #: None: not recorded.
    is_draining = models.BooleanField(null=True, default=None)
    #: `InstanceEvidence` as JSON: why it failed, for sentences. None: not recorded.
    evidence = models.TextField(null=True)  # noqa: DJ001 - empty is evidence of nothing
    at: models.Field[float, float] = SecondsField()
    round = models.BigIntegerField()

    class Meta:
        default_permissions = ()
        ordering = ("-at", "-pk")
        constraints = (
            models.UniqueConstraint(
                fields=("cluster", "instance", "round"), name="one_change_per_instance_and_round"
            ),
        )
        indexes = (
            models.Index(fields=("cluster", "-at"), name="instance_change_by_time"),
            # State history of one instance, in the order of `ordering`.
            models.Index(fields=("cluster", "instance", "-at", "-id"), name="instance_change_by_instance"),
        )

    @override
    def __str__(self) -> str:
        return f"{self.instance}: {self.old} to {self.new}"


class Keyframe(models.Model):
    """State of every agent of a cluster at one moment: the start from which changes are applied."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="keyframes")
    at: models.Field[float, float] = CompactSecondsField()
    #: `fleet.monitoring.history.keyframes.pack`.
    content = models.BinaryField()

    class Meta:
        default_permissions = ()
        ordering = ("-at",)
        constraints = (models.UniqueConstraint(fields=("cluster", "at"), name="one_keyframe_per_moment"),)

    @override
    def __str__(self) -> str:
        return f"{self.cluster_id} at {self.at}"


class FleetMinute(models.Model):
    """Number of agents by state in one minute, and later in 10 minutes or an hour; no row: no data."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="minutes")
    #: Start of the minute, of the 10 minutes or of the hour.
    at: models.Field[float, float] = CompactSecondsField()
    #: Seconds that the row covers: 60, 600 or 3600.
    resolution = models.PositiveSmallIntegerField(default=60)
    #: Agents by number of the state in the first round of the newest minute, packed as `<u4`.
    state_counts = models.BinaryField()
    #: Maximum numbers of any round.
    stranded_peak = models.PositiveIntegerField()
    at_risk_peak = models.PositiveIntegerField()
    #: Agent changes of the rounds; a round that was written twice counts twice.
    change_count = models.PositiveIntegerField(default=0)
    #: Agents by state with each proxy, auth and cause: `fleet.monitoring.history.minutes.unpack_groups`.
    groups = models.BinaryField()

    class Meta:
        default_permissions = ()
        ordering = ("at",)
        constraints = (models.UniqueConstraint(fields=("cluster", "at"), name="one_row_per_minute"),)
        indexes = (models.Index(fields=("resolution", "at"), name="minute_by_resolution"),)

    @override
    def __str__(self) -> str:
        return f"{self.cluster_id} at {self.at}"
