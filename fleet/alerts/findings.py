"""What the alert rules find in the facts of one look, grouped by cause. Pure. docs/alerts.md, "Rules"."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from fleet.alerts.facts import Affected, Facts, Sick, backend_of, fail_together, whole_of
from fleet.alerts.rules import COUNTS_AGENTS, Rule, RuleKind
from fleet.vocabulary.incidents import Cause, CauseKind, Finding, Signal

#: The cause of instances that drift: no agents are counted there.
OFF_POLICY = "policies"
#: Names in a message.
_NAMES = 10


def find(facts: Facts, rules: Iterable[Rule]) -> dict[str, Finding]:
    """Everything the rules find, by the key of its cause. Without fresh facts only our own blindness is found."""
    held: dict[str, list[Signal]] = {}
    causes: dict[str, Cause] = {}
    rules = tuple(rules)
    for rule in rules:
        if not rule.enabled or rule.cluster not in ("", facts.cluster):
            continue
        for cause, signal in _held(rule, facts):
            causes.setdefault(cause.key, cause)
            held.setdefault(cause.key, []).append(signal)
    _fold(facts, held, causes, {rule.name: rule for rule in rules})
    groups = {group.cause.key: group for group in facts.groups}
    sick = {one.cause.key: one for one in facts.sick}
    return {
        key: _finding(key, causes[key], signals, facts, groups, sick.get(key))
        for key, signals in held.items()
    }


def _held(rule: Rule, facts: Facts) -> Iterator[tuple[Cause, Signal]]:
    if rule.kind is RuleKind.BLIND:
        if not facts.fresh:
            yield Cause(CauseKind.CONSOLE, facts.cluster, "the console"), _signal(rule, 0, facts.blindness)
        return
    if not facts.fresh:
        return
    if rule.kind in COUNTS_AGENTS:
        yield from _agents(rule, facts)
    elif rule.kind is RuleKind.INSTANCE:
        for sick in facts.sick:
            yield sick.cause, _signal(rule, sick.agents, sick.sentence)
    elif rule.kind is RuleKind.BACKEND and facts.backend_down:
        said = "All auths fell sick together: their backend is the likely cause."
        yield backend_of(facts.cluster), _signal(rule, 0, said)
    elif rule.kind is RuleKind.UNREACHABLE and facts.unreachable:
        said = "No instance of the cluster answers, while our own probe is good."
        yield whole_of(facts.cluster), _signal(rule, facts.agents, said)
    else:
        yield from _fleet(rule, facts)


def _agents(rule: Rule, facts: Facts) -> Iterator[tuple[Cause, Signal]]:
    least = rule.threshold(facts.agents)
    for group in facts.groups:
        count = group.count(stranded=rule.kind is RuleKind.STRANDED, label=rule.label)
        if count >= least:
            yield group.cause, _signal(rule, count, _counted(rule, count, [group]))


def _counted(rule: Rule, count: int, groups: Sequence[Affected]) -> str:
    """Say how many agents are harmed: those that a label chooses, or all of them, as the figure beside it counts."""
    if not rule.label:
        return harm_words(groups)
    word = "stranded" if rule.kind is RuleKind.STRANDED else "at risk"
    return f"{count} {rule.label} agent{'s' if count != 1 else ''} {word}."


def harm_words(groups: Sequence[Affected], *, past: bool = False) -> str:
    """Return `12 agents stranded and 55 at risk.`, or `12 agents were stranded ...`; empty when nobody is harmed."""
    parts: list[str] = []
    for word, count in (
        ("stranded", sum(group.stranded for group in groups)),
        ("at risk", sum(group.at_risk for group in groups)),
    ):
        if not count:
            continue
        if parts:
            parts.append(f"{count} {word}")
            continue
        verb = ("were " if count != 1 else "was ") if past else ""
        parts.append(f"{count} agent{'s' if count != 1 else ''} {verb}{word}")
    return f"{' and '.join(parts)}." if parts else ""


def _fleet(rule: Rule, facts: Facts) -> Iterator[tuple[Cause, Signal]]:
    if rule.kind is RuleKind.DRIFT and facts.off_policy:
        count, some = len(facts.off_policy), ", ".join(facts.off_policy[:_NAMES])
        said = f"{count} instance{'s do' if count != 1 else ' does'} not run with the policies that are wanted: {some}"
        cause = Cause(CauseKind.FLEET, OFF_POLICY, "instances run with other policies than are wanted")
        yield cause, _signal(rule, count, f"{said}{' and others' if count > _NAMES else ''}.")
    counted = {
        RuleKind.RATE: (facts.lost_lately, "agents were lost within one minute"),
        RuleKind.EXCESS: (facts.excess, "agents hold more tunnels than they want"),
        RuleKind.DRIFT: (facts.drifted, "agents run with another reconnect policy than most"),
    }
    count, words = counted.get(rule.kind, (0, ""))
    if words and count >= rule.threshold(facts.agents):
        yield Cause(CauseKind.FLEET, rule.kind.value, words), _signal(rule, count, f"{count} {words}.")


def _fold(
    facts: Facts, held: dict[str, list[Signal]], causes: dict[str, Cause], rules: Mapping[str, Rule]
) -> None:
    """Make one cause of a group's proxies, or a region's instances, that are sick together: two, and half of them."""
    folded: dict[str, list[Signal]] = {}
    # Proxies that suffer from one auth have that in common, and nothing else.
    explained = {one.cause.key for one in facts.sick if one.root_cause in held}
    for cause, keys in facts.together.items():
        sick = [key for key in keys if key in held and key not in explained]
        if not fail_together(len(sick), len(keys)):
            continue
        causes[cause.key] = cause
        found: dict[str, dict[str, Signal]] = {}
        for key in sick:
            for signal in held[key]:
                found.setdefault(signal.rule, {})[causes[key].name] = signal
        groups = [group for group in facts.groups if group.cause.key in keys]
        folded[cause.key] = [
            _joint(rules[rule], by_name, groups, len(keys)) for rule, by_name in found.items()
        ]
    held.update(folded)


def _joint(rule: Rule, by_name: Mapping[str, Signal], groups: Sequence[Affected], members: int) -> Signal:
    """What a rule found at several instances, by their names, as one; its words count them all."""
    count = sum(signal.count for signal in by_name.values())
    if rule.kind is RuleKind.INSTANCE:
        more = " and others" if len(by_name) > _NAMES else ""
        said = f"{len(by_name)} of {members} instances are sick: {', '.join([*by_name][:_NAMES])}{more}."
    else:
        said = _counted(rule, count, groups)
    return _signal(rule, count, said)


def _finding(
    key: str,
    cause: Cause,
    signals: Sequence[Signal],
    facts: Facts,
    by_key: Mapping[str, Affected],
    sick: Sick | None,
) -> Finding:
    members = facts.together.get(cause, (key,))
    groups = [by_key[member] for member in members if member in by_key]
    affected = sum(group.stranded + group.at_risk for group in groups)
    if not groups and cause.kind is CauseKind.FLEET and cause.id != OFF_POLICY:
        affected = max(signal.count for signal in signals)
    if cause.kind is CauseKind.CLUSTER:
        affected = facts.agents
    return Finding(
        cause=cause,
        signals=tuple(signals),
        affected=affected,
        names=tuple(name for group in groups for name in group.names)[:_NAMES],
        heals_at=_latest(groups),
        stuck=any(group.stuck for group in groups),
        expired_only=sick is not None and sick.expired_only,
        depends_on="" if sick is None else sick.depends_on,
        root_cause="" if sick is None else sick.root_cause,
        labels=frozenset(label for group in groups for label in group.labels),
        harm=harm_words(groups, past=True),
        stranded=sum(group.stranded for group in groups),
        began_at=_beginning(members, facts),
    )


def _beginning(members: Sequence[str], facts: Facts) -> float | None:
    """Return when a cause began: of several instances, when a second one of them fell sick."""
    times = sorted(facts.began[member] for member in members if member in facts.began)
    return times[min(1, len(times) - 1)] if times else None


def _latest(groups: Sequence[Affected]) -> float | None:
    times = [group.heals_at for group in groups if group.stranded + group.at_risk]
    known = [at for at in times if at is not None]
    return max(known) if known and len(known) == len(times) else None


def _signal(rule: Rule, count: int, sentence: str) -> Signal:
    return Signal(rule.name, rule.severity, count, sentence, labelled=bool(rule.label))
