"""Apply the alert rules to the facts of one evaluation, and group the results by cause. Pure.

docs/reference/alerts.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

from fleet.alerts.facts import AffectedGroup, ClusterFacts, SickInstance
from fleet.alerts.inhibition import JOINT_KINDS
from fleet.alerts.instance_causes import backend_cause_of, cluster_cause_of, is_joint_failure
from fleet.alerts.rules import AGENT_KINDS, Rule, RuleKind
from fleet.alerts.wording.expiring_identity import describe_expiring_identity, identity_cause_of
from fleet.alerts.wording.failure_clauses import CLUSTER_CLAUSE, FailureClause, as_sentence, clause_of_members
from fleet.alerts.wording.words import AffectedCounts, describe_counts, format_since
from fleet.vocabulary.incidents import Cause, CauseKind, Finding, RuleSignal

#: Id of the cause of policy drift of instances, which counts no agents.
INSTANCE_DRIFT_CAUSE_ID = "policies"
#: Maximum number of names in a notification.
_MAX_NAMES = 10


def evaluate_rules(facts: ClusterFacts, rules: Iterable[Rule]) -> dict[str, Finding]:
    """Return what the rules find, by key of the cause. Without fresh facts only rules of kind `blind` can hold."""
    signals_by_key: dict[str, list[RuleSignal]] = {}
    causes: dict[str, Cause] = {}
    rules = tuple(rules)
    for rule in rules:
        if not rule.enabled or rule.cluster not in ("", facts.cluster):
            continue
        for cause, signal in _evaluate_rule(rule, facts):
            causes.setdefault(cause.key, cause)
            signals_by_key.setdefault(cause.key, []).append(signal)
    _fold_joint_causes(facts, signals_by_key, causes, {rule.name: rule for rule in rules})
    sick_instance_by_key = {sick_instance.cause.key: sick_instance for sick_instance in facts.sick_instances}
    index = index_causes(facts)
    return {
        key: _finding_of(causes[key], signals, facts, sick_instance_by_key.get(key), index)
        for key, signals in signals_by_key.items()
    }


def _evaluate_rule(rule: Rule, facts: ClusterFacts) -> Iterator[tuple[Cause, RuleSignal]]:
    if rule.kind is RuleKind.BLIND:
        if not facts.is_fresh and not facts.is_starting:
            yield (
                Cause(CauseKind.CONSOLE, facts.cluster, "Refloat monitoring"),
                _make_signal(rule, 0, facts.blind_reason),
            )
        return
    if not facts.is_fresh:
        return
    if rule.kind in AGENT_KINDS:
        yield from _find_agent_signals(rule, facts)
    elif rule.kind is RuleKind.INSTANCE:
        groups_by_cause: dict[Cause, list[AffectedGroup]] = {}
        for group in facts.affected_groups:
            groups_by_cause.setdefault(group.cause, []).append(group)
        for sick_instance in facts.sick_instances:
            cause = sick_instance.cause
            groups = groups_by_cause.get(cause, [])
            clause = facts.clauses.get(cause.key)
            sentence = describe_affected_agents(groups, clause, facts.now)
            if not sentence and clause is not None:
                sentence = f"{clause.describe(facts.sick_since.get(cause.key), facts.now)}."
            yield cause, _make_signal(rule, sick_instance.agent_count, sentence or sick_instance.summary)
    elif rule.kind is RuleKind.BACKEND and facts.backend_down:
        yield backend_cause_of(facts.cluster), _make_signal(rule, 0, _describe_backend_failure(facts))
    elif rule.kind is RuleKind.UNREACHABLE and facts.unreachable:
        sentence = describe_unknown_agents(facts.unreachable_since, facts.now)
        yield cluster_cause_of(facts.cluster), _make_signal(rule, facts.agent_count, sentence)
    elif rule.kind is RuleKind.IDENTITY:
        if facts.expiring_identity is not None:
            sentence = describe_expiring_identity(facts.cluster, facts.expiring_identity)
            yield identity_cause_of(facts.cluster), _make_signal(rule, 0, sentence)
    else:
        yield from _find_fleet_signals(rule, facts)


def _find_agent_signals(rule: Rule, facts: ClusterFacts) -> Iterator[tuple[Cause, RuleSignal]]:
    min_count = rule.threshold(facts.agent_count)
    for group in facts.affected_groups:
        count = group.count(is_stranded=rule.kind is RuleKind.STRANDED, agent_set=rule.agent_set)
        if count >= min_count:
            clause = facts.clauses.get(group.cause.key)
            yield (
                group.cause,
                _make_signal(rule, count, _describe_count(rule, count, [group], clause, facts.now)),
            )


def _describe_count(
    rule: Rule, count: int, groups: Sequence[AffectedGroup], clause: FailureClause | None, now: float
) -> str:
    """Return the number of affected agents as a sentence; for a rule with an agent set only agents of that set."""
    if not rule.agent_set:
        return describe_affected_agents(groups, clause, now)
    counts = (
        AffectedCounts(stranded_count=count)
        if rule.kind is RuleKind.STRANDED
        else AffectedCounts(at_risk_count=count)
    )
    because = f" because {clause.present}" if clause is not None else ""
    return f"{describe_counts(counts, agent_set=rule.agent_set)}{because}."


def _describe_backend_failure(facts: ClusterFacts) -> str:
    key = backend_cause_of(facts.cluster).key
    clause = facts.clauses.get(key)
    groups = [group for group in facts.affected_groups if group.cause.key == key]
    if sentence := describe_affected_agents(groups, clause, facts.now):
        return sentence
    if clause is None:
        return "All auths failed at the same time."
    return as_sentence(clause.describe(facts.backend_down_since, facts.now))


def describe_unknown_agents(since: float | None, now: float) -> str:
    """Return that no state is known because no instance responds, as a sentence."""
    since_text = "" if since is None else f" since {format_since(since, now)}"
    return f"Agent states are unknown{since_text} because {CLUSTER_CLAUSE.present}."


def describe_affected_agents(
    groups: Sequence[AffectedGroup], clause: FailureClause | None, now: float, *, is_past: bool = False
) -> str:
    """Return `12 agents stranded since 10:14 UTC and 55 at risk because auth-1 lost its backend.`; without agents "".

    In the past tense without the start: `12 agents were stranded and 55 at risk because auth-1 lost its backend.`
    """
    counts = AffectedCounts(
        sum(group.stranded_count for group in groups), sum(group.at_risk_count for group in groups)
    )
    if not counts.total:
        return ""
    leading_groups = [group for group in groups if group.stranded_count] or groups
    known_times = [group.since for group in leading_groups if group.since is not None]
    since_text = f" since {format_since(min(known_times), now)}" if known_times and not is_past else ""
    because = "" if clause is None else f" because {clause.past if is_past else clause.present}"
    return f"{describe_counts(counts, is_past=is_past, since_text=since_text)}{because}."


def _find_fleet_signals(rule: Rule, facts: ClusterFacts) -> Iterator[tuple[Cause, RuleSignal]]:
    if rule.kind is RuleKind.DRIFT and facts.drifted_instances:
        count, names = len(facts.drifted_instances), ", ".join(facts.drifted_instances[:_MAX_NAMES])
        sentence = (
            f"{count} instance{'s do' if count != 1 else ' does'} not match the desired policies: {names}"
        )
        cause = Cause(
            CauseKind.FLEET, INSTANCE_DRIFT_CAUSE_ID, "instances that do not match the desired policies"
        )
        yield cause, _make_signal(rule, count, f"{sentence}{' and others' if count > _MAX_NAMES else ''}.")
    counts_by_kind = {
        RuleKind.RATE: (facts.recently_lost_count, "agents lost within one minute"),
        RuleKind.EXCESS: (facts.excess_agent_count, "agents with excess tunnels"),
        RuleKind.DRIFT: (facts.drifted_agent_count, "agents with another reconnect policy than the majority"),
    }
    count, description = counts_by_kind.get(rule.kind, (0, ""))
    if description and count >= rule.threshold(facts.agent_count):
        yield (
            Cause(CauseKind.FLEET, rule.kind.value, description),
            _make_signal(rule, count, f"{count} {description}."),
        )


def _fold_joint_causes(
    facts: ClusterFacts,
    signals_by_key: dict[str, list[RuleSignal]],
    causes: dict[str, Cause],
    rules: Mapping[str, Rule],
) -> None:
    """Fold failing proxies of one group, or instances of one region, into one cause: at least two and half of them."""
    joint_signals_by_key: dict[str, list[RuleSignal]] = {}
    # Proxies that fail because of one auth are explained by that auth, not by their group.
    explained_keys = {
        sick_instance.cause.key
        for sick_instance in facts.sick_instances
        if sick_instance.root_cause_key in signals_by_key
    }
    for cause, member_keys in facts.members_by_cause.items():
        sick_keys = [key for key in member_keys if key in signals_by_key and key not in explained_keys]
        if not is_joint_failure(len(sick_keys), len(member_keys)):
            continue
        causes[cause.key] = cause
        signals_by_rule: dict[str, dict[str, RuleSignal]] = {}
        for key in sick_keys:
            for signal in signals_by_key[key]:
                signals_by_rule.setdefault(signal.rule_name, {})[causes[key].name] = signal
        groups = [group for group in facts.affected_groups if group.cause.key in member_keys]
        joint_signals_by_key[cause.key] = [
            _joint_signal_of(
                rules[rule],
                signal_by_instance,
                groups,
                clause_of_members(cause.name, len(sick_keys), len(member_keys)),
                facts.now,
            )
            for rule, signal_by_instance in signals_by_rule.items()
        ]
    signals_by_key.update(joint_signals_by_key)


def _joint_signal_of(
    rule: Rule,
    signal_by_instance: Mapping[str, RuleSignal],
    groups: Sequence[AffectedGroup],
    clause: FailureClause,
    now: float,
) -> RuleSignal:
    """Return one signal for what a rule found at several instances, given by name."""
    count = sum(signal.count for signal in signal_by_instance.values())
    sentence = _describe_count(rule, count, groups, clause, now)
    if not sentence:
        more = " and others" if len(signal_by_instance) > _MAX_NAMES else ""
        sentence = f"{clause.present}: {', '.join([*signal_by_instance][:_MAX_NAMES])}{more}."
    return _make_signal(rule, count, sentence)


@dataclass(frozen=True, slots=True)
class CauseSummary:
    """The agents that one cause affects, counted and described."""

    #: The agents by failing instance.
    groups: tuple[AffectedGroup, ...]
    affected_count: int
    #: The agents as a sentence; empty without affected agents.
    summary: str
    #: The agents, or else the failure, as a sentence in the past tense; empty without either.
    past_summary: str
    #: As in `AffectedGroup`, for all of the agents.
    recovers_at: float | None
    is_stuck: bool
    #: The cause reports that it is recovering.
    is_cause_recovering: bool


@dataclass(frozen=True, slots=True)
class CauseIndex:
    """Facts by key of the cause: looking through all of them for each of 1,000 causes takes a second."""

    #: The groups of agents, each with its place among all groups.
    groups: Mapping[str, Sequence[tuple[int, AffectedGroup]]]
    sick_keys: frozenset[str]
    #: Keys of the causes that report that they are recovering.
    recovering_keys: frozenset[str]


def index_causes(facts: ClusterFacts) -> CauseIndex:
    """Return an index of the facts."""
    groups: dict[str, list[tuple[int, AffectedGroup]]] = {}
    for place, group in enumerate(facts.affected_groups):
        groups.setdefault(group.cause.key, []).append((place, group))
    return CauseIndex(
        groups,
        frozenset(sick.cause.key for sick in facts.sick_instances),
        frozenset(sick.cause.key for sick in facts.sick_instances if sick.is_recovering),
    )


def summarize_cause(cause: Cause, facts: ClusterFacts, index: CauseIndex) -> CauseSummary:
    """Return the agents that a cause affects in one round. Causes of the whole fleet affect none.

    `index`: of the same facts.
    """
    member_keys = facts.members_by_cause.get(cause, (cause.key,))
    placed_groups = sorted(
        (placed for key in set(member_keys) for placed in index.groups.get(key, ())), key=itemgetter(0)
    )
    groups = tuple(group for _, group in placed_groups)
    affected_count = sum(group.stranded_count + group.at_risk_count for group in groups)
    clause = facts.clauses.get(cause.key)
    if clause is None and cause.kind in JOINT_KINDS:
        sick_count = len(index.sick_keys.intersection(member_keys))
        clause = clause_of_members(cause.name, sick_count, len(member_keys))
    summary = describe_affected_agents(groups, clause, facts.now)
    if cause.kind is CauseKind.CLUSTER and facts.unreachable:
        affected_count = facts.agent_count
        summary = describe_unknown_agents(facts.unreachable_since, facts.now)
    return CauseSummary(
        groups,
        affected_count,
        summary,
        _describe_past(groups, clause, facts.now),
        _latest_recovers_at(groups),
        any(group.is_stuck for group in groups),
        cause.key in index.recovering_keys,
    )


def _finding_of(
    cause: Cause,
    signals: Sequence[RuleSignal],
    facts: ClusterFacts,
    sick_instance: SickInstance | None,
    index: CauseIndex,
) -> Finding:
    cause_summary = summarize_cause(cause, facts, index)
    groups, affected_count = cause_summary.groups, cause_summary.affected_count
    if not groups and cause.kind is CauseKind.FLEET and cause.id != INSTANCE_DRIFT_CAUSE_ID:
        affected_count = max(signal.count for signal in signals)
    return Finding(
        cause=cause,
        signals=tuple(signals),
        affected_count=affected_count,
        agent_names=tuple(name for group in groups for name in group.agent_names)[:_MAX_NAMES],
        recovers_at=cause_summary.recovers_at,
        is_stuck=cause_summary.is_stuck,
        is_cause_recovering=cause_summary.is_cause_recovering,
        is_expired_only=sick_instance is not None and sick_instance.is_expired_only,
        heartbeat_auth_key="" if sick_instance is None else sick_instance.heartbeat_auth_key,
        root_cause_key="" if sick_instance is None else sick_instance.root_cause_key,
        agent_sets=frozenset(agent_set for group in groups for agent_set in group.agent_sets),
        past_summary=cause_summary.past_summary,
        stranded_count=sum(group.stranded_count for group in groups),
        began_at=_began_at(facts.members_by_cause.get(cause, (cause.key,)), facts),
    )


def _describe_past(groups: Sequence[AffectedGroup], clause: FailureClause | None, now: float) -> str:
    """Return the failure and its agents as a sentence in the past tense; empty without either."""
    sentence = describe_affected_agents(groups, clause, now, is_past=True)
    return sentence or (as_sentence(clause.past) if clause is not None else "")


def _began_at(member_keys: Sequence[str], facts: ClusterFacts) -> float | None:
    """Return the start of a cause; for several instances, when the second one failed."""
    times = sorted(
        facts.sick_since[member_key] for member_key in member_keys if member_key in facts.sick_since
    )
    return times[min(1, len(times) - 1)] if times else None


def _latest_recovers_at(groups: Sequence[AffectedGroup]) -> float | None:
    times = [group.recovers_at for group in groups if group.stranded_count + group.at_risk_count]
    known_times = [at for at in times if at is not None]
    return max(known_times) if known_times and len(known_times) == len(times) else None


def _make_signal(rule: Rule, count: int, sentence: str) -> RuleSignal:
    return RuleSignal(rule.name, rule.severity, count, sentence, is_agent_set_scoped=bool(rule.agent_set))
