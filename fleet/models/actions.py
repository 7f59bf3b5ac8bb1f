"""Desired values, steps of rollouts by instance, and agents of reconnect campaigns. docs/reference/changes.md.

The progress is in these rows, so another worker repeats a step that was lost with its worker.
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
    """Desired value of a policy for a role or an instance. Without a row the policy is not managed."""

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
    """An instance of a rollout, with its progress."""

    change = models.ForeignKey(Change, on_delete=models.CASCADE, related_name="rollout_steps")
    position = models.PositiveIntegerField()
    instance_id = models.CharField(max_length=64)
    name = models.CharField(max_length=255)
    #: Desired values that the instance is to accept, by policy.
    desired_values = models.JSONField(default=dict)
    state = models.CharField(max_length=12, choices=_STEP_STATES, default=RolloutStepState.PENDING.value)
    detail = models.TextField(blank=True, default="")
    #: Id of the run that the restart ends.
    run_id = models.CharField(max_length=64, blank=True, default="")
    #: Start of the present state, start of the step, and its end; None: not yet.
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
    """An agent of a campaign, with its progress."""

    change = models.ForeignKey(Change, on_delete=models.CASCADE, related_name="campaign_agents")
    #: Position in the campaign; random, so that agents with similar names are not asked at the same time.
    position = models.PositiveIntegerField()
    agent_id = models.CharField(max_length=64)
    name = models.CharField(max_length=255)
    state = models.CharField(max_length=12, choices=_AGENT_STATES, default=CampaignAgentState.PENDING.value)
    reason = models.CharField(max_length=255, blank=True, default="")
    #: Instance id of the proxy or auth that the agent is asked to leave, and of all proxies it then had a tunnel to.
    from_instance = models.CharField(max_length=64, blank=True, default="")
    initial_proxies = models.JSONField(default=list)
    #: Instance id of the proxy that asks the agent to leave its auth; empty when the agent leaves the proxy itself.
    via_proxy = models.CharField(max_length=64, blank=True, default="")
    #: The proxy has accepted the request.
    request_sent = models.BooleanField(default=False)
    #: Times of scheduling, request and result; None: not yet.
    due_at = SecondsField(null=True, blank=True)
    requested_at = SecondsField(null=True, blank=True)
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
