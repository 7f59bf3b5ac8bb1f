"""What to do at night about what a rule found: a runbook per kind of rule. Pure. docs/alerts.md, "Runbooks".

A rule may name a runbook of its own; these are for those that do not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fleet.alerts.rules import RuleKind


@dataclass(frozen=True, slots=True)
class Runbook:
    """What it means, what to look at in this order, and what helps."""

    meaning: str
    diagnosis: tuple[str, ...]
    mitigation: tuple[str, ...]


RUNBOOKS: Mapping[RuleKind, Runbook] = {
    RuleKind.STRANDED: Runbook(
        "Agents cannot be reached: none of their tunnels ends at a proxy that works and is announced, or their auth "
        "does not renew their resources, and the cluster has forgotten them.",
        (
            "The cause card of the incident: does the proxy or the auth answer, and when was its last heartbeat?",
            "The heat map: one bad row is a proxy, one bad column an auth; both full is something beneath them.",
            "Heals by itself: who hears of other proxies is back after one announce TTL. Is that soon enough?",
            "The half hour before: a change, a config or a version that is new.",
        ),
        (
            "An auth: move its agents to another one by a campaign, also when the auth does not answer; or restore it.",
            "A proxy: restore it, or stop it for good: once its resource has expired its agents look for others.",
            "A proxy that answers and is only sick: plan a reconnect; through a silent proxy nobody can be asked.",
            "If they do not heal by themselves, restart these agents where they run.",
        ),
    ),
    RuleKind.AT_RISK: Runbook(
        "Agents are reached still, but what they hang on is failing: they may be stranded soon.",
        (
            "The cause card: unhealthy, expired or silent, and since when?",
            "Whether the number grows: the line at the top of the incident.",
        ),
        (
            "Plan a reconnect while their tunnels live: later nobody can ask them.",
            "Drain the proxy, if it has to be restarted.",
        ),
    ),
    RuleKind.INSTANCE: Runbook(
        "An auth or a proxy does not answer, says of itself that it is not well, or its announcement ran out.",
        (
            "Silent: host, network and process. Unhealthy: its /readyz or its health service says so, its log why.",
            "Expired, but it answers: it cannot write its heartbeat; look at the auth and its backend.",
            "Its agents, and how many have no other tunnel.",
        ),
        (
            "Move its agents elsewhere by a campaign: off an auth it works also when the auth does not answer.",
            "Restart it, or drain it first if it still answers.",
            "Silence the incident for as long as known work takes.",
        ),
    ),
    RuleKind.BACKEND: Runbook(
        "All auths fell sick within one announce TTL: what they share, their backend, is the likely cause.",
        (
            "The backend itself: does it answer, is its disk full, did its certificate run out?",
            "The network between auths and backend.",
            "Nothing at proxies and agents: what they show follows from this.",
        ),
        (
            "Restore the backend. Heartbeats are written again within one TTL, and agents come back by themselves.",
            "Do not restart proxies meanwhile: their tunnels work, and agents could not find others.",
        ),
    ),
    RuleKind.UNREACHABLE: Runbook(
        "No instance of the cluster answers, while this console's own probe is good.",
        (
            "The way from the console to the cluster: route, firewall, certificates, DNS.",
            "Whether users can connect: if they can, only the console is cut off.",
        ),
        ("Restore the way. All verdicts are unknown until then, which is right.",),
    ),
    RuleKind.RATE: Runbook(
        "Many agents were lost within one minute, and no single cause explains it.",
        (
            "The heat map, and the list of agents: what do they share that is no proxy: a network, a site, a version?",
            "The log of changes: a campaign or a rollout that runs.",
        ),
        ("Pause what runs.", "If it is a network, tell whoever runs it; agents come back by themselves when it does."),
    ),
    RuleKind.EXCESS: Runbook(
        "Agents hold more tunnels than they want: after failovers nobody closes the surplus.",
        ("Whether a failover was lately: surplus goes after a while where tunnels are closed gracefully.",),
        ("Plan the networking config: graceful tunnel closing, with its outlook.", "Nothing is urgent about it."),
    ),
    RuleKind.DRIFT: Runbook(
        "Instances do not run with the policies that are wanted of them, or agents with another than most.",
        ("Policies: which instance, which value, and whether a restart is missing.",),
        ("Restart with the settings that the page gives out, or change what is wanted.", "Nothing is urgent about it."),
    ),
    RuleKind.BLIND: Runbook(
        "The console cannot see: no round has concluded, or our own probe fails. Of the fleet nothing is known.",
        (
            "The processes of the console: pollers, beat, Redis. Their logs are in REFLOAT_HOME/log.",
            "Redis: does it answer, is its memory full? It needs no backup and rebuilds itself.",
            "The network of this machine, if our own probe fails.",
        ),
        ("Restart what is dead. No message about agents is sent until it sees again.",),
    ),
}  # fmt: skip
