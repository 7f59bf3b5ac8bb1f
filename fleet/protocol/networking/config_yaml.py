"""ClusterNetworkingConfig as a document: reading and writing Teleport's YAML.

YAML typed by a person is read strictly: unknown and duplicate keys are refused. Documents of other programs are read
leniently: unknown keys are ignored, as Teleport does. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from fleet.protocol import strict_yaml
from fleet.protocol.networking import config as rules
from fleet.protocol.networking.config import (
    FIELDS,
    OWN_FIELD_NAMES,
    ConfigField,
    FieldKind,
    FieldProblem,
    FieldValue,
    NetworkingConfig,
    NetworkingConfigError,
    NetworkingResource,
)

KIND = "cluster_networking_config"
VERSION = "v2"
NAME = "cluster-networking-config"

#: Maximum length of a document, characters; a usual one has about 1,000.
_MAX_LENGTH = 65_536
_METADATA_KEYS = {"name", "namespace", "description", "labels", "expires", "revision"}
_TOP_KEYS = {"kind", "sub_kind", "version", "metadata", "spec"}
_SPEC_KEYS = {field.key.partition(".")[0] for field in FIELDS}


def to_document(resource: NetworkingResource) -> dict[str, Any]:
    """Return a resource as Teleport shows it; fields that Teleport does not have only when they are set."""
    spec: dict[str, Any] = {}
    for field in FIELDS:
        value = resource.config.value_of(field)
        if value in (0, "", False) and field.key not in _KEYS_SHOWN_WHEN_ZERO - resource.omitted_keys:
            continue
        section_name, _, key = field.key.rpartition(".")
        (spec.setdefault(section_name, {}) if section_name else spec)[key] = rules.format_value(field, value)
    metadata: dict[str, Any] = {"name": NAME, "labels": dict(sorted(resource.labels.items()))}
    if resource.description:
        metadata["description"] = resource.description
    metadata["revision"] = resource.revision
    return {"kind": KIND, "version": VERSION, "metadata": metadata, "spec": spec}


#: Shown even when zero, as in Teleport.
_KEYS_SHOWN_WHEN_ZERO = {
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


def to_yaml(resource: NetworkingResource) -> str:
    """Return a resource as YAML."""
    text: str = yaml.safe_dump(to_document(resource), sort_keys=False, allow_unicode=True)
    return text


def from_yaml(text: str) -> NetworkingResource:
    """Return the resource of a YAML text. Raises NetworkingConfigError with all problems; ranges are not checked."""
    try:
        document = strict_yaml.load(text, longest=_MAX_LENGTH)
    except strict_yaml.StrictYAMLError as error:
        raise NetworkingConfigError([FieldProblem("YAML", str(error))]) from None
    return from_document(document, strict=True)


def from_document(document: object, *, strict: bool) -> NetworkingResource:
    """Return the resource of a document; `strict` refuses unknown keys. Raises NetworkingConfigError."""
    top = _require_mapping(document, "the document")
    problems = list(_unknown_keys(top, _TOP_KEYS, "", strict=strict))
    for key, expected in (("kind", KIND), ("version", VERSION)):
        if top.get(key, expected) != expected:
            problems.append(FieldProblem(key, f"{top[key]!r} is not supported. Use {expected!r}"))
    metadata = _require_mapping(top.get("metadata"), "metadata")
    problems += _unknown_keys(metadata, _METADATA_KEYS, "metadata.", strict=strict)
    if metadata.get("name", NAME) != NAME:
        problems.append(FieldProblem("metadata.name", f"must be {NAME!r}, the only name of this kind"))
    labels = _require_mapping(metadata.get("labels"), "metadata.labels")
    if not all(isinstance(text, str) for pair in labels.items() for text in pair):
        problems.append(FieldProblem("metadata.labels", "keys and values must be text"))
    for key in ("revision", "description"):
        if not isinstance(metadata.get(key) or "", str):
            problems.append(FieldProblem(f"metadata.{key}", "must be text"))
    spec = _require_mapping(top.get("spec"), "spec")
    field_values = dict(_read_fields(spec, problems, strict=strict))
    if problems:
        raise NetworkingConfigError(problems)
    return NetworkingResource(
        NetworkingConfig(**field_values),
        labels,
        revision=metadata.get("revision") or "",
        description=metadata.get("description") or "",
        # What a stored document leaves out, the documents that are made from it leave out too.
        omitted_keys=frozenset() if strict else frozenset(OWN_FIELD_NAMES) - spec.keys(),
    )


def _read_fields(
    spec: Mapping[str, Any], problems: list[FieldProblem], *, strict: bool
) -> Iterator[tuple[str, Any]]:
    strategy = _require_mapping(spec.get("tunnel_strategy"), "spec.tunnel_strategy")
    if "tunnel_strategy" in spec and spec["tunnel_strategy"] is not None and "type" not in strategy:
        problems.append(FieldProblem("tunnel_strategy.type", "is missing"))
    sections = {"": spec, "tunnel_strategy": strategy}
    for section_name, section in sections.items():
        allowed_keys = {
            field.key.rpartition(".")[2] for field in FIELDS if field.key.rpartition(".")[0] == section_name
        }
        prefix = f"spec.{section_name}." if section_name else "spec."
        problems += _unknown_keys(
            section,
            allowed_keys | ({"tunnel_strategy"} if not section_name else set()),
            prefix,
            strict=strict,
        )
    for field in FIELDS:
        section_name, _, key = field.key.rpartition(".")
        if sections[section_name].get(key) is None:
            continue
        try:
            yield field.name, _read_value(field, sections[section_name][key])
        except NetworkingConfigError as error:
            problems += error.problems


def _read_value(field: ConfigField, raw: object) -> FieldValue:
    """Return a document's value of a field. Raises NetworkingConfigError if it has the wrong type."""
    error = NetworkingConfigError(
        [FieldProblem(field.key, f"{raw!r} is not {_KIND_DESCRIPTIONS[field.kind]}")]
    )
    if field.kind is FieldKind.SWITCH:
        if not isinstance(raw, bool):
            raise error
        return raw
    if isinstance(raw, bool):
        raise error
    if field.kind is FieldKind.INTEGER:
        if not isinstance(raw, int):
            raise error
        return raw
    if field.kind is FieldKind.DURATION and raw == 0:
        return 0.0
    if not isinstance(raw, str):
        raise error
    return rules.parse_value(field, raw)


_KIND_DESCRIPTIONS = {
    FieldKind.DURATION: "a duration such as 30s, 1m30s or 500ms",
    FieldKind.INTEGER: "a whole number",
    FieldKind.TEXT: "text",
    FieldKind.SWITCH: "true or false",
    FieldKind.CHOICE: "a word",
}


def _require_mapping(raw: object, path: str) -> dict[str, Any]:
    if raw is None:
        return {}
    if not isinstance(raw, dict):
        raise NetworkingConfigError([FieldProblem(path, "is not a mapping of keys to values")])
    return raw


def _unknown_keys(
    mapping: Mapping[str, Any], allowed_keys: set[str], prefix: str, *, strict: bool
) -> Iterator[FieldProblem]:
    for key in mapping if strict else ():
        if key not in allowed_keys:
            is_misplaced = not prefix and key in _SPEC_KEYS
            yield FieldProblem(
                f"{prefix}{key}", "belongs below spec" if is_misplaced else "is not a known key"
            )
