"""One step of a rollout of policies: an instance at a time, drained, restarted with them, well before the next one.

Called every second or so, by any worker, under the cluster's lease. A restart names the run that is to end, so a step
that dies with its worker is made again without harm. docs/policies.md, "Rollouts".
"""

from __future__ import annotations

import logging

from typing_extensions import override

from fleet import lease
from fleet.changes import Stale, engine
from fleet.changes.base_runner import Runner, StepContext
from fleet.changes.policies import desired, matrix
from fleet.models.actions import RolloutStep
from fleet.models.changes import Change
from fleet.models.clusters import ClusterLease
from fleet.models.moments import to_seconds
from fleet.monitoring.sources import SourceFailed
from fleet.protocol.policies import env_policies
from fleet.protocol.policies.env_policies import Source
from fleet.transport.admin import AdminError
from fleet.vocabulary import rollouts
from fleet.vocabulary.changes import ChangeState
from fleet.vocabulary.instances import FAULTS, InstanceState
from fleet.vocabulary.node_policies import NodeReport
from fleet.vocabulary.rollouts import Move, NodeSeen, StepState, Terms

logger = logging.getLogger(__name__)


class _Step:
    """One step, at one moment."""

    def __init__(self, change: Change, context: StepContext, held: ClusterLease) -> None:
        self.change, self.nodes, self.held = change, context.dialer, held
        self.moment = context.moment()
        self.now = to_seconds(self.moment)
        self.terms = Terms(**change.parameters)
        self.rows = list(change.rollout_steps.all())
        views = context.reader.instances(change.cluster_id, self.now)
        self.views = {view.facts.id: view for view in views}
        #: What those under way say now, by instance id.
        self.reports: dict[str, NodeReport] = {}
        self.reason = f"change {change.pk}: {change.reason}"[:200]

    def make(self) -> None:
        """Make it."""
        for row in self.rows:
            if row.state in rollouts.UNDER_WAY:
                self._carry_on(row)
        failed = [row for row in self.rows if row.state == StepState.FAILED]
        if failed:
            said = f"{failed[0].name}: {failed[0].detail}"
            engine.move(self.change, ChangeState.PAUSED, self.moment, detail=said)
            return
        if all(row.state in (StepState.OK, StepState.SKIPPED) for row in self.rows):
            said = (
                f"{len(self.rows)} instances run with what is wanted" if self.rows else "wanted from now on"
            )
            engine.move(
                self.change,
                ChangeState.VERIFIED,
                self.moment,
                detail=said,
                reason=self.change.reason,
                outcome=desired.progress_of(self.change),
            )
            engine.take_back(self.change, self.moment)
            return
        turns, waits_for = rollouts.turns(
            [StepState(row.state) for row in self.rows], self.terms, self._sick()
        )
        for place in turns:
            self._begin(self.rows[place])
        with lease.fenced(self.held):
            engine.note(self.change, progress={"stepped_at": self.now, "waits_for": waits_for})

    def _sick(self) -> list[str]:
        """Instances of the same roles, not under way themselves, of which it is not seen that they are well.

        Nobody restarts beside them, nor while the pollers are blind.
        """
        ours = {row.instance_id for row in self.rows if row.state in rollouts.UNDER_WAY}
        kinds = {self.views[row.instance_id].facts.kind for row in self.rows if row.instance_id in self.views}
        return sorted(
            view.facts.name
            for view in self.views.values()
            if view.facts.kind in kinds
            and view.facts.id not in ours
            and (view.state in FAULTS or view.state is InstanceState.UNKNOWN)
            and not self._waiting(view.facts.id)
        )

    def _waiting(self, instance_id: str) -> bool:
        """A sick instance whose own turn is next may be just what the rollout is to mend."""
        waiting = [row.instance_id for row in self.rows if row.state == StepState.WAITING]
        return bool(waiting) and waiting[0] == instance_id

    def _begin(self, row: RolloutStep) -> None:
        """Have it accept what is wanted, and drain it."""
        view = self.views.get(row.instance_id)
        if view is None or view.state is InstanceState.GONE:
            self._to(row, StepState.SKIPPED, "it was deregistered meanwhile")
            return
        try:
            report, _ = self.nodes.read(row.instance_id)
            if not report.differs(row.wanted) and dict(row.wanted) == report.accepted:
                self._to(row, StepState.SKIPPED, "it runs with all that is wanted already")
                return
            if report.why_not:
                self._to(row, StepState.FAILED, report.why_not)
                return
            hidden = [
                name for name in row.wanted
                if name in report.policies and report.policies[name].now.source is Source.FLAG
            ]  # fmt: skip
            if hidden:
                self._to(row, StepState.FAILED, f"its command line decides on {', '.join(hidden)}")
                return
            self.nodes.accept(row.instance_id, report.revision, row.wanted)
            self.nodes.drain(row.instance_id, self.reason)
        except (SourceFailed, AdminError) as error:
            self._to(row, StepState.FAILED, str(error))
            return
        self._to(row, StepState.DRAINING, "draining", run_id=report.run_id, began_at=self.now)

    def _carry_on(self, row: RolloutStep) -> None:
        seen = self._see(row)
        found = rollouts.following(
            StepState(row.state),
            since=row.since or 0.0,
            run_id=row.run_id,
            seen=seen,
            terms=self.terms,
            now=self.now,
        )
        match found.move:
            case Move.RESTART:
                self._restart(row, seen)
            case Move.CHECK:
                self._to(row, StepState.CHECKING, "it runs with what is wanted")
            case Move.FINISH:
                self._to(row, StepState.OK, self._fallen_back(row))
            case Move.FAIL:
                self._to(row, StepState.FAILED, found.detail)
            case Move.NOTHING:
                if row.detail != found.detail:
                    self._save(row, detail=found.detail)

    def _restart(self, row: RolloutStep, seen: NodeSeen) -> None:
        if seen.run_id and seen.run_id != row.run_id:
            # A step whose worker died asked for it.
            self._to(row, StepState.RESTARTING, "restarting")
            return
        try:
            self.nodes.restart(row.instance_id, row.run_id, self.reason, float(self.terms.drain))
        except AdminError as error:
            self._undrain(row)
            self._to(row, StepState.FAILED, str(error))
            return
        self._to(row, StepState.RESTARTING, "restarting")

    def _undrain(self, row: RolloutStep) -> None:
        try:
            self.nodes.undrain(row.instance_id)
        except AdminError as error:
            logger.warning("rollout %d: %s stays drained: %s", self.change.pk, row.name, error)

    def _see(self, row: RolloutStep) -> NodeSeen:
        try:
            report, serving = self.nodes.read(row.instance_id)
        except SourceFailed as error:
            return NodeSeen(error=str(error))
        self.reports[row.instance_id] = report
        differs = report.differs(row.wanted)
        return NodeSeen(report.run_id, not differs, differs, serving)

    def _fallen_back(self, row: RolloutStep) -> str:
        """What an instance runs with where something was wanted of it before and nothing is now."""
        report = self.reports[row.instance_id]
        before = matrix.wanted_for(self.change.before or {}, report.role, row.instance_id)
        names = [name for name in report.policies if name in before and name not in row.wanted]
        values = [report.policies[name].now for name in names]
        return "; ".join(
            f"{env_policies.BY_NAME[one.name].label}: {one.text or 'nothing'} ({one.source})"
            for one in values
        )

    def _to(self, row: RolloutStep, state: StepState, detail: str, **more: object) -> None:
        over = state in (StepState.OK, StepState.FAILED, StepState.SKIPPED)
        ended_at = self.now if over else None
        self._save(row, state=state.value, detail=detail, since=self.now, ended_at=ended_at, **more)

    def _save(self, row: RolloutStep, **values: object) -> None:
        for name, value in values.items():
            setattr(row, name, value)
        with lease.fenced(self.held):
            row.save(update_fields=[*values])


class RolloutRunner(Runner):
    """Makes the steps of rollouts."""

    @override
    def carry_on(self, change: Change, context: StepContext, held: ClusterLease) -> None:
        if change.state == ChangeState.CONFIRMED:
            engine.start(change, context.moment())
            try:
                desired.store(change)
            except Stale as error:
                engine.move(
                    change, ChangeState.FAILED, context.moment(), detail=str(error), reason=change.reason
                )
        if change.state == ChangeState.RUNNING:
            _Step(change, context, held).make()
