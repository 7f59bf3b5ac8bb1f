"""One step of a reconnect campaign: see who moved, give up if too many did not, choose who is next, ask them.

Called every second or so, by any worker, under the cluster's lease. Each row is written before its agent is asked,
and a proxy advises nobody twice under one name: a step that dies with its worker is made again without harm.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterator

from django.db.models import QuerySet
from typing_extensions import override

from fleet import lease
from fleet.changes import engine
from fleet.changes.base_runner import Runner, StepContext
from fleet.changes.campaigns import campaigns, working_agents
from fleet.changes.campaigns.moves import Sight
from fleet.models.actions import CampaignAgent
from fleet.models.changes import Change
from fleet.models.clusters import ClusterLease
from fleet.models.moments import to_seconds
from fleet.transport.admin import AdminError
from fleet.vocabulary import campaigns as campaign
from fleet.vocabulary.campaigns import AgentState
from fleet.vocabulary.changes import OCCUPYING, ChangeState

logger = logging.getLogger(__name__)

#: Agents are given this long to answer that they stay, and are looked at again after as long; seconds.
_ANSWER_AFTER = 2.0
#: Rows looked at before some are found that may be asked: the others wait for room at their proxy.
_LOOK_AHEAD = 4
#: Rows of one UPDATE.
_BATCH = 300


class _Step:
    """One step, at one moment."""

    def __init__(self, change: Change, context: StepContext, held: ClusterLease) -> None:
        self.change, self.context, self.held = change, context, held
        self.moment = context.moment()
        self.now = to_seconds(self.moment)
        self.table = context.reader.table(change.cluster_id, self.now)
        self.pace = campaigns.pace_of(change)
        self.progress = dict(change.progress)
        self.move = campaigns.move_in(change)

    def make(self) -> None:
        """Make it."""
        if self.table.as_of is None or self.table.stale:
            # Blind: nobody can be seen to move, and nobody may be asked.
            self._note("the pollers are blind: nobody is asked until they see again")
            return
        if (by := self.change.parameters.get("stopped_by")) is not None:
            # A step that was under way when it was stopped may have chosen some.
            campaigns.skip_unasked(self.change, f"stopped by {by}", self.now)
        in_flight = list(self.change.campaign_agents.filter(state__in=[s.value for s in campaign.IN_FLIGHT]))
        sight = Sight(self.table, {row.agent_id for row in in_flight})
        self.progress.setdefault("stranded", sight.stranded)
        asked = [row for row in in_flight if row.state == AgentState.ASKED]
        self._settle(asked, sight)
        self._hear([row for row in asked if row.state == AgentState.ASKED and row.told])
        if self._ended(sight):
            return
        self._ask_again([row for row in asked if row.state == AgentState.ASKED and not row.told], sight)
        waits_for = ""
        if self.change.state == ChangeState.RUNNING:
            waits_for = self._choose()
        if self.change.state == ChangeState.RUNNING and campaign.in_window(self.pace, self.now):
            self._ask_due()
        else:
            self._put_back()
            working_agents.mark(self.change, self.context.writer, self.progress)
        self._note(waits_for)

    def _settle(self, rows: list[CampaignAgent], sight: Sight) -> None:
        """See what became of those that were asked, by rounds that began after they were."""
        done = []
        for row in rows:
            found = self.move.outcome(row, sight, self.pace, self.now)
            if found is None or (self.table.as_of or 0) <= (row.asked_at or 0.0):
                continue
            if not row.told and found.state is AgentState.FAILED:
                continue  # its time begins when its proxy has been told
            row.state, row.reason, row.ended_at = found.state.value, found.reason, self.now
            row.new_proxy, row.new_auth = found.new_proxy, found.new_auth
            done.append(row)
        self._save(done, "state", "reason", "new_proxy", "new_auth", "ended_at")

    def _hear(self, rows: list[CampaignAgent]) -> None:
        """Hear who answered that it stays: it was not moved, and no harm was done."""
        rows = [row for row in rows if self.now - (row.asked_at or 0.0) >= _ANSWER_AFTER]
        if not rows or self.now - float(self.progress.get("heard_at", 0.0)) < _ANSWER_AFTER:
            return
        self.progress["heard_at"] = self.now
        staying = []
        for (proxy, auth), here in _by_proxy(rows).items():
            self._keep()
            try:
                said = self.context.dialer.look(
                    proxy, campaigns.advisory_of(self.change), [row.agent_id for row in here], auth
                )
            except AdminError as error:
                logger.info("campaign %d: %s: %s", self.change.pk, proxy, error)
                continue  # the next look, or their patience
            found = set(said.staying_ids)
            for row in here:
                if row.agent_id in found:
                    reason = self.move.stay_reason(said.staying_reasons.get(row.agent_id, ""))
                    row.state, row.ended_at, row.reason = self.move.stay_state.value, self.now, reason[:255]
                    staying.append(row)
        self._save(staying, "state", "reason", "ended_at")

    def _ended(self, sight: Sight) -> bool:
        """End it, or pause it, if that is due."""
        counts = campaigns.counts_of(self.change)
        why = campaign.why_abort(
            counts, self.pace, stranded=sight.stranded, stranded_before=self.progress["stranded"]
        )
        if why:
            self._close(ChangeState.FAILED, f"aborted: {why}")
            return True
        if counts.remaining == 0:
            by = self.change.parameters.get("stopped_by")
            state = ChangeState.CANCELLED if by else ChangeState.VERIFIED
            said = f"stopped by {by}" if by else f"{counts.ok:,} of {counts.total:,} agents moved"
            if self.change.state == ChangeState.PAUSED:
                engine.move(self.change, ChangeState.RUNNING, self.moment)
            self._close(state, said)
            return True
        if self.change.parameters.get("canaries_waived"):
            self.progress.setdefault("canaries_at", self.now)
        if self.progress.get("canaries_at") is None and self.pace.canaries:
            if counts.failed and self.change.state == ChangeState.RUNNING:
                engine.move(self.change, ChangeState.PAUSED, self.moment, detail="a canary did not move")
                return True
            begun = counts.total - counts.waiting - counts.skipped
            if begun >= self.pace.canaries and campaign.canaries_settled(counts, self.pace):
                self.progress["canaries_at"] = self.now
        return False

    def _close(self, state: ChangeState, said: str) -> None:
        engine.move(
            self.change,
            state,
            self.moment,
            detail=said,
            along=lambda row: campaigns.close(row, said, self.now),
        )

    def _choose(self) -> str:
        """Choose who is next; answers what it waits for when nobody is."""
        counts = campaigns.counts_of(self.change)
        admission = campaign.admit(
            counts,
            self.pace,
            credit=float(self.progress.get("credit", 0.0)),
            elapsed=self.now - float(self.progress.get("stepped_at", self.now)),
            canaries_done_at=self.progress.get("canaries_at"),
            now=self.now,
        )
        self.progress["credit"] = admission.credit
        if not admission.count:
            return admission.waits_for
        waiting = list(
            self.change.campaign_agents.filter(state=AgentState.WAITING.value)[
                : admission.count * _LOOK_AHEAD
            ]
        )
        sight = Sight(self.table, {row.agent_id for row in waiting})
        room = self._room()
        chosen: list[CampaignAgent] = []
        skipped: list[CampaignAgent] = []
        for row in waiting:
            if len(chosen) == admission.count:
                break
            seen = sight.agent(row.agent_id)
            why = self.move.why_skip(seen, sight)
            if why or seen is None:
                row.state, row.reason, row.ended_at = AgentState.SKIPPED.value, why, self.now
                skipped.append(row)
                continue
            row.leaves = self.move.leaves(seen, sight, row.agent_id)
            if room[row.leaves] <= 0:
                continue
            room[row.leaves] -= 1
            row.state, row.held = AgentState.DUE.value, sorted(seen.proxies)
            row.due_at = self.now + self.context.chance() * self.pace.jitter
            chosen.append(row)
        self._save([*chosen, *skipped], "state", "reason", "leaves", "held", "due_at", "ended_at")
        self.progress["credit"] += admission.count - len(chosen) if len(chosen) < admission.count else 0
        if chosen or skipped:
            return ""
        return f"{self.pace.per_proxy} agents are under way at each {self.move.leaves_kind}"

    def _room(self) -> dict[str, int]:
        room: dict[str, int] = defaultdict(lambda: self.pace.per_proxy)
        states = [state.value for state in campaign.IN_FLIGHT]
        for leaves in self.change.campaign_agents.filter(state__in=states).values_list("leaves", flat=True):
            room[leaves] -= 1
        return room

    def _put_back(self) -> None:
        """Nobody is to be asked now: who was chosen waits again, for the fleet will be another one then."""
        with lease.fenced(self.held):
            self.change.campaign_agents.filter(state=AgentState.DUE.value).update(
                state=AgentState.WAITING.value, leaves="", via="", held=[], due_at=None
            )

    def _ask_due(self) -> None:
        """Ask those whose moment has come, if nothing speaks against it by now."""
        due = list(self.change.campaign_agents.filter(state=AgentState.DUE.value, due_at__lte=self.now))
        sight = Sight(self.table, {row.agent_id for row in due})
        asked = []
        for row in due:
            seen = sight.agent(row.agent_id)
            why = self.move.why_skip(seen, sight)
            if why or seen is None:
                row.state, row.reason, row.ended_at = AgentState.SKIPPED.value, why, self.now
            elif not self.move.is_there(seen, row.leaves):
                row.state = AgentState.WAITING.value
            else:
                row.state, row.asked_at, row.held = AgentState.ASKED.value, self.now, sorted(seen.proxies)
                row.via = self.move.via(seen, sight, row.agent_id)
                asked.append(row)
        self._save(due, "state", "reason", "asked_at", "held", "via", "ended_at")
        # Before they are asked: the round that sees one elsewhere is to know why.
        working_agents.mark(self.change, self.context.writer, self.progress)
        self._ask(asked)

    def _ask_again(self, rows: list[CampaignAgent], sight: Sight) -> None:
        """Ask those again whose proxy did not answer, or whose step died: they may have been asked, or not."""
        changed = []
        for row in rows:
            seen = sight.agent(row.agent_id)
            why = self.move.why_skip(seen, sight)
            if why or seen is None:
                row.state, row.ended_at = AgentState.SKIPPED.value, self.now
                row.reason = f"nobody knows whether it was asked, and by now {why}"[:255]
                changed.append(row)
            elif (via := self.move.via(seen, sight, row.agent_id, avoid=(row.via,))) != row.via:
                # The proxy did not answer: another one may. An agent that has the advice from both moves once.
                row.via = via
                changed.append(row)
        self._save(changed, "state", "reason", "via", "ended_at")
        self._ask([row for row in rows if row.state == AgentState.ASKED])

    def _ask(self, rows: list[CampaignAgent]) -> None:
        for (proxy, auth), here in _by_proxy(rows).items():
            self._keep()
            self._ask_at(proxy, auth, here)

    def _ask_at(self, proxy: str, auth: str, rows: list[CampaignAgent]) -> None:
        try:
            advised = self.context.dialer.advise(
                proxy,
                campaigns.advisory_of(self.change),
                f"change {self.change.pk}: {self.change.reason}"[:200],
                [row.agent_id for row in rows],
                auth,
            )
        except AdminError as error:
            logger.warning("campaign %d: %s: %s", self.change.pk, proxy, error)
            self._not_told([row for row in rows if self.now - (row.asked_at or 0.0) >= self.pace.patience])
            return  # the others are asked again by the next step
        absent = set(advised.absent_ids)
        for row in rows:
            if row.agent_id in absent and row.asked_at == self.now:
                row.state, row.ended_at = AgentState.SKIPPED.value, self.now
                row.reason = "its tunnel had gone when it was to be asked"
            row.told, row.asked_at = True, self.now
        self._save(rows, "told", "asked_at", "state", "reason", "ended_at")

    def _not_told(self, rows: list[CampaignAgent]) -> None:
        for row in rows:
            row.state, row.ended_at = AgentState.FAILED.value, self.now
            row.reason = f"its proxy could not be told to ask it within {self.pace.patience} s"
        self._save(rows, "state", "reason", "ended_at")

    def _save(self, rows: list[CampaignAgent], *columns: str) -> None:
        with lease.fenced(self.held):
            CampaignAgent.objects.bulk_update(rows, columns, batch_size=_BATCH)

    def _keep(self) -> None:
        """Keep the lease: proxies that do not answer take seconds each."""
        lease.renew(self.held, self.context.moment())

    def _note(self, waits_for: str) -> None:
        progress = {**self.progress, "stepped_at": self.now, "waits_for": waits_for}
        with lease.fenced(self.held):
            engine.note(self.change, progress=progress)


class CampaignRunner(Runner):
    """Makes the steps of campaigns, and takes the marks of those that are over out of the record."""

    @override
    def due(self, changes: QuerySet[Change]) -> Iterator[Change]:
        yield from super().due(changes)
        yield from working_agents.left_over(changes)

    @override
    def carry_on(self, change: Change, context: StepContext, held: ClusterLease) -> None:
        if ChangeState(change.state).final:
            working_agents.clear(change, context.writer)
            return
        if change.state == ChangeState.CONFIRMED:
            engine.start(change, context.moment())
        if change.state in OCCUPYING:
            _Step(change, context, held).make()


def _by_proxy(rows: list[CampaignAgent]) -> dict[tuple[str, str], list[CampaignAgent]]:
    """Return agents by the proxy that asks them and the auth they are to leave, which is empty for tunnels."""
    found: dict[tuple[str, str], list[CampaignAgent]] = defaultdict(list)
    for row in rows:
        found[(row.via, row.leaves) if row.via else (row.leaves, "")].append(row)
    return found
