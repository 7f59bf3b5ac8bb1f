"""What the page of a change shows of each kind: one object a kind. What kinds decide is in `fleet.changes.kinds`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, Protocol

from typing_extensions import override

from dashboards.changes import campaign_rows, change_rows, policy_rows
from dashboards.shared import record_reader
from dashboards.shared.pages import sentence_of
from fleet.changes import StaleRevisionError
from fleet.changes.policies import desired
from fleet.models.changes import Change
from fleet.vocabulary.changes import ChangeKind, ChangeState

#: The variables of the page that only some kinds have.
_EMPTY_CONTEXT: Mapping[str, Any] = {
    "diff": [],
    "closing": None,
    "outcome": None,
    "stale": None,
    "overtaken": "",
    "rollout": None,
    "campaign": None,
}


class Presenter(Protocol):
    """What the page shows of one kind of change."""

    #: Buttons of a change in progress that end it: the action, and its label.
    end_actions: tuple[tuple[str, str], ...] = ()

    @abstractmethod
    def details_of(self, change: Change, state: str) -> dict[str, Any]:
        """Return the variables of this kind; `state` is that of the agents to list, or empty."""


class NetworkingPresenter(Presenter):
    """The fields that change, the tunnels that close, and what somebody else wrote meanwhile."""

    @override
    def details_of(self, change: Change, state: str) -> dict[str, Any]:
        return {
            "diff": change_rows.diff_rows_of(change.before, change.after),
            "closing": change_rows.closing_context_of(change.plan),
            "outcome": change_rows.outcome_context_of(change),
            "stale": change_rows.stale_context_of(change),
        }


class PolicyPresenter(Presenter):
    """The instances of a rollout."""

    end_actions = (("abort", "Cancel the rest"),)

    @override
    def details_of(self, change: Change, state: str) -> dict[str, Any]:
        return {"rollout": policy_rows.rollout_context_of(change), "overtaken": self._stale_sentence_of(change)}

    def _stale_sentence_of(self, change: Change) -> str:
        """Why a plan cannot be confirmed: somebody changed the desired policies since. Empty when nobody did."""
        if change.state != ChangeState.PLANNED:
            return ""
        try:
            desired.require_current_plan(change)
        except StaleRevisionError as error:
            return sentence_of(error)
        return ""


class CampaignPresenter(Presenter):
    """The agents of a campaign."""

    end_actions = (("stop", "Stop, watch to the end"), ("abort", "Abort now"))

    @override
    def details_of(self, change: Change, state: str) -> dict[str, Any]:
        return {"campaign": campaign_rows.campaign_context(change, state, record_reader.current_time())}


PRESENTERS: Mapping[ChangeKind, Presenter] = {
    ChangeKind.NETWORKING_CONFIG: NetworkingPresenter(),
    ChangeKind.POLICY: PolicyPresenter(),
    ChangeKind.RECONNECT: CampaignPresenter(),
}
_TOGGLE_ACTIONS = {ChangeState.RUNNING: ("pause", "Pause"), ChangeState.PAUSED: ("resume", "Resume")}


def context_of(change: Change, state: str = "") -> dict[str, Any]:
    """Return what the page of a change shows of its kind, and in `doings` the buttons while it is in progress."""
    presenter, toggle_action = PRESENTERS[ChangeKind(change.kind)], _TOGGLE_ACTIONS.get(ChangeState(change.state))
    actions = [toggle_action, *presenter.end_actions] if toggle_action and presenter.end_actions else []
    return {**_EMPTY_CONTEXT, "doings": actions, **presenter.details_of(change, state)}
