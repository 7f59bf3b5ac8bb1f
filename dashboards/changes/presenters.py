"""Presents the page of a change, with one object per kind. The rules of the kinds are in `fleet.changes.kinds`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, Protocol

from typing_extensions import override

from dashboards.changes import aborts, campaign_rows, change_rows, policy_rows
from dashboards.changes.aborts import AbortedRollout
from dashboards.shared import record_reader
from dashboards.shared.instance_loads import spread_query_of
from dashboards.shared.pages import sentence_of
from fleet.changes import StaleRevisionError, engine
from fleet.changes.policies import desired_state
from fleet.changes.service import plan as service_plan
from fleet.models.changes import Change
from fleet.vocabulary.changes import ChangeKind, ChangeState

#: Template variables that only some kinds set, with their defaults.
_DEFAULT_CONTEXT: Mapping[str, Any] = {
    "diff": [],
    "closing": None,
    "closing_chart": None,
    "outcome": None,
    "conflict": None,
    "stale_sentence": "",
    "rollout": None,
    "aborted_rollout": None,
    "campaign": None,
    "spread_query": "",
}


class ChangePresenter(Protocol):
    """Presents one kind of change."""

    #: Buttons that end a change in progress: action and label.
    end_actions: tuple[tuple[str, str], ...] = ()

    @abstractmethod
    def details_of(self, change: Change, agent_state: str) -> dict[str, Any]:
        """Return the template variables of this kind. `state`: only agents in this state; empty: all."""


class NetworkingPresenter(ChangePresenter):
    """Presents a config change: changed fields, tunnels that close, conflicts."""

    @override
    def details_of(self, change: Change, agent_state: str) -> dict[str, Any]:
        return {
            "diff": change_rows.diff_rows_of(change.before, change.after),
            "closing": change_rows.closing_context_of(change.plan),
            "closing_chart": change_rows.closing_chart_context_of(change, record_reader.current_time()),
            "outcome": change_rows.outcome_context_of(change),
            "conflict": change_rows.conflict_context_of(change),
        }


class PolicyPresenter(ChangePresenter):
    """Presents a policy change and its rollout."""

    end_actions = (("abort", "Abort rollout"),)

    @override
    def details_of(self, change: Change, agent_state: str) -> dict[str, Any]:
        return {
            "rollout": policy_rows.rollout_context_of(change),
            "aborted_rollout": self._find_aborted_rollout(change),
            "stale_sentence": self._stale_sentence_of(change),
        }

    def _find_aborted_rollout(self, change: Change) -> AbortedRollout | None:
        # Only the page of an aborted rollout needs the record.
        if change.state != ChangeState.CANCELLED:
            return None
        return aborts.find_aborted_rollout(
            change, record_reader.policy_report_store().read(change.cluster_id)
        )

    def _stale_sentence_of(self, change: Change) -> str:
        """Return why the plan is out of date, as a sentence; empty when it is not."""
        if change.state != ChangeState.PLANNED:
            return ""
        try:
            desired_state.require_current_plan(change)
        except StaleRevisionError as error:
            return sentence_of(error)
        return ""


class CampaignPresenter(ChangePresenter):
    """Presents a reconnect campaign."""

    end_actions = (("stop", "Stop after current agents"), ("abort", "Abort campaign"))

    @override
    def details_of(self, change: Change, agent_state: str) -> dict[str, Any]:
        return {
            "campaign": campaign_rows.campaign_context_of(change, agent_state, record_reader.current_time())
        }


class ServicePresenter(CampaignPresenter):
    """Presents a service change: the campaign, where it moves agents."""

    @override
    def details_of(self, change: Change, agent_state: str) -> dict[str, Any]:
        if service_plan.has_campaign(change):
            return super().details_of(change, agent_state)
        document = engine.document_of(change)
        return {} if document["is_drained"] else {"spread_query": spread_query_of(document["kind"])}


class RequestPresenter(ChangePresenter):
    """Presents a change that one request carries out: its notes say all."""

    @override
    def details_of(self, change: Change, agent_state: str) -> dict[str, Any]:
        return {}


PRESENTERS: Mapping[ChangeKind, ChangePresenter] = {
    ChangeKind.NETWORKING_CONFIG: NetworkingPresenter(),
    ChangeKind.POLICY: PolicyPresenter(),
    ChangeKind.RECONNECT: CampaignPresenter(),
    ChangeKind.SERVICE: ServicePresenter(),
    ChangeKind.DEGRADE: RequestPresenter(),
    ChangeKind.RETIRE: RequestPresenter(),
}
_TOGGLE_ACTIONS = {ChangeState.RUNNING: ("pause", "Pause"), ChangeState.PAUSED: ("resume", "Resume")}


def context_of(change: Change, agent_state: str = "") -> dict[str, Any]:
    """Return the template variables of a change's kind; `action_buttons`: the buttons for a change in progress."""
    presenter, toggle_action = (
        PRESENTERS[ChangeKind(change.kind)],
        _TOGGLE_ACTIONS.get(ChangeState(change.state)),
    )
    actions = [toggle_action, *presenter.end_actions] if toggle_action and presenter.end_actions else []
    return {**_DEFAULT_CONTEXT, "action_buttons": actions, **presenter.details_of(change, agent_state)}
