"""What stays in effect when an operator aborts a rollout or a campaign, in sentences; also after the abort.

docs/reference/changes.md, "Abort".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from dashboards.changes import policy_rows
from fleet.changes import engine
from fleet.changes.campaigns import campaigns
from fleet.changes.policies import desired_state
from fleet.changes.policies.titles import format_policy_value, label_of
from fleet.changes.service import plan as service_plan
from fleet.models.actions import RolloutStep
from fleet.models.changes import Change
from fleet.protocol.policies.env_policies import BY_NAME, EnvPolicy
from fleet.vocabulary.changes import EXCLUSIVE_STATES, ChangeKind, ChangeState
from fleet.vocabulary.counts import format_agent_count
from fleet.vocabulary.name_lists import join_names
from fleet.vocabulary.node_policies import NodeReport, NodeReportResponse
from fleet.vocabulary.rollouts import IN_PROGRESS_STATES, RolloutStepState


@dataclass(frozen=True, slots=True)
class AbortedRollout:
    """What an aborted rollout leaves behind."""

    sentences: tuple[str, ...]
    #: Names of the instances that do not run with the desired values, and that no worker restarts.
    drifting_names: tuple[str, ...]
    change_id: int = 0
    #: A worker still follows an instance that was in progress.
    is_followed: bool = False

    @property
    def can_finish(self) -> bool:
        """Return whether a rollout to the remaining instances can be planned now."""
        return bool(self.drifting_names) and not self.is_followed


def describe_abort(change: Change, responses: Mapping[str, NodeReportResponse]) -> list[str]:
    """Return what stays when a change in progress is aborted now. `responses`: reported policies, by instance."""
    if change.kind == ChangeKind.POLICY:
        return list(_describe_rollout(change, responses).sentences)
    return _describe_campaign(change)


def find_aborted_rollout(
    change: Change, responses: Mapping[str, NodeReportResponse]
) -> AbortedRollout | None:
    """Return what an aborted rollout left behind.

    None for other changes, when the desired values were changed again since, and when all its instances run with them.
    """
    if change.state != ChangeState.CANCELLED or change.started_at is None:
        return None
    if desired_state.desired_values_of(change.cluster_id) != change.after:
        return None
    aborted_rollout = _describe_rollout(change, responses)
    is_followed = any(step.state in IN_PROGRESS_STATES for step in change.rollout_steps.all())
    if not (is_followed or aborted_rollout.drifting_names):
        return None
    return replace(aborted_rollout, change_id=change.pk, is_followed=is_followed)


def find_last_aborted_rollout(
    cluster: str, responses: Mapping[str, NodeReportResponse]
) -> AbortedRollout | None:
    """Return what the last rollout of a cluster left behind if it was aborted."""
    policy_changes = Change.objects.filter(cluster=cluster, kind=ChangeKind.POLICY.value)
    last_change = policy_changes.exclude(started_at=None).order_by("-pk").first()
    return None if last_change is None else find_aborted_rollout(last_change, responses)


def _describe_rollout(change: Change, responses: Mapping[str, NodeReportResponse]) -> AbortedRollout:
    policy, new_text = _single_value_of(change)
    is_running = change.state in EXCLUSIVE_STATES
    names: dict[RolloutStepState, list[str]] = {}
    kept_steps: list[RolloutStep] = []
    accepted_names: list[str] = []
    for step in change.rollout_steps.all():
        state, report = RolloutStepState(step.state), _report_of(responses, step.instance_id)
        if state in (RolloutStepState.PENDING, RolloutStepState.SKIPPED, RolloutStepState.FAILED):
            if report is not None and not report.describe_drift(step.desired_values):
                state = RolloutStepState.SUCCEEDED
            elif report is not None and report.accepted_values == dict(step.desired_values):
                accepted_names.append(step.name)
            else:
                kept_steps.append(step)
        names.setdefault(state, []).append(step.name)
    sentences = []
    if succeeded_names := names.get(RolloutStepState.SUCCEEDED):
        sentences.append(f"{join_names(succeeded_names)} {_verb(succeeded_names, 'run')} with {new_text}.")
    if restarted_names := [
        *names.get(RolloutStepState.RESTARTING, []),
        *names.get(RolloutStepState.VERIFYING, []),
    ]:
        predicate = f"{_verb(restarted_names, 'keep')} restarting" if is_running else (
            "is still restarting" if len(restarted_names) == 1 else "are still restarting"
        )  # fmt: skip
        sentences.append(f"{join_names(restarted_names)} {predicate} with {new_text}.")
    if draining_names := names.get(RolloutStepState.DRAINING):
        sentences.append(
            f"{join_names(draining_names)} {_verb(draining_names, 'stop')} draining, and "
            f"{_verb(draining_names, 'get')} {new_text} with the next restart."
        )
    if accepted_names:
        sentences.append(
            f"{join_names(accepted_names)} {_verb(accepted_names, 'get')} {new_text} with the next restart."
        )
    if kept_steps:
        kept_names = [step.name for step in kept_steps]
        old_text = _common_value_of(policy, kept_steps, responses)
        pronoun = "it" if len(kept_names) == 1 else "them"
        sentences.append(
            f"{join_names(kept_names)} {_verb(kept_names, 'keep')} {old_text}, also after a restart: "
            f"only a rollout gives {pronoun} {new_text}."
        )
    sentences.append(
        f"The desired value stays {new_text}: undo the change to go back."
        if policy is not None
        else "The new desired values stay: undo the change to go back."
    )
    return AbortedRollout(tuple(sentences), (*accepted_names, *(step.name for step in kept_steps)))


def _single_value_of(change: Change) -> tuple[EnvPolicy | None, str]:
    """Return the policy that a change sets, with its new value in words; None when it changes several."""
    rows = policy_rows.diff_rows_of(change)
    policies = {row["name"]: row["after"]["value"] for row in rows}
    if len(rows) != 1 or rows[0]["name"] not in BY_NAME or not rows[0]["after"]["value"]:
        return None, "the new values" if policies else "the desired values"
    policy = BY_NAME[rows[0]["name"]]
    return policy, f"{label_of(policy)} {format_policy_value(policy, rows[0]['after']['value'])}"


def _common_value_of(
    policy: EnvPolicy | None, steps: Iterable[RolloutStep], responses: Mapping[str, NodeReportResponse]
) -> str:
    """Return the value with which all these instances run, in words."""
    texts = set()
    for step in steps:
        report = _report_of(responses, step.instance_id)
        if policy is None or report is None or policy.name not in report.policies:
            return "the values that they have" if policy is None else "the value that they have"
        texts.add(format_policy_value(policy, report.policies[policy.name].current_value.text))
    return texts.pop() if len(texts) == 1 else "the values that they have"


def _report_of(responses: Mapping[str, NodeReportResponse], instance_id: str) -> NodeReport | None:
    response = responses.get(instance_id)
    return None if response is None else response.report


def _describe_campaign(change: Change) -> list[str]:
    counts = campaigns.counts_of(change)
    sentences = []
    if counts.succeeded_count:
        sentences.append(
            f"{format_agent_count(counts.succeeded_count)} moved already and "
            f"{_verb(counts.succeeded_count, 'stay')} there: nothing moves back."
        )
    if counts.in_progress_count:
        sentences.append(
            f"{format_agent_count(counts.in_progress_count)} in progress may still move: Refloat stops following "
            f"{'it' if counts.in_progress_count == 1 else 'them'}, and the result stays unknown."
        )
    if waiting_count := counts.pending_count + counts.scheduled_count:
        sentences.append(f"{format_agent_count(waiting_count)} {_verb(waiting_count, 'do')} not move.")
    if change.kind == ChangeKind.SERVICE:
        document = engine.document_of(change)
        sentences.append(
            f"{document['name']} stays out of service: undo the change to bring it back."
            if service_plan.drains_first(document)
            else f"{document['name']} is not drained: it still accepts new connections."
        )
    return sentences


def _verb(subject: Sequence[str] | int, verb: str) -> str:
    """Return a verb in the form for one subject or for several."""
    count = subject if isinstance(subject, int) else len(subject)
    if count != 1:
        return verb
    return f"{verb}es" if verb.endswith("o") else f"{verb}s"
