"""A reconnect campaign as decisions: who may be asked, how many now, what became of whom, when to give up. Pure.

RFD 226, "Periodic Tunnel Reconnects": agents connect elsewhere first. docs/campaigns.md. Times are seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from zlib import crc32

from fleet.vocabulary.numbers import number_field, ranges_of, parse_numbers
from fleet.vocabulary.tags import TagEnum, Tone

#: A step that comes late asks no more at once than this many seconds of its rate: no burst after a pause.
_BURST_SECONDS = 2.0
#: Of so many results the share of failures says something.
_MIN_FINISHED = 20


class ConnectionKind(StrEnum):
    """Which connection of its agents a campaign moves."""

    #: The reverse tunnel to a proxy.
    TUNNEL = "tunnel"
    #: The gRPC connection to an auth, over which an agent heartbeats.
    AUTH = "auth"


class CampaignAgentState(TagEnum):
    """How far one agent is."""

    WAITING = "waiting", Tone.QUIET
    #: Chosen, to be asked at its moment.
    DUE = "due", Tone.BUSY
    ASKED = "asked", Tone.BUSY, "Under way"
    OK = "ok", Tone.GOOD, "Moved"
    FAILED = "failed", Tone.BAD, "Failed"
    SKIPPED = "skipped", Tone.QUIET, "Skipped"


#: Under way: they count against limits.
IN_PROGRESS = (CampaignAgentState.DUE, CampaignAgentState.ASKED)


@dataclass(frozen=True, slots=True)
class CampaignSettings:
    """How a campaign goes about it."""

    rate: int = number_field(300, 1, 60_000, "Agents asked a minute")
    #: That leave the same one.
    per_proxy: int = number_field(50, 1, 10_000, "Agents under way at one proxy or auth")
    canaries: int = number_field(5, 0, 1_000, "Canaries", "asked first and watched")
    #: How long to look at canaries that moved.
    hold: int = number_field(10, 0, 3_600, "Hold after the canaries", "seconds")
    #: Each agent is asked after a random part of this.
    jitter: int = number_field(2, 0, 300, "Jitter", "seconds")
    patience: int = number_field(60, 5, 3_600, "An agent has failed after", "seconds")
    max_failed: int = number_field(2, 0, 100, "Abort above this share of failures", "percent")
    #: More than when it began.
    max_stranded: int = number_field(10, 1, 1_000_000, "Abort when so many more are stranded", "agents")
    #: Minutes of the day (UTC) from and to which agents are asked; equal: always.
    window_from: int = 0
    window_to: int = 0


RANGES = ranges_of(CampaignSettings)
#: Its fields: the numbers, and the window.
CAMPAIGN_SETTING_NAMES = tuple(setting.name for setting in fields(CampaignSettings))


@dataclass(frozen=True, slots=True)
class AgentSnapshot:
    """An agent as the newest round has it."""

    #: Instance ids of the proxies it has a live tunnel to.
    proxies: frozenset[str]
    #: Tunnels it wants; 0 is one to every proxy.
    desired_count: int
    retired: bool = False
    #: Instance id of the auth that wrote its last heartbeat; empty when none is known.
    auth: str = ""


@dataclass(frozen=True, slots=True)
class ProxySnapshot:
    """A proxy as the newest round has it."""

    name: str
    #: It is well, unexpired, and of the newest generation of its group: agents may go there.
    usable: bool
    #: It answers, so that agents can be asked through their tunnels to it.
    is_reachable: bool = True


@dataclass(frozen=True, slots=True)
class AuthSnapshot:
    """An auth as the newest round has it."""

    name: str
    #: It is well and takes connections: agents may go there.
    usable: bool
    #: Agents that are connected to it.
    agent_count: int = 0


@dataclass(frozen=True, slots=True)
class CampaignCounts:
    """How far all are."""

    waiting: int = 0
    due: int = 0
    asked: int = 0
    ok: int = 0
    failed: int = 0
    skipped: int = 0

    @property
    def total_count(self) -> int:
        """All agents."""
        return self.waiting + self.due + self.asked + self.ok + self.failed + self.skipped

    @property
    def finished_count(self) -> int:
        """Those nothing more happens to."""
        return self.ok + self.failed + self.skipped

    @property
    def remaining_count(self) -> int:
        """Those something is still to happen to."""
        return self.total_count - self.finished_count

    @property
    def in_progress_count(self) -> int:
        """Those under way."""
        return self.due + self.asked


@dataclass(frozen=True, slots=True)
class AgentOutcome:
    """What became of an agent that was asked."""

    state: CampaignAgentState
    reason: str = ""
    new_proxy: str = ""
    new_auth: str = ""


@dataclass(frozen=True, slots=True)
class Admission:
    """How many may be chosen now, and the part of an agent that is carried over."""

    count: int
    credit: float
    #: Why none, when none.
    wait_reason: str = ""


@dataclass(frozen=True, slots=True)
class ParsedCampaignSettings:
    """A pace as somebody wrote it; `problems` by field."""

    settings: CampaignSettings
    problems: Mapping[str, str] = field(default_factory=dict)


def parse_campaign_settings(raw_values: Mapping[str, object]) -> ParsedCampaignSettings:
    """Read a pace; fields left out have their default, unknown ones are named."""
    numbers, problems = parse_numbers(raw_values, CampaignSettings, window_from=_parse_minutes, window_to=_parse_minutes)
    return ParsedCampaignSettings(CampaignSettings() if problems else CampaignSettings(**numbers), problems)


def find_skip_reason(agent: AgentSnapshot | None, proxies: Mapping[str, ProxySnapshot]) -> str:
    """Why an agent is not asked, as it is now; empty when it may be. Never where it would have less than before."""
    if agent is None:
        return "it is not in the record any more"
    if agent.retired:
        return "it is retired"
    if not agent.proxies:
        return "it has no tunnel through which to ask it"
    if not any(proxy.usable for proxy_id, proxy in proxies.items() if proxy_id not in agent.proxies):
        return "no other proxy to go to: none that is well and unexpired, and that it has no tunnel to"
    if len(agent.proxies) < agent.desired_count:
        return f"it has {len(agent.proxies)} of {agent.desired_count} tunnels: it is to get those first"
    return ""


def choose_proxy_to_leave(
    agent: AgentSnapshot, proxies: Mapping[str, ProxySnapshot], preferred_proxies: frozenset[str], agent_id: str = ""
) -> str:
    """The proxy an agent is asked to leave: one of `wanted` if it has such a tunnel, else a sick one, else any.

    Which of many follows from `who`, the agent's id: not the same proxy for all, and for one agent always the same.
    """
    candidates = agent.proxies & preferred_proxies or agent.proxies
    return min(
        candidates,
        key=lambda proxy_id: (
            proxies[proxy_id].usable if proxy_id in proxies else False,
            crc32(f"{agent_id} {proxy_id}".encode()) if agent_id else 0,
            proxy_id,
        ),
    )


def decide_agent_outcome(
    initial_proxies: frozenset[str], abandoned_proxy: str, requested_at: float, agent: AgentSnapshot | None, settings: CampaignSettings, now: float
) -> AgentOutcome | None:
    """What became of an agent that was asked; None while that is not known."""
    if agent is not None:
        new_proxies = agent.proxies - initial_proxies
        if new_proxies and (abandoned_proxy not in agent.proxies or len(agent.proxies) > len(initial_proxies)):
            return AgentOutcome(CampaignAgentState.OK, new_proxy=min(new_proxies))
        if abandoned_proxy not in agent.proxies and len(agent.proxies) >= max(1, min(len(initial_proxies), agent.desired_count)):
            # It had more tunnels than it wants: one less is what it was asked for.
            return AgentOutcome(CampaignAgentState.OK, "it let one tunnel go that it had too many")
    if now - requested_at < settings.patience:
        return None
    if agent is None or not agent.proxies:
        return AgentOutcome(CampaignAgentState.FAILED, "it has no tunnel any more")
    return AgentOutcome(CampaignAgentState.FAILED, f"it did not move within {settings.patience} s")


def admit(
    counts: CampaignCounts,
    settings: CampaignSettings,
    *,
    credit: float,
    elapsed_seconds: float,
    canaries_finished_at: float | None,
    now: float,
) -> Admission:
    """How many agents may be chosen now. `elapsed`: since the step before."""
    if not is_in_window(settings, now):
        return Admission(
            0, 0.0, f"outside its window, {format_time_of_day(settings.window_from)} to {format_time_of_day(settings.window_to)} UTC"
        )
    if counts.waiting == 0:
        return Admission(0, 0.0)
    started_count = counts.total_count - counts.waiting - counts.skipped
    if started_count < settings.canaries:
        return Admission(min(settings.canaries - started_count, counts.waiting), 0.0)
    if settings.canaries and canaries_finished_at is None:
        return Admission(0, 0.0, "watching the canaries")
    if settings.canaries and canaries_finished_at is not None and now - canaries_finished_at < settings.hold:
        return Admission(0, 0.0, f"the canaries moved; holding for {settings.hold} s")
    per_second = settings.rate / 60
    credit = min(credit + max(elapsed_seconds, 0.0) * per_second, max(1.0, per_second * _BURST_SECONDS))
    count = min(int(credit), counts.waiting)
    return Admission(count, credit - count)


def find_abort_reason(counts: CampaignCounts, settings: CampaignSettings, *, stranded_count: int, initial_stranded_count: int) -> str:
    """Why to give up; empty when all is well."""
    rise = stranded_count - initial_stranded_count
    if rise >= settings.max_stranded:
        return f"{rise} more agents are stranded than when it began ({initial_stranded_count})"
    finished_count = counts.ok + counts.failed
    if (
        finished_count >= min(_MIN_FINISHED, counts.total_count - counts.skipped)
        and counts.failed * 100 > settings.max_failed * finished_count
    ):
        return f"{counts.failed:,} of {finished_count:,} agents did not move: more than {settings.max_failed} %"
    return ""


def have_canaries_succeeded(counts: CampaignCounts, settings: CampaignSettings) -> bool:
    """All canaries have a result, none of which is a failure."""
    return (
        counts.in_progress_count == 0 and counts.failed == 0 and (counts.ok >= settings.canaries or counts.waiting == 0)
    )


def eta(counts: CampaignCounts, settings: CampaignSettings) -> float:
    """Seconds until all are asked and seen to have moved, at its rate."""
    if not counts.remaining_count:
        return 0.0
    return counts.waiting * 60 / settings.rate + settings.jitter + min(settings.patience, 5)


def is_in_window(settings: CampaignSettings, now: float) -> bool:
    """Whether agents are asked at this moment."""
    start, end = settings.window_from, settings.window_to
    if start == end:
        return True
    minute = int(now // 60) % 1440
    return start <= minute < end if start < end else minute >= start or minute < end


def format_time_of_day(minutes: int) -> str:
    """A time of the day as people write it."""
    return f"{minutes // 60:02d}:{minutes % 60:02d}"


def _parse_minutes(text: str) -> int:
    if text.isascii() and text.isdigit() and len(text) <= 4 and int(text) < 1440:
        return int(text)
    hours, colon, minutes = (text or "0:00").partition(":")
    if (
        colon and len(text) <= 5 and (hours + minutes).isascii() and hours.isdigit() and minutes.isdigit()
    ) and (int(hours) < 24 and int(minutes) < 60):
        return int(hours) * 60 + int(minutes)
    raise ValueError("write a time of the day, UTC, like 22:30")
