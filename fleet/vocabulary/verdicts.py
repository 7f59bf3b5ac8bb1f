"""Agent states and why an agent has one (verdicts).

docs/reference/verdicts.md. Values are stored and sent: never renumber.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from fleet.vocabulary.enum_types import NumberedEnum, Stroke


def _circle(radius: float, centre: float = 8) -> str:
    half = f"{radius:g} {radius:g} 0 1 1"
    return f"M{centre + radius:g} {centre:g}a{half}-{2 * radius:g} 0 {half} {2 * radius:g} 0"


_GREY = ("#85888c", "#7d8590")
_AMBER = ("#bd7d0a", "#ffcf55")


@dataclass(frozen=True, slots=True)
class VerdictLook:
    """Number of an agent state and its looks on pages, map and terminals. Colours: for light and for dark pages."""

    number: int
    #: Name on pages: `at risk`.
    label: str
    #: Contrast to the page of 3:1 at least; distinct for protan and deutan vision.
    colours: tuple[str, str]
    #: Background: a `--wash-...` of css/tokens.css.
    wash: str
    #: Symbol, 16 by 16.
    shape: tuple[Stroke, ...]
    #: Mark on a map cell: a path to stroke and a path to fill, from -1 to 1. Empty: no mark.
    mark: tuple[str, ...] = ()
    #: Sort key on pages: the most urgent state first.
    page_order: int = 0
    #: Sort key in the headline above the counts, the worst state first; 0: never in the headline.
    headline_order: int = 0
    #: Colours of its map cells; None: those of the label.
    cell_colours: tuple[str, str] | None = None
    #: Colour in a terminal.
    terminal: str | None = None
    #: Symbol in the title of a tab and in a terminal; empty: the state is not shown there.
    glyph: str = ""


class State(NumberedEnum):
    """State of an agent, in the order in which the rules are tried. docs/how-to/add-a-verdict.md."""

    look: VerdictLook

    # fmt: off
    UNKNOWN = VerdictLook(
        0, "unknown", ("#4b4c4e", "#c6c9cc"), "quiet", page_order=90, headline_order=3, glyph="?",
        mark=("M-1 1 1-1", ""),
        shape=(
            Stroke(_circle(5.7), 1.5, "2.6 1.9"),
            Stroke("m4.6 11.4 6.8-6.8M7.4 12.2l4.8-4.8M3.8 8.6l4.8-4.8", 1.2),
        ),
    )
    RETIRED = VerdictLook(
        1, "retired", _GREY, "quiet", (Stroke(_circle(2.4)),), page_order=100, cell_colours=("#e6e9eb", "#1d242c"),
    )
    NEVER = VerdictLook(
        2, "never connected", _GREY, "quiet", (Stroke("M3 3h10v10H3z", 1.6),), ("M-.8-.8H.8V.8H-.8z", ""),
        page_order=80, cell_colours=("#d3d8dc", "#2d3641"),
    )
    STRANDED = VerdictLook(
        3, "stranded", ("#a81e0b", "#ec2313"), "stranded", page_order=10, headline_order=1, terminal="red", glyph="✖",
        shape=(Stroke("m3 3 10 10M13 3 3 13", 3.2),), mark=("M-1-1 1 1M1-1-1 1", ""),
    )
    OFFLINE = VerdictLook(
        4, "offline", _GREY, "quiet", page_order=40, headline_order=4, glyph="⊖",
        shape=(Stroke(_circle(5.5), 1.8), Stroke("M4.2 8h7.6", 2)), mark=(_circle(1, 0) + "M-.6 0H.6", ""),
    )
    AT_RISK = VerdictLook(
        5, "at risk", _AMBER, "warn", page_order=20, headline_order=2, terminal="yellow", glyph="▲",
        shape=(Stroke("M8 1.8 14.8 13.6H1.2z"),), mark=("", "M0-1 1.1.85H-1.1z"),
    )
    WORKING = VerdictLook(
        6, "reconnecting", ("#0649e6", "#30a6fa"), "info", page_order=60, terminal="blue",
        shape=(Stroke("M2 8h9M7.5 3.5 12.5 8l-5 4.5", 2.4),), mark=("M-1 0H1M.1-.8 1 0M.1.8 1 0", ""),
    )
    DEGRADED = VerdictLook(
        7, "degraded", _AMBER, "warn", page_order=30, headline_order=5, terminal="yellow", glyph="◐",
        shape=(Stroke(_circle(5.25), 1.5), Stroke("M8 2.75a5.25 5.25 0 0 0 0 10.5z")),
        mark=(_circle(1, 0), "M0-1A1 1 0 0 0 0 1z"),
    )
    EXCESS = VerdictLook(
        8, "excess tunnels", ("#2a7268", "#6fbfb4"), "healthy", page_order=70,
        shape=(Stroke(_circle(5.75), 1.5), Stroke("M8 5v6M5 8h6", 1.6)), mark=("M-1 0H1M0-1V1", ""),
    )
    # Paler on the map: the ground on which the others must be seen.
    HEALTHY = VerdictLook(
        9, "healthy", ("#43a294", "#3e7470"), "healthy", (Stroke(_circle(5.5)),), page_order=50, terminal="green",
        cell_colours=("#9fd0c8", "#285350"),
    )
    # fmt: on

    @property
    def label(self) -> str:
        """Return the name on pages: `at risk`."""
        return self.look.label

    @classmethod
    def parse(cls, text: str) -> State:
        """Return the state with this slug or label: `at_risk`, `at-risk` or `at risk`. Raises ValueError."""
        name = text.lower().replace("-", " ").replace("_", " ").strip()
        for state in cls:
            if name in (state.slug.replace("_", " "), state.label):
                return state
        raise ValueError(
            f"Unknown state {text!r}. Use one of: {', '.join(state.label.replace(' ', '_') for state in cls)}."
        )


class _CodedEnum(IntEnum):
    @property
    def slug(self) -> str:
        """Return the code in the API: `auth-unhealthy`."""
        return self.name.lower().replace("_", "-")


class Reason(_CodedEnum):
    """Reason of an agent's state."""

    @property
    def label(self) -> str:
        """Return the name on pages: `auth failing`."""
        return _REASON_LABELS[self]

    NONE = 0
    AUTH_UNHEALTHY = 1
    PROXY_UNHEALTHY = 2
    PROXY_EXPIRED = 3
    NO_TUNNEL = 4
    RESOURCE_EXPIRED = 5
    BACKEND_DOWN = 6
    CLUSTER_UNREACHABLE = 7
    DISAGREE = 8
    POLICY_OFF = 9
    # The data is too old, or Refloat's pollers cannot see the fleet.
    STALE = 10
    # A reconnect requested by Refloat is in progress.
    RECONNECTING = 11
    # Fewer, or more, live tunnels to desired proxies than the desired count.
    TOO_FEW_TUNNELS = 12
    TOO_MANY_TUNNELS = 13
    OWN_HOST = 14
    # The agent depends on an instance whose destination health is Degraded.
    INSTANCE_DEGRADED = 15


#: Not "unhealthy" and the like: these are states of the instance, and a reason covers several of them.
_REASON_LABELS = {
    Reason.NONE: "none",
    Reason.AUTH_UNHEALTHY: "auth failing",
    Reason.PROXY_UNHEALTHY: "proxy failing",
    Reason.PROXY_EXPIRED: "proxy expired or deregistered",
    Reason.NO_TUNNEL: "no tunnel",
    Reason.RESOURCE_EXPIRED: "heartbeat expired",
    Reason.BACKEND_DOWN: "auth backend failing",
    Reason.CLUSTER_UNREACHABLE: "cluster unreachable",
    Reason.DISAGREE: "conflicting reports",
    Reason.POLICY_OFF: "no reconnect with pick_first",
    Reason.STALE: "too little recent data",
    Reason.RECONNECTING: "reconnect in progress",
    Reason.TOO_FEW_TUNNELS: "fewer tunnels than desired",
    Reason.TOO_MANY_TUNNELS: "more tunnels than desired",
    Reason.OWN_HOST: "host of the agent",
    Reason.INSTANCE_DEGRADED: "auth or proxy degraded",
}


class Recovery(_CodedEnum):
    """Prediction of an agent's recovery."""

    # Nothing to recover from.
    NOT_NEEDED = 0
    # Automatic, at the predicted time at the latest.
    BY_ITSELF = 1
    # Only when the cause recovers: nothing else moves the agent.
    ONLY_IF_CAUSE_RECOVERS = 2
    # No prediction is possible.
    UNCLEAR = 3


#: States in the order of pages: the most urgent first.
STATES_BY_URGENCY = tuple(sorted(State, key=lambda state: state.look.page_order))
#: States of agents that are cut off, or will be at a known time: incidents count these, by cause.
AFFECTED_STATES = (State.STRANDED, State.AT_RISK)
#: States that the alert rule on the rate of loss counts, whatever the cause.
LOST_OR_AT_RISK_STATES = (State.STRANDED, State.OFFLINE, State.AT_RISK)
#: Column `cause` of a verdict whose cause is no instance.
NO_CAUSE = 0xFFFF
#: Column `cause` when all auths failed within one TTL: the cause is `backend/<cluster>`.
BACKEND_CAUSE = 0xFFFE


class VerdictSentences(NamedTuple):
    """A verdict for people, with names and without times."""

    #: Why the agent has its state.
    state: str
    #: Whether and how the agent recovers; empty if it need not, or if that is unclear.
    recovery: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """State of one agent, with its reason, cause and predicted recovery. Times are seconds since the epoch."""

    state: State
    reason: Reason
    #: An instance id, `backend/<cluster>`, or empty.
    cause: str
    recovery: Recovery
    #: Latest time of automatic recovery; None when there is none, or none is needed.
    recovers_at: float | None
    #: When an agent at risk becomes stranded; None without a deadline.
    strands_at: float | None
    sentences: VerdictSentences

    @property
    def sentence(self) -> str:
        """One or two sentences for people."""
        return " ".join(filter(None, self.sentences))
