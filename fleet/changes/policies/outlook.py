"""The plan of other policies: what they cost, who must restart, which agents see it and when. Pure.

What is planned is kept as JSON with the change, and is what page, API and terminal show. docs/policies.md, "The plan".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from fleet.changes.policies.plan import Running, TakesEffect, announce_ttl, restarts, ttl_load
from fleet.protocol import durations
from fleet.protocol.policies import env_policies, policy_json
from fleet.protocol.policies.env_policies import BY_NAME, PLURALS
from fleet.protocol.recovery import announce, discovery, reconnect_schedule, service_config
from fleet.protocol.recovery.service_config import (
    RFD_VARIABLE,
    UPSTREAM_VARIABLE,
    PickHealthyMode,
    ServiceConfig,
    ServiceConfigError,
)
from fleet.vocabulary.naming import natural

_BALANCING = (RFD_VARIABLE, UPSTREAM_VARIABLE)
_TTL_OF = {"auth": announce.AUTH_TTL_VARIABLE, "proxy": announce.PROXY_TTL_VARIABLE}
#: Tunnels are advised an interval after they opened, and up to half of it later.
_MEAN_ADVICE = 1.25

#: Mode and health check that an agent was told when it connected.
Told = tuple[str, bool]


@dataclass(frozen=True, slots=True)
class Sight:
    """What is seen of a fleet when policies are planned."""

    #: Agents connected to an auth, or tunnels on a proxy, by instance id.
    agents: Mapping[str, int]
    #: By id of an auth: how many of its agents were told what.
    told: Mapping[str, Mapping[Told, int]]
    #: All agents that are not retired.
    size: int
    #: Seconds between our rounds.
    round_interval: float
    #: When the newest round concluded, and how old that is, seconds.
    as_of: float
    age: float


@dataclass(frozen=True, slots=True)
class Changing:
    """An instance before and after; effective values by policy, empty where it does not say."""

    id: str
    name: str
    role: str
    restarts: bool
    now: Mapping[str, str] = field(default_factory=dict)
    then: Mapping[str, str] = field(default_factory=dict)

    def differs(self, name: str) -> bool:
        """Whether a policy of it changes."""
        return name in self.now and not env_policies.is_same_value(name, self.now[name], self.then[name])


def outlook(instances: Sequence[Changing], sight: Sight) -> dict[str, Any]:
    """`ttl` (rows of numbers), `effects` (rows of who restarts and who sees it), `notes`, and of which data."""
    ttl = [
        row
        for role in env_policies.ROLES
        for row in _ttls([one for one in instances if one.role == role], sight)
    ]
    effects = [*_balancing(instances, sight), *_others(instances, sight)]
    return {
        "ttl": ttl,
        "effects": effects,
        "notes": [warning for row in ttl for warning in row["warnings"]]
        + [row["sentence"] for row in effects],
        "as_of": sight.as_of,
        "age": round(sight.age, 1),
        "size": sight.size,
    }


def ttl_sentence(row: Mapping[str, Any]) -> str:
    """A row of `ttl` in words."""
    before, after = row["before"], row["after"]
    said = f"{row['title']}: a lost one is seen after {after['detection']}, now after {before['detection']}"
    said += f"; {after['writes']} heartbeat writes a second, now {before['writes']}"
    if row["role"] == "proxy":
        said += f"; {after['messages']} discovery messages a second, now {before['messages']}"
    return said


def _ttls(instances: Sequence[Changing], sight: Sight) -> Iterable[dict[str, Any]]:
    """One row for all instances that come from the same values to the same values."""
    groups: dict[tuple[float, float, bool, bool], list[Changing]] = {}
    for one in instances:
        ttl = _TTL_OF[one.role]
        if not (one.differs(ttl) or one.differs(discovery.COMPACT_VARIABLE)):
            continue
        try:
            key = _seconds(one.now, ttl), _seconds(one.then, ttl), _compact(one.now), _compact(one.then)
        except ValueError:
            continue  # of a node that takes what we would not
        groups.setdefault(key, []).append(one)
    for (before, after, was_compact, compact), group in groups.items():
        yield _ttl(group, before, after, was_compact, compact, instances, sight)


def _ttl(
    group: Sequence[Changing],
    before: float,
    after: float,
    was_compact: bool,
    compact: bool,
    of_role: Sequence[Changing],
    sight: Sight,
) -> dict[str, Any]:
    role = group[0].role
    mine = sum(sight.agents.get(one.id, 0) for one in group)
    everybody = sum(sight.agents.get(one.id, 0) for one in of_role)
    common = {"instances": len(group), "proxies": len(group)}

    def tunnels(*, compact: bool) -> int:
        # In compact mode every tunnel is told of each heartbeat of these; else each proxy tells its own.
        return everybody if compact else mine

    found = announce_ttl(
        before, after, role=role, tunnels=tunnels(compact=compact), compact=compact,
        round_interval=sight.round_interval, **common,
    )  # fmt: skip
    was = ttl_load(before, tunnels=tunnels(compact=was_compact), compact=was_compact, role=role, **common)
    number = f"{len(group)} {PLURALS[role] if len(group) > 1 else role}"
    title = f"{number}, TTL {durations.format_seconds(before)} to {durations.format_seconds(after)}"
    if was_compact != compact:
        title += f", compact discovery {'on' if compact else 'off'}"
    return {
        "role": role,
        "title": title,
        "names": sorted((one.name for one in group), key=natural),
        "before": _load(asdict(was)),
        "after": _load(asdict(found.after)),
        "warnings": list(found.warnings),
    }


def _load(load: Mapping[str, float]) -> dict[str, Any]:
    return {
        "detection": durations.format_seconds(round(load["detection"], 1)),
        "detection_seconds": load["detection"],
        **{name: float(f"{load[name]:.3g}") for name in ("writes", "messages", "names")},
    }


def _balancing(instances: Sequence[Changing], sight: Sight) -> Iterable[dict[str, Any]]:
    """Load balancing of agents: two variables that say one thing."""
    auths = [one for one in instances if one.role == "auth" and one.now]
    changing = [one for one in auths if _config(one.now) != _config(one.then)]
    if not changing:
        return
    wanted = _config(changing[0].then)
    stale = sum(
        count
        for one in auths
        if one not in changing and not one.restarts and (config := _config(one.now)) is not None
        for told, count in sight.told.get(one.id, {}).items()
        if told != _told(config)
    )
    found = _effect(
        "Clients' load balancing", _said(wanted), auths, changing, TakesEffect.AT_CONNECT, sight.agents, stale
    )
    for warning in policy_json.warnings(wanted) if wanted is not None else ():
        found["sentence"] += f" {warning}"
    yield found


def _others(instances: Sequence[Changing], sight: Sight) -> Iterable[dict[str, Any]]:
    for name in (env_policies.HTTP_CLOSE_VARIABLE, reconnect_schedule.VARIABLE):
        here = [one for one in instances if one.role == BY_NAME[name].role and one.now]
        changing = [one for one in here if one.differs(name)]
        if not changing:
            continue
        text = changing[0].then[name]
        # By HTTP no agent is connected.
        on = {} if name == env_policies.HTTP_CLOSE_VARIABLE else sight.agents
        found = _effect(BY_NAME[name].label, text or "never", here, changing, TakesEffect.AT_START, on)
        tunnels = sum(sight.agents.get(one.id, 0) for one in changing if one.restarts)
        if name == env_policies.HTTP_CLOSE_VARIABLE:
            found["sentence"] += (
                " It is about clients by HTTP: agents keep their connections, whatever it says."
            )
        elif text:
            interval = env_policies.seconds(name, text)
            found["sentence"] += (
                f" Each tunnel is asked to reconnect {text} to {durations.format_seconds(1.5 * interval)} after it was "
                f"opened: {tunnels / (_MEAN_ADVICE * interval):.2g} reconnects a second of {tunnels:,} tunnels."
            )
        yield found


def _effect(
    label: str,
    value: str,
    here: Sequence[Changing],
    changing: Sequence[Changing],
    effect: TakesEffect,
    agents: Mapping[str, int],
    stale: int = 0,
) -> dict[str, Any]:
    """Who must restart for it; those that nobody restarts now are named too. `agents` it concerns, by instance id."""
    running = {one.id: Running(one.name, one not in changing, agents.get(one.id, 0)) for one in here}
    found = restarts(running, effect, stale)
    by_hand = sorted((one.name for one in changing if not one.restarts), key=natural)
    sentence = f"{label} to “{value}”: {found.sentence[:1].lower()}{found.sentence[1:]}"
    if by_hand:
        sentence += f" Not restarted by this: {', '.join(by_hand)}."
    return {
        "label": label,
        "value": value,
        "restart": list(found.restart),
        "by_hand": by_hand,
        "agents_now": found.agents_now,
        "agents_later": found.agents_later,
        "sentence": sentence,
    }


def _config(values: Mapping[str, str]) -> ServiceConfig | None:
    """None for what cannot be read."""
    try:
        return service_config.from_environment(
            {name: values[name] for name in _BALANCING if values.get(name)}
        )
    except ServiceConfigError:
        return None


def _told(config: ServiceConfig) -> Told:
    reconnects = config.mode is PickHealthyMode.RECONNECT
    # In pick_first agents do not check health, and say so.
    return ("reconnect" if reconnects else "pick_first", reconnects and config.health_check)


def _said(config: ServiceConfig | None) -> str:
    if config is None:
        return "unreadable"
    mode, health_check = _told(config)
    return f"{mode}, health check" if health_check else mode


def _seconds(values: Mapping[str, str], name: str) -> float:
    return announce.parse_ttl(values.get(name) or BY_NAME[name].default, name=name)


def _compact(values: Mapping[str, str]) -> bool:
    name = discovery.COMPACT_VARIABLE
    return name in values and BY_NAME[name].read({name: values[name]}) is True
