"""ClusterNetworkingConfig: its fields with ranges and defaults, validation, and merging of concurrent edits.

Teleport's resource with four fields of our own (RFD 226, "Closing Connections"), docs/reference/networking-config.md.
Upstream
does not check ranges: it accepts a negative interval and misbehaves later. Here such a value is refused. Pure.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from dataclasses import field as dataclass_field
from enum import Enum, StrEnum, auto

from typing_extensions import override

from fleet.protocol import durations

ORIGIN_LABEL = "teleport.dev/origin"

_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86_400.0

#: Bounds in seconds; RFD 226: a tunnel is closed after it was surplus for 30 to 60 minutes.
DEFAULT_CLOSING_WAIT = (30 * _MINUTE, 60 * _MINUTE)


class Origin(StrEnum):
    """Origin of the stored config, from its `teleport.dev/origin` label."""

    #: No file and no API call has set a config.
    DEFAULTS = "defaults"
    #: A file of the auths; each auth writes it again when it starts.
    CONFIG_FILE = "config-file"
    #: Written through the API.
    DYNAMIC = "dynamic"


class Strategy(StrEnum):
    """Strategy for the number of tunnels that an agent opens."""

    #: One tunnel to every proxy.
    AGENT_MESH = "agent_mesh"
    #: `agent_connection_count` tunnels; proxies dial each other for the rest.
    PROXY_PEERING = "proxy_peering"


class FieldKind(Enum):
    """Type of a field's value."""

    DURATION = auto()
    INTEGER = auto()
    TEXT = auto()
    SWITCH = auto()
    CHOICE = auto()


@dataclass(frozen=True, slots=True)
class ConfigField:
    """One field of the spec: key, type, help text and range."""

    #: Key in YAML and JSON, with a dot inside `tunnel_strategy`.
    key: str
    kind: FieldKind
    help: str
    #: Range: seconds for durations, characters for text. 0 is always allowed, and `zero_meaning` names its meaning.
    lowest: float = 0.0
    highest: float = 0.0
    zero_meaning: str = ""
    choices: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Name of the NetworkingConfig attribute with the value."""
        return self.key.rpartition(".")[2] if self.key != "tunnel_strategy.type" else "tunnel_strategy"


#: In display order. The choices of each CHOICE are in the order of their numbers on the wire.
FIELDS = (
    ConfigField(
        "client_idle_timeout",
        FieldKind.DURATION,
        "Sessions without traffic for this time are closed.",
        1.0,
        30 * _DAY,
        zero_meaning="never",
    ),
    ConfigField(
        "idle_timeout_message",
        FieldKind.TEXT,
        "Message shown to a user whose session was closed as idle.",
        highest=1024,
    ),
    ConfigField(
        "web_idle_timeout",
        FieldKind.DURATION,
        "Web sessions without activity for this time are closed.",
        1.0,
        30 * _DAY,
        zero_meaning="never",
    ),
    ConfigField(
        "keep_alive_interval",
        FieldKind.DURATION,
        "Time between two keep-alive pings on a tunnel.",
        1.0,
        _HOUR,
        zero_meaning="5 min",
    ),
    ConfigField(
        "keep_alive_count_max",
        FieldKind.INTEGER,
        "Unanswered pings after which a tunnel's peer counts as dead.",
        1,
        100,
        zero_meaning="3",
    ),
    ConfigField(
        "session_control_timeout",
        FieldKind.DURATION,
        "Time that a session may continue after it loses contact with the auths.",
        1.0,
        _DAY,
        zero_meaning="2 min",
    ),
    ConfigField(
        "proxy_listener_mode",
        FieldKind.CHOICE,
        "Proxies listen on one port (multiplex) or on several (separate).",
        choices=("separate", "multiplex"),
    ),
    ConfigField(
        "routing_strategy",
        FieldKind.CHOICE,
        "Which agent receives a connection when several agents match the host name.",
        choices=("unambiguous_match", "most_recent"),
    ),
    ConfigField(
        "tunnel_strategy.type",
        FieldKind.CHOICE,
        "Tunnels that agents open: to every proxy (agent_mesh) or to some (proxy_peering).",
        choices=tuple(map(str, Strategy)),
    ),
    ConfigField(
        "tunnel_strategy.agent_connection_count",
        FieldKind.INTEGER,
        "Tunnels that each agent opens. Used only with proxy_peering.",
        1,
        100,
        zero_meaning="1",
    ),
    ConfigField(
        "proxy_ping_interval",
        FieldKind.DURATION,
        "Time between two pings on proxied connections.",
        1.0,
        _HOUR,
        zero_meaning="off",
    ),
    ConfigField(
        "assist_command_execution_workers",
        FieldKind.INTEGER,
        "Workers of Teleport Assist, a feature that Teleport has removed.",
        1,
        1000,
        zero_meaning="off",
    ),
    ConfigField(
        "case_insensitive_routing", FieldKind.SWITCH, "Host names match regardless of upper and lower case."
    ),
    ConfigField(
        "ssh_dial_timeout",
        FieldKind.DURATION,
        "Timeout of a connection to a host.",
        1.0,
        10 * _MINUTE,
        zero_meaning="30 s",
    ),
    ConfigField(
        "graceful_tunnel_closing",
        FieldKind.SWITCH,
        "Agents close tunnels that they no longer need (RFD 226).",
    ),
    ConfigField(
        "tunnel_closing_wait_min",
        FieldKind.DURATION,
        "Shortest wait before an excess tunnel is closed.",
        1.0,
        _DAY,
        zero_meaning="30 min",
    ),
    ConfigField(
        "tunnel_closing_wait_max",
        FieldKind.DURATION,
        "Longest wait before an excess tunnel is closed.",
        1.0,
        _DAY,
        zero_meaning="1 h",
    ),
    ConfigField(
        "tunnel_disconnect_threshold",
        FieldKind.DURATION,
        "How long an excess tunnel stays open under Teleport's closing rule, the alternative to RFD 226. Off: the rule "
        "is not used.",
        1.0,
        _DAY,
        zero_meaning="off",
    ),
)

#: Fields that Teleport does not have.
OWN_FIELD_NAMES = (
    "graceful_tunnel_closing",
    "tunnel_closing_wait_min",
    "tunnel_closing_wait_max",
    "tunnel_disconnect_threshold",
)

FieldValue = float | int | str | bool


@dataclass(frozen=True, slots=True)
class NetworkingConfig:
    """The spec. Durations are seconds. An unknown choice is stored as its wire number, as text."""

    client_idle_timeout: float = 0.0
    idle_timeout_message: str = ""
    web_idle_timeout: float = 0.0
    keep_alive_interval: float = 0.0
    keep_alive_count_max: int = 0
    session_control_timeout: float = 0.0
    proxy_listener_mode: str = "separate"
    routing_strategy: str = "unambiguous_match"
    #: Empty: not set.
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
        """Return the value of a field."""
        field_value: FieldValue = getattr(self, field.name)
        return field_value

    @property
    def connection_count(self) -> int:
        """Tunnels that an agent opens; 0: one to every desired proxy. A stored count below 1 counts as 1."""
        if self.tunnel_strategy != Strategy.PROXY_PEERING:
            return 0
        return max(self.agent_connection_count, 1)

    @property
    def closing_wait_bounds(self) -> tuple[float, float]:
        """Bounds in seconds of the random wait before a tunnel is closed."""
        low = self.tunnel_closing_wait_min or DEFAULT_CLOSING_WAIT[0]
        return low, self.tunnel_closing_wait_max or max(DEFAULT_CLOSING_WAIT[1], low)


@dataclass(frozen=True, slots=True)
class NetworkingResource:
    """The config with its labels, revision and description."""

    config: NetworkingConfig
    labels: Mapping[str, str]
    #: Opaque; an update must carry the revision that is stored.
    revision: str = ""
    description: str = ""
    #: Keys that its documents leave out while the values are zero: fields that the product does not have.
    omitted_keys: frozenset[str] = dataclass_field(default=frozenset(), compare=False)

    @property
    def origin(self) -> str:
        """Origin of the config; a resource without the label counts as dynamic, as in upstream."""
        return self.labels.get(ORIGIN_LABEL, "") or Origin.DYNAMIC


@dataclass(frozen=True, slots=True)
class FieldProblem:
    """A validation problem of one field."""

    key: str
    sentence: str

    @override
    def __str__(self) -> str:
        return f"{self.key}: {self.sentence}"


class NetworkingConfigError(ValueError):
    """A config that is not valid; `problems` has one entry for each wrong field."""

    def __init__(self, problems: Iterable[FieldProblem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(map(str, self.problems)))


def with_defaults(config: NetworkingConfig) -> NetworkingConfig:
    """Return the config with the defaults that upstream sets before it stores a config."""
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
    """Raise NetworkingConfigError with every field that is out of range or contradicts another field.

    With `base`, only changed fields are checked: the stored ones are the responsibility of their author.
    """
    fields_to_check = [
        field for field in FIELDS if base is None or config.value_of(field) != base.value_of(field)
    ]
    problems = [
        problem for field in fields_to_check for problem in _find_problems(field, config.value_of(field))
    ]
    if fields_to_check and not problems:
        problems = list(_contradictions(config))
    if problems:
        raise NetworkingConfigError(problems)


def parse_value(field: ConfigField, text: str) -> FieldValue:
    """Return the value that a person typed for a field. Raises NetworkingConfigError if it has the wrong type."""
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
            raise NetworkingConfigError(
                [FieldProblem(field.key, f"{text!r} is not a boolean. Use true or false")]
            )
        return text.lower() == "true"
    return text


def format_value(field: ConfigField, value: FieldValue) -> FieldValue:
    """Return a value as YAML and JSON show it; durations in Go's form."""
    return durations.format_seconds(float(value)) if field.kind is FieldKind.DURATION else value


def field_of(key: str) -> ConfigField:
    """Return the field with a key or with a unique last part of a dotted key. Raises NetworkingConfigError."""
    for field in FIELDS:
        if key in {field.key, field.name, field.key.rpartition(".")[2]}:
            return field
    similar = difflib.get_close_matches(key, [field.key for field in FIELDS], cutoff=0.5)
    hint = f"Did you mean {' or '.join(similar)}? " if similar else ""
    raise NetworkingConfigError(
        [FieldProblem(key, f"is not a field. {hint}Fields: docs/reference/networking-config.md")]
    )


def set_fields(config: NetworkingConfig, texts: Mapping[str, str]) -> NetworkingConfig:
    """Return the config with some fields set: values by key, as a person types them. Raises NetworkingConfigError.

    Choosing agent_mesh resets agent_connection_count, which has no meaning there.
    """
    changes: dict[str, FieldValue] = {}
    for key, text in texts.items():
        field = field_of(key)
        changes[field.name] = parse_value(field, text)
    if changes.get("tunnel_strategy") == Strategy.AGENT_MESH:
        changes.setdefault("agent_connection_count", 0)
    # mypy cannot see that names and types match: parse_value returned each value with its field's type.
    return replace(config, **changes)  # type: ignore[arg-type]


def differences(
    before: NetworkingConfig, after: NetworkingConfig
) -> tuple[tuple[ConfigField, FieldValue, FieldValue], ...]:
    """Return each field that differs, with its value before and after."""
    return tuple(
        (field, before.value_of(field), after.value_of(field))
        for field in FIELDS
        if before.value_of(field) != after.value_of(field)
    )


def rebase(
    base: NetworkingConfig, edited_config: NetworkingConfig, stored_config: NetworkingConfig
) -> tuple[NetworkingConfig, tuple[ConfigField, ...]]:
    """Apply the changes from `base` to `edited_config` to `stored_config`.

    Also return the fields that both sides changed to different values.
    """
    changes = {field.name: value for field, _, value in differences(base, edited_config)}
    conflicts = tuple(
        field
        for field, _, value in differences(base, stored_config)
        if changes.get(field.name, value) != value
    )
    return replace(stored_config, **changes), conflicts  # type: ignore[arg-type] # names and types match: both come from FIELDS


def reset_refusal_of(origin: str) -> str:
    """Return why a config with this origin cannot be reset; empty when it can."""
    if origin == Origin.CONFIG_FILE:
        return "the networking config comes from the auths' configuration file. Change the file and restart the auths"
    return ""


def _find_problems(field: ConfigField, value: FieldValue) -> Iterable[FieldProblem]:
    if field.kind is FieldKind.CHOICE:
        empty = field.name == "tunnel_strategy" and value == ""
        if value not in field.choices and not empty:
            yield FieldProblem(
                field.key, f"{value!r} is not a valid choice. Choices: {', '.join(field.choices)}"
            )
    elif field.kind is FieldKind.TEXT:
        if len(str(value)) > field.highest:
            yield FieldProblem(field.key, f"is longer than {field.highest:.0f} characters")
        if any(ord(letter) < 32 and letter != "\n" for letter in str(value)):
            yield FieldProblem(field.key, "contains control characters")
    elif (
        field.kind is not FieldKind.SWITCH
        and value != 0
        and not field.lowest <= float(value) <= field.highest
    ):
        lowest, highest = (_format_bound(field, bound) for bound in (field.lowest, field.highest))
        is_default = field.zero_meaning[:1].isdigit()
        yield FieldProblem(
            field.key,
            f"{format_value(field, value)} is out of range. Use {lowest} to {highest}, or 0 for "
            f"{'the default of ' if is_default else ''}{field.zero_meaning}",
        )


def _format_bound(field: ConfigField, bound: float) -> str:
    """Return a bound as a person types it: 1h, not 1h0m0s."""
    if field.kind is FieldKind.INTEGER:
        return str(int(bound))
    return re.sub("(?<=[hm])0[ms]", "", durations.format_seconds(bound))


def _contradictions(config: NetworkingConfig) -> Iterable[FieldProblem]:
    if config.tunnel_strategy != Strategy.PROXY_PEERING and config.agent_connection_count:
        yield FieldProblem(
            "tunnel_strategy.agent_connection_count", f"needs tunnel_strategy.type {Strategy.PROXY_PEERING}"
        )
    low, high = config.closing_wait_bounds
    if low > high:
        yield FieldProblem(
            "tunnel_closing_wait_max",
            f"{durations.format_readable(high)} is shorter than the shortest wait, {durations.format_readable(low)}",
        )
    if config.graceful_tunnel_closing and config.tunnel_disconnect_threshold:
        yield FieldProblem(
            "tunnel_disconnect_threshold", "excludes graceful_tunnel_closing. Set only one of them"
        )
