"""The JSON policy as a person edits it: a strict schema, and a preview of what agents of both dialects receive.

RFD 226, "Policy Configuration Discovery". An auth reads leniently, like protojson without unknown fields. An editor
must not: `"mdoe": "reconnect"` would silently be read as pick_first. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fleet.protocol.destination.instance_status import HEALTH_SERVICES
from fleet.protocol.recovery import service_config
from fleet.protocol.recovery.service_config import (
    RFD_VARIABLE,
    UPSTREAM_VARIABLE,
    Dialect,
    PickHealthyMode,
    ServiceConfig,
    ServiceConfigError,
)

#: Top-level key of the JSON of the RFD's variable; upstream's JSON has none.
WRAPPER_KEY = "grpc_client_lb_policy"
_MODES = ("pick_first", "reconnect", "MODE_PICK_FIRST", "MODE_RECONNECT")
#: Accepted names of each field: camelCase to snake_case, or the reverse.
_TOP_FIELDS = {"loadBalancingConfig": "load_balancing_config", "healthCheckConfig": "health_check_config"}
_POLICY_FIELDS = {"teleport_pick_healthy": "teleportPickHealthy"}
_HEALTH_CHECK_FIELDS = {"serviceName": "service_name"}
_MAX_LENGTH = 16_384
#: Display names of the dialects. Refloat's agents read both, and behave like agents of the RFD.
_RFD, _TELEPORT = "RFD 226", "Teleport"


@dataclass(frozen=True, slots=True)
class DialectPreview:
    """The GetServiceConfig response as agents of one dialect read it."""

    dialect: str
    #: The response as JSON in the syntax of that dialect.
    document: str
    config: ServiceConfig

    @property
    def behaviour(self) -> str:
        """The behaviour of such an agent, as a predicate such as "keeps its connection"."""
        if self.config.mode is PickHealthyMode.PICK_FIRST:
            return f"keeps its connection until it breaks or the auth drains; {self._pick_first_behaviour}"
        if not self.config.health_check:
            return "has no health check, so it does not notice an unhealthy auth: it stays until the connection breaks"
        return f"watches the health{self._service_phrase} and leaves an unhealthy auth for another one on its own"

    @property
    def _pick_first_behaviour(self) -> str:
        if not self.config.health_check:
            return "it does not check health"
        if self.dialect == _TELEPORT:
            return "it checks health, but still sends its calls to an unhealthy auth"
        return "the health check has no effect in mode pick_first, so the agent stays with an unhealthy auth"

    @property
    def _service_phrase(self) -> str:
        service = self.config.health_service
        if not service:
            return ""
        if self.dialect == _TELEPORT:
            return f" of the whole server, not of service {service!r},"
        if service not in HEALTH_SERVICES:
            return f" of service {service!r}, which no auth serves, then of the whole server,"
        return f" of service {service!r}"


def problems(name: str, text: str) -> tuple[str, ...]:
    """Return every problem of a policy's JSON, as `path: message`; empty when an auth can serve it."""
    if len(text) > _MAX_LENGTH:
        return (f"is longer than {_MAX_LENGTH:,} characters",)
    try:
        document = json.loads(service_config.without_trailing_commas(text))
    except (ValueError, RecursionError) as error:
        return (f"is not JSON: {error}. Example: {service_config.EXAMPLES[name]}",)
    sentences = (
        tuple(_document_problems(document, ""))
        if name == UPSTREAM_VARIABLE
        else tuple(_wrapper_problems(document))
    )
    if sentences:
        return sentences
    try:
        service_config.from_environment({name: text})
    except ServiceConfigError as error:
        return (str(error).removeprefix(f"{name}: "),)
    return ()


def warnings(config: ServiceConfig) -> tuple[str, ...]:
    """Return each way in which agents behave differently than the config suggests, as sentences."""
    service = config.health_service
    if service is None:
        return ()
    if config.mode is PickHealthyMode.PICK_FIRST:
        return ("In mode pick_first the health check has no effect: agents stay with an unhealthy auth.",)
    if service not in HEALTH_SERVICES:
        names = ", ".join(repr(name) for name in HEALTH_SERVICES)
        sentence = f"No auth serves the health service {service!r}; auths serve {names}. "
        return (sentence + "Agents report SERVICE_UNKNOWN and use the health of the whole server.",)
    return ()


def canonical(text: str) -> str:
    """Return the same JSON on one line. Raises ValueError if it is not JSON."""
    return json.dumps(json.loads(service_config.without_trailing_commas(text)), ensure_ascii=False)


def preview(config: ServiceConfig) -> tuple[DialectPreview, ...]:
    """Return what agents of each dialect receive, decoded from the bytes that an auth sends."""
    response = service_config.encode(config)
    rfd = service_config.decode(service_config.encode(config, Dialect.RFD))
    upstream = service_config.decode(service_config.encode(config, Dialect.UPSTREAM))
    assert service_config.decode(response) == config, "a response must decode to the config it encodes"
    return (
        DialectPreview(_RFD, document(rfd, RFD_VARIABLE), rfd),
        DialectPreview(_TELEPORT, document(upstream, UPSTREAM_VARIABLE), upstream),
    )


def document(config: ServiceConfig, name: str) -> str:
    """Return a config as indented JSON for a variable."""
    mode = config.mode.value if name == RFD_VARIABLE else f"MODE_{config.mode.name}"
    body: dict[str, Any] = {"loadBalancingConfig": [{"teleport_pick_healthy": {"mode": mode}}]}
    if config.health_service is not None:
        body["healthCheckConfig"] = {"serviceName": config.health_service}
    return json.dumps({WRAPPER_KEY: body} if name == RFD_VARIABLE else body, indent=2, ensure_ascii=False)


def _wrapper_problems(document: object) -> Iterator[str]:
    if not isinstance(document, dict):
        yield "is not a JSON object"
        return
    yield from _unknown_field_problems(document, {WRAPPER_KEY: WRAPPER_KEY}, "")
    if WRAPPER_KEY not in document:
        yield f"{WRAPPER_KEY}: this top-level field is missing"
    else:
        yield from _document_problems(document[WRAPPER_KEY], f"{WRAPPER_KEY}")


def _document_problems(document: object, path: str) -> Iterator[str]:
    if not isinstance(document, dict):
        yield f"{path}: is not a JSON object" if path else "is not a JSON object"
        return
    yield from _unknown_field_problems(document, _TOP_FIELDS, path)
    entries = _get_field(document, "loadBalancingConfig", _TOP_FIELDS)
    field_path = _join(path, "loadBalancingConfig")
    if entries is None:
        yield f"{field_path}: is missing. Agents would use pick_first"
    elif not isinstance(entries, list) or not entries:
        yield f"{field_path}: must be a list with at least one policy"
    else:
        for number, entry in enumerate(entries):
            yield from _entry_problems(entry, f"{field_path}[{number}]")
    health_check = _get_field(document, "healthCheckConfig", _TOP_FIELDS)
    if health_check is not None:
        yield from _health_check_problems(health_check, _join(path, "healthCheckConfig"))


def _entry_problems(entry: object, path: str) -> Iterator[str]:
    if not isinstance(entry, dict) or len(entry) != 1:
        yield f"{path}: must be an object with exactly one policy"
        return
    yield from _unknown_field_problems(entry, _POLICY_FIELDS, path)
    policy = _get_field(entry, "teleport_pick_healthy", _POLICY_FIELDS)
    field_path = _join(path, "teleport_pick_healthy")
    if policy is None:
        return
    if not isinstance(policy, dict):
        yield f"{field_path}: is not a JSON object"
        return
    yield from _unknown_field_problems(policy, {"mode": "mode"}, field_path)
    mode = policy.get("mode")
    if not isinstance(mode, str) or mode not in _MODES:
        yield f"{field_path}.mode: {json.dumps(mode)} is not a mode. Use 'pick_first' or 'reconnect'"


def _health_check_problems(health_check: object, path: str) -> Iterator[str]:
    if not isinstance(health_check, dict):
        yield f"{path}: is not a JSON object"
        return
    yield from _unknown_field_problems(health_check, _HEALTH_CHECK_FIELDS, path)
    service = _get_field(health_check, "serviceName", _HEALTH_CHECK_FIELDS)
    if service is not None and not isinstance(service, str):
        yield f"{_join(path, 'serviceName')}: is not a string"


def _unknown_field_problems(
    document: Mapping[str, object], field_names: Mapping[str, str], path: str
) -> Iterator[str]:
    names = {*field_names, *field_names.values()}
    for key in document:
        if key not in names:
            yield f"{_join(path, key)}: is not a field (fields: {', '.join(field_names)})"


def _get_field(document: Mapping[str, object], key: str, field_names: Mapping[str, str]) -> object:
    return document.get(key, document.get(field_names[key]))


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key
