"""The response of GetServiceConfig: RFD 226, "Policy Configuration Discovery", in both dialects.

In the RFD's text `mode` is a string; what shipped upstream has an enum under the same field number. A decoder of either
kind treats the other's field as unknown, so one response with both serves both. The messages are tiny: they are encoded
and decoded here, without generated code.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum

#: The RFD's variable: JSON wrapped in `grpc_client_lb_policy`.
RFD_VARIABLE = "TELEPORT_UNSTABLE_GRPC_CLIENT_LB_POLICY"
#: The variable that shipped upstream: the plain ServiceConfig as protojson.
UPSTREAM_VARIABLE = "TELEPORT_UNSTABLE_GRPC_SERVICE_CONFIG"
#: A valid value of each variable, for error texts: agents leave an unhealthy auth.
EXAMPLES: Mapping[str, str] = {
    RFD_VARIABLE: '{"grpc_client_lb_policy": {"loadBalancingConfig": [{"teleport_pick_healthy": '
    '{"mode": "reconnect"}}], "healthCheckConfig": {"serviceName": ""}}}',
    UPSTREAM_VARIABLE: '{"loadBalancingConfig": [{"teleport_pick_healthy": {"mode": "MODE_RECONNECT"}}], '
    '"healthCheckConfig": {"serviceName": ""}}',
}


class PickHealthyMode(StrEnum):
    """Mode of the `teleport_pick_healthy` policy."""

    PICK_FIRST = "pick_first"
    RECONNECT = "reconnect"


class Dialect(Enum):
    """Dialect of an encoded response, named after the decoders that can read it."""

    RFD = "rfd"
    UPSTREAM = "upstream"
    RFD_AND_UPSTREAM = "both"


class ServiceConfigError(ValueError):
    """A service config that cannot be read; the message says where and why."""


@dataclass(frozen=True, slots=True)
class ServiceConfig:
    """A client's load balancing settings."""

    mode: PickHealthyMode = PickHealthyMode.PICK_FIRST
    #: The service whose health is watched; None: health is not checked.
    health_service: str | None = None

    @property
    def health_check(self) -> bool:
        """Return whether health is checked; the empty service name counts."""
        return self.health_service is not None


_NUMBER_BY_MODE = {PickHealthyMode.PICK_FIRST: 1, PickHealthyMode.RECONNECT: 2}
_MODE_BY_NUMBER = {number: mode for mode, number in _NUMBER_BY_MODE.items()}
#: protojson writes enums by name; the RFD uses words.
_MODE_BY_NAME = {
    "pick_first": PickHealthyMode.PICK_FIRST,
    "reconnect": PickHealthyMode.RECONNECT,
    "MODE_PICK_FIRST": PickHealthyMode.PICK_FIRST,
    "MODE_RECONNECT": PickHealthyMode.RECONNECT,
    "MODE_UNSPECIFIED": PickHealthyMode.PICK_FIRST,
    "": PickHealthyMode.PICK_FIRST,
}

_VARINT, _LENGTH = 0, 2


def encode(config: ServiceConfig, dialect: Dialect = Dialect.RFD_AND_UPSTREAM) -> bytes:
    """Return an encoded GetServiceConfigResponse."""
    policy = b""
    if dialect is not Dialect.UPSTREAM:
        policy += _encode_field(1, config.mode.encode())
    if dialect is not Dialect.RFD:
        policy += bytes([1 << 3 | _VARINT, _NUMBER_BY_MODE[config.mode]])
    body = _encode_field(1, _encode_field(1, policy))
    if config.health_service is not None:
        body += _encode_field(2, _encode_field(1, config.health_service.encode()))
    return _encode_field(1, body)


# Clients that ask again nearly always receive the same response.
@functools.lru_cache(maxsize=64)
def decode(response: bytes) -> ServiceConfig:
    """Decode a GetServiceConfigResponse of either dialect, as a client does. Raises ServiceConfigError.

    The first known policy counts, and an unknown mode reads as pick_first.
    """
    mode, has_policy, service, has_health_check, has_text_mode = (
        PickHealthyMode.PICK_FIRST,
        False,
        None,
        False,
        False,
    )
    for config in _iter_messages(response, 1):
        for entry in _iter_messages(config, 1):
            for policy in _iter_messages(entry, 1):
                if not has_policy:
                    mode, has_policy = _decode_mode(policy), True
                    has_text_mode = any(True for _ in _iter_messages(policy, 1))
        for check in _iter_messages(config, 2):
            has_health_check = True
            for name in _iter_messages(check, 1):
                service = _decode_text(name)
    if has_health_check and service is None and has_text_mode:
        # The RFD's service name is not an optional field: when empty, as in its sample, it is not on the wire.
        service = ""
    return ServiceConfig(mode, service)


def from_environment(environment: Mapping[str, str]) -> ServiceConfig:
    """Return the config that an auth serves; the default (pick_first, no health check) when neither variable is set.

    Raises ServiceConfigError for a value that does not parse, and for two values that differ.
    """
    configs: list[ServiceConfig] = []
    for variable, wrapper in ((RFD_VARIABLE, "grpc_client_lb_policy"), (UPSTREAM_VARIABLE, None)):
        text = environment.get(variable, "")
        if text:
            configs.append(_from_json(text, variable, wrapper))
    if len(configs) == 2 and configs[0] != configs[1]:
        raise ServiceConfigError(f"{RFD_VARIABLE} and {UPSTREAM_VARIABLE} differ. Set only one of them")
    return configs[0] if configs else ServiceConfig()


#: A comma before a closing bracket, outside of strings: the RFD's own examples contain some.
_TRAILING_COMMA = re.compile(r'("(?:\\.|[^"\\])*")|,(?=\s*[}\]])')


def without_trailing_commas(text: str) -> str:
    """Return JSON without the trailing commas that the RFD's samples have."""
    return _TRAILING_COMMA.sub(r"\1", text)


def _from_json(text: str, variable: str, wrapper: str | None) -> ServiceConfig:
    try:
        document = json.loads(without_trailing_commas(text))
    except (ValueError, RecursionError) as error:
        raise ServiceConfigError(f"{variable} is not JSON: {error}. Example: {EXAMPLES[variable]}") from None
    document = _require_object(document, variable)
    if wrapper is not None:
        if wrapper not in document:
            raise ServiceConfigError(f"{variable} has no top-level key {wrapper!r}")
        document = _require_object(document[wrapper], f"{variable}: {wrapper}")
    return ServiceConfig(_mode_from_json(document, variable), _health_service_from_json(document, variable))


def _health_service_from_json(document: Mapping[str, object], variable: str) -> str | None:
    check = _first_present(document, "healthCheckConfig", "health_check_config")
    if check is None:
        return None
    service = _first_present(
        _require_object(check, f"{variable}: healthCheckConfig"), "serviceName", "service_name"
    )
    if service is not None and not isinstance(service, str):
        raise ServiceConfigError(f"{variable}: serviceName is not a string")
    return service


def _mode_from_json(document: Mapping[str, object], variable: str) -> PickHealthyMode:
    entries = _first_present(document, "loadBalancingConfig", "load_balancing_config")
    if entries is None:
        return PickHealthyMode.PICK_FIRST
    if not isinstance(entries, list):
        raise ServiceConfigError(f"{variable}: loadBalancingConfig is not a list")
    for entry in entries:
        policy = _first_present(
            _require_object(entry, f"{variable}: loadBalancingConfig"),
            "teleport_pick_healthy",
            "teleportPickHealthy",
        )
        if policy is None:
            continue
        mode = _require_object(policy, f"{variable}: teleport_pick_healthy").get("mode", "")
        if isinstance(mode, int) and not isinstance(mode, bool) and mode in {0, 1, 2}:
            return _MODE_BY_NUMBER.get(mode, PickHealthyMode.PICK_FIRST)
        if not isinstance(mode, str) or mode not in _MODE_BY_NAME:
            raise ServiceConfigError(f"{variable}: {mode!r} is not a mode. Use 'pick_first' or 'reconnect'")
        return _MODE_BY_NAME[mode]
    return PickHealthyMode.PICK_FIRST


def _require_object(document: object, path: str) -> dict[str, object]:
    if not isinstance(document, dict):
        raise ServiceConfigError(f"{path} is not a JSON object")
    return document


def _first_present(document: Mapping[str, object], *names: str) -> object | None:
    return next((document[name] for name in names if document.get(name) is not None), None)


def _encode_field(number: int, body: bytes) -> bytes:
    return bytes([number << 3 | _LENGTH]) + _encode_varint(len(body)) + body


def _encode_varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _decode_mode(policy: bytes) -> PickHealthyMode:
    mode = PickHealthyMode.PICK_FIRST
    for number, value in _iter_fields(policy):
        if number != 1:
            continue
        mode = (
            _MODE_BY_NUMBER.get(value, mode)
            if isinstance(value, int)
            else _MODE_BY_NAME.get(_decode_text(value), mode)
        )
    return mode


def _decode_text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise ServiceConfigError(
            "the response of GetServiceConfig contains a string that is not UTF-8"
        ) from None


def _iter_messages(message: bytes, number: int) -> Iterator[bytes]:
    for field_number, value in _iter_fields(message):
        if field_number == number and isinstance(value, bytes):
            yield value


def _iter_fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the fields of a protobuf message in order, without those of fixed width."""
    position = 0
    while position < len(message):
        tag, position = _read_varint(message, position)
        kind = tag & 7
        if kind == _VARINT:
            value, position = _read_varint(message, position)
            yield tag >> 3, value
            continue
        if kind == _LENGTH:
            length, position = _read_varint(message, position)
        elif kind in {1, 5}:
            length = 8 if kind == 1 else 4
        else:
            raise ServiceConfigError("the response of GetServiceConfig is not a protobuf message")
        if position + length > len(message):
            raise ServiceConfigError("the response of GetServiceConfig is truncated")
        if kind == _LENGTH:
            yield tag >> 3, message[position : position + length]
        position += length


def _read_varint(message: bytes, position: int) -> tuple[int, int]:
    number, shift = 0, 0
    while position < len(message) and shift < 70:
        byte = message[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, position
        shift += 7
    raise ServiceConfigError("the response of GetServiceConfig is truncated")
