"""GRPCRoute as YAML, in and out: every mistake is said with the path of its field, all at once. Pure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import yaml

from fleet.protocol import strict_yaml
from fleet.protocol.retry.gep_duration import LONGEST, GepDuration, GepDurationError
from fleet.protocol.retry.grpc_route import (
    Backend,
    GRPCRoute,
    Match,
    Problem,
    Retry,
    RouteError,
    Rule,
    SessionPersistence,
    SessionType,
    Timeouts,
)
from fleet.protocol.retry.policy import Reason, UnknownReason

API_VERSION = "gateway.networking.k8s.io/v1"
KIND = "GRPCRoute"

_T = TypeVar("_T")

# The patterns of the Gateway API's own schema.
_HOSTNAME = re.compile(r"(\*\.)?[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_SERVICE = re.compile(r"[A-Za-z_][A-Za-z_0-9]*(\.[A-Za-z_][A-Za-z_0-9]*)*")
_METHOD = re.compile(r"[A-Za-z_][A-Za-z_0-9]*")
#: The name of a header or a cookie; not of a header that gRPC or HTTP/2 keeps for itself.
_SESSION = re.compile(r"(?!(grpc-.*|content-type|te|host|connection)\Z)[-a-z0-9_]{1,128}", re.IGNORECASE)
_ANY = re.compile(r"\S(.*\S)?")
# What a resolver takes, or `--backend` names: labels of up to 63 characters.
_BACKEND = re.compile(
    r"(?=.{1,253}\Z)[A-Za-z0-9_]([-A-Za-z0-9_]{0,61}[A-Za-z0-9_])?(\.[A-Za-z0-9_]([-A-Za-z0-9_]{0,61}[A-Za-z0-9_])?)*"
)
#: Characters of a value in a sentence.
_SHOWN = 80
_ADDRESS = re.compile(r"[0-9]+(\.[0-9]+){3}")


def from_yaml(text: str) -> tuple[GRPCRoute, ...]:
    """Read the routes of a file, one a document. Raises RouteError."""
    try:
        documents = strict_yaml.load_all(text)
    except strict_yaml.StrictYAMLError as error:
        raise RouteError([Problem("YAML", str(error))]) from None
    if not documents:
        raise RouteError([Problem("YAML", "there is no route")])
    problems: list[Problem] = []
    routes = []
    stands: dict[tuple[str, str], int] = {}
    for number, document in enumerate(documents, start=1):
        # Only a file of several needs to say which.
        prefix = f"document {number}: " if len(documents) > 1 else ""
        route = _Reader(problems, prefix).route(document)
        # Nobody could tell their metrics apart; in Kubernetes the one would replace the other.
        first = stands.setdefault((route.namespace, route.name), number)
        if first != number and route.name:
            problems.append(
                Problem(f"{prefix}metadata.name", f"{_shown(route.name)} is document {first}, too")
            )
        routes.append(route)
    if problems:
        raise RouteError(problems)
    return tuple(routes)


def to_yaml(routes: Iterable[GRPCRoute]) -> str:
    """Write routes; durations stay as they were written, reasons are in the GEP's spelling."""
    text: str = yaml.safe_dump_all(
        [_document(route) for route in routes], sort_keys=False, allow_unicode=True, explicit_start=False
    )
    return text


def _document(route: GRPCRoute) -> dict[str, Any]:
    spec = _said(parentRefs=[{"name": name} for name in route.parents], hostnames=list(route.hostnames))
    spec["rules"] = [_rule(rule) for rule in route.rules]
    metadata = _said(name=route.name, namespace=route.namespace)
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": spec}


def _rule(rule: Rule) -> dict[str, Any]:
    written = _said(
        matches=[{"method": _said(service=one.service, method=one.method)} for one in rule.matches],
        timeouts=_said(
            request=_text(rule.timeouts.request), backendRequest=_text(rule.timeouts.backend_request)
        ),
    )
    if rule.retry is not None:  # an empty one says something: retry as is the default
        written["retry"] = _said(reasons=[str(reason) for reason in rule.retry.reasons])
        if rule.retry.attempts is not None:
            written["retry"]["attempts"] = rule.retry.attempts
        written["retry"] |= _said(backoff=_text(rule.retry.backoff))
    if rule.sessions is not None:
        written["sessionPersistence"] = {
            "sessionName": rule.sessions.name,
            "type": str(rule.sessions.kind),
        }
    if rule.backends:
        written["backendRefs"] = [
            {"name": one.name, "port": one.port} | ({} if one.weight == 1 else {"weight": one.weight})
            for one in rule.backends
        ]
    return written


def _text(duration: GepDuration | None) -> str:
    return duration.text if duration else ""


def _said(**values: Any) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value}


def _shown(found: object) -> str:
    """A value for a sentence: short, whatever was in the file."""
    if isinstance(found, dict | list):
        return "a mapping" if isinstance(found, dict) else "a list"
    if isinstance(found, int) and abs(found) > 1 << 63:  # Python refuses to write the longest
        return "a number of many digits"
    shown = repr(found)
    return shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}..."


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class _Reader:
    """Reads one document and collects what is wrong with it; what is wrong is left out of the result."""

    def __init__(self, problems: list[Problem], prefix: str) -> None:
        self._problems = problems
        self._prefix = prefix

    def route(self, found: object) -> GRPCRoute:
        top = self._keys(found, "", {"apiVersion", "kind", "metadata", "spec", "status"})
        for key, wanted in (("apiVersion", API_VERSION), ("kind", KIND)):
            if top.get(key) != wanted:
                self._wrong(key, f"{_shown(top.get(key))} is not {wanted}")
        metadata = self._mapping(top.get("metadata", {}), "metadata")
        spec = self._keys(top.get("spec", {}), "spec", {"parentRefs", "hostnames", "rules"})
        if "rules" not in spec:
            # A file that is still being written, or was cut, is often YAML: it must not take every call away.
            self._wrong("spec.rules", "is missing")
        return GRPCRoute(
            self._word(metadata, "metadata", "name", needed=True),
            self._word(metadata, "metadata", "namespace"),
            self._each(spec, "spec", "parentRefs", self._parent),
            self._each(spec, "spec", "hostnames", self._hostname),
            self._each(spec, "spec", "rules", self._one_rule),
        )

    def _parent(self, found: object, path: str) -> str:
        return self._word(self._keys(found, path, {"name"}), path, "name", needed=True)

    def _hostname(self, found: object, path: str) -> str:
        if not isinstance(found, str) or not _HOSTNAME.fullmatch(found) or len(found) > 253:
            self._wrong(
                path,
                f"{_shown(found)} is not a host name: small letters, digits, dashes, dots, `*.` in front",
            )
        elif _ADDRESS.fullmatch(found):
            self._wrong(path, f"{_shown(found)} is an address, not a host name")
        return str(found)

    def _one_rule(self, found: object, path: str) -> Rule:
        held = self._keys(found, path, {"matches", "retry", "timeouts", "sessionPersistence", "backendRefs"})
        return Rule(
            self._each(held, path, "matches", self._match),
            self._retry(held["retry"], f"{path}.retry") if "retry" in held else None,
            self._timeouts(held.get("timeouts", {}), f"{path}.timeouts"),
            self._each(held, path, "backendRefs", self._backend),
            self._sessions(held["sessionPersistence"], f"{path}.sessionPersistence")
            if "sessionPersistence" in held
            else None,
        )

    def _match(self, found: object, path: str) -> Match:
        held = self._keys(found, path, {"method"})
        path = f"{path}.method"
        held = self._keys(held.get("method", {}), path, {"type", "service", "method"})
        if held.get("type", "Exact") != "Exact":
            self._wrong(f"{path}.type", f"{_shown(held['type'])} is not supported: only Exact is")
        match = Match(self._word(held, path, "service", _SERVICE), self._word(held, path, "method", _METHOD))
        if held and not {"service", "method"} & held.keys():
            self._wrong(path, "names neither a service nor a method")
        return match

    def _retry(self, found: object, path: str) -> Retry:
        held = self._keys(found, path, {"reasons", "attempts", "backoff"})
        reasons = dict.fromkeys(
            one for one in self._each(held, path, "reasons", self._reason) if one is not None
        )
        attempts = self._number(held, path, "attempts", 0, None)
        return Retry(tuple(reasons), attempts, self._duration(held, path, "backoff"))

    def _reason(self, found: object, path: str) -> Reason | None:
        try:
            return Reason.read(found if isinstance(found, str) else _shown(found))
        except UnknownReason as error:
            self._wrong(path, str(error))
            return None

    def _timeouts(self, found: object, path: str) -> Timeouts:
        held = self._keys(found, path, {"request", "backendRequest"})
        request = self._duration(held, path, "request")
        per_try = self._duration(held, path, "backendRequest")
        if request and per_try and 0 < request.milliseconds < per_try.milliseconds:
            self._wrong(
                f"{path}.backendRequest", f"{per_try.text} is longer than the request's {request.text}"
            )
        return Timeouts(request, per_try)

    def _sessions(self, found: object, path: str) -> SessionPersistence:
        held = self._keys(found, path, {"sessionName", "type"})
        kind = held.get("type", SessionType.COOKIE)
        if not isinstance(kind, str) or kind not in set(SessionType):
            self._wrong(f"{path}.type", f"{_shown(kind)} is neither Cookie nor Header")
            kind = SessionType.COOKIE
        name = self._word(held, path, "sessionName", _SESSION) or SessionPersistence().name
        return SessionPersistence(name, SessionType(kind))

    def _backend(self, found: object, path: str) -> Backend:
        held = self._keys(found, path, {"name", "port", "weight"})
        name = self._word(held, path, "name", needed=True)
        if name and not (_BACKEND.fullmatch(name) or _is_address(name)):
            self._wrong(
                f"{path}.name", f"{_shown(name)} is neither a name nor an address that can be looked up"
            )
        if "port" not in held:
            self._wrong(f"{path}.port", "is missing")
        weight = self._number(held, path, "weight", 0, 1_000_000)
        return Backend(
            name, self._number(held, path, "port", 1, 65_535) or 0, 1 if weight is None else weight
        )

    def _duration(self, held: Mapping[str, Any], path: str, key: str) -> GepDuration | None:
        if key not in held:
            return None
        path = f"{path}.{key}"
        if not isinstance(held[key], str):
            self._wrong(path, f"{_shown(held[key])} is not a duration: write it like 100ms or 1h30m")
            return None
        try:
            duration = GepDuration.read(held[key])
        except GepDurationError as error:
            self._wrong(path, str(error))
            return None
        if duration.milliseconds > LONGEST:
            self._wrong(path, f"{duration.text!r} is longer than 99999h59m59s999ms")
            return None
        return duration

    def _number(
        self, held: Mapping[str, Any], path: str, key: str, lowest: int, highest: int | None
    ) -> int | None:
        if key not in held:
            return None
        found = held[key]
        # bool is an int, and YAML has many words for it.
        if not isinstance(found, int) or isinstance(found, bool):
            self._wrong(f"{path}.{key}", f"{_shown(found)} is not a whole number")
            return None
        if found < lowest or (highest is not None and found > highest):
            limit = f"from {lowest} to {highest}" if highest is not None else f"{lowest} or more"
            self._wrong(f"{path}.{key}", f"{_shown(found)} is not {limit}")
            return None
        return found

    def _word(
        self,
        held: Mapping[str, Any],
        path: str,
        key: str,
        pattern: re.Pattern[str] = _ANY,
        *,
        needed: bool = False,
    ) -> str:
        found = held.get(key)
        if key not in held:
            if needed:
                self._wrong(f"{path}.{key}", "is missing")
        elif not isinstance(found, str) or not pattern.fullmatch(found):
            self._wrong(f"{path}.{key}", f"{_shown(found)} is not a name")
        return found if isinstance(found, str) else ""

    def _each(
        self, held: Mapping[str, Any], path: str, key: str, read: Callable[[object, str], _T]
    ) -> tuple[_T, ...]:
        if key not in held:
            return ()
        found = held[key]
        path = f"{path}.{key}"
        if not isinstance(found, list):
            self._wrong(path, "is not a list" if found is not None else "is empty: write [], or leave it out")
            return ()
        return tuple(read(one, f"{path}[{number}]") for number, one in enumerate(found))

    def _keys(self, found: object, path: str, known: set[str]) -> dict[str, Any]:
        held = self._mapping(found, path)
        for key in held:
            if key not in known:
                self._wrong(f"{path}.{key}".removeprefix("."), "no such key, or one that is not supported")
        return held

    def _mapping(self, found: object, path: str) -> dict[str, Any]:
        if not isinstance(found, dict):
            # `retry:` with nothing behind it: Kubernetes reads no retries there, others the default ones.
            wrong = (
                "is not a mapping of keys to values"
                if found is not None
                else "is empty: write {}, or leave it out"
            )
            self._wrong(path or "the document", wrong)
            return {}
        return found

    def _wrong(self, path: str, sentence: str) -> None:
        self._problems.append(Problem(self._prefix + path, sentence))
