"""Reading and writing GRPCRoute as YAML; all problems are reported together, each with the path of its field. Pure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import yaml

from fleet.protocol import strict_yaml
from fleet.protocol.retry.gep_duration import LONGEST_MS, GepDuration, GepDurationError
from fleet.protocol.retry.grpc_route import (
    BackendRef,
    GRPCRoute,
    GRPCRouteRule,
    Match,
    Retry,
    RouteError,
    RouteProblem,
    SessionPersistence,
    SessionType,
    Timeouts,
)
from fleet.protocol.retry.policy import RetryReason, UnknownReasonError

API_VERSION = "gateway.networking.k8s.io/v1"
KIND = "GRPCRoute"

_T = TypeVar("_T")

# The patterns of the Gateway API's own schema.
_HOSTNAME = re.compile(r"(\*\.)?[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_SERVICE = re.compile(r"[A-Za-z_][A-Za-z_0-9]*(\.[A-Za-z_][A-Za-z_0-9]*)*")
_METHOD = re.compile(r"[A-Za-z_][A-Za-z_0-9]*")
#: Name of a header or a cookie; without the headers that gRPC or HTTP/2 reserves.
_SESSION = re.compile(r"(?!(grpc-.*|content-type|te|host|connection)\Z)[-a-z0-9_]{1,128}", re.IGNORECASE)
_NOT_BLANK = re.compile(r"\S(.*\S)?")
# A name that a resolver or `--backend` accepts: labels of up to 63 characters.
_BACKEND = re.compile(
    r"(?=.{1,253}\Z)[A-Za-z0-9_]([-A-Za-z0-9_]{0,61}[A-Za-z0-9_])?(\.[A-Za-z0-9_]([-A-Za-z0-9_]{0,61}[A-Za-z0-9_])?)*"
)
#: Maximum length of a value in a message, characters.
_QUOTE_LENGTH = 80
_ADDRESS = re.compile(r"[0-9]+(\.[0-9]+){3}")


def from_yaml(text: str) -> tuple[GRPCRoute, ...]:
    """Return the routes of a YAML text, one a document. Raises RouteError."""
    try:
        documents = strict_yaml.load_all(text)
    except strict_yaml.StrictYAMLError as error:
        raise RouteError([RouteProblem("YAML", str(error))]) from None
    if not documents:
        raise RouteError([RouteProblem("YAML", "the file contains no route")])
    problems: list[RouteProblem] = []
    routes = []
    document_number_by_name: dict[tuple[str, str], int] = {}
    for number, document in enumerate(documents, start=1):
        # The document number is given only if there are several.
        prefix = f"document {number}: " if len(documents) > 1 else ""
        route = _RouteReader(problems, prefix).route(document)
        # Equal names would mix up metrics; in Kubernetes one would replace the other.
        first_number = document_number_by_name.setdefault((route.namespace, route.name), number)
        if first_number != number and route.name:
            problems.append(
                RouteProblem(
                    f"{prefix}metadata.name",
                    f"{_quote(route.name)} is also the name of document {first_number}",
                )
            )
        routes.append(route)
    if problems:
        raise RouteError(problems)
    return tuple(routes)


def to_yaml(routes: Iterable[GRPCRoute]) -> str:
    """Return routes as YAML; durations keep their text, reasons have the GEP's spelling."""
    text: str = yaml.safe_dump_all(
        [_document(route) for route in routes], sort_keys=False, allow_unicode=True, explicit_start=False
    )
    return text


def _document(route: GRPCRoute) -> dict[str, Any]:
    spec = _without_empty(
        parentRefs=[{"name": name} for name in route.parents], hostnames=list(route.hostnames)
    )
    spec["rules"] = [_rule(rule) for rule in route.rules]
    metadata = _without_empty(name=route.name, namespace=route.namespace)
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": spec}


def _rule(rule: GRPCRouteRule) -> dict[str, Any]:
    document = _without_empty(
        matches=[
            {"method": _without_empty(service=entry.service, method=entry.method)} for entry in rule.matches
        ],
        timeouts=_without_empty(
            request=_text(rule.timeouts.request), backendRequest=_text(rule.timeouts.backend_request)
        ),
    )
    if rule.retry is not None:  # an empty one means something: retry with the defaults
        document["retry"] = _without_empty(reasons=[str(reason) for reason in rule.retry.reasons])
        if rule.retry.attempts is not None:
            document["retry"]["attempts"] = rule.retry.attempts
        document["retry"] |= _without_empty(backoff=_text(rule.retry.backoff))
    if rule.sessions is not None:
        document["sessionPersistence"] = {
            "sessionName": rule.sessions.name,
            "type": str(rule.sessions.kind),
        }
    if rule.backends:
        document["backendRefs"] = [
            {"name": entry.name, "port": entry.port} | ({} if entry.weight == 1 else {"weight": entry.weight})
            for entry in rule.backends
        ]
    return document


def _text(duration: GepDuration | None) -> str:
    return duration.text if duration else ""


def _without_empty(**fields: Any) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value}


def _quote(raw: object) -> str:
    """Return a value for a message, shortened."""
    if isinstance(raw, dict | list):
        return "a mapping" if isinstance(raw, dict) else "a list"
    if isinstance(raw, int) and abs(raw) > 1 << 63:  # Python refuses to print the longest
        return "a number of many digits"
    quote = repr(raw)
    return quote if len(quote) <= _QUOTE_LENGTH else f"{quote[:_QUOTE_LENGTH]}..."


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class _RouteReader:
    """Reads one document and collects its problems; wrong values are left out of the result."""

    def __init__(self, problems: list[RouteProblem], prefix: str) -> None:
        self._problems = problems
        self._prefix = prefix

    def route(self, raw: object) -> GRPCRoute:
        top = self._mapping_with_keys(raw, "", {"apiVersion", "kind", "metadata", "spec", "status"})
        for key, expected in (("apiVersion", API_VERSION), ("kind", KIND)):
            if top.get(key) != expected:
                problem = f"{_quote(top[key])} is not supported" if key in top else "is missing"
                self._add_problem(key, f"{problem}. Use {expected}")
        metadata = self._mapping(top.get("metadata", {}), "metadata")
        spec = self._mapping_with_keys(top.get("spec", {}), "spec", {"parentRefs", "hostnames", "rules"})
        if "rules" not in spec:
            # A partly written or truncated file is often valid YAML: it must not remove every route.
            self._add_problem("spec.rules", "is missing")
        return GRPCRoute(
            self._name(metadata, "metadata", "name", is_required=True),
            self._name(metadata, "metadata", "namespace"),
            self._list(spec, "spec", "parentRefs", self._parent),
            self._list(spec, "spec", "hostnames", self._hostname),
            self._list(spec, "spec", "rules", self._rule),
        )

    def _parent(self, raw: object, path: str) -> str:
        return self._name(self._mapping_with_keys(raw, path, {"name"}), path, "name", is_required=True)

    def _hostname(self, raw: object, path: str) -> str:
        if not isinstance(raw, str) or not _HOSTNAME.fullmatch(raw) or len(raw) > 253:
            self._add_problem(
                path,
                f"{_quote(raw)} is not a host name. Use a-z, 0-9, dashes and dots, with an optional `*.` prefix",
            )
        elif _ADDRESS.fullmatch(raw):
            self._add_problem(path, f"{_quote(raw)} is an IP address, not a host name")
        return str(raw)

    def _rule(self, raw: object, path: str) -> GRPCRouteRule:
        mapping = self._mapping_with_keys(
            raw, path, {"matches", "retry", "timeouts", "sessionPersistence", "backendRefs"}
        )
        return GRPCRouteRule(
            self._list(mapping, path, "matches", self._match),
            self._retry(mapping["retry"], f"{path}.retry") if "retry" in mapping else None,
            self._timeouts(mapping.get("timeouts", {}), f"{path}.timeouts"),
            self._list(mapping, path, "backendRefs", self._backend),
            self._sessions(mapping["sessionPersistence"], f"{path}.sessionPersistence")
            if "sessionPersistence" in mapping
            else None,
        )

    def _match(self, raw: object, path: str) -> Match:
        mapping = self._mapping_with_keys(raw, path, {"method"})
        path = f"{path}.method"
        mapping = self._mapping_with_keys(mapping.get("method", {}), path, {"type", "service", "method"})
        if mapping.get("type", "Exact") != "Exact":
            self._add_problem(f"{path}.type", f"{_quote(mapping['type'])} is not supported. Use Exact")
        match = Match(
            self._name(mapping, path, "service", _SERVICE), self._name(mapping, path, "method", _METHOD)
        )
        if mapping and not {"service", "method"} & mapping.keys():
            self._add_problem(path, "has neither a service nor a method")
        return match

    def _retry(self, raw: object, path: str) -> Retry:
        mapping = self._mapping_with_keys(raw, path, {"reasons", "attempts", "backoff"})
        reasons = dict.fromkeys(
            reason for reason in self._list(mapping, path, "reasons", self._reason) if reason is not None
        )
        attempts = self._number(mapping, path, "attempts", 0, None)
        return Retry(tuple(reasons), attempts, self._duration(mapping, path, "backoff"))

    def _reason(self, raw: object, path: str) -> RetryReason | None:
        try:
            return RetryReason.read(raw if isinstance(raw, str) else _quote(raw))
        except UnknownReasonError as error:
            self._add_problem(path, str(error))
            return None

    def _timeouts(self, raw: object, path: str) -> Timeouts:
        mapping = self._mapping_with_keys(raw, path, {"request", "backendRequest"})
        request = self._duration(mapping, path, "request")
        per_try = self._duration(mapping, path, "backendRequest")
        if request and per_try and 0 < request.milliseconds < per_try.milliseconds:
            self._add_problem(
                f"{path}.backendRequest", f"{per_try.text} is longer than timeouts.request, {request.text}"
            )
        return Timeouts(request, per_try)

    def _sessions(self, raw: object, path: str) -> SessionPersistence:
        mapping = self._mapping_with_keys(raw, path, {"sessionName", "type"})
        kind = mapping.get("type", SessionType.COOKIE)
        if not isinstance(kind, str) or kind not in set(SessionType):
            self._add_problem(f"{path}.type", f"{_quote(kind)} is not a session type. Use Cookie or Header")
            kind = SessionType.COOKIE
        name = self._name(mapping, path, "sessionName", _SESSION) or SessionPersistence().name
        return SessionPersistence(name, SessionType(kind))

    def _backend(self, raw: object, path: str) -> BackendRef:
        mapping = self._mapping_with_keys(raw, path, {"name", "port", "weight"})
        name = self._name(mapping, path, "name", is_required=True)
        if name and not (_BACKEND.fullmatch(name) or _is_address(name)):
            self._add_problem(f"{path}.name", f"{_quote(name)} is neither a DNS name nor an IP address")
        if "port" not in mapping:
            self._add_problem(f"{path}.port", "is missing")
        weight = self._number(mapping, path, "weight", 0, 1_000_000)
        return BackendRef(
            name, self._number(mapping, path, "port", 1, 65_535) or 0, 1 if weight is None else weight
        )

    def _duration(self, mapping: Mapping[str, Any], path: str, key: str) -> GepDuration | None:
        if key not in mapping:
            return None
        path = f"{path}.{key}"
        if not isinstance(mapping[key], str):
            self._add_problem(
                path, f"{_quote(mapping[key])} is not a duration. Use a form like 100ms or 1h30m"
            )
            return None
        try:
            duration = GepDuration.read(mapping[key])
        except GepDurationError as error:
            self._add_problem(path, str(error))
            return None
        if duration.milliseconds > LONGEST_MS:
            self._add_problem(path, f"{duration.text!r} is longer than 99999h59m59s999ms")
            return None
        return duration

    def _number(
        self, mapping: Mapping[str, Any], path: str, key: str, lowest: int, highest: int | None
    ) -> int | None:
        if key not in mapping:
            return None
        raw_number = mapping[key]
        # bool is a subclass of int, and YAML has many words for it.
        if not isinstance(raw_number, int) or isinstance(raw_number, bool):
            self._add_problem(f"{path}.{key}", f"{_quote(raw_number)} is not a whole number")
            return None
        if raw_number < lowest or (highest is not None and raw_number > highest):
            limit = f"{lowest} to {highest}" if highest is not None else f"{lowest} or more"
            self._add_problem(f"{path}.{key}", f"{_quote(raw_number)} is out of range. Use {limit}")
            return None
        return raw_number

    def _name(
        self,
        mapping: Mapping[str, Any],
        path: str,
        key: str,
        pattern: re.Pattern[str] = _NOT_BLANK,
        *,
        is_required: bool = False,
    ) -> str:
        raw = mapping.get(key)
        if key not in mapping:
            if is_required:
                self._add_problem(f"{path}.{key}", "is missing")
        elif not isinstance(raw, str) or not pattern.fullmatch(raw):
            self._add_problem(f"{path}.{key}", f"{_quote(raw)} is not a valid name")
        return raw if isinstance(raw, str) else ""

    def _list(
        self, mapping: Mapping[str, Any], path: str, key: str, read: Callable[[object, str], _T]
    ) -> tuple[_T, ...]:
        if key not in mapping:
            return ()
        raw = mapping[key]
        path = f"{path}.{key}"
        if not isinstance(raw, list):
            self._add_problem(
                path, "is not a list" if raw is not None else "is empty. Write [] or leave it out"
            )
            return ()
        return tuple(read(entry, f"{path}[{number}]") for number, entry in enumerate(raw))

    def _mapping_with_keys(self, raw: object, path: str, allowed_keys: set[str]) -> dict[str, Any]:
        mapping = self._mapping(raw, path)
        for key in mapping:
            if key not in allowed_keys:
                self._add_problem(f"{path}.{key}".removeprefix("."), "is not a known or supported key")
        return mapping

    def _mapping(self, raw: object, path: str) -> dict[str, Any]:
        if not isinstance(raw, dict):
            # An empty `retry:` means no retries to Kubernetes, and default retries to others.
            sentence = (
                "is not a mapping of keys to values"
                if raw is not None
                else "is empty. Write {} or leave it out"
            )
            self._add_problem(path or "the document", sentence)
            return {}
        return raw

    def _add_problem(self, path: str, sentence: str) -> None:
        self._problems.append(RouteProblem(self._prefix + path, sentence))
