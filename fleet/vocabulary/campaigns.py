"""A reconnect campaign as decisions: who may be asked, how many now, what became of whom, when to give up. Pure.

RFD 226, "Periodic Tunnel Reconnects": agents connect elsewhere first. docs/campaigns.md. Times are seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from zlib import crc32

from fleet.vocabulary.numbers import number, ranges, read
from fleet.vocabulary.tags import Tag, Tone

#: A step that comes late asks no more at once than this many seconds of its rate: no burst after a pause.
_BURST = 2.0
#: Of so many results the share of failures says something.
_ENOUGH = 20


class Connection(StrEnum):
    """Which connection of its agents a campaign moves."""

    #: The reverse tunnel to a proxy.
    TUNNEL = "tunnel"
    #: The gRPC connection to an auth, over which an agent heartbeats.
    AUTH = "auth"


class AgentState(Tag):
    """How far one agent is."""

    WAITING = "waiting", Tone.QUIET
    #: Chosen, to be asked at its moment.
    DUE = "due", Tone.BUSY
    ASKED = "asked", Tone.BUSY, "Under way"
    OK = "ok", Tone.GOOD, "Moved"
    FAILED = "failed", Tone.BAD, "Failed"
    SKIPPED = "skipped", Tone.QUIET, "Skipped"


#: Under way: they count against limits.
IN_FLIGHT = (AgentState.DUE, AgentState.ASKED)


@dataclass(frozen=True, slots=True)
class Pace:
    """How a campaign goes about it."""

    rate: int = number(300, 1, 60_000, "Agents asked a minute")
    #: That leave the same one.
    per_proxy: int = number(50, 1, 10_000, "Agents under way at one proxy or auth")
    canaries: int = number(5, 0, 1_000, "Canaries", "asked first and watched")
    #: How long to look at canaries that moved.
    hold: int = number(10, 0, 3_600, "Hold after the canaries", "seconds")
    #: Each agent is asked after a random part of this.
    jitter: int = number(2, 0, 300, "Jitter", "seconds")
    patience: int = number(60, 5, 3_600, "An agent has failed after", "seconds")
    max_failed: int = number(2, 0, 100, "Abort above this share of failures", "percent")
    #: More than when it began.
    max_stranded: int = number(10, 1, 1_000_000, "Abort when so many more are stranded", "agents")
    #: Minutes of the day (UTC) from and to which agents are asked; equal: always.
    window_from: int = 0
    window_to: int = 0


RANGES = ranges(Pace)
#: Its fields: the numbers, and the window.
PACE = tuple(one.name for one in fields(Pace))


@dataclass(frozen=True, slots=True)
class AgentSeen:
    """An agent as the newest round has it."""

    #: Instance ids of the proxies it has a live tunnel to.
    proxies: frozenset[str]
    #: Tunnels it wants; 0 is one to every proxy.
    desired: int
    retired: bool = False
    #: Instance id of the auth that wrote its last heartbeat; empty when none is known.
    auth: str = ""


@dataclass(frozen=True, slots=True)
class ProxySeen:
    """A proxy as the newest round has it."""

    name: str
    #: It is well, unexpired, and of the newest generation of its group: agents may go there.
    usable: bool
    #: It answers, so that agents can be asked through their tunnels to it.
    answers: bool = True


@dataclass(frozen=True, slots=True)
class AuthSeen:
    """An auth as the newest round has it."""

    name: str
    #: It is well and takes connections: agents may go there.
    usable: bool
    #: Agents that are connected to it.
    agents: int = 0


@dataclass(frozen=True, slots=True)
class Counts:
    """How far all are."""

    waiting: int = 0
    due: int = 0
    asked: int = 0
    ok: int = 0
    failed: int = 0
    skipped: int = 0

    @property
    def total(self) -> int:
        """All agents."""
        return self.waiting + self.due + self.asked + self.ok + self.failed + self.skipped

    @property
    def done(self) -> int:
        """Those nothing more happens to."""
        return self.ok + self.failed + self.skipped

    @property
    def remaining(self) -> int:
        """Those something is still to happen to."""
        return self.total - self.done

    @property
    def in_flight(self) -> int:
        """Those under way."""
        return self.due + self.asked


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of an agent that was asked."""

    state: AgentState
    reason: str = ""
    new_proxy: str = ""
    new_auth: str = ""


@dataclass(frozen=True, slots=True)
class Admission:
    """How many may be chosen now, and the part of an agent that is carried over."""

    count: int
    credit: float
    #: Why none, when none.
    waits_for: str = ""


@dataclass(frozen=True, slots=True)
class Read:
    """A pace as somebody wrote it; `problems` by field."""

    pace: Pace
    problems: Mapping[str, str] = field(default_factory=dict)


def read_pace(given: Mapping[str, object]) -> Read:
    """Read a pace; fields left out have their default, unknown ones are named."""
    values, problems = read(given, Pace, window_from=_minutes, window_to=_minutes)
    return Read(Pace() if problems else Pace(**values), problems)


def why_skip(agent: AgentSeen | None, proxies: Mapping[str, ProxySeen]) -> str:
    """Why an agent is not asked, as it is now; empty when it may be. Never where it would have less than before."""
    if agent is None:
        return "it is not in the record any more"
    if agent.retired:
        return "it is retired"
    if not agent.proxies:
        return "it has no tunnel through which to ask it"
    if not any(proxy.usable for one, proxy in proxies.items() if one not in agent.proxies):
        return "no other proxy to go to: none that is well and unexpired, and that it has no tunnel to"
    if len(agent.proxies) < agent.desired:
        return f"it has {len(agent.proxies)} of {agent.desired} tunnels: it is to get those first"
    return ""


def tunnel_to_leave(
    agent: AgentSeen, proxies: Mapping[str, ProxySeen], wanted: frozenset[str], who: str = ""
) -> str:
    """The proxy an agent is asked to leave: one of `wanted` if it has such a tunnel, else a sick one, else any.

    Which of many follows from `who`, the agent's id: not the same proxy for all, and for one agent always the same.
    """
    at = agent.proxies & wanted or agent.proxies
    return min(
        at,
        key=lambda one: (
            proxies[one].usable if one in proxies else False,
            crc32(f"{who} {one}".encode()) if who else 0,
            one,
        ),
    )


def outcome(
    held: frozenset[str], leaves: str, asked_at: float, agent: AgentSeen | None, pace: Pace, now: float
) -> Outcome | None:
    """What became of an agent that was asked; None while that is not known."""
    if agent is not None:
        new = agent.proxies - held
        if new and (leaves not in agent.proxies or len(agent.proxies) > len(held)):
            return Outcome(AgentState.OK, new_proxy=min(new))
        if leaves not in agent.proxies and len(agent.proxies) >= max(1, min(len(held), agent.desired)):
            # It had more tunnels than it wants: one less is what it was asked for.
            return Outcome(AgentState.OK, "it let one tunnel go that it had too many")
    if now - asked_at < pace.patience:
        return None
    if agent is None or not agent.proxies:
        return Outcome(AgentState.FAILED, "it has no tunnel any more")
    return Outcome(AgentState.FAILED, f"it did not move within {pace.patience} s")


def admit(
    counts: Counts,
    pace: Pace,
    *,
    credit: float,
    elapsed: float,
    canaries_done_at: float | None,
    now: float,
) -> Admission:
    """How many agents may be chosen now. `elapsed`: since the step before."""
    if not in_window(pace, now):
        return Admission(
            0, 0.0, f"outside its window, {clock_of(pace.window_from)} to {clock_of(pace.window_to)} UTC"
        )
    if counts.waiting == 0:
        return Admission(0, 0.0)
    begun = counts.total - counts.waiting - counts.skipped
    if begun < pace.canaries:
        return Admission(min(pace.canaries - begun, counts.waiting), 0.0)
    if pace.canaries and canaries_done_at is None:
        return Admission(0, 0.0, "watching the canaries")
    if pace.canaries and canaries_done_at is not None and now - canaries_done_at < pace.hold:
        return Admission(0, 0.0, f"the canaries moved; holding for {pace.hold} s")
    per_second = pace.rate / 60
    credit = min(credit + max(elapsed, 0.0) * per_second, max(1.0, per_second * _BURST))
    count = min(int(credit), counts.waiting)
    return Admission(count, credit - count)


def why_abort(counts: Counts, pace: Pace, *, stranded: int, stranded_before: int) -> str:
    """Why to give up; empty when all is well."""
    rise = stranded - stranded_before
    if rise >= pace.max_stranded:
        return f"{rise} more agents are stranded than when it began ({stranded_before})"
    judged = counts.ok + counts.failed
    if (
        judged >= min(_ENOUGH, counts.total - counts.skipped)
        and counts.failed * 100 > pace.max_failed * judged
    ):
        return f"{counts.failed:,} of {judged:,} agents did not move: more than {pace.max_failed} %"
    return ""


def canaries_settled(counts: Counts, pace: Pace) -> bool:
    """All canaries have a result, none of which is a failure."""
    return (
        counts.in_flight == 0 and counts.failed == 0 and (counts.ok >= pace.canaries or counts.waiting == 0)
    )


def eta(counts: Counts, pace: Pace) -> float:
    """Seconds until all are asked and seen to have moved, at its rate."""
    if not counts.remaining:
        return 0.0
    return counts.waiting * 60 / pace.rate + pace.jitter + min(pace.patience, 5)


def in_window(pace: Pace, now: float) -> bool:
    """Whether agents are asked at this moment."""
    start, end = pace.window_from, pace.window_to
    if start == end:
        return True
    minute = int(now // 60) % 1440
    return start <= minute < end if start < end else minute >= start or minute < end


def clock_of(minutes: int) -> str:
    """A time of the day as people write it."""
    return f"{minutes // 60:02d}:{minutes % 60:02d}"


def _minutes(text: str) -> int:
    if text.isascii() and text.isdigit() and len(text) <= 4 and int(text) < 1440:
        return int(text)
    hours, colon, minutes = (text or "0:00").partition(":")
    if (
        colon and len(text) <= 5 and (hours + minutes).isascii() and hours.isdigit() and minutes.isdigit()
    ) and (int(hours) < 24 and int(minutes) < 60):
        return int(hours) * 60 + int(minutes)
    raise ValueError("write a time of the day, UTC, like 22:30")
