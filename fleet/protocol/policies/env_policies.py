"""The env policies of auths and proxies (RFD 226): names, validation, defaults, and where a value comes from.

An instance reads them once, at its start: its command line overrides `policies.env` of its data folder, which overrides
its environment, which overrides the default. Only the names here can be set remotely. Pure. docs/reference/policies.md
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

#: Turns on `Connection: close` on the HTTP API of an unhealthy auth.
HTTP_CLOSE_VARIABLE = "TELEPORT_UNSTABLE_HTTP_CLOSE_UNHEALTHY"
#: File of accepted policies in an instance's data folder.
FILE_NAME = "policies.env"


class PolicyValueKind(StrEnum):
    """Syntax of a policy's value."""

    JSON = "json"
    DURATION = "duration"
    SWITCH = "switch"


class PolicySource(StrEnum):
    """Source of the value in effect, the strongest first."""

    FLAG = "flag"
    FILE = "file"
    ENVIRONMENT = "env"
    DEFAULT = "default"


class PolicyError(ValueError):
    """A value that cannot be used; `name` is the variable, `sentence` is the message without it."""

    def __init__(self, name: str, sentence: str) -> None:
        super().__init__(f"{name}: {sentence}")
        self.name = name
        self.sentence = sentence


@dataclass(frozen=True, slots=True)
class EnvPolicy:
    """One policy: an environment variable that an auth or a proxy reads."""

    name: str
    #: Reader: "auth" or "proxy".
    role: str
    kind: PolicyValueKind
    label: str
    help: str
    #: Default as a person types it; empty for "never" or "none".
    default: str
    #: Read the variable from an environment, with its default, as an instance does. Raises ValueError.
    read: Callable[[Mapping[str, str]], object] = field(repr=False, compare=False)
    #: Agents receive it when they connect, and keep it until they reconnect.
    is_read_at_connect: bool = False


POLICIES: tuple[EnvPolicy, ...] = (
    EnvPolicy(
        service_config.RFD_VARIABLE, "auth", PolicyValueKind.JSON, "Agent reconnect mode",
        "Decides whether agents leave an unhealthy auth. Refloat's presets set it. JSON object with the key "
        "grpc_client_lb_policy.", "",
        read=service_config.from_environment, is_read_at_connect=True,
    ),
    EnvPolicy(
        service_config.UPSTREAM_VARIABLE, "auth", PolicyValueKind.JSON, "Agent reconnect mode (Teleport format)",
        "The same setting as the agent reconnect mode, in Teleport's format: JSON without the key "
        "grpc_client_lb_policy. Set it only for auths that are not Refloat's. If both are set, they must agree.", "",
        read=service_config.from_environment, is_read_at_connect=True,
    ),
    EnvPolicy(
        announce.AUTH_TTL_VARIABLE, "auth", PolicyValueKind.DURATION, "Auth announce TTL",
        "Time without a heartbeat after which an auth expires. An auth sends about two heartbeats per TTL.", "10m",
        read=partial(announce.ttl_from, variable=announce.AUTH_TTL_VARIABLE),
    ),
    EnvPolicy(
        HTTP_CLOSE_VARIABLE, "auth", PolicyValueKind.SWITCH, "HTTP connection closing while unhealthy",
        "An unhealthy auth closes HTTP connections after each response. Clients then use another auth.", "false",
        read=partial(switches.switch_from, variable=HTTP_CLOSE_VARIABLE, default=False),
    ),
    EnvPolicy(
        announce.PROXY_TTL_VARIABLE, "proxy", PolicyValueKind.DURATION, "Proxy announce TTL",
        "Time without a heartbeat after which a proxy expires. Agents receive this value from the proxies.", "10m",
        read=partial(announce.ttl_from, variable=announce.PROXY_TTL_VARIABLE),
    ),
    EnvPolicy(
        reconnect_schedule.INTERVAL_VARIABLE, "proxy", PolicyValueKind.DURATION, "Periodic tunnel reconnects",
        "Proxies advise each tunnel to reconnect after 1 to 1.5 times this duration. Not set: never.", "",
        read=reconnect_schedule.interval_from,
    ),
    EnvPolicy(
        discovery.COMPACT_VARIABLE, "proxy", PolicyValueKind.SWITCH, "Compact discovery",
        "Proxies send agents only the proxies with a new heartbeat, not the full list each time.", "true",
        read=partial(switches.switch_from, variable=discovery.COMPACT_VARIABLE, default=True),
    ),
)  # fmt: skip
BY_NAME: Mapping[str, EnvPolicy] = {policy.name: policy for policy in POLICIES}
ROLES = ("auth", "proxy")
#: Plural nouns for texts.
PLURALS = {"auth": "auths", "proxy": "proxies"}


@dataclass(frozen=True, slots=True)
class PolicyValue:
    """The value of one policy on an instance."""

    name: str
    #: Empty: not set, and without a default.
    text: str
    source: PolicySource


def of_role(role: str) -> tuple[EnvPolicy, ...]:
    """Return the policies that instances of a role read."""
    return tuple(policy for policy in POLICIES if policy.role == role)


def normalize(name: str, text: str) -> str:
    """Return a value as stored: one line, no surrounding blanks. Raises PolicyError, also for unknown names."""
    policy = BY_NAME.get(name)
    if policy is None:
        raise PolicyError(name, "is not a policy that can be set")
    text = text.strip()
    if not text:
        raise PolicyError(name, "is empty. To unset the policy, leave it out")
    if policy.kind is PolicyValueKind.JSON:
        problems = policy_json.problems(name, text)
        if problems:
            raise PolicyError(name, "; ".join(problems))
        return policy_json.canonical(text)
    if not text.isprintable():
        raise PolicyError(name, "contains unprintable characters")
    try:
        _parse(name, text)
    except ValueError as error:
        sentence = str(error).removeprefix(f"{name}: ").removeprefix(f"{name}=")
        raise PolicyError(name, sentence) from None
    return text


def check(role: str, values: Mapping[str, str]) -> tuple[dict[str, str], tuple[PolicyError, ...]]:
    """Return the stored values of one role, and every problem with them."""
    normalized_values: dict[str, str] = {}
    errors: list[PolicyError] = []
    for name, text in values.items():
        try:
            normalized_values[name] = normalize(name, text)
        except PolicyError as error:
            errors.append(error)
            continue
        if BY_NAME[name].role != role:
            errors.append(
                PolicyError(name, f"is a policy of {BY_NAME[name].role} instances, not of {role} instances")
            )
    try:
        service_config.from_environment(normalized_values)
    except ServiceConfigError as error:
        errors.append(PolicyError(service_config.UPSTREAM_VARIABLE, str(error)))
    return normalized_values, tuple(errors)


def from_typed(name: str, text: str) -> str:
    """Return a value that a person typed as nodes read it: the duration `1 min 30 s` as `1m30s`. Raises PolicyError.

    Only a text that Go does not read is changed. Other problems of a value are left to `check`.
    """
    policy, text = BY_NAME.get(name), text.strip()
    if policy is None or policy.kind is not PolicyValueKind.DURATION or not text:
        return text
    try:
        durations.parse(text)
    except durations.DurationError:
        try:
            return durations.format_seconds(durations.parse_readable(text))
        except durations.DurationError as error:
            raise PolicyError(name, str(error)) from None
    return text


def check_typed(role: str, values: Mapping[str, str]) -> tuple[dict[str, str], tuple[PolicyError, ...]]:
    """Return what `check` does, for values that a person typed."""
    texts: dict[str, str] = {}
    errors: list[PolicyError] = []
    for name, text in values.items():
        try:
            texts[name] = from_typed(name, text)
        except PolicyError as error:
            errors.append(error)
    normalized_values, other_errors = check(role, texts)
    return normalized_values, (*errors, *other_errors)


def is_same_value(name: str, text: str, other_text: str) -> bool:
    """Return whether two values mean the same: `60s` and `1m`, or JSON in another layout; empty means the default."""
    return _comparable_value(name, text) == _comparable_value(name, other_text)


def effective_values(
    role: str, environment: Mapping[str, str], file_values: Mapping[str, str], flag_values: Mapping[str, str]
) -> tuple[PolicyValue, ...]:
    """Return the values in effect on an instance of a role, one for each of its policies."""
    policy_values = []
    for policy in of_role(role):
        for source, texts in (
            (PolicySource.FLAG, flag_values),
            (PolicySource.FILE, file_values),
            (PolicySource.ENVIRONMENT, environment),
        ):
            if texts.get(policy.name):
                policy_values.append(PolicyValue(policy.name, texts[policy.name], source))
                break
        else:
            policy_values.append(PolicyValue(policy.name, policy.default, PolicySource.DEFAULT))
    return tuple(policy_values)


def merge_environment(environment: Mapping[str, str], values: tuple[PolicyValue, ...]) -> dict[str, str]:
    """Return the environment for an instance: with the values in effect, and without defaults."""
    environment_values = {name: text for name, text in environment.items() if name not in BY_NAME}
    environment_values |= {
        value.name: value.text for value in values if value.source is not PolicySource.DEFAULT
    }
    return environment_values


def parse_file(text: str) -> dict[str, str]:
    """Read `policies.env`: one NAME=value a line, `#` begins a comment line. Raises PolicyError."""
    policy_texts: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, equals, value = line.partition("=")
        name = name.strip()
        if not equals or name in policy_texts:
            raise PolicyError(name or "?", f"line {number} is not NAME=value, or repeats a name")
        policy_texts[name] = normalize(name, value)
    return policy_texts


def format_file(values: Mapping[str, str]) -> str:
    """Return the text of `policies.env`."""
    # Part of `revision_of`: another text would change the revision of every instance.
    head = "# Policies accepted over the network; they override the environment. Read when the node starts.\n"
    return head + "".join(f"{name}={values[name]}\n" for name in sorted(values))


def revision_of(values: Mapping[str, str]) -> str:
    """Return a hash that identifies exactly these values."""
    return hashlib.sha256(format_file(values).encode()).hexdigest()[:16]


def _comparable_value(name: str, text: str) -> object:
    text = text or BY_NAME[name].default
    if not text:
        return service_config.ServiceConfig() if BY_NAME[name].kind is PolicyValueKind.JSON else None
    try:
        return _parse(name, text)
    except ValueError:
        return text  # accepted by another version, but not by this one: equal only to itself


def _parse(name: str, text: str) -> object:
    return BY_NAME[name].read({name: text})


def duration_seconds(name: str, text: str) -> float:
    """Return a duration in seconds: the default when empty, 0 without a default. Raises PolicyError."""
    text = text or BY_NAME[name].default
    try:
        return durations.parse(text) if text else 0.0
    except durations.DurationError as error:
        raise PolicyError(name, str(error)) from None
