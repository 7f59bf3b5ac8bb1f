"""ClusterNetworkingConfig as a document: Teleport's YAML, in and out.

YAML is read strictly, because a person wrote it: unknown and doubled keys are refused. Documents of other programs are
read with unknown keys ignored, as Teleport does. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from fleet.protocol import strict_yaml
from fleet.protocol.networking import config as rules
from fleet.protocol.networking.config import (
    FIELDS,
    Field,
    Kind,
    NetworkingConfig,
    NetworkingConfigError,
    Problem,
    Resource,
    Value,
)

KIND = "cluster_networking_config"
VERSION = "v2"
NAME = "cluster-networking-config"

#: Characters of a document; Teleport shows one in 1,000.
_LONGEST = 65_536
_METADATA = {"name", "namespace", "description", "labels", "expires", "revision"}
_TOP = {"kind", "sub_kind", "version", "metadata", "spec"}


def to_document(resource: Resource) -> dict[str, Any]:
    """A resource as Teleport shows it; fields of ours only when they say something."""
    spec: dict[str, Any] = {}
    for field in FIELDS:
        value = resource.config.value(field)
        if value in (0, "", False) and field.key not in _ALWAYS:
            continue
        room, _, key = field.key.rpartition(".")
        (spec.setdefault(room, {}) if room else spec)[key] = rules.format_value(field, value)
    metadata: dict[str, Any] = {"name": NAME, "labels": dict(sorted(resource.labels.items()))}
    if resource.description:
        metadata["description"] = resource.description
    metadata["revision"] = resource.revision
    return {"kind": KIND, "version": VERSION, "metadata": metadata, "spec": spec}


#: Shown even when zero, as Teleport shows them.
_ALWAYS = {
    "client_idle_timeout",
    "idle_timeout_message",
    "web_idle_timeout",
    "keep_alive_interval",
    "keep_alive_count_max",
    "session_control_timeout",
    "case_insensitive_routing",
    "ssh_dial_timeout",
    "graceful_tunnel_closing",
    "tunnel_strategy.type",
}


def to_yaml(resource: Resource) -> str:
    """A resource as YAML."""
    text: str = yaml.safe_dump(to_document(resource), sort_keys=False, allow_unicode=True)
    return text


def from_yaml(text: str) -> Resource:
    """Read what a person wrote. Raises NetworkingConfigError for all it finds wrong, ranges apart."""
    try:
        document = strict_yaml.load(text, longest=_LONGEST)
    except strict_yaml.StrictYAMLError as error:
        raise NetworkingConfigError([Problem("YAML", str(error))]) from None
    return from_document(document, strict=True)


def from_document(document: object, *, strict: bool) -> Resource:
    """Read a document. Raises NetworkingConfigError."""
    top = _mapping(document, "the document")
    problems = list(_stray(top, _TOP, "", strict=strict))
    for key, wanted in (("kind", KIND), ("version", VERSION)):
        if top.get(key, wanted) != wanted:
            problems.append(Problem(key, f"{top[key]!r} is not {wanted!r}"))
    metadata = _mapping(top.get("metadata"), "metadata")
    problems += _stray(metadata, _METADATA, "metadata.", strict=strict)
    if metadata.get("name", NAME) != NAME:
        problems.append(Problem("metadata.name", f"there is only {NAME!r}"))
    labels = _mapping(metadata.get("labels"), "metadata.labels")
    if not all(isinstance(word, str) for pair in labels.items() for word in pair):
        problems.append(Problem("metadata.labels", "labels are text"))
    for key in ("revision", "description"):
        if not isinstance(metadata.get(key) or "", str):
            problems.append(Problem(f"metadata.{key}", "is text"))
    values = dict(_values(_mapping(top.get("spec"), "spec"), problems, strict=strict))
    if problems:
        raise NetworkingConfigError(problems)
    return Resource(
        NetworkingConfig(**values),
        labels,
        revision=metadata.get("revision") or "",
        description=metadata.get("description") or "",
    )


def _values(spec: Mapping[str, Any], problems: list[Problem], *, strict: bool) -> Iterator[tuple[str, Any]]:
    strategy = _mapping(spec.get("tunnel_strategy"), "spec.tunnel_strategy")
    if "tunnel_strategy" in spec and spec["tunnel_strategy"] is not None and "type" not in strategy:
        problems.append(Problem("tunnel_strategy.type", "is missing"))
    rooms = {"": spec, "tunnel_strategy": strategy}
    for room, held in rooms.items():
        known = {field.key.rpartition(".")[2] for field in FIELDS if field.key.rpartition(".")[0] == room}
        prefix = f"spec.{room}." if room else "spec."
        problems += _stray(held, known | ({"tunnel_strategy"} if not room else set()), prefix, strict=strict)
    for field in FIELDS:
        room, _, key = field.key.rpartition(".")
        if rooms[room].get(key) is None:
            continue
        try:
            yield field.name, _value(field, rooms[room][key])
        except NetworkingConfigError as error:
            problems += error.problems


def _value(field: Field, found: object) -> Value:
    """A value of a document, which must have the kind of its field."""
    wrong = NetworkingConfigError([Problem(field.key, f"{found!r} is not {_KINDS[field.kind]}")])
    if field.kind is Kind.SWITCH:
        if not isinstance(found, bool):
            raise wrong
        return found
    if isinstance(found, bool):
        raise wrong
    if field.kind is Kind.INTEGER:
        if not isinstance(found, int):
            raise wrong
        return found
    if field.kind is Kind.DURATION and found == 0:
        return 0.0
    if not isinstance(found, str):
        raise wrong
    return rules.parse_value(field, found)


_KINDS = {
    Kind.DURATION: "a duration: write it like 30s, 1m30s or 500ms",
    Kind.INTEGER: "a whole number",
    Kind.TEXT: "text",
    Kind.SWITCH: "true or false",
    Kind.CHOICE: "a word",
}


def _mapping(found: object, where: str) -> dict[str, Any]:
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise NetworkingConfigError([Problem(where, "is not a mapping of keys to values")])
    return found


def _stray(held: Mapping[str, Any], known: set[str], prefix: str, *, strict: bool) -> Iterator[Problem]:
    for key in held if strict else ():
        if key not in known:
            yield Problem(f"{prefix}{key}", "no such key")
