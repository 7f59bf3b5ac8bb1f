"""Rows of incidents and their timelines. `fleet.alerts.store` converts them to values and back.

The fields of an incident are declared in `fleet.vocabulary.incidents`; each plain field becomes a column here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from django.db import models
from django.db.models import Q
from typing_extensions import override

from fleet.models.clusters import Cluster
from fleet.models.moments import SecondsField
from fleet.vocabulary import incidents as incident_values

#: Columns by the type of the field, without type parameters.
_COLUMNS: Mapping[str, Callable[[], models.Field[Any, Any]]] = {
    "float | None": lambda: SecondsField(null=True, blank=True),
    "int": lambda: models.PositiveIntegerField(default=0),
    "bool": lambda: models.BooleanField(default=False),
    "str": lambda: models.TextField(blank=True, default=""),
    "Severity | None": lambda: models.PositiveSmallIntegerField(null=True, blank=True),
    "tuple": lambda: models.JSONField(default=list),
    "Mapping": lambda: models.JSONField(default=dict),
}


class Incident(models.Model):
    """An incident. Declared here are the columns that queries use and those that people write.

    All others come from `incident_values.Incident`, below.
    """

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="incidents")
    #: Key of the cause: `proxy/<id>`.
    key = models.CharField(max_length=300)
    cause_kind = models.CharField(max_length=16)
    cause_id = models.CharField(max_length=255)
    cause_name = models.CharField(max_length=255)
    generation = models.PositiveIntegerField()
    state = models.CharField(max_length=12)
    severity = models.PositiveSmallIntegerField()
    opened_at = SecondsField()
    inhibited_by = models.CharField(max_length=300, blank=True, default="")
    silenced_by = models.CharField(max_length=300, blank=True, default="")
    #: Written by actions of people, never by an evaluation.
    acknowledged_at = SecondsField(null=True, blank=True)
    acknowledged_by = models.CharField(max_length=200, blank=True, default="")
    #: With a default of the database: the previous version writes rows without it during an upgrade.
    is_cause_recovering = models.BooleanField(default=False, db_default=False)

    class Meta:
        default_permissions = ()
        ordering = ("-opened_at", "-pk")
        constraints = (
            models.UniqueConstraint(
                fields=("cluster", "key", "generation"), name="one_incident_per_generation"
            ),
            models.UniqueConstraint(
                fields=("cluster", "key"), condition=~Q(state="resolved"), name="one_open_incident_per_cause"
            ),
        )
        indexes = (
            models.Index(fields=("cluster", "state"), name="incident_by_state"),
            models.Index(fields=("cluster", "-opened_at"), name="incident_by_time"),
        )

    @override
    def __str__(self) -> str:
        return f"{self.cluster_id}/{self.key}/{self.generation}"


for _field in fields(incident_values.Incident):
    if _field.name != "cause" and not hasattr(Incident, _field.name):
        Incident.add_to_class(_field.name, _COLUMNS[str(_field.type).partition("[")[0]]())


class VersionChange(models.Model):
    """A version change of an instance, for example by a deployment."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="version_changes")
    instance_id = models.CharField(max_length=64)
    name = models.CharField(max_length=255)
    #: Empty if the instance was seen for the first time.
    old = models.CharField(max_length=64, blank=True, default="")
    new = models.CharField(max_length=64)
    at = SecondsField()

    class Meta:
        default_permissions = ()
        ordering = ("at", "pk")
        indexes = (models.Index(fields=("cluster", "at"), name="version_by_time"),)

    @override
    def __str__(self) -> str:
        return f"{self.name}: {self.old or 'new'} to {self.new}"


class IncidentEvent(models.Model):
    """A timeline entry of an incident: an event, an action of a person, or a note."""

    incident = models.ForeignKey(Incident, on_delete=models.CASCADE, related_name="events")
    at = SecondsField()
    #: `firing`, `notification`, `note`, `acknowledged` ...
    kind = models.CharField(max_length=16)
    #: Name of the user; empty for Refloat itself.
    actor_name = models.CharField(max_length=200, blank=True, default="")
    text = models.TextField(blank=True, default="")

    class Meta:
        default_permissions = ()
        ordering = ("at", "pk")

    @override
    def __str__(self) -> str:
        return f"{self.incident_id}: {self.kind}"


class IncidentEvidence(models.Model):
    """The affected agents of an incident when most agents were affected: `fleet.alerts.evidence`.

    A row of its own, so that lists of incidents do not read it. It is deleted with its incident.
    """

    incident = models.OneToOneField(
        Incident, on_delete=models.CASCADE, primary_key=True, related_name="evidence"
    )
    #: Time of the poll that the copy shows.
    taken_at = SecondsField()
    affected_count = models.PositiveIntegerField()
    stranded_count = models.PositiveIntegerField()
    #: Result of `evidence.pack_evidence`.
    content = models.BinaryField()

    class Meta:
        default_permissions = ()

    @override
    def __str__(self) -> str:
        return f"{self.incident_id}: {self.affected_count} agents"
