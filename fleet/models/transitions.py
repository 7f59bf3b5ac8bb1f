"""State history for pages, alerts and statistics: a row for every change of an agent's or instance's state."""

from __future__ import annotations

from django.db import models
from typing_extensions import override

from fleet.models.clusters import Cluster
from fleet.vocabulary.instances import InstanceState
from fleet.vocabulary.verdicts import Reason, Recovery, State

_STATES = [(state.slug, state.label) for state in State]
_INSTANCE_STATES = [(state.slug, state.slug) for state in InstanceState]
_REASONS = [(reason.slug, reason.slug) for reason in Reason]
_RECOVERIES = [(recovery.slug, recovery.slug) for recovery in Recovery]


class Transition(models.Model):
    """Change of an agent's state, with its reason; at most one per agent and round."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="transitions")
    #: Agent id. Not a foreign key: thousands of changes of one round are written without looking up agents.
    agent = models.CharField(max_length=255)
    old = models.CharField(max_length=16, choices=_STATES)
    new = models.CharField(max_length=16, choices=_STATES)
    reason = models.CharField(max_length=24, choices=_REASONS)
    recovery = models.CharField(max_length=24, choices=_RECOVERIES)
    #: An instance id, `backend/<cluster>`, or empty.
    cause = models.CharField(max_length=80, blank=True, default="")
    at = models.DateTimeField()
    round = models.BigIntegerField()

    class Meta:
        default_permissions = ()
        ordering = ("-at", "-pk")
        constraints = (
            models.UniqueConstraint(fields=("cluster", "agent", "round"), name="one_transition_per_round"),
        )
        indexes = (
            models.Index(fields=("cluster", "-at"), name="transition_by_time"),
            # State history of one agent, in the order of `ordering`.
            models.Index(fields=("cluster", "agent", "-at", "-id"), name="transition_by_agent"),
        )

    @override
    def __str__(self) -> str:
        return f"{self.agent}: {self.old} to {self.new}"


class InstanceTransition(models.Model):
    """Change of an instance's state, at most one per instance and round; also of the backend and of the cluster."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="instance_transitions")
    #: Instance id, `backend/<cluster>` or `cluster/<cluster>`; the last two are `ok`, `silent` or `unknown`.
    instance = models.CharField(max_length=80)
    old = models.CharField(max_length=16, choices=_INSTANCE_STATES)
    new = models.CharField(max_length=16, choices=_INSTANCE_STATES)
    at = models.DateTimeField()
    round = models.BigIntegerField()

    class Meta:
        default_permissions = ()
        ordering = ("-at", "-pk")
        constraints = (
            models.UniqueConstraint(
                fields=("cluster", "instance", "round"), name="one_turn_per_instance_and_round"
            ),
        )
        indexes = (
            models.Index(fields=("cluster", "-at"), name="instance_turn_by_time"),
            # State history of one instance, in the order of `ordering`.
            models.Index(fields=("cluster", "instance", "-at", "-id"), name="instance_turn_by_instance"),
        )

    @override
    def __str__(self) -> str:
        return f"{self.instance}: {self.old} to {self.new}"
