"""ClusterNetworkingConfig: its fields with their ranges and defaults, and who may change what.

Teleport's resource with four fields of ours (RFD 226, "Closing Connections"), docs/networking-config.md. Upstream
checks no ranges: it takes a negative interval and behaves oddly later; here such a value is refused by name. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum, StrEnum, auto

from typing_extensions import override

from fleet.protocol import durations

ORIGIN_LABEL = "teleport.dev/origin"

_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86_400.0

#: RFD 226: tunnels are closed only after the condition held for 30 to 60 minutes.
DEFAULT_CLOSING_WAIT = (30 * _MINUTE, 60 * _MINUTE)


class Origin(StrEnum):
    """Where the stored config came from, as its label says."""

    #: Nobody said anything.
    DEFAULTS = "defaults"
    #: A file of the auths; each auth writes it again when it starts.
    CONFIG_FILE = "config-file"
    #: Somebody wrote it through the API.
    DYNAMIC = "dynamic"


class Strategy(StrEnum):
    """How many tunnels agents want."""

    #: One to every proxy.
    AGENT_MESH = "agent_mesh"
    #: So many; proxies dial each other for the rest.
    PROXY_PEERING = "proxy_peering"


class FieldKind(Enum):
    """What a field holds."""

    DURATION = auto()
    INTEGER = auto()
    TEXT = auto()
    SWITCH = auto()
    CHOICE = auto()


@dataclass(frozen=True, slots=True)
class ConfigField:
    """One field of the spec."""

    #: Its key in YAML and JSON, with a dot inside `tunnel_strategy`.
    key: str
    kind: FieldKind
    help: str
    #: Seconds for durations, characters for text. 0 is always allowed where `zero` says what it means.
    lowest: float = 0.0
    highest: float = 0.0
    zero: str = ""
    choices: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The attribute that holds it."""
        return self.key.rpartition(".")[2] if self.key != "tunnel_strategy.type" else "tunnel_strategy"


#: In the order in which they are shown. `CHOICE`s are in the order of their numbers on the wire.
FIELDS = (
    ConfigField("client_idle_timeout", FieldKind.DURATION, "Ends idle sessions.", 1.0, 30 * _DAY, zero="never"),
    ConfigField("idle_timeout_message", FieldKind.TEXT, "Shown to whoever was idle for too long.", highest=1024),
    ConfigField("web_idle_timeout", FieldKind.DURATION, "Ends idle web sessions.", 1.0, 30 * _DAY, zero="never"),
    ConfigField("keep_alive_interval", FieldKind.DURATION, "Between pings on a tunnel.", 1.0, _HOUR, zero="5m"),
    ConfigField(
        "keep_alive_count_max",
        FieldKind.INTEGER,
        "Unanswered pings after which a peer is taken for dead.",
        1,
        100,
        zero="3",
    ),
    ConfigField(
        "session_control_timeout",
        FieldKind.DURATION,
        "Lease of a session's control.",
        1.0,
        _DAY,
        zero="the default",
    ),
    ConfigField(
        "proxy_listener_mode",
        FieldKind.CHOICE,
        "Whether proxies listen on one port or several.",
        choices=("separate", "multiplex"),
    ),
    ConfigField(
        "routing_strategy",
        FieldKind.CHOICE,
        "What to do when several agents match.",
        choices=("unambiguous_match", "most_recent"),
    ),
    ConfigField(
        "tunnel_strategy.type",
        FieldKind.CHOICE,
        "How many tunnels agents want.",
        choices=tuple(map(str, Strategy)),
    ),
    ConfigField(
        "tunnel_strategy.agent_connection_count",
        FieldKind.INTEGER,
        "Tunnels each agent wants; with proxy_peering only.",
        1,
        100,
        zero="1",
    ),
    ConfigField(
        "proxy_ping_interval", FieldKind.DURATION, "Between pings of proxied connections.", 1.0, _HOUR, zero="off"
    ),
    ConfigField("assist_command_execution_workers", FieldKind.INTEGER, "Of Assist, which is gone.", 1, 1000, zero="off"),
    ConfigField("case_insensitive_routing", FieldKind.SWITCH, "Names of hosts match in any case."),
    ConfigField(
        "ssh_dial_timeout",
        FieldKind.DURATION,
        "How long a dial to a host may take.",
        1.0,
        10 * _MINUTE,
        zero="30s",
    ),
    ConfigField("graceful_tunnel_closing", FieldKind.SWITCH, "Agents close tunnels they need no more (RFD 226)."),
    ConfigField(
        "tunnel_closing_wait_min",
        FieldKind.DURATION,
        "Shortest wait before a tunnel is closed.",
        1.0,
        _DAY,
        zero="30m",
    ),
    ConfigField(
        "tunnel_closing_wait_max",
        FieldKind.DURATION,
        "Longest wait before a tunnel is closed.",
        1.0,
        _DAY,
        zero="60m",
    ),
    ConfigField(
        "tunnel_disconnect_threshold",
        FieldKind.DURATION,
        "Selects upstream's rule of closing, and is its wait.",
        1.0,
        _DAY,
        zero="off",
    ),
)

FieldValue = float | int | str | bool


@dataclass(frozen=True, slots=True)
class NetworkingConfig:
    """The spec. Durations are seconds. A choice that is not known here is its number, as text."""

    client_idle_timeout: float = 0.0
    idle_timeout_message: str = ""
    web_idle_timeout: float = 0.0
    keep_alive_interval: float = 0.0
    keep_alive_count_max: int = 0
    session_control_timeout: float = 0.0
    proxy_listener_mode: str = "separate"
    routing_strategy: str = "unambiguous_match"
    #: Empty when nothing was said.
    tunnel_strategy: str = ""
    agent_connection_count: int = 0
    proxy_ping_interval: float = 0.0
    assist_command_execution_workers: int = 0
    case_insensitive_routing: bool = False
    ssh_dial_timeout: float = 0.0
    graceful_tunnel_closing: bool = False
    tunnel_closing_wait_min: float = 0.0
    tunnel_closing_wait_max: float = 0.0
    tunnel_disconnect_threshold: float = 0.0

    def value_of(self, field: ConfigField) -> FieldValue:
        """What a field holds."""
        field_value: FieldValue = getattr(self, field.name)
        return field_value

    @property
    def connection_count(self) -> int:
        """Tunnels an agent wants; 0 means one to every desired proxy. What is no number of tunnels counts as 1."""
        if self.tunnel_strategy != Strategy.PROXY_PEERING:
            return 0
        return max(self.agent_connection_count, 1)

    @property
    def closing_wait(self) -> tuple[float, float]:
        """Between which two waits one is drawn before a tunnel is closed, seconds."""
        low = self.tunnel_closing_wait_min or DEFAULT_CLOSING_WAIT[0]
        return low, self.tunnel_closing_wait_max or max(DEFAULT_CLOSING_WAIT[1], low)


@dataclass(frozen=True, slots=True)
class NetworkingResource:
    """The config with what is said about it."""

    config: NetworkingConfig
    labels: Mapping[str, str]
    #: Opaque; an update must name the one that is stored.
    revision: str = ""
    description: str = ""

    @property
    def origin(self) -> str:
        """Where it came from; what says nothing was written by somebody (upstream's reading)."""
        return self.labels.get(ORIGIN_LABEL, "") or Origin.DYNAMIC


@dataclass(frozen=True, slots=True)
class FieldProblem:
    """What is wrong with one field."""

    key: str
    sentence: str

    @override
    def __str__(self) -> str:
        return f"{self.key}: {self.sentence}"


class NetworkingConfigError(ValueError):
    """A config that cannot be used; `problems` names each field."""

    def __init__(self, problems: Iterable[FieldProblem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(map(str, self.problems)))


def with_defaults(config: NetworkingConfig) -> NetworkingConfig:
    """Fill in what upstream fills in before it stores a config."""
    strategy = config.tunnel_strategy or Strategy.AGENT_MESH
    count = config.agent_connection_count
    if strategy == Strategy.PROXY_PEERING and count == 0:
        count = 1
    return replace(
        config,
        keep_alive_interval=config.keep_alive_interval or 5 * _MINUTE,
        keep_alive_count_max=config.keep_alive_count_max or 3,
        tunnel_strategy=str(strategy),
        agent_connection_count=count,
    )


def check(config: NetworkingConfig, base: NetworkingConfig | None = None) -> None:
    """Raise NetworkingConfigError, naming every field that is out of its range or contradicts another.

    With `base` only what was changed is judged: the rest is for whoever stored it to know.
    """
    fields_to_check = [field for field in FIELDS if base is None or config.value_of(field) != base.value_of(field)]
    problems = [problem for field in fields_to_check for problem in _problems(field, config.value_of(field))]
    if fields_to_check and not problems:
        problems = list(_contradictions(config))
    if problems:
        raise NetworkingConfigError(problems)


def parse_value(field: ConfigField, text: str) -> FieldValue:
    """Read a value as a person writes it. Raises NetworkingConfigError for what is none of its kind."""
    try:
        if field.kind is FieldKind.DURATION:
            return durations.parse(text)
        if field.kind is FieldKind.INTEGER:
            return int(text)
    except durations.DurationError as error:
        raise NetworkingConfigError([FieldProblem(field.key, str(error))]) from None
    except ValueError:
        raise NetworkingConfigError([FieldProblem(field.key, f"{text!r} is not a whole number")]) from None
    if field.kind is FieldKind.SWITCH:
        if text.lower() not in {"true", "false"}:
            raise NetworkingConfigError([FieldProblem(field.key, f"{text!r} is neither true nor false")])
        return text.lower() == "true"
    return text


def format_value(field: ConfigField, value: FieldValue) -> FieldValue:
    """A value as YAML and JSON show it: durations as Go writes them."""
    return durations.format_seconds(float(value)) if field.kind is FieldKind.DURATION else value


def field_of(key: str) -> ConfigField:
    """The field of a key; the last part of a dotted key is enough where it is unique. Raises NetworkingConfigError."""
    for field in FIELDS:
        if key in {field.key, field.name}:
            return field
    raise NetworkingConfigError(
        [FieldProblem(key, "no such field; there are: " + ", ".join(f.key for f in FIELDS))]
    )


def set_fields(config: NetworkingConfig, texts: Mapping[str, str]) -> NetworkingConfig:
    """The config with fields set by key, as a person writes them. Raises NetworkingConfigError.

    Choosing agent_mesh forgets the number of tunnels, which has no meaning there.
    """
    changes: dict[str, FieldValue] = {}
    for key, text in texts.items():
        field = field_of(key)
        changes[field.name] = parse_value(field, text)
    if changes.get("tunnel_strategy") == Strategy.AGENT_MESH:
        changes.setdefault("agent_connection_count", 0)
    # mypy cannot see that names and types belong together: parse_value gave each its kind.
    return replace(config, **changes)  # type: ignore[arg-type]


def differences(before: NetworkingConfig, after: NetworkingConfig) -> tuple[tuple[ConfigField, FieldValue, FieldValue], ...]:
    """Each field that differs, with both values."""
    return tuple(
        (field, before.value_of(field), after.value_of(field))
        for field in FIELDS
        if before.value_of(field) != after.value_of(field)
    )


def rebase(
    base: NetworkingConfig, own_config: NetworkingConfig, stored_config: NetworkingConfig
) -> tuple[NetworkingConfig, tuple[ConfigField, ...]]:
    """What I changed of `base`, done to `theirs`; and the fields that both of us changed, differently."""
    changes = {field.name: value for field, _, value in differences(base, own_config)}
    conflicts = tuple(
        field for field, _, value in differences(base, stored_config) if changes.get(field.name, value) != value
    )
    return replace(stored_config, **changes), conflicts  # type: ignore[arg-type] # names and types are of one table


def reset_refusal(origin: str) -> str:
    """Why a config of that origin cannot be reset; empty when it can."""
    if origin == Origin.CONFIG_FILE:
        return "the networking config comes from the auths' file: change it there and restart them"
    return ""


def _problems(field: ConfigField, value: FieldValue) -> Iterable[FieldProblem]:
    if field.kind is FieldKind.CHOICE:
        empty = field.name == "tunnel_strategy" and value == ""
        if value not in field.choices and not empty:
            yield FieldProblem(field.key, f"{value!r} is none of: {', '.join(field.choices)}")
    elif field.kind is FieldKind.TEXT:
        if len(str(value)) > field.highest:
            yield FieldProblem(field.key, f"longer than {field.highest:.0f} characters")
        if any(ord(letter) < 32 and letter != "\n" for letter in str(value)):
            yield FieldProblem(field.key, "holds control characters")
    elif field.kind is not FieldKind.SWITCH and value != 0 and not field.lowest <= float(value) <= field.highest:
        lowest, highest, text = (format_value(field, x) for x in (field.lowest, field.highest, value))
        if field.kind is FieldKind.INTEGER:
            lowest, highest = int(field.lowest), int(field.highest)
        yield FieldProblem(field.key, f"{text} is not within {lowest} to {highest} (0: {field.zero})")


def _contradictions(config: NetworkingConfig) -> Iterable[FieldProblem]:
    if config.tunnel_strategy != Strategy.PROXY_PEERING and config.agent_connection_count:
        yield FieldProblem(
            "tunnel_strategy.agent_connection_count", f"has no meaning without {Strategy.PROXY_PEERING}"
        )
    low, high = config.closing_wait
    if low > high:
        yield FieldProblem(
            "tunnel_closing_wait_max",
            f"{durations.format_seconds(high)} is below the shortest wait, {durations.format_seconds(low)}",
        )
    if config.graceful_tunnel_closing and config.tunnel_disconnect_threshold:
        yield FieldProblem("tunnel_disconnect_threshold", "excludes graceful_tunnel_closing: choose one rule")
