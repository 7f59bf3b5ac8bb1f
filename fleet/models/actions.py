"""Rows of what takes time: policies wanted, rollouts by instance, reconnect campaigns by agent. docs/changes.md

Progress is in these rows, so a step that was lost with its worker is made again by another.
"""

from __future__ import annotations

from django.db import models
from typing_extensions import override

from fleet.models.changes import Change
from fleet.models.clusters import Cluster
from fleet.models.moments import SecondsField
from fleet.vocabulary.campaigns import CampaignAgentState
from fleet.vocabulary.rollouts import RolloutStepState

_STEP_STATES = [(state.value, state.value) for state in RolloutStepState]
_AGENT_STATES = [(state.value, state.value) for state in CampaignAgentState]


class DesiredPolicy(models.Model):
    """What a role, or one instance, is to run with. Without a row nothing is wanted, and nothing drifts."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="desired_policies")
    #: "auth", "proxy", or the id of an instance, which overrides its role.
    target = models.CharField(max_length=64)
    name = models.CharField(max_length=80)
    value = models.TextField()
    change = models.ForeignKey(Change, on_delete=models.SET_NULL, null=True, blank=True, related_name="+")

    class Meta:
        default_permissions = ()
        ordering = ("target", "name")
        constraints = (
            models.UniqueConstraint(fields=("cluster", "target", "name"), name="one_desired_policy"),
        )

    @override
    def __str__(self) -> str:
        return f"{self.target}: {self.name}"


class RolloutStep(models.Model):
    """One instance of a rollout."""

    change = models.ForeignKey(Change, on_delete=models.CASCADE, related_name="rollout_steps")
    position = models.PositiveIntegerField()
    instance_id = models.CharField(max_length=64)
    name = models.CharField(max_length=255)
    #: All that it is to accept.
    wanted = models.JSONField(default=dict)
    state = models.CharField(max_length=12, choices=_STEP_STATES, default=RolloutStepState.WAITING.value)
    detail = models.TextField(blank=True, default="")
    #: The run that is to end.
    run_id = models.CharField(max_length=64, blank=True, default="")
    #: When its present state began, when its turn came, and when it ended; None: not yet.
    since = SecondsField(null=True, blank=True)
    began_at = SecondsField(null=True, blank=True)
    ended_at = SecondsField(null=True, blank=True)

    class Meta:
        default_permissions = ()
        ordering = ("position",)
        constraints = (
            models.UniqueConstraint(fields=("change", "instance_id"), name="one_step_per_instance"),
        )

    @override
    def __str__(self) -> str:
        return f"{self.name}: {self.state}"


class CampaignAgent(models.Model):
    """One agent of a campaign."""

    change = models.ForeignKey(Change, on_delete=models.CASCADE, related_name="campaign_agents")
    #: Its turn; drawn at random, so that neighbours are not asked together.
    position = models.PositiveIntegerField()
    agent_id = models.CharField(max_length=64)
    name = models.CharField(max_length=255)
    state = models.CharField(max_length=8, choices=_AGENT_STATES, default=CampaignAgentState.WAITING.value)
    reason = models.CharField(max_length=255, blank=True, default="")
    #: The proxy or auth it was asked to leave, and all proxies it had a tunnel to then; instance ids.
    leaves = models.CharField(max_length=64, blank=True, default="")
    held = models.JSONField(default=list)
    #: The proxy that asks an agent to leave its auth; empty where an agent leaves the proxy itself.
    via = models.CharField(max_length=64, blank=True, default="")
    #: The proxy has taken note of it.
    told = models.BooleanField(default=False)
    #: None: not yet.
    due_at = SecondsField(null=True, blank=True)
    asked_at = SecondsField(null=True, blank=True)
    ended_at = SecondsField(null=True, blank=True)
    new_proxy = models.CharField(max_length=64, blank=True, default="")
    new_auth = models.CharField(max_length=64, blank=True, default="")

    class Meta:
        default_permissions = ()
        ordering = ("position",)
        indexes = (models.Index(fields=("change", "state", "position"), name="campaign_by_state"),)
        constraints = (models.UniqueConstraint(fields=("change", "agent_id"), name="agents_are_asked_once"),)

    @override
    def __str__(self) -> str:
        return f"{self.name}: {self.state}"
