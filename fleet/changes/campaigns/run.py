"""One step of a reconnect campaign: store results, abort above a threshold, select the next agents, ask them to move.

Any worker makes a step every second or so, under the cluster's lease. It stores each row before it asks the agent, and
a proxy asks no agent twice under one advisory id, so a step of a worker that died can be repeated.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterator

from django.db.models import Max, QuerySet
from django.db.models.functions import Coalesce
from typing_extensions import override

from fleet import lease
from fleet.changes import engine
from fleet.changes.base_runner import Runner, StepContext
from fleet.changes.campaigns import campaigns, working_agents
from fleet.changes.campaigns.move_strategies import CampaignSnapshot
from fleet.changes.load_forecast import actual_loads_of
from fleet.models.actions import CampaignAgent
from fleet.models.changes import Change
from fleet.models.clusters import ClusterLease
from fleet.models.moments import to_seconds
from fleet.transport.admin import AdminError
from fleet.vocabulary import campaigns as campaign_rules
from fleet.vocabulary.campaigns import CampaignAgentState
from fleet.vocabulary.changes import EXCLUSIVE_STATES, ChangeState

logger = logging.getLogger(__name__)

#: Seconds before the answers of agents are read, and between two such reads.
_RESPONSE_DELAY_SECONDS = 2.0
#: Pending agents to read for each that may be selected: others wait for the concurrency limit of their proxy.
_LOOK_AHEAD_FACTOR = 4
#: Rows in one UPDATE.
_BATCH_SIZE = 300


class CampaignStepper:
    """Makes one step of a campaign, at one moment."""

    def __init__(
        self,
        change: Change,
        context: StepContext,
        held_lease: ClusterLease,
        before_success: Callable[[], object] = lambda: None,
    ) -> None:
        """`before_success` runs before the campaign ends with a result for every agent."""
        self._before_success = before_success
        self.change, self.context, self.held_lease = change, context, held_lease
        self.moment = context.now()
        self.now = to_seconds(self.moment)
        self.table = context.reader.table(change.cluster_id, self.now)
        self.settings = campaigns.settings_of(change)
        self.progress = dict(change.progress)
        self.strategy = campaigns.move_strategy_of(change)

    def run(self) -> None:
        """Make the step."""
        if self.table.as_of is None or self.table.stale:
            # Without current data no result can be seen, so no agent may be asked.
            self._save_progress("waiting for current data: polling has stopped")
            return
        if (stopped_by := self.change.parameters.get("stopped_by")) is not None:
            # A step that ran while the campaign was stopped may have selected some agents.
            campaigns.skip_pending_agents(self.change, f"stopped by {stopped_by}", self.now)
        active_rows = list(
            self.change.campaign_agents.filter(
                state__in=[state.value for state in campaign_rules.ACTIVE_STATES]
            )
        )
        snapshot = CampaignSnapshot(self.table, {row.agent_id for row in active_rows})
        self.progress.setdefault("initial_stranded_count", snapshot.stranded_count)
        in_progress_rows = [row for row in active_rows if row.state == CampaignAgentState.IN_PROGRESS]
        self._record_outcomes(in_progress_rows, snapshot)
        self._record_staying_agents(
            [
                row
                for row in in_progress_rows
                if row.state == CampaignAgentState.IN_PROGRESS and row.request_sent
            ]
        )
        if self._end_or_pause(snapshot):
            return
        self._resend_requests(
            [
                row
                for row in in_progress_rows
                if row.state == CampaignAgentState.IN_PROGRESS and not row.request_sent
            ],
            snapshot,
        )
        wait_reason = ""
        if self.change.state == ChangeState.RUNNING:
            wait_reason = self._schedule_agents()
        if self.change.state == ChangeState.RUNNING and campaign_rules.is_in_window(self.settings, self.now):
            self._send_due_requests()
        else:
            self._unschedule_agents()
            working_agents.mark_agents(self.change, self.context.writer, self.progress)
        self._save_progress(wait_reason)

    def _record_outcomes(self, rows: list[CampaignAgent], snapshot: CampaignSnapshot) -> None:
        """Store the results of agents in progress, from rounds that began after the agents were asked."""
        finished_rows = []
        for row in rows:
            outcome = self.strategy.decide_outcome(row, snapshot, self.settings, self.now)
            if outcome is None or (self.table.as_of or 0) <= (row.requested_at or 0.0):
                continue
            if not row.request_sent and outcome.state is CampaignAgentState.FAILED:
                continue  # the timeout starts when the proxy has accepted the request
            row.state, row.reason, row.ended_at = outcome.state.value, outcome.reason, self.now
            row.new_proxy, row.new_auth = outcome.new_proxy, outcome.new_auth
            finished_rows.append(row)
        self._save(finished_rows, "state", "reason", "new_proxy", "new_auth", "ended_at")

    def _record_staying_agents(self, rows: list[CampaignAgent]) -> None:
        """Store the results of agents that answered that they keep their connection."""
        rows = [row for row in rows if self.now - (row.requested_at or 0.0) >= _RESPONSE_DELAY_SECONDS]
        if (
            not rows
            or self.now - float(self.progress.get("responses_read_at", 0.0)) < _RESPONSE_DELAY_SECONDS
        ):
            return
        self.progress["responses_read_at"] = self.now
        staying_rows = []
        for (proxy, auth), proxy_rows in _group_by_proxy_and_auth(rows).items():
            self._renew_lease()
            try:
                advice = self.context.dialer.read_advice(
                    proxy, campaigns.advisory_id_of(self.change), [row.agent_id for row in proxy_rows], auth
                )
            except AdminError as error:
                logger.info(
                    "campaign %d: could not read the answers of agents from proxy %s: %s",
                    self.change.pk,
                    proxy,
                    error,
                )
                continue  # the next read, or the per-agent timeout, decides
            staying_ids = set(advice.staying_ids)
            for row in proxy_rows:
                if row.agent_id in staying_ids:
                    reason = self.strategy.stay_reason_of(advice.staying_reasons.get(row.agent_id, ""))
                    row.state, row.ended_at, row.reason = (
                        self.strategy.stay_state.value,
                        self.now,
                        reason[:255],
                    )
                    staying_rows.append(row)
        self._save(staying_rows, "state", "reason", "ended_at")

    def _end_or_pause(self, snapshot: CampaignSnapshot) -> bool:
        """End or pause the campaign where necessary; return whether that happened."""
        counts = campaigns.counts_of(self.change)
        abort_reason = campaign_rules.find_abort_reason(
            counts,
            self.settings,
            stranded_count=snapshot.stranded_count,
            initial_stranded_count=self.progress["initial_stranded_count"],
        )
        if abort_reason:
            self._close(ChangeState.FAILED, f"aborted: {abort_reason}")
            return True
        if counts.unfinished_count == 0:
            stopped_by = self.change.parameters.get("stopped_by")
            state = ChangeState.CANCELLED if stopped_by else ChangeState.VERIFIED
            detail = (
                f"stopped by {stopped_by}"
                if stopped_by
                else campaign_rules.describe_result(counts, campaigns.main_skip_reason_of(self.change))
            )
            if self.change.state == ChangeState.PAUSED:
                engine.transition(self.change, ChangeState.RUNNING, self.moment)
            if state is ChangeState.VERIFIED:
                self._before_success()
            self._close(state, detail)
            return True
        if self.change.parameters.get("canaries_waived"):
            self.progress.setdefault("canaries_finished_at", self.now)
        if self.progress.get("canaries_finished_at") is None and self.settings.canary_size:
            if counts.failed_count and self.change.state == ChangeState.RUNNING:
                engine.transition(
                    self.change,
                    ChangeState.PAUSED,
                    self.moment,
                    detail="paused: one of the first agents failed",
                )
                return True
            started_count = counts.total_count - counts.pending_count - counts.skipped_count
            if started_count >= self.settings.canary_size and campaign_rules.have_canaries_succeeded(
                counts, self.settings
            ):
                self.progress["canaries_finished_at"] = self.now
        return False

    def _close(self, state: ChangeState, detail: str) -> None:
        actual_loads = actual_loads_of(self.change.plan, self.table.instances.values())
        engine.transition(
            self.change,
            state,
            self.moment,
            detail=detail,
            write_related_rows=lambda row: campaigns.close_campaign(row, detail, self.now, actual_loads),
        )

    def _schedule_agents(self) -> str:
        """Select the next agents; return what the campaign waits for when it can select none."""
        counts = campaigns.counts_of(self.change)
        admission = campaign_rules.decide_admission(
            counts,
            self.settings,
            credit=float(self.progress.get("credit", 0.0)),
            elapsed_seconds=self.now - float(self.progress.get("stepped_at", self.now)),
            canaries_finished_at=self.progress.get("canaries_finished_at"),
            now=self.now,
            canaries_time_out_at=self._find_canary_timeout(),
            resumed_by=str(self.change.parameters.get("resumed_by", "")),
        )
        self.progress["credit"] = admission.credit
        if not admission.agent_count:
            return admission.wait_reason
        pending_rows = list(
            self.change.campaign_agents.filter(state=CampaignAgentState.PENDING.value)[
                : admission.agent_count * _LOOK_AHEAD_FACTOR
            ]
        )
        snapshot = CampaignSnapshot(self.table, {row.agent_id for row in pending_rows})
        free_slots = self._count_free_slots()
        scheduled_rows: list[CampaignAgent] = []
        skipped_rows: list[CampaignAgent] = []
        for row in pending_rows:
            if len(scheduled_rows) == admission.agent_count:
                break
            agent = snapshot.find_agent(row.agent_id)
            skip_reason = self.strategy.find_skip_reason(agent, snapshot)
            if skip_reason or agent is None:
                row.state, row.reason, row.ended_at = CampaignAgentState.SKIPPED.value, skip_reason, self.now
                skipped_rows.append(row)
                continue
            row.from_instance = self.strategy.choose_instance_to_leave(agent, snapshot, row.agent_id)
            if free_slots[row.from_instance] <= 0:
                continue
            free_slots[row.from_instance] -= 1
            row.state, row.initial_proxies = CampaignAgentState.SCHEDULED.value, sorted(agent.proxies)
            row.due_at = self.now + self.context.random() * self.settings.jitter_seconds
            scheduled_rows.append(row)
        self._save(
            [*scheduled_rows, *skipped_rows],
            "state",
            "reason",
            "from_instance",
            "initial_proxies",
            "due_at",
            "ended_at",
        )
        self.progress["credit"] += (
            admission.agent_count - len(scheduled_rows) if len(scheduled_rows) < admission.agent_count else 0
        )
        if scheduled_rows or skipped_rows:
            return ""
        return (
            f"concurrency limit reached: {self.settings.concurrency} agents in progress per "
            f"{self.strategy.kind_to_leave}"
        )

    def _find_canary_timeout(self) -> float | None:
        """Return when the last canary in progress times out; None when there is none."""
        if not self.settings.canary_size or self.progress.get("canaries_finished_at") is not None:
            return None
        states = [state.value for state in campaign_rules.ACTIVE_STATES]
        last_request_at = self.change.campaign_agents.filter(state__in=states).aggregate(
            at=Max(Coalesce("requested_at", "due_at"))
        )["at"]
        return None if last_request_at is None else last_request_at + self.settings.timeout_seconds

    def _count_free_slots(self) -> dict[str, int]:
        free_slots: dict[str, int] = defaultdict(lambda: self.settings.concurrency)
        states = [state.value for state in campaign_rules.ACTIVE_STATES]
        for instance_to_leave in self.change.campaign_agents.filter(state__in=states).values_list(
            "from_instance", flat=True
        ):
            free_slots[instance_to_leave] -= 1
        return free_slots

    def _unschedule_agents(self) -> None:
        """Return scheduled agents to pending while none may be asked: the fleet may look different later."""
        with lease.fenced_transaction(self.held_lease):
            self.change.campaign_agents.filter(state=CampaignAgentState.SCHEDULED.value).update(
                state=CampaignAgentState.PENDING.value,
                from_instance="",
                via_proxy="",
                initial_proxies=[],
                due_at=None,
            )

    def _send_due_requests(self) -> None:
        """Ask the scheduled agents that are due, unless there is a reason by now to skip them."""
        due_rows = list(
            self.change.campaign_agents.filter(state=CampaignAgentState.SCHEDULED.value, due_at__lte=self.now)
        )
        snapshot = CampaignSnapshot(self.table, {row.agent_id for row in due_rows})
        requested_rows = []
        for row in due_rows:
            agent = snapshot.find_agent(row.agent_id)
            skip_reason = self.strategy.find_skip_reason(agent, snapshot)
            if skip_reason or agent is None:
                row.state, row.reason, row.ended_at = CampaignAgentState.SKIPPED.value, skip_reason, self.now
            elif not self.strategy.can_leave(agent, row.from_instance, snapshot):
                row.state = CampaignAgentState.PENDING.value
            else:
                row.state, row.requested_at, row.initial_proxies = (
                    CampaignAgentState.IN_PROGRESS.value,
                    self.now,
                    sorted(agent.proxies),
                )
                row.via_proxy = self.strategy.choose_relay_proxy(agent, snapshot, row.agent_id)
                requested_rows.append(row)
        self._save(due_rows, "state", "reason", "requested_at", "initial_proxies", "via_proxy", "ended_at")
        # Before the request, so that the round that sees an agent at another instance knows why.
        working_agents.mark_agents(self.change, self.context.writer, self.progress)
        self._send_requests(requested_rows)

    def _resend_requests(self, rows: list[CampaignAgent], snapshot: CampaignSnapshot) -> None:
        """Repeat requests that no proxy has confirmed: the proxy did not respond, or the worker died."""
        changed_rows = []
        for row in rows:
            agent = snapshot.find_agent(row.agent_id)
            skip_reason = self.strategy.find_skip_reason(agent, snapshot)
            if skip_reason or agent is None:
                row.state, row.ended_at = CampaignAgentState.SKIPPED.value, self.now
                row.reason = f"unknown whether the agent received the request; {skip_reason}"[:255]
                changed_rows.append(row)
            elif (
                relay_proxy := self.strategy.choose_relay_proxy(
                    agent, snapshot, row.agent_id, avoided_proxies=(row.via_proxy,)
                )
            ) != row.via_proxy:
                # The proxy did not respond; try another. An agent that gets the request from both moves once.
                row.via_proxy = relay_proxy
                changed_rows.append(row)
        self._save(changed_rows, "state", "reason", "via_proxy", "ended_at")
        self._send_requests([row for row in rows if row.state == CampaignAgentState.IN_PROGRESS])

    def _send_requests(self, rows: list[CampaignAgent]) -> None:
        for (proxy, auth), proxy_rows in _group_by_proxy_and_auth(rows).items():
            self._renew_lease()
            self._send_requests_to(proxy, auth, proxy_rows)

    def _send_requests_to(self, proxy: str, auth: str, rows: list[CampaignAgent]) -> None:
        try:
            advice = self.context.dialer.advise(
                proxy,
                campaigns.advisory_id_of(self.change),
                f"change {self.change.pk}: {self.change.reason}"[:200],
                [row.agent_id for row in rows],
                auth,
            )
        except AdminError as error:
            logger.warning(
                "campaign %d: proxy %s did not accept the request to reconnect %d agents: %s",
                self.change.pk,
                proxy,
                len(rows),
                error,
            )
            self._fail_unsent_requests(
                [row for row in rows if self.now - (row.requested_at or 0.0) >= self.settings.timeout_seconds]
            )
            return  # the next step repeats the others
        absent_ids = set(advice.absent_ids)
        for row in rows:
            if row.agent_id in absent_ids and row.requested_at == self.now:
                row.state, row.ended_at = CampaignAgentState.SKIPPED.value, self.now
                row.reason = "the agent's tunnel had closed before Refloat could ask it"
            row.request_sent, row.requested_at = True, self.now
        self._save(rows, "request_sent", "requested_at", "state", "reason", "ended_at")

    def _fail_unsent_requests(self, rows: list[CampaignAgent]) -> None:
        for row in rows:
            row.state, row.ended_at = CampaignAgentState.FAILED.value, self.now
            row.reason = (
                f"timed out: the proxy did not accept the request within {self.settings.timeout_seconds} s"
            )
        self._save(rows, "state", "reason", "ended_at")

    def _save(self, rows: list[CampaignAgent], *columns: str) -> None:
        with lease.fenced_transaction(self.held_lease):
            CampaignAgent.objects.bulk_update(rows, columns, batch_size=_BATCH_SIZE)

    def _renew_lease(self) -> None:
        """Renew the lease, because each proxy that does not respond takes seconds."""
        lease.renew(self.held_lease, self.context.now())

    def _save_progress(self, wait_reason: str) -> None:
        progress = {**self.progress, "stepped_at": self.now, "waiting_for": wait_reason}
        with lease.fenced_transaction(self.held_lease):
            engine.update_change(self.change, progress=progress)


class CampaignRunner(Runner):
    """Makes the steps of campaigns, and removes the *reconnecting* marks of ended ones from the fleet data."""

    @override
    def find_due(self, changes: QuerySet[Change]) -> Iterator[Change]:
        yield from super().find_due(changes)
        yield from working_agents.find_ended_with_marks(changes)

    @override
    def advance(self, change: Change, context: StepContext, held_lease: ClusterLease) -> None:
        if ChangeState(change.state).is_final:
            working_agents.clear_marks(change, context.writer)
            return
        if change.state == ChangeState.CONFIRMED:
            engine.start(change, context.now())
        if change.state in EXCLUSIVE_STATES:
            self.make_step(change, context, held_lease)

    def make_step(self, change: Change, context: StepContext, held_lease: ClusterLease) -> None:
        """Make one step of a campaign that is running or paused."""
        CampaignStepper(change, context, held_lease).run()


def _group_by_proxy_and_auth(rows: list[CampaignAgent]) -> dict[tuple[str, str], list[CampaignAgent]]:
    """Return agents by the proxy that asks them and the auth that they are to leave, which is empty for tunnels."""
    rows_by_proxy_and_auth: dict[tuple[str, str], list[CampaignAgent]] = defaultdict(list)
    for row in rows:
        rows_by_proxy_and_auth[
            (row.via_proxy, row.from_instance) if row.via_proxy else (row.from_instance, "")
        ].append(row)
    return rows_by_proxy_and_auth
