"""Decisions of a reconnect campaign: how many agents to reconnect now, and when to abort. Pure.

Which agents can move, and their results, depends on the connection: `fleet.changes.campaigns.move_strategies`.
docs/reference/campaigns.md. Times are seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass, field, fields
from enum import StrEnum

from fleet.protocol.durations import format_clock_time
from fleet.vocabulary.numbers import number_field, parse_numbers, ranges_of
from fleet.vocabulary.tags import TagEnum, Tone

#: Seconds that an agent takes to move once Refloat has asked it, with the steps of the campaign.
MOVE_SECONDS = 4.0
#: Seconds of the rate limit that one step may use at once, so that no burst follows a pause.
_BURST_SECONDS = 2.0
#: Results before the failure threshold is checked.
_MIN_ATTEMPTED_COUNT = 20


class ConnectionKind(StrEnum):
    """Which connection of its agents a campaign moves."""

    #: The reverse tunnel to a proxy.
    TUNNEL = "tunnel"
    #: The gRPC connection to an auth, over which an agent heartbeats.
    AUTH = "auth"


class CampaignAgentState(TagEnum):
    """The state of one agent in a campaign."""

    PENDING = "pending", Tone.QUIET
    #: Selected; Refloat asks the agent to reconnect at `due_at`.
    SCHEDULED = "scheduled", Tone.BUSY
    IN_PROGRESS = "in-progress", Tone.BUSY, "in progress"
    SUCCEEDED = "succeeded", Tone.GOOD
    FAILED = "failed", Tone.BAD
    SKIPPED = "skipped", Tone.QUIET


#: States that count against the concurrency limit.
ACTIVE_STATES = (CampaignAgentState.SCHEDULED, CampaignAgentState.IN_PROGRESS)


@dataclass(frozen=True, slots=True)
class CampaignSettings:
    """The settings of a campaign."""

    #: Agents that Refloat asks to reconnect, per minute.
    rate_per_minute: int = number_field(300, 1, 60_000, "Rate limit", "agents per minute")
    #: Agents in progress that leave the same proxy or auth.
    concurrency: int = number_field(50, 1, 10_000, "Concurrency", "agents in progress per proxy or auth")
    #: Agents that must succeed before the others start.
    canary_size: int = number_field(5, 0, 1_000, "Canary size", "agents")
    #: Wait after the last canary succeeded, seconds.
    soak_seconds: int = number_field(10, 0, 3_600, "Soak time", "seconds")
    #: Longest random delay before Refloat asks an agent, seconds.
    jitter_seconds: int = number_field(2, 0, 300, "Jitter", "seconds")
    #: Time that an agent has to reconnect, seconds.
    timeout_seconds: int = number_field(60, 5, 3_600, "Per-agent timeout", "seconds")
    #: Percentage of failed agents above which the campaign aborts.
    failure_threshold_percent: int = number_field(2, 0, 100, "Failure threshold", "%")
    #: Rise in stranded agents since the start at which the campaign aborts.
    stranded_threshold: int = number_field(10, 1, 1_000_000, "Stranded threshold", "newly stranded agents")
    #: Start and end of the daily time window, minutes after 00:00 UTC; equal: no window.
    window_start: int = 0
    window_end: int = 0


SETTING_RANGES = ranges_of(CampaignSettings)
#: Names of all settings: those in SETTING_RANGES, and the time window.
CAMPAIGN_SETTING_NAMES = tuple(setting.name for setting in fields(CampaignSettings))


@dataclass(frozen=True, slots=True)
class AgentSnapshot:
    """An agent in the newest round (one poll of the whole fleet)."""

    #: Instance ids of the proxies it has a tunnel to; of a proxy that does not respond, the last known one.
    proxies: frozenset[str]
    #: Tunnels that the agent should have; 0: one to every proxy.
    desired_count: int
    is_retired: bool = False
    #: Instance id of the auth that wrote the agent's last heartbeat; empty: unknown.
    auth: str = ""


@dataclass(frozen=True, slots=True)
class ProxySnapshot:
    """A proxy in the newest round."""

    name: str
    #: Agents may connect to the proxy: it is OK, not draining, and of the newest generation of its group.
    is_usable: bool
    #: The proxy is reachable, so Refloat can ask agents through their tunnels to it.
    is_reachable: bool = True


@dataclass(frozen=True, slots=True)
class AuthSnapshot:
    """An auth in the newest round."""

    name: str
    #: Agents may connect to the auth: it is OK and not draining.
    is_usable: bool
    #: Agents connected to the auth.
    agent_count: int = 0


@dataclass(frozen=True, slots=True)
class CampaignCounts:
    """The number of agents of a campaign in each state."""

    pending_count: int = 0
    scheduled_count: int = 0
    in_progress_count: int = 0
    succeeded_count: int = 0
    failed_count: int = 0
    skipped_count: int = 0

    @property
    def total_count(self) -> int:
        """The number of all agents."""
        return sum(astuple(self))

    @property
    def finished_count(self) -> int:
        """The number of agents that have a result."""
        return self.succeeded_count + self.failed_count + self.skipped_count

    @property
    def attempted_count(self) -> int:
        """The number of agents that succeeded or failed."""
        return self.succeeded_count + self.failed_count

    @property
    def unfinished_count(self) -> int:
        """The number of agents that have no result yet."""
        return self.total_count - self.finished_count

    @property
    def active_count(self) -> int:
        """The number of agents that count against the concurrency limit."""
        return self.scheduled_count + self.in_progress_count


@dataclass(frozen=True, slots=True)
class AgentOutcome:
    """The result of an agent that Refloat asked to reconnect."""

    state: CampaignAgentState
    reason: str = ""
    new_proxy: str = ""
    new_auth: str = ""


@dataclass(frozen=True, slots=True)
class Admission:
    """The number of agents to select now, and the fraction of an agent to carry over to the next step."""

    agent_count: int
    credit: float
    #: Why `agent_count` is 0; empty where there is nothing to say.
    wait_reason: str = ""


@dataclass(frozen=True, slots=True)
class ParsedCampaignSettings:
    """Parsed campaign settings; `problems` by field."""

    settings: CampaignSettings
    problems: Mapping[str, str] = field(default_factory=dict)


def parse_campaign_settings(raw_values: Mapping[str, object]) -> ParsedCampaignSettings:
    """Parse campaign settings. Missing fields get their default; unknown fields are problems."""
    numbers, problems = parse_numbers(
        raw_values, CampaignSettings, window_start=_parse_minutes, window_end=_parse_minutes
    )
    return ParsedCampaignSettings(CampaignSettings() if problems else CampaignSettings(**numbers), problems)


def decide_admission(
    counts: CampaignCounts,
    settings: CampaignSettings,
    *,
    credit: float,
    elapsed_seconds: float,
    canaries_finished_at: float | None,
    now: float,
    canaries_time_out_at: float | None = None,
    resumed_by: str = "",
) -> Admission:
    """Return how many agents a campaign may select now. `elapsed_seconds`: seconds since the previous step.

    `canaries_time_out_at`: when the last canary in progress times out; `resumed_by`: the user who resumed the campaign
    after a canary had failed.
    """
    if not is_in_window(settings, now):
        return Admission(
            0,
            0.0,
            f"waiting for the time window, {format_time_of_day(settings.window_start)} to "
            f"{format_time_of_day(settings.window_end)} UTC",
        )
    if counts.pending_count == 0:
        return Admission(0, 0.0)
    started_count = counts.total_count - counts.pending_count - counts.skipped_count
    if started_count < settings.canary_size:
        return Admission(min(settings.canary_size - started_count, counts.pending_count), 0.0)
    if settings.canary_size and canaries_finished_at is None:
        timeout = (
            "" if canaries_time_out_at is None else f" (timeout at {format_clock_time(canaries_time_out_at)})"
        )
        return Admission(0, 0.0, f"waiting for {_describe_first_agents(started_count)}{timeout}")
    if (
        settings.canary_size
        and canaries_finished_at is not None
        and now - canaries_finished_at < settings.soak_seconds
    ):
        follow_at = format_clock_time(canaries_finished_at + settings.soak_seconds)
        clause = _describe_canary_result(counts, started_count, resumed_by)
        return Admission(0, 0.0, f"{clause}; the others follow at {follow_at}")
    per_second = settings.rate_per_minute / 60
    credit = min(credit + max(elapsed_seconds, 0.0) * per_second, max(1.0, per_second * _BURST_SECONDS))
    agent_count = min(int(credit), counts.pending_count)
    return Admission(agent_count, credit - agent_count)


def _describe_first_agents(canary_count: int) -> str:
    return "the first agent" if canary_count == 1 else f"the first {canary_count:,} agents"


def _describe_canary_result(counts: CampaignCounts, canary_count: int, resumed_by: str) -> str:
    """Return how the canaries fared; after a failure, the campaign only continues because somebody resumed it."""
    if not counts.failed_count:
        return f"{_describe_first_agents(canary_count)} succeeded"
    share = "" if canary_count == 1 else f"{counts.failed_count:,} of "
    clause = f"{share}{_describe_first_agents(canary_count)} failed"
    return f"{clause}; resumed by {resumed_by}" if resumed_by else clause


def find_abort_reason(
    counts: CampaignCounts, settings: CampaignSettings, *, stranded_count: int, initial_stranded_count: int
) -> str:
    """Return why a campaign must abort: a threshold that it exceeds; empty when it exceeds none."""
    stranded_rise = stranded_count - initial_stranded_count
    if stranded_rise >= settings.stranded_threshold:
        return f"{stranded_rise:,} more agents are stranded than at the start ({initial_stranded_count:,})"
    if counts.attempted_count >= _first_checked_count_of(counts) and _exceeds_threshold(
        counts, settings, counts.attempted_count
    ):
        return (
            f"{counts.failed_count:,} of {counts.attempted_count:,} agents failed: more than the threshold of "
            f"{settings.failure_threshold_percent} %"
        )
    return ""


def describe_resume_risk(counts: CampaignCounts, settings: CampaignSettings) -> str:
    """Return that a paused campaign will abort soon after it is resumed, as a sentence; empty if that is open.

    It will if too many agents have failed already, also if all others succeed until the threshold is first checked.
    """
    checked_count = max(_first_checked_count_of(counts), counts.attempted_count)
    if not _exceeds_threshold(counts, settings, checked_count):
        return ""
    noun = "agent" if counts.attempted_count == 1 else "agents"
    percent = settings.failure_threshold_percent
    sentence = (
        f"{counts.failed_count:,} of {counts.attempted_count:,} {noun} failed, more than the failure threshold of "
        f"{percent} %: after you resume it, the campaign aborts as soon as {checked_count:,} agents have a result"
    )
    # Many results can arrive at once, so that the first check sees more of them.
    if not _exceeds_threshold(counts, settings, counts.total_count - counts.skipped_count):
        sentence += f", unless at most {percent} % of them failed"
    return f"{sentence}."


def _first_checked_count_of(counts: CampaignCounts) -> int:
    """Return the number of results from which the failure threshold is checked."""
    return min(_MIN_ATTEMPTED_COUNT, counts.total_count - counts.skipped_count)


def _exceeds_threshold(counts: CampaignCounts, settings: CampaignSettings, attempted_count: int) -> bool:
    """Return whether the failures until now are too many of `attempted_count` results."""
    return counts.failed_count * 100 > settings.failure_threshold_percent * attempted_count


def describe_result(counts: CampaignCounts, main_skip_reason: str) -> str:
    """Return the result of a finished campaign: how many agents succeeded, and why most of the others were skipped."""
    text = f"{counts.succeeded_count:,} of {counts.total_count:,} agents succeeded"
    if counts.total_count == counts.skipped_count:
        text = "no agent moved"
    return f"{text}; {counts.skipped_count:,} skipped: {main_skip_reason}" if counts.skipped_count else text


def have_canaries_succeeded(counts: CampaignCounts, settings: CampaignSettings) -> bool:
    """Return whether all canaries have a result and none failed."""
    return (
        counts.active_count == 0
        and counts.failed_count == 0
        and (counts.succeeded_count >= settings.canary_size or counts.pending_count == 0)
    )


def is_waiting_for_canaries(
    counts: CampaignCounts, settings: CampaignSettings, canaries_finished_at: float | None
) -> bool:
    """Return whether only canaries are in progress: nobody knows when the others follow."""
    return canaries_finished_at is None and counts.active_count > 0 and _have_others_to_wait(counts, settings)


def estimate_remaining_seconds(
    counts: CampaignCounts,
    settings: CampaignSettings,
    *,
    canaries_finished_at: float | None = None,
    now: float = 0.0,
) -> float:
    """Return the seconds until all agents have a result, estimated from the rate limit and the soak time.

    `canaries_finished_at`: seconds since the epoch, as `now`; None: not yet.
    """
    if not counts.unfinished_count:
        return 0.0
    seconds = counts.pending_count * 60 / settings.rate_per_minute + move_seconds_of(settings)
    if not _have_others_to_wait(counts, settings):
        return seconds
    if canaries_finished_at is None:
        return seconds + move_seconds_of(settings) + settings.soak_seconds
    return seconds + max(settings.soak_seconds - (now - canaries_finished_at), 0.0)


def move_seconds_of(settings: CampaignSettings) -> float:
    """Return the time from the selection of an agent until it has moved, about: half of the jitter, and the move."""
    return settings.jitter_seconds / 2 + min(settings.timeout_seconds, MOVE_SECONDS)


def _have_others_to_wait(counts: CampaignCounts, settings: CampaignSettings) -> bool:
    """Return whether there are canaries, and agents after them that wait until the canaries have succeeded."""
    started_count = counts.total_count - counts.pending_count - counts.skipped_count
    pending_canary_count = max(settings.canary_size - started_count, 0)
    return bool(settings.canary_size) and counts.pending_count > pending_canary_count


def is_in_window(settings: CampaignSettings, now: float) -> bool:
    """Return whether `now` is in the time window of a campaign."""
    start, end = settings.window_start, settings.window_end
    if start == end:
        return True
    minute = int(now // 60) % 1440
    return start <= minute < end if start < end else minute >= start or minute < end


def format_time_of_day(minutes: int) -> str:
    """Return a time of day, minutes after 00:00, as `HH:MM`."""
    return f"{minutes // 60:02d}:{minutes % 60:02d}"


def _parse_minutes(text: str) -> int:
    if text.isascii() and text.isdigit() and len(text) <= 4 and int(text) < 1440:
        return int(text)
    hours, colon, minutes = (text or "0:00").partition(":")
    if (
        colon and len(text) <= 5 and (hours + minutes).isascii() and hours.isdigit() and minutes.isdigit()
    ) and (int(hours) < 24 and int(minutes) < 60):
        return int(hours) * 60 + int(minutes)
    raise ValueError("enter a time of day in UTC, such as 22:30")
