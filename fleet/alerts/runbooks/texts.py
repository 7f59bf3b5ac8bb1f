"""The built-in text of each runbook: meaning, diagnosis in order, and remedies, some with a button. Pure.

docs/reference/alerts.md, "Runbooks".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto

from fleet.vocabulary.runbooks import RunbookCause


class RemedyAction(Enum):
    """What the button of a remedy opens: `fleet.alerts.runbooks.remedies` finds its label and address."""

    MOVE_AGENTS = auto()
    #: Take the instance out of service, or bring it back.
    CHANGE_SERVICE = auto()
    TURN_ON_FAILOVER = auto()
    VIEW_AFFECTED = auto()
    VIEW_INSTANCES = auto()
    COMPARE_MOMENTS = auto()
    VIEW_DRIFT = auto()
    ROLL_OUT = auto()
    UNDO_CHANGE = auto()
    ENABLE_CLOSING = auto()
    OPEN_DATA_HEALTH = auto()
    TEST_CHANNELS = auto()
    SILENCE = auto()


@dataclass(frozen=True, slots=True)
class Remedy:
    """What helps, as a sentence; with a button if Refloat can do it."""

    text: str
    action: RemedyAction | None = None


@dataclass(frozen=True, slots=True)
class Runbook:
    """A runbook: meaning of the incident, diagnosis steps in order, and remedies, the first one first."""

    meaning: str
    diagnosis: tuple[str, ...]
    remedies: tuple[Remedy, ...]


_SILENCE = Remedy("Silence the incident while you work on it. Its timeline goes on.", RemedyAction.SILENCE)

RUNBOOKS: Mapping[RunbookCause, Runbook] = {
    RunbookCause.AUTH: Runbook(
        "An auth is not responding, reports itself as unhealthy, or cannot write heartbeats. Its agents become "
        "stranded when their heartbeats expire.",
        (
            "Check the present state of the auth: does it respond, and what is its error?",
            "Not responding: check its host, network and process. Unhealthy: check its /readyz and its log.",
            "Check the other auths. If all of them fail, the auth backend is the cause.",
            "Check the recovery of the agents: those that know another auth may recover automatically.",
        ),
        (
            Remedy(
                "Reconnect the agents to another auth. This works even if the auth is not responding: Refloat reaches "
                "agents through their tunnels.",
                RemedyAction.MOVE_AGENTS,
            ),
            Remedy("Repair the auth: restart it, and restore its connection to the auth backend."),
            Remedy(
                "Take the auth out of service before you restart it, and bring it back afterwards.",
                RemedyAction.CHANGE_SERVICE,
            ),
            Remedy(
                "Turn on failover: next time, agents then leave an unhealthy auth by themselves.",
                RemedyAction.TURN_ON_FAILOVER,
            ),
            _SILENCE,
        ),
    ),
    RunbookCause.PROXY: Runbook(
        "A proxy is not responding, reports itself as unhealthy, or its heartbeat has expired. Agents whose only "
        "tunnel ends at this proxy are stranded.",
        (
            "Check the present state of the proxy: does it respond, and what is its error?",
            "Not responding: check its host, network and process. Expired but responding: check its auth.",
            "Check how many of its agents have no other tunnel, and when they recover.",
            "Several proxies of one group: check what they share, such as a load balancer or a version.",
        ),
        (
            Remedy(
                "Reconnect the agents to other proxies while this proxy still responds. Without tunnels Refloat cannot "
                "reach agents.",
                RemedyAction.MOVE_AGENTS,
            ),
            Remedy(
                "Repair the proxy, or stop it permanently. When its heartbeat has expired, its agents look for other "
                "proxies."
            ),
            Remedy(
                "Take the proxy out of service before you restart it, and bring it back afterwards.",
                RemedyAction.CHANGE_SERVICE,
            ),
            Remedy("If agents do not recover automatically, restart them on their hosts.", RemedyAction.VIEW_AFFECTED),
            _SILENCE,
        ),
    ),
    RunbookCause.BACKEND: Runbook(
        "All auths failed within one announce TTL. The likely cause is the auth backend, which they share.",
        (
            "Check the backend: does it respond, is its disk full, has its certificate expired?",
            "Check the network between the auths and the backend.",
            "Do not investigate proxies and agents: their state follows from the backend.",
        ),
        (
            Remedy(
                "Restore the backend. Heartbeats are written again within one announce TTL, and the agents recover "
                "automatically."
            ),
            Remedy(
                "Do not restart proxies meanwhile: their tunnels work, and their agents could not find other proxies."
            ),
            Remedy("Watch the auths: they turn OK one after the other.", RemedyAction.VIEW_INSTANCES),
            _SILENCE,
        ),
    ),
    RunbookCause.REGION: Runbook(
        "At least half of the auths and proxies of one region fail together. The likely cause is their site or "
        "network.",
        (
            "Check the status of the site, and of the provider that runs it.",
            "Check the network between Refloat and the region. If users can connect there, only Refloat is cut off.",
            "Check how many agents have tunnels to other regions.",
        ),
        (
            Remedy(
                "Reconnect the agents of instances that still respond to other regions.",
                RemedyAction.MOVE_AGENTS,
            ),
            Remedy("Contact the operator of the site. Agents recover automatically when it is back."),
            Remedy("Check the auths and proxies of the region one by one.", RemedyAction.VIEW_INSTANCES),
            _SILENCE,
        ),
    ),
    RunbookCause.AGENTS: Runbook(
        "Agents are unreachable or at risk, and no auth or proxy explains it. The likely cause is their own hosts or "
        "networks.",
        (
            "Check what the agents have in common: labels such as a site, a version, a home proxy.",
            "Check one host: does the agent run, and what does its log say?",
            "Check the network from that host to the proxies: routes, firewall, DNS.",
            "Check running changes: a reconnect campaign or a rollout may move agents.",
        ),
        (
            Remedy(
                "List the affected agents. Restart them on their hosts, or select those that no longer exist and "
                "retire them.",
                RemedyAction.VIEW_AFFECTED,
            ),
            Remedy(
                "Start a reconnect campaign for agents that still have a tunnel, but hang.",
                RemedyAction.MOVE_AGENTS,
            ),
            Remedy(
                "Compare the fleet with the time before the incident: which agents were lost, and from where?",
                RemedyAction.COMPARE_MOMENTS,
            ),
            Remedy("If a network is down, contact its operator. The agents recover automatically when it is back."),
            _SILENCE,
        ),
    ),
    RunbookCause.VERSION: Runbook(
        "Shortly before the incident, its auths or proxies got another version, or nearly all affected agents have one "
        "version that few others have. The new version is the likely cause.",
        (
            "Check “Changes in the 30 min before” on the page of the incident: what was updated, by whom?",
            "Check whether instances or agents with the old version are OK.",
            "Read the release notes and the log of one updated instance.",
        ),
        (
            Remedy("Stop the update: pause running changes, and your own deployment."),
            Remedy("Reconnect the agents of the updated instance elsewhere.", RemedyAction.MOVE_AGENTS),
            Remedy("List the affected agents, and check which have the new version.", RemedyAction.VIEW_AFFECTED),
            Remedy(
                "Take the updated instance out of service, install the old version, and bring it back.",
                RemedyAction.CHANGE_SERVICE,
            ),
            Remedy("If a change of policies came with the version, undo it.", RemedyAction.UNDO_CHANGE),
            Remedy("Compare the fleet with the time before the incident.", RemedyAction.COMPARE_MOMENTS),
            _SILENCE,
        ),
    ),
    RunbookCause.CLUSTER: Runbook(
        "No instance of the cluster responds, although Refloat's connection test to itself (self-probe) succeeds.",
        (
            "Check the connection from Refloat to the cluster: routes, firewall, certificates, DNS.",
            "Check on the page of the cluster when the identity of Refloat expires, and renew it.",
            "Check whether users can connect. If they can, only Refloat is cut off.",
        ),
        (
            Remedy("Restore the connection. Until then the state of all agents is unknown, which is correct."),
            Remedy("Check the error of each auth and proxy.", RemedyAction.VIEW_INSTANCES),
            _SILENCE,
        ),
    ),
    RunbookCause.CONSOLE: Runbook(
        "Refloat receives no monitoring data: no poll of the fleet has completed, or the self-probe fails. The state "
        "of the fleet is unknown.",
        (
            "Check the processes of Refloat: pollers, scheduler (beat), Redis. Their logs are in REFLOAT_HOME/log.",
            "Check Redis: does it respond, is its memory full? Redis needs no backup: Refloat rebuilds its data.",
            "If the self-probe (Refloat's connection test to itself) fails, check the network of the Refloat host.",
        ),
        (
            Remedy(
                "See what is broken: processes, queues, clocks and instances, each with what to do.",
                RemedyAction.OPEN_DATA_HEALTH,
            ),
            Remedy(
                "Restart the failed processes. Until Refloat sees the fleet again, it sends no notifications about "
                "agents."
            ),
            Remedy(
                "Send a test notification: channels work without monitoring data, unless the alerting process is down, "
                "too.",
                RemedyAction.TEST_CHANNELS,
            ),
            _SILENCE,
        ),
    ),
    RunbookCause.DRIFT: Runbook(
        "Instances do not match their desired policies, or agents use another reconnect mode than the majority. This "
        "is not urgent.",
        (
            "Check which instance differs, in which setting, and whether only a restart is pending.",
            "Check who changed the setting: somebody by Refloat (audit log), or a deployment outside of Refloat.",
            "Agents read the reconnect mode when they connect: an uncommon one is that of an older connection.",
        ),
        (
            Remedy("Show the values that differ.", RemedyAction.VIEW_DRIFT),
            Remedy(
                "Roll out the desired values: Refloat restarts the instances one after the other.",
                RemedyAction.ROLL_OUT,
            ),
            Remedy("If the last change of policies was wrong, undo it.", RemedyAction.UNDO_CHANGE),
            Remedy(
                "Start a reconnect campaign: agents read the reconnect mode again when they connect.",
                RemedyAction.MOVE_AGENTS,
            ),
            _SILENCE,
        ),
    ),
    RunbookCause.EXCESS: Runbook(
        "Agents have more tunnels than they need: after a failover, or because graceful tunnel closing is off. This is "
        "not urgent.",
        ("Check for a recent failover: with graceful tunnel closing, excess tunnels are closed after a while.",),
        (
            Remedy(
                "Enable graceful tunnel closing in the networking config, and check the preview.",
                RemedyAction.ENABLE_CLOSING,
            ),
            Remedy("List the agents with excess tunnels.", RemedyAction.VIEW_AFFECTED),
            _SILENCE,
        ),
    ),
}  # fmt: skip
