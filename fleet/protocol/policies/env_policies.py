"""The env-driven policies of auths and proxies: RFD 226. Names, validation, defaults, where a value comes from.

A node reads them once, when it starts: its command line wins over `policies.env` of its data folder, which wins over
its environment, which wins over the default. Only the names here can be set from afar. Pure. docs/policies.md
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial

from fleet.protocol import durations
from fleet.protocol.policies import policy_json, switches
from fleet.protocol.recovery import announce, discovery, reconnect_schedule, service_config
from fleet.protocol.recovery.service_config import ServiceConfigError

#: Switches `Connection: close` of an unhealthy auth on.
HTTP_CLOSE_VARIABLE = "TELEPORT_UNSTABLE_HTTP_CLOSE_UNHEALTHY"
#: The file of accepted policies in a node's data folder.
FILE_NAME = "policies.env"


class PolicyValueKind(StrEnum):
    """How a value is written."""

    JSON = "json"
    DURATION = "duration"
    SWITCH = "switch"


class Source(StrEnum):
    """Where the value that a node runs with comes from, strongest first."""

    FLAG = "flag"
    FILE = "file"
    ENVIRONMENT = "env"
    DEFAULT = "default"


class PolicyError(ValueError):
    """A value that cannot be used; `name` is the variable, the sentence is without it."""

    def __init__(self, name: str, sentence: str) -> None:
        super().__init__(f"{name}: {sentence}")
        self.name = name
        self.sentence = sentence


@dataclass(frozen=True, slots=True)
class EnvPolicy:
    """One variable."""

    name: str
    #: "auth" or "proxy": who reads it.
    role: str
    kind: PolicyValueKind
    label: str
    help: str
    #: What holds when nobody says anything, as people would write it; empty for "never" or "none".
    default: str
    #: Read the variable as a node does: from an environment, with the default where it is unset. Raises ValueError.
    read: Callable[[Mapping[str, str]], object] = field(repr=False, compare=False)
    #: Agents are told it when they connect, and keep it until they connect anew.
    at_connect: bool = False


POLICIES: tuple[EnvPolicy, ...] = (
    EnvPolicy(
        service_config.RFD_VARIABLE, "auth", PolicyValueKind.JSON, "Clients' load balancing (RFD 226)",
        "Whether agents leave a sick auth by themselves. JSON, wrapped in grpc_client_lb_policy.", "",
        read=service_config.from_environment, at_connect=True,
    ),
    EnvPolicy(
        service_config.UPSTREAM_VARIABLE, "auth", PolicyValueKind.JSON, "Clients' load balancing (Teleport)",
        "The same as bare JSON, as Teleport has it. If both are set they must say the same.", "",
        read=service_config.from_environment, at_connect=True,
    ),
    EnvPolicy(
        announce.AUTH_TTL_VARIABLE, "auth", PolicyValueKind.DURATION, "Announce TTL of auths",
        "How long an auth's resource lives after a heartbeat; heartbeats come at about half of it.", "10m",
        read=partial(announce.ttl_from, variable=announce.AUTH_TTL_VARIABLE),
    ),
    EnvPolicy(
        HTTP_CLOSE_VARIABLE, "auth", PolicyValueKind.SWITCH, "Close HTTP connections while unhealthy",
        "An unhealthy auth ends HTTP connections after each response, so that clients go elsewhere.", "false",
        read=partial(switches.switch_from, variable=HTTP_CLOSE_VARIABLE, default=False),
    ),
    EnvPolicy(
        announce.PROXY_TTL_VARIABLE, "proxy", PolicyValueKind.DURATION, "Announce TTL of proxies",
        "How long a proxy's resource lives after a heartbeat. Agents are told it, and expire proxies by it.", "10m",
        read=partial(announce.ttl_from, variable=announce.PROXY_TTL_VARIABLE),
    ),
    EnvPolicy(
        reconnect_schedule.VARIABLE, "proxy", PolicyValueKind.DURATION, "Periodic tunnel reconnects",
        "Each tunnel is advised to reconnect elsewhere after this and up to half as long again. Unset: never.", "",
        read=reconnect_schedule.interval_from,
    ),
    EnvPolicy(
        discovery.COMPACT_VARIABLE, "proxy", PolicyValueKind.SWITCH, "Compact discovery",
        "Tell agents which proxies heartbeated, instead of sending the list of all proxies again and again.", "true",
        read=partial(switches.switch_from, variable=discovery.COMPACT_VARIABLE, default=True),
    ),
)  # fmt: skip
BY_NAME: Mapping[str, EnvPolicy] = {policy.name: policy for policy in POLICIES}
ROLES = ("auth", "proxy")
#: As people say it.
PLURALS = {"auth": "auths", "proxy": "proxies"}


@dataclass(frozen=True, slots=True)
class PolicyValue:
    """What a node has of one policy."""

    name: str
    #: Empty when nothing is set and there is no default to write.
    text: str
    source: Source


def of_role(role: str) -> tuple[EnvPolicy, ...]:
    """The policies that instances of a role read."""
    return tuple(policy for policy in POLICIES if policy.role == role)


def clean(name: str, text: str) -> str:
    """A value as it is kept: on one line, without blanks around it. Raises PolicyError, also for unknown names."""
    policy = BY_NAME.get(name)
    if policy is None:
        raise PolicyError(name, "is no policy that can be set")
    text = text.strip()
    if not text:
        raise PolicyError(name, "is empty: leave it out to unset it")
    if policy.kind is PolicyValueKind.JSON:
        problems = policy_json.problems(name, text)
        if problems:
            raise PolicyError(name, "; ".join(problems))
        return policy_json.canonical(text)
    if not text.isprintable():
        raise PolicyError(name, "holds characters that cannot be printed")
    try:
        _read(name, text)
    except ValueError as error:
        sentence = str(error).removeprefix(f"{name}: ").removeprefix(f"{name}=")
        raise PolicyError(name, sentence) from None
    return text


def check(role: str, values: Mapping[str, str]) -> tuple[dict[str, str], tuple[PolicyError, ...]]:
    """The values of one role as they are kept, and all that is wrong with them, each by its name."""
    clean_values: dict[str, str] = {}
    errors: list[PolicyError] = []
    for name, text in values.items():
        try:
            clean_values[name] = clean(name, text)
        except PolicyError as error:
            errors.append(error)
            continue
        if BY_NAME[name].role != role:
            errors.append(PolicyError(name, f"is read by {BY_NAME[name].role} servers, not by {role}"))
    try:
        service_config.from_environment(clean_values)
    except ServiceConfigError as error:
        errors.append(PolicyError(service_config.UPSTREAM_VARIABLE, str(error)))
    return clean_values, tuple(errors)


def is_same_value(name: str, text: str, other_text: str) -> bool:
    """Whether two values mean the same: `60s` and `1m`, or JSON laid out otherwise; unset means the default."""
    return _comparable_value(name, text) == _comparable_value(name, other_text)


def effective_values(
    role: str, environment: Mapping[str, str], file: Mapping[str, str], flags: Mapping[str, str]
) -> tuple[PolicyValue, ...]:
    """What an instance of a role runs with, one value for each of its policies."""
    policy_values = []
    for policy in of_role(role):
        for source, texts in (
            (Source.FLAG, flags),
            (Source.FILE, file),
            (Source.ENVIRONMENT, environment),
        ):
            if texts.get(policy.name):
                policy_values.append(PolicyValue(policy.name, texts[policy.name], source))
                break
        else:
            policy_values.append(PolicyValue(policy.name, policy.default, Source.DEFAULT))
    return tuple(policy_values)


def merge_environment(environment: Mapping[str, str], values: tuple[PolicyValue, ...]) -> dict[str, str]:
    """The environment as a node is to read it: with what is effective, and without what is default."""
    environment_values = {name: text for name, text in environment.items() if name not in BY_NAME}
    environment_values |= {value.name: value.text for value in values if value.source is not Source.DEFAULT}
    return environment_values


def parse_file(text: str) -> dict[str, str]:
    """Read `policies.env`: NAME=value a line, `#` begins a comment line. Raises PolicyError, naming the line."""
    policy_texts: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, equals, value = line.partition("=")
        name = name.strip()
        if not equals or name in policy_texts:
            raise PolicyError(name or "?", f"line {number} is no NAME=value, or the second of its name")
        policy_texts[name] = clean(name, value)
    return policy_texts


def format_file(values: Mapping[str, str]) -> str:
    """Write `policies.env`."""
    head = "# Policies accepted over the network; they override the environment. Read when the node starts.\n"
    return head + "".join(f"{name}={values[name]}\n" for name in sorted(values))


def revision_of(values: Mapping[str, str]) -> str:
    """A name for exactly these values."""
    return hashlib.sha256(format_file(values).encode()).hexdigest()[:16]


def _comparable_value(name: str, text: str) -> object:
    text = text or BY_NAME[name].default
    if not text:
        return service_config.ServiceConfig() if BY_NAME[name].kind is PolicyValueKind.JSON else None
    try:
        return _read(name, text)
    except ValueError:
        return text  # of a node that takes what we would not: equal only to itself


def _read(name: str, text: str) -> object:
    return BY_NAME[name].read({name: text})


def seconds(name: str, text: str) -> float:
    """A duration in seconds; the default when empty, 0 when there is none. Raises PolicyError."""
    text = text or BY_NAME[name].default
    try:
        return durations.parse(text) if text else 0.0
    except durations.DurationError as error:
        raise PolicyError(name, str(error)) from None
