"""One step of a policy rollout: drain an instance, restart it, verify that it is healthy, then start the next.

Any worker makes a step every second or so, under the cluster's lease. A restart names the run to end, so a step of a
worker that died can be repeated. docs/reference/policies.md, "Rollouts".
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

from django.db.models import QuerySet
from typing_extensions import override

from fleet import lease
from fleet.changes import StaleRevisionError, engine
from fleet.changes.base_runner import Runner, StepContext
from fleet.changes.load_forecast import actual_loads_of, loads_of_plan
from fleet.changes.policies import desired_state, matrix
from fleet.models.actions import RolloutStep
from fleet.models.changes import Change
from fleet.models.clusters import ClusterLease
from fleet.models.moments import to_seconds
from fleet.monitoring.history.reconnects import read_reconnect_counts
from fleet.monitoring.sources import SourceError
from fleet.protocol.policies import env_policies
from fleet.protocol.policies.env_policies import PolicySource
from fleet.transport.admin import AdminError
from fleet.vocabulary import rollouts
from fleet.vocabulary.changes import ChangeState
from fleet.vocabulary.instances import FAULT_STATES, InstanceKind, InstanceState
from fleet.vocabulary.node_policies import NodeReport
from fleet.vocabulary.rollouts import InstanceProbe, RolloutSettings, RolloutStepState, StepAction

logger = logging.getLogger(__name__)


class _RolloutStepper:
    """Makes one step of a rollout, at one moment."""

    def __init__(self, change: Change, context: StepContext, held_lease: ClusterLease) -> None:
        self.change, self.dialer, self.held_lease = change, context.dialer, held_lease
        self.moment = context.now()
        self.now = to_seconds(self.moment)
        self.settings = RolloutSettings(**change.parameters)
        self.rollout_steps = list(change.rollout_steps.all())
        views = context.reader.instances(change.cluster_id, self.now)
        self.views = {view.facts.id: view for view in views}
        #: Present reports of the instances in progress, by instance id.
        self.reports: dict[str, NodeReport] = {}
        self.reason = f"change {change.pk}: {change.reason}"[:200]

    def run(self) -> None:
        """Make the step."""
        for row in self.rollout_steps:
            if row.state in rollouts.IN_PROGRESS_STATES:
                self._advance_step(row)
        failed_steps = [row for row in self.rollout_steps if row.state == RolloutStepState.FAILED]
        if failed_steps:
            detail = f"{failed_steps[0].name}: {failed_steps[0].detail}"
            engine.transition(self.change, ChangeState.PAUSED, self.moment, detail=detail)
            return
        if all(
            row.state in (RolloutStepState.SUCCEEDED, RolloutStepState.SKIPPED) for row in self.rollout_steps
        ):
            detail = rollouts.describe_result([RolloutStepState(row.state) for row in self.rollout_steps])
            results = self._actual_results()
            detail += rollouts.describe_reconnects(results.get("reconnect_count"))
            silent_names = [instance["name"] for instance in self.change.plan.get("silent_instances", ())]
            if silent_names:
                detail += f"; {', '.join(silent_names)} did not respond and kept the previous values"
            engine.transition(
                self.change,
                ChangeState.VERIFIED,
                self.moment,
                detail=detail,
                reason=self.change.reason,
                outcome=desired_state.progress_of(self.change) | results,
            )
            engine.mark_original_undone(self.change, self.moment)
            return
        indices: tuple[int, ...] = ()
        wait_reason = self._describe_followed_steps()
        if not wait_reason:
            indices, wait_reason = rollouts.choose_steps_to_start(
                [RolloutStepState(row.state) for row in self.rollout_steps],
                self.settings,
                self._find_unhealthy_names(),
            )
        for index in indices:
            self._start_step(self.rollout_steps[index])
        with lease.fenced_transaction(self.held_lease):
            engine.update_change(self.change, progress={"stepped_at": self.now, "waiting_for": wait_reason})

    def follow(self) -> None:
        """Follow the instances that were in progress when the rollout was aborted, until each has a result."""
        for row in self.rollout_steps:
            if row.state == RolloutStepState.DRAINING:
                self._end_drain(row)
            elif row.state in rollouts.IN_PROGRESS_STATES:
                self._advance_step(row)
        with lease.fenced_transaction(self.held_lease):
            desired_state.update_aborted_rollout(self.change, self._actual_results())

    def _actual_results(self) -> dict[str, Any]:
        """Return the loads and the reconnects of the rollout so far, to compare with the forecast."""
        loads = {"actual_loads": actual_loads_of(self.change.plan, self.views.values())}
        assert self.change.started_at is not None, "a rollout that has results has started"
        counts = read_reconnect_counts(self.change.cluster_id, to_seconds(self.change.started_at), self.now)
        if counts is None:
            return loads
        kinds = {load.kind for load in loads_of_plan(self.change.plan)}
        return loads | {
            "reconnect_count": counts.auth_count * (InstanceKind.AUTH in kinds)
            + counts.tunnel_count * (InstanceKind.PROXY in kinds)
        }

    def _end_drain(self, row: RolloutStep) -> None:
        """Undrain an instance whose rollout was aborted before its restart."""
        if (run_id := self._probe_instance(row).run_id) and run_id != row.run_id:
            # A step whose worker died requested the restart.
            self._set_state(row, RolloutStepState.RESTARTING, "restarting")
            return
        try:
            self.dialer.undrain(row.instance_id)
        except AdminError as error:
            if self.now - (row.since or 0.0) >= self.settings.timeout_seconds:
                self._set_state(row, RolloutStepState.FAILED, f"could not be undrained: {error}")
            return
        self._set_state(
            row,
            RolloutStepState.SKIPPED,
            "aborted before its restart; the next restart applies the new values",
        )

    def _describe_followed_steps(self) -> str:
        """Return which instances of this rollout an aborted rollout still restarts; empty: none."""
        change_ids = desired_state.find_followed_steps(self.change.cluster_id, self.change)
        texts = [
            f"{row.name}, which change {change_ids[row.instance_id]} is still restarting"
            for row in self.rollout_steps
            if row.instance_id in change_ids and row.state == RolloutStepState.PENDING
        ]
        return f"waiting for {' and '.join(texts)}" if texts else ""

    def _find_unhealthy_names(self) -> list[str]:
        """Return the names of instances of the same roles, not in progress, that are unhealthy or unknown.

        No instance restarts while there are any, nor without current fleet data.
        """
        in_progress_ids = {
            row.instance_id for row in self.rollout_steps if row.state in rollouts.IN_PROGRESS_STATES
        }
        kinds = {
            self.views[row.instance_id].facts.kind
            for row in self.rollout_steps
            if row.instance_id in self.views
        }
        return sorted(
            view.facts.name
            for view in self.views.values()
            if view.facts.kind in kinds
            and view.facts.id not in in_progress_ids
            and (view.state in FAULT_STATES or view.state is InstanceState.UNKNOWN)
            and not self._is_next(view.facts.id)
        )

    def _is_next(self, instance_id: str) -> bool:
        """Return whether an instance is next: the rollout may be what repairs an unhealthy one."""
        pending_ids = [row.instance_id for row in self.rollout_steps if row.state == RolloutStepState.PENDING]
        return bool(pending_ids) and pending_ids[0] == instance_id

    def _start_step(self, row: RolloutStep) -> None:
        """Send the desired values to an instance and drain it."""
        view = self.views.get(row.instance_id)
        if view is None or view.state is InstanceState.GONE:
            self._set_state(row, RolloutStepState.SKIPPED, "the instance was deregistered in the meantime")
            return
        try:
            report, _ = self.dialer.read_policies(row.instance_id)
            if (
                not report.describe_drift(row.desired_values)
                and dict(row.desired_values) == report.accepted_values
            ):
                self._set_state(
                    row, RolloutStepState.SKIPPED, "the instance already runs with the desired values"
                )
                return
            if report.refusal_reason:
                self._set_state(row, RolloutStepState.FAILED, report.refusal_reason)
                return
            overridden_names = [
                name for name in row.desired_values
                if name in report.policies and report.policies[name].current_value.source is PolicySource.FLAG
            ]  # fmt: skip
            if overridden_names:
                self._set_state(
                    row,
                    RolloutStepState.FAILED,
                    f"a flag of the instance overrides {', '.join(overridden_names)}",
                )
                return
            self.dialer.send_policies(row.instance_id, report.revision, row.desired_values)
            self.dialer.drain(row.instance_id, self.reason)
        except (SourceError, AdminError) as error:
            self._set_state(row, RolloutStepState.FAILED, str(error))
            return
        self._set_state(row, RolloutStepState.DRAINING, "draining", run_id=report.run_id, began_at=self.now)

    def _advance_step(self, row: RolloutStep) -> None:
        probe = self._probe_instance(row)
        next_step = rollouts.decide_next_step(
            RolloutStepState(row.state),
            since=row.since or 0.0,
            run_id=row.run_id,
            probe=probe,
            settings=self.settings,
            now=self.now,
        )
        match next_step.action:
            case StepAction.RESTART:
                self._restart_instance(row, probe)
            case StepAction.CHECK:
                self._set_state(row, RolloutStepState.VERIFYING, "running with the desired values")
            case StepAction.FINISH:
                self._set_state(row, RolloutStepState.SUCCEEDED, self._describe_fallback(row))
            case StepAction.FAIL:
                self._set_state(row, RolloutStepState.FAILED, next_step.detail)
            case StepAction.NOTHING:
                if row.detail != next_step.detail:
                    self._save(row, detail=next_step.detail)

    def _restart_instance(self, row: RolloutStep, probe: InstanceProbe) -> None:
        if probe.run_id and probe.run_id != row.run_id:
            # An earlier step, whose worker died, requested the restart.
            self._set_state(row, RolloutStepState.RESTARTING, "restarting")
            return
        try:
            self.dialer.restart(row.instance_id, row.run_id, self.reason, float(self.settings.drain_seconds))
        except AdminError as error:
            self._undrain_instance(row)
            self._set_state(row, RolloutStepState.FAILED, str(error))
            return
        self._set_state(row, RolloutStepState.RESTARTING, "restarting")

    def _undrain_instance(self, row: RolloutStep) -> None:
        try:
            self.dialer.undrain(row.instance_id)
        except AdminError as error:
            logger.warning(
                "rollout %d: could not undrain %s after a failed restart: %s",
                self.change.pk,
                row.name,
                error,
            )

    def _probe_instance(self, row: RolloutStep) -> InstanceProbe:
        try:
            report, is_serving = self.dialer.read_policies(row.instance_id)
        except SourceError as error:
            return InstanceProbe(error=str(error))
        self.reports[row.instance_id] = report
        drift = report.describe_drift(row.desired_values)
        return InstanceProbe(report.run_id, not drift, drift, is_serving)

    def _describe_fallback(self, row: RolloutStep) -> str:
        """Return the values in effect of the policies that this change stopped managing, as a sentence."""
        report = self.reports[row.instance_id]
        previous_values = matrix.resolve_desired_values(
            self.change.before or {}, report.role, row.instance_id
        )
        names = [
            name for name in report.policies if name in previous_values and name not in row.desired_values
        ]
        policy_values = [report.policies[name].current_value for name in names]
        return "; ".join(
            f"{env_policies.BY_NAME[policy_value.name].label}: {policy_value.text or 'unset'} ({policy_value.source})"
            for policy_value in policy_values
        )

    def _set_state(self, row: RolloutStep, state: RolloutStepState, detail: str, **columns: object) -> None:
        is_final = state in (RolloutStepState.SUCCEEDED, RolloutStepState.FAILED, RolloutStepState.SKIPPED)
        ended_at = self.now if is_final else None
        self._save(row, state=state.value, detail=detail, since=self.now, ended_at=ended_at, **columns)

    def _save(self, row: RolloutStep, **columns: object) -> None:
        for name, column_value in columns.items():
            setattr(row, name, column_value)
        with lease.fenced_transaction(self.held_lease):
            row.save(update_fields=[*columns])


class RolloutRunner(Runner):
    """Makes the steps of rollouts, and follows the instances that aborted ones still restart."""

    @override
    def find_due(self, changes: QuerySet[Change]) -> Iterator[Change]:
        yield from super().find_due(changes)
        states = [state.value for state in rollouts.IN_PROGRESS_STATES]
        aborted_changes = changes.filter(state=ChangeState.CANCELLED.value, rollout_steps__state__in=states)
        yield from aborted_changes.distinct()

    @override
    def advance(self, change: Change, context: StepContext, held_lease: ClusterLease) -> None:
        if change.state == ChangeState.CONFIRMED:
            engine.start(change, context.now())
            try:
                desired_state.store_desired_values(change)
            except StaleRevisionError as error:
                engine.transition(
                    change, ChangeState.FAILED, context.now(), detail=str(error), reason=change.reason
                )
        if change.state == ChangeState.RUNNING:
            _RolloutStepper(change, context, held_lease).run()
        elif change.state == ChangeState.CANCELLED:
            _RolloutStepper(change, context, held_lease).follow()
