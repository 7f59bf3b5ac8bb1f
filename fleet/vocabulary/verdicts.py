"""What we conclude of an agent: docs/verdicts.md. Values are in the record and on the wire: never renumber."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from fleet.vocabulary.looks import NumberedEnum, Stroke


def _circle(radius: float, centre: float = 8) -> str:
    half = f"{radius:g} {radius:g} 0 1 1"
    return f"M{centre + radius:g} {centre:g}a{half}-{2 * radius:g} 0 {half} {2 * radius:g} 0"


_GREY = ("#85888c", "#7d8590")
_AMBER = ("#bd7d0a", "#ffcf55")


@dataclass(frozen=True, slots=True)
class VerdictLook:
    """A verdict's number, and how pages, the map and terminals show it. Colours: on a light and on a dark page."""

    number: int
    #: Its name in the UI: `at risk`.
    label: str
    #: Checked for 3:1 against the page, and apart under protan and deutan vision.
    colours: tuple[str, str]
    #: The ground that belongs to it: a `--wash-...` of css/tokens.css.
    wash: str
    #: Its symbol, 16 by 16.
    shape: tuple[Stroke, ...]
    #: Its mark on a cell of the map: a path to stroke and a path to fill, from -1 to 1. Empty: it has none.
    mark: tuple[str, ...] = ()
    #: Its place in the order in which people read verdicts, what needs them first.
    order: int = 0
    #: Its place among the verdicts that the sentence above the counts names, the worst first; 0: it never does.
    headline: int = 0
    #: The colours of its cells on the map, where they are not those of the word.
    cells: tuple[str, str] | None = None
    #: Its colour in a terminal.
    terminal: str | None = None


class State(NumberedEnum):
    """The verdict on an agent, in the order in which rules are tried. docs/howto/add-a-verdict.md."""

    look: VerdictLook

    # fmt: off
    UNKNOWN = VerdictLook(
        0, "unknown", ("#4b4c4e", "#c6c9cc"), "quiet", order=90, headline=3, mark=("M-1 1 1-1", ""),
        shape=(
            Stroke(_circle(5.7), 1.5, "2.6 1.9"),
            Stroke("m4.6 11.4 6.8-6.8M7.4 12.2l4.8-4.8M3.8 8.6l4.8-4.8", 1.2),
        ),
    )
    RETIRED = VerdictLook(
        1, "retired", _GREY, "quiet", (Stroke(_circle(2.4)),), order=100, cells=("#e6e9eb", "#1d242c"),
    )
    NEVER = VerdictLook(
        2, "never", _GREY, "quiet", (Stroke("M3 3h10v10H3z", 1.6),), ("M-.8-.8H.8V.8H-.8z", ""), order=80,
        cells=("#d3d8dc", "#2d3641"),
    )
    STRANDED = VerdictLook(
        3, "stranded", ("#a81e0b", "#ec2313"), "stranded", order=10, headline=1, terminal="red",
        shape=(Stroke("m3 3 10 10M13 3 3 13", 3.2),), mark=("M-1-1 1 1M1-1-1 1", ""),
    )
    OFFLINE = VerdictLook(
        4, "offline", _GREY, "quiet", order=40, headline=4,
        shape=(Stroke(_circle(5.5), 1.8), Stroke("M4.2 8h7.6", 2)), mark=(_circle(1, 0) + "M-.6 0H.6", ""),
    )
    AT_RISK = VerdictLook(
        5, "at risk", _AMBER, "warn", order=20, headline=2, terminal="yellow",
        shape=(Stroke("M8 1.8 14.8 13.6H1.2z"),), mark=("", "M0-1 1.1.85H-1.1z"),
    )
    WORKING = VerdictLook(
        6, "working", ("#0649e6", "#30a6fa"), "info", order=60, terminal="blue",
        shape=(Stroke("M2 8h9M7.5 3.5 12.5 8l-5 4.5", 2.4),), mark=("M-1 0H1M.1-.8 1 0M.1.8 1 0", ""),
    )
    DEGRADED = VerdictLook(
        7, "degraded", _AMBER, "warn", order=30, headline=5, terminal="yellow",
        shape=(Stroke(_circle(5.25), 1.5), Stroke("M8 2.75a5.25 5.25 0 0 0 0 10.5z")),
        mark=(_circle(1, 0), "M0-1A1 1 0 0 0 0 1z"),
    )
    EXCESS = VerdictLook(
        8, "excess", ("#2a7268", "#6fbfb4"), "healthy", order=70,
        shape=(Stroke(_circle(5.75), 1.5), Stroke("M8 5v6M5 8h6", 1.6)), mark=("M-1 0H1M0-1V1", ""),
    )
    # Paler on the map: the ground on which the others must be seen.
    HEALTHY = VerdictLook(
        9, "healthy", ("#43a294", "#3e7470"), "healthy", (Stroke(_circle(5.5)),), order=50, terminal="green",
        cells=("#9fd0c8", "#285350"),
    )
    # fmt: on

    @property
    def label(self) -> str:
        """Its name in the UI: `at risk`."""
        return self.look.label

    @classmethod
    def read(cls, slug: str) -> State:
        """Read a name as people write it: `at-risk` is `at_risk`. Raises ValueError."""
        try:
            return cls[slug.strip().replace("-", "_").upper()]
        except KeyError:
            names = ", ".join(state.slug for state in cls)
            raise ValueError(f"There is no state {slug!r}; the states are: {names}.") from None


class _CodedEnum(IntEnum):
    @property
    def slug(self) -> str:
        """Its code in the API: `auth-unhealthy`."""
        return self.name.lower().replace("_", "-")


class Reason(_CodedEnum):
    """Why a verdict is what it is."""

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
    # The evidence is too old, or we are blind.
    STALE = 10
    # A reconnect we asked for is under way.
    RECONNECTING = 11
    # Fewer, or more, live tunnels to desired proxies than wanted.
    TOO_FEW_TUNNELS = 12
    TOO_MANY_TUNNELS = 13
    OWN_HOST = 14
    # It rests on an instance whose destination health is Degraded.
    INSTANCE_DEGRADED = 15


class Recovery(_CodedEnum):
    """Will it recover by itself?"""

    # Nothing to recover from.
    NOT_NEEDED = 0
    # By itself, by the predicted time.
    BY_ITSELF = 1
    # Only if the cause recovers: its policy will not move it.
    ONLY_IF_CAUSE_RECOVERS = 2
    # We cannot tell.
    UNCLEAR = 3


#: The order in which people read states: what needs them first.
READING_ORDER = tuple(sorted(State, key=lambda state: state.look.order))
#: It is cut off, or will be at a known time: what incidents count, by cause.
AFFECTED_STATES = (State.STRANDED, State.AT_RISK)
#: It is gone, or about to go: what the rule on the rate counts, whatever the cause.
LOST_OR_AT_RISK_STATES = (State.STRANDED, State.OFFLINE, State.AT_RISK)
#: `cause_index` of a verdict without an instance as its cause.
NO_CAUSE = 0xFFFF
#: `cause_index` when all auths sickened within one TTL: the cause is `backend/<cluster>`.
BACKEND_CAUSE = 0xFFFE


@dataclass(frozen=True, slots=True)
class Verdict:
    """What `classify` concludes of one agent. Times are seconds since the epoch."""

    state: State
    reason: Reason
    #: An instance id, `backend/<cluster>`, or empty.
    cause: str
    recovery: Recovery
    #: When it will be back by itself, at the latest; None when it will not, or need not.
    recovers_at: float | None
    #: When an agent at risk will be stranded; None when no clock is running.
    strands_at: float | None
    #: One sentence for a person, with names and without times.
    sentence: str
