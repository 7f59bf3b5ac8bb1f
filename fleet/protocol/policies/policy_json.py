"""The JSON policy as somebody edits it: a strict schema, and what agents of both dialects will be told.

RFD 226, "Policy Configuration Discovery". An auth reads leniently, as protojson with unknown fields dropped would;
an editor must not: `"mdoe": "reconnect"` is read as pick_first without a word. Pure.
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

#: What the RFD's variable is wrapped in; upstream's is bare.
WRAPPER = "grpc_client_lb_policy"
_MODES = ("pick_first", "reconnect", "MODE_PICK_FIRST", "MODE_RECONNECT")
#: Each field under the names that readers take.
_TOP = {"loadBalancingConfig": "load_balancing_config", "healthCheckConfig": "health_check_config"}
_POLICY = {"teleport_pick_healthy": "teleportPickHealthy"}
_CHECK = {"serviceName": "service_name"}
_LARGEST = 16_384
#: The dialects as people call them. Agents of ours read both, and do what agents of the RFD do.
_RFD, _TELEPORT = "RFD 226", "Teleport"


@dataclass(frozen=True, slots=True)
class DialectPreview:
    """What agents that read one dialect make of the answer of GetServiceConfig."""

    dialect: str
    #: The answer as that dialect writes it.
    document: str
    config: ServiceConfig

    @property
    def sentence(self) -> str:
        """What such an agent will do."""
        if self.config.mode is PickHealthyMode.PICK_FIRST:
            return f"keeps its connection while it lives; {self._pick_first_sentence}"
        if not self.config.health_check:
            return "would leave a sick auth, but is not told to ask about health: it stays until the connection breaks"
        return f"asks about health{self._service_phrase} and leaves a sick auth for another one by itself"

    @property
    def _pick_first_sentence(self) -> str:
        if not self.config.health_check:
            return "does not ask about health"
        if self.dialect == _TELEPORT:
            return "asks about health, and sends its calls to a sick auth all the same"
        return "the health check has no effect in mode pick_first, and it stays with a sick auth"

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
    """All that is wrong with a text, each as `path: sentence`; empty when agents can be told it."""
    if len(text) > _LARGEST:
        return (f"has more than {_LARGEST} characters",)
    try:
        document = json.loads(service_config.without_trailing_commas(text))
    except (ValueError, RecursionError) as error:
        return (f"is not JSON: {error}",)
    sentences = tuple(_document_problems(document, "")) if name == UPSTREAM_VARIABLE else tuple(_wrapper_problems(document))
    if sentences:
        return sentences
    try:
        service_config.from_environment({name: text})
    except ServiceConfigError as error:
        return (str(error).removeprefix(f"{name}: "),)
    return ()


def warnings(config: ServiceConfig) -> tuple[str, ...]:
    """Return what agents do otherwise than a config reads, each as a sentence."""
    service = config.health_service
    if service is None:
        return ()
    if config.mode is PickHealthyMode.PICK_FIRST:
        return ("In mode pick_first the health check has no effect: agents stay with a sick auth.",)
    if service not in HEALTH_SERVICES:
        names = ", ".join(repr(name) for name in HEALTH_SERVICES)
        sentence = f"No auth serves the health service {service!r}; auths serve {names}. "
        return (sentence + "Agents report SERVICE_UNKNOWN, and go by the health of the whole server.",)
    return ()


def canonical(text: str) -> str:
    """The same document on one line. Raises ValueError when it is none."""
    return json.dumps(json.loads(service_config.without_trailing_commas(text)), ensure_ascii=False)


def preview(config: ServiceConfig) -> tuple[DialectPreview, ...]:
    """What agents of each dialect receive; each is decoded from the very bytes that an auth answers."""
    response = service_config.encode(config)
    rfd = service_config.decode(service_config.encode(config, Dialect.RFD))
    upstream = service_config.decode(service_config.encode(config, Dialect.UPSTREAM))
    assert service_config.decode(response) == config, "an answer says what it was made from"
    return (
        DialectPreview(_RFD, document(rfd, RFD_VARIABLE), rfd),
        DialectPreview(_TELEPORT, document(upstream, UPSTREAM_VARIABLE), upstream),
    )


def document(config: ServiceConfig, name: str) -> str:
    """A config as somebody writes it for a variable, laid out."""
    mode = config.mode.value if name == RFD_VARIABLE else f"MODE_{config.mode.name}"
    body: dict[str, Any] = {"loadBalancingConfig": [{"teleport_pick_healthy": {"mode": mode}}]}
    if config.health_service is not None:
        body["healthCheckConfig"] = {"serviceName": config.health_service}
    return json.dumps({WRAPPER: body} if name == RFD_VARIABLE else body, indent=2, ensure_ascii=False)


def _wrapper_problems(document: object) -> Iterator[str]:
    if not isinstance(document, dict):
        yield "is not a JSON object"
        return
    yield from _unknown_field_problems(document, {WRAPPER: WRAPPER}, "")
    if WRAPPER not in document:
        yield f"has no {WRAPPER!r} at its top"
    else:
        yield from _document_problems(document[WRAPPER], f"{WRAPPER}")


def _document_problems(document: object, at: str) -> Iterator[str]:
    if not isinstance(document, dict):
        yield f"{at}: is not a JSON object" if at else "is not a JSON object"
        return
    yield from _unknown_field_problems(document, _TOP, at)
    entries = _get(document, "loadBalancingConfig", _TOP)
    path = _join(at, "loadBalancingConfig")
    if entries is None:
        yield f"{path}: is missing; agents would be told pick_first"
    elif not isinstance(entries, list) or not entries:
        yield f"{path}: is not a list with a policy in it"
    else:
        for number, entry in enumerate(entries):
            yield from _entry_problems(entry, f"{path}[{number}]")
    check = _get(document, "healthCheckConfig", _TOP)
    if check is not None:
        yield from _check_problems(check, _join(at, "healthCheckConfig"))


def _entry_problems(entry: object, at: str) -> Iterator[str]:
    if not isinstance(entry, dict) or len(entry) != 1:
        yield f"{at}: is not an object with one policy"
        return
    yield from _unknown_field_problems(entry, _POLICY, at)
    policy = _get(entry, "teleport_pick_healthy", _POLICY)
    path = _join(at, "teleport_pick_healthy")
    if policy is None:
        return
    if not isinstance(policy, dict):
        yield f"{path}: is not a JSON object"
        return
    yield from _unknown_field_problems(policy, {"mode": "mode"}, path)
    mode = policy.get("mode")
    if not isinstance(mode, str) or mode not in _MODES:
        yield f"{path}.mode: {json.dumps(mode)} is neither 'pick_first' nor 'reconnect'"


def _check_problems(check: object, at: str) -> Iterator[str]:
    if not isinstance(check, dict):
        yield f"{at}: is not a JSON object"
        return
    yield from _unknown_field_problems(check, _CHECK, at)
    service = _get(check, "serviceName", _CHECK)
    if service is not None and not isinstance(service, str):
        yield f"{_join(at, 'serviceName')}: is not a string"


def _unknown_field_problems(document: Mapping[str, object], field_names: Mapping[str, str], at: str) -> Iterator[str]:
    names = {*field_names, *field_names.values()}
    for key in document:
        if key not in names:
            yield f"{_join(at, key)}: there is no such field; there are: {', '.join(field_names)}"


def _get(document: Mapping[str, object], key: str, field_names: Mapping[str, str]) -> object:
    return document.get(key, document.get(field_names[key]))


def _join(at: str, key: str) -> str:
    return f"{at}.{key}" if at else key
