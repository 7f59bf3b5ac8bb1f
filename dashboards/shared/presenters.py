"""What templates are given: reader types turned into words, dates and ages. No template computes a state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fleet.models.moments import to_moment, to_seconds
from fleet.models.tokens import ApiToken
from fleet.models.transitions import Transition
from fleet.monitoring.evidence import AgentEvidence, Heartbeat, Mode
from fleet.monitoring.views import AgentView, Explanation, InstanceView, Summary
from fleet.vocabulary.instances import SICK, InstanceFacts, InstanceKind, InstanceState
from fleet.vocabulary.naming import natural
from fleet.vocabulary.numbers import ranges
from fleet.vocabulary.verdicts import READING_ORDER, Reason, Recovery, State, Verdict

Counts = tuple[tuple[State, int], ...]

#: Of the proxies that heartbeat through an auth its card names so many.
_NAMED_PROXIES = 4


def moment(at: float | None) -> datetime | None:
    """Turn seconds since the epoch into an aware UTC date; 0 means none in packed columns."""
    return to_moment(at) if at else None


def age_ms(at: float | None, now: float) -> int | None:
    """Milliseconds since `at`, negative while it is still to come; None when there is no such moment."""
    return round((now - at) * 1000) if at else None


def in_order(counts: Mapping[State, int]) -> Counts:
    """Every state with its count, in reading order."""
    return tuple((state, counts.get(state, 0)) for state in READING_ORDER)


@dataclass(frozen=True, slots=True)
class InstanceCard:
    """One auth or proxy in the strip."""

    #: What sources said of it; templates show what needs no other form.
    facts: InstanceFacts
    name: str
    kind: InstanceKind
    state: InstanceState
    sentence: str
    agents: int
    #: Age of its own heartbeat, and its announce TTL.
    heartbeat_ms: int | None
    ttl_ms: int | None
    #: No list of instances was answered lately, so newer heartbeats would not have been seen.
    unlisted: bool
    #: Its agents that are not healthy, by state, none of them zero.
    bad: Counts
    #: Why it is Degraded, or worse, as a destination; empty when its state says as much, or all is well.
    grey: str
    #: Why it drains; None when it does not.
    draining: str | None
    #: Group and generation of a proxy, `blue 3`; empty when it states none.
    generation: str
    #: Of a proxy: the auth it heartbeats through. Of an auth: the proxies that do so, in words. Empty for none.
    heartbeats: str = ""


@dataclass(frozen=True, slots=True)
class AgentRow:
    """One agent in a list, or at the head of its page."""

    id: str
    name: str
    state: State
    reason: str
    sentence: str
    #: Will it recover by itself, and when, in words; empty when there is nothing to recover from.
    recovery: str
    cause: str
    since: datetime | None
    since_ms: int | None
    auth: str
    #: The policy of its auth connection: `reconnect, health check`; empty when no heartbeat says.
    mode: str
    proxies: tuple[str, ...]
    #: Groups and generations of these proxies, each once, for those that state one: `blue 3`.
    generations: tuple[str, ...]
    home: str
    expires: datetime | None
    expires_ms: int | None


@dataclass(frozen=True, slots=True)
class AgentTunnel:
    """A proxy that reports a tunnel of an agent, or was the last to."""

    proxy: str
    #: That of the proxy.
    state: InstanceState
    why: str
    opened: datetime | None
    opened_ms: int | None


@dataclass(frozen=True, slots=True)
class Change:
    """One change of an agent's state."""

    at: datetime
    at_ms: int
    old: State
    new: State
    reason: str


@dataclass(frozen=True, slots=True)
class TokenRow:
    """One token in the list; never its secret."""

    id: int
    name: str
    user: str
    prefix: str
    scopes: str
    created: datetime
    expires: datetime | None
    last_used: datetime | None
    live: bool


def frame(summary: Summary, now: float, page: str) -> dict[str, Any]:
    """What every page with live numbers gives the frame: `page`, `summary`, `counts`, `age_ms`, `stale`.

    `fleet_size`: agents that count, so without the `retired_count` that are retired.
    """
    retired = summary.counts.get(State.RETIRED, 0)
    return {
        "page": page,
        "summary": summary,
        "counts": in_order(summary.counts),
        "age_ms": age_ms(summary.as_of, now),
        "stale": summary.stale,
        "fleet_size": summary.agents - retired,
        "retired_count": retired,
    }


def instance_cards(views: Sequence[InstanceView], now: float) -> dict[str, tuple[InstanceCard, ...]]:
    """The strip: `auths` and `proxies`, each by name as people count (proxy-2 before proxy-10)."""
    ordered = sorted(views, key=lambda view: natural(view.facts.name))
    names = {view.facts.id: view.facts.name for view in views}
    cards = [(view.facts.kind, instance_card(view, now, names)) for view in ordered]
    return {
        "auths": tuple(card for kind, card in cards if kind is InstanceKind.AUTH),
        "proxies": tuple(card for kind, card in cards if kind is InstanceKind.PROXY),
    }


def agent_row(view: AgentView, instances: Mapping[str, InstanceView], now: float) -> AgentRow:
    """Present one agent; `instances` by id."""

    def name(instance: str | None) -> str:
        known = instances.get(instance or "")
        return (instance or "") if known is None else known.facts.name

    verdict = view.verdict
    return AgentRow(
        id=view.id,
        name=view.name,
        state=view.state,
        reason="" if verdict.reason is Reason.NONE else verdict.reason.slug,
        sentence=verdict.sentence,
        recovery=recovery_words(verdict, name(verdict.cause)),
        cause=name(verdict.cause),
        since=moment(view.since),
        since_ms=age_ms(view.since, now),
        auth=name(view.auth),
        mode=mode_words(view.mode, health_check=bool(view.health_check)),
        proxies=tuple(name(proxy) for proxy in view.proxies),
        generations=_generations(instances[proxy].facts for proxy in view.proxies if proxy in instances),
        home=name(view.home),
        expires=moment(view.expires_at),
        expires_ms=age_ms(view.expires_at, now),
    )


def mode_words(mode: Mode, *, health_check: bool) -> str:
    """Return the policy of an agent's auth connection in words; empty when it is not known."""
    if mode is Mode.UNKNOWN:
        return ""
    return f"{mode.slug}, health check" if health_check else mode.slug


def recovery_words(verdict: Verdict, cause: str) -> str:
    """Say whether it will recover by itself, and when; empty when there is nothing to recover from."""
    if verdict.recovery is Recovery.NOT_NEEDED:
        return ""
    if verdict.recovery is Recovery.ONLY_IF_CAUSE_RECOVERS:
        return f"not by itself, only if {cause or 'the cause'} recovers"
    if verdict.recovery is Recovery.UNCLEAR:
        return "cannot be told"
    by = moment(verdict.recovers_at)
    return "yes" if by is None else f"yes, by {by:%H:%M:%S} UTC"


def agent_page(explanation: Explanation, now: float) -> dict[str, Any]:
    """One agent with what its verdict rests on: `agent`, `tunnels`, `evidence` as (words, value)."""
    by_id = {view.facts.id: view for view in explanation.instances.values()}
    return {
        "agent": agent_row(explanation.view, by_id, now),
        "tunnels": _tunnels(explanation, now),
        "evidence": evidence_words(explanation.evidence, explanation.instances),
    }


def evidence_words(evidence: AgentEvidence, instances: Mapping[int, InstanceView]) -> list[tuple[str, str]]:
    """Everything seen of an agent, as words and values."""
    words: list[tuple[str, str]] = []
    if evidence.heartbeat is None:
        words.append(("Heartbeat", "no auth lists its resource"))
    else:
        words.extend(_heartbeat_words(evidence.heartbeat, instances))
    last = [instances[index].facts.name for index in evidence.last_proxies if index in instances]
    words.append(("Last seen on", ", ".join(last) or "no proxy yet"))
    if evidence.retired:
        words.append(("Retired", "by an operator"))
    if not evidence.had_tunnel:
        words.append(("Tunnels ever", "none"))
    return words


def history(transitions: Iterable[Transition], now: float) -> list[Change]:
    """Present what happened to an agent, as kept in the database."""
    return [
        Change(
            at=row.at,
            at_ms=round((now - to_seconds(row.at)) * 1000),
            old=State.read(row.old),
            new=State.read(row.new),
            reason="" if row.reason == Reason.NONE.slug else row.reason,
        )
        for row in transitions
    ]


def number_fields(record: Any, given: Mapping[str, str], problems: Mapping[str, str]) -> list[dict[str, Any]]:
    """Present the numbers of a record as fields of a form; those that are not given have its values."""
    return [
        {
            "name": name, "label": label, "unit": unit, "low": low, "high": high,
            "value": given.get(name, getattr(record, name)), "problem": problems.get(name, ""),
        }
        for name, (low, high, label, unit) in ranges(type(record)).items()
    ]  # fmt: skip


def token_row(token: ApiToken, now: datetime) -> TokenRow:
    """Present one token."""
    return TokenRow(
        id=token.pk,
        name=token.name,
        user=token.user.get_username(),
        prefix=token.prefix,
        scopes=", ".join(scope.replace("_", " ") for scope in token.scopes),
        created=token.created_at,
        expires=token.expires_at,
        last_used=token.last_used_at,
        live=token.is_valid(now),
    )


def _heartbeat_words(heartbeat: Heartbeat, instances: Mapping[int, InstanceView]) -> list[tuple[str, str]]:
    def name(index: int | None) -> str:
        known = None if index is None else instances.get(index)
        return "unknown" if known is None else known.facts.name

    expires, read = moment(heartbeat.expires_at), moment(heartbeat.policy_read_at)
    words = [
        ("Heartbeat written by", name(heartbeat.auth)),
        ("Resource expires", "never seen" if expires is None else f"{expires:%H:%M:%S} UTC"),
        ("Resource TTL", f"{heartbeat.ttl:g} s"),
        ("Reconnect mode", heartbeat.mode.slug),
        ("Health check of its auth", "on" if heartbeat.health_check else "off"),
        ("Policy read", "it did not say" if read is None else f"{read:%H:%M:%S} UTC"),
        ("Tunnels wanted", str(heartbeat.desired) if heartbeat.desired else "one to every proxy"),
        ("Tunnels it claims", str(heartbeat.claimed)),
        ("Unexpired proxies it knows", str(heartbeat.tracked)),
    ]
    if heartbeat.via_proxy is not None:
        words.insert(1, ("Auth connection through", name(heartbeat.via_proxy)))
    if heartbeat.ttl_seen:
        words.append(("Discovery TTL it was told", f"{heartbeat.ttl_seen:g} s"))
    return words


def instance_card(view: InstanceView, now: float, names: Mapping[str, str]) -> InstanceCard:
    """Present one auth or proxy; `names` are those of all instances, by id."""
    facts = view.facts
    written_at = None if facts.expires_at is None or facts.ttl is None else facts.expires_at - facts.ttl
    return InstanceCard(
        facts=facts,
        name=facts.name,
        kind=facts.kind,
        state=view.state,
        sentence=view.sentence,
        agents=view.agents,
        heartbeat_ms=age_ms(written_at, now),
        ttl_ms=None if facts.ttl is None else round(facts.ttl * 1000),
        unlisted=not view.listed,
        bad=tuple((state, n) for state, n in in_order(view.counts) if n and state is not State.HEALTHY),
        grey=view.health_sentence if view.state not in SICK else "",
        draining=None if view.draining is None else view.draining.reason,
        heartbeats=_heartbeat_path(view, names),
        generation=generation_words(facts),
    )


def _heartbeat_path(view: InstanceView, names: Mapping[str, str]) -> str:
    """Return through which auth a proxy heartbeats, or which proxies heartbeat through an auth, in words."""
    if view.facts.heartbeat_auth:
        auth = view.facts.heartbeat_auth
        return f"heartbeats through {names.get(auth, auth)}"
    if not view.proxies:
        return ""
    named, more = ", ".join(view.proxies[:_NAMED_PROXIES]), len(view.proxies) - _NAMED_PROXIES
    return f"takes heartbeats of {named}" + (f" and {more} more" if more > 0 else "")


def generation_words(facts: InstanceFacts) -> str:
    """Return group and generation of a proxy; empty when it states none."""
    return f"{facts.group} {facts.generation}".strip() if facts.group or facts.generation else ""


def _generations(proxies: Iterable[InstanceFacts]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(filter(None, map(generation_words, proxies))))


def _tunnels(explanation: Explanation, now: float) -> tuple[AgentTunnel, ...]:
    instances, opened_at = explanation.instances, explanation.opened_at
    return tuple(
        AgentTunnel(
            proxy=instances[index].facts.name,
            state=instances[index].state,
            why=instances[index].sentence or instances[index].health_sentence,
            opened=moment(opened_at.get(index)),
            opened_ms=age_ms(opened_at.get(index), now),
        )
        for index in explanation.evidence.tunnels
        if index in instances
    )
