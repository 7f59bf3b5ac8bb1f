"""What the page of a change shows of each kind: one object a kind. What kinds decide is in `fleet.changes.kinds`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, Protocol

from typing_extensions import override

from dashboards.changes import campaign_rows, change_rows, policy_rows
from dashboards.shared import record_reader
from dashboards.shared.pages import sentence_of
from fleet.changes import Stale
from fleet.changes.policies import desired
from fleet.models.changes import Change
from fleet.vocabulary.changes import ChangeKind, ChangeState

#: The variables of the page that only some kinds have.
_NOTHING: Mapping[str, Any] = {
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
    ends: tuple[tuple[str, str], ...] = ()

    @abstractmethod
    def details(self, change: Change, state: str) -> dict[str, Any]:
        """Return the variables of this kind; `state` is that of the agents to list, or empty."""


class NetworkingPresenter(Presenter):
    """The fields that change, the tunnels that close, and what somebody else wrote meanwhile."""

    @override
    def details(self, change: Change, state: str) -> dict[str, Any]:
        return {
            "diff": change_rows.diff(change.before, change.after),
            "closing": change_rows.closing(change.plan),
            "outcome": change_rows.outcome(change),
            "stale": change_rows.stale(change),
        }


class PolicyPresenter(Presenter):
    """The instances of a rollout."""

    ends = (("abort", "Cancel the rest"),)

    @override
    def details(self, change: Change, state: str) -> dict[str, Any]:
        return {"rollout": policy_rows.rollout(change), "overtaken": self._overtaken(change)}

    def _overtaken(self, change: Change) -> str:
        """Why a plan cannot be confirmed: somebody changed the desired policies since. Empty when nobody did."""
        if change.state != ChangeState.PLANNED:
            return ""
        try:
            desired.refuse_stale(change)
        except Stale as error:
            return sentence_of(error)
        return ""


class CampaignPresenter(Presenter):
    """The agents of a campaign."""

    ends = (("stop", "Stop, watch to the end"), ("abort", "Abort now"))

    @override
    def details(self, change: Change, state: str) -> dict[str, Any]:
        return {"campaign": campaign_rows.campaign_page(change, state, record_reader.current_time())}


PRESENTERS: Mapping[ChangeKind, Presenter] = {
    ChangeKind.NETWORKING_CONFIG: NetworkingPresenter(),
    ChangeKind.POLICY: PolicyPresenter(),
    ChangeKind.RECONNECT: CampaignPresenter(),
}
_FIRST = {ChangeState.RUNNING: ("pause", "Pause"), ChangeState.PAUSED: ("resume", "Resume")}


def context(change: Change, state: str = "") -> dict[str, Any]:
    """Return what the page of a change shows of its kind, and in `doings` the buttons while it is in progress."""
    presenter, first = PRESENTERS[ChangeKind(change.kind)], _FIRST.get(ChangeState(change.state))
    doings = [first, *presenter.ends] if first and presenter.ends else []
    return {**_NOTHING, "doings": doings, **presenter.details(change, state)}
