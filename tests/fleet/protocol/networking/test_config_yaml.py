"""ClusterNetworkingConfig as YAML and JSON."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.protocol.networking import config_yaml
from fleet.protocol.networking.config import (
    FIELDS,
    FieldKind,
    NetworkingConfig,
    NetworkingConfigError,
    NetworkingResource,
    with_defaults,
)

YAML_TEXT = """\
kind: cluster_networking_config
version: v2
metadata:
  name: cluster-networking-config
  labels:
    teleport.dev/origin: dynamic
  revision: abc
spec:
  client_idle_timeout: 0s
  idle_timeout_message: ''
  web_idle_timeout: 0s
  keep_alive_interval: 5m0s
  keep_alive_count_max: 3
  session_control_timeout: 0s
  proxy_listener_mode: separate
  routing_strategy: unambiguous_match
  tunnel_strategy:
    type: proxy_peering
    agent_connection_count: 2
  case_insensitive_routing: false
  ssh_dial_timeout: 0s
  graceful_tunnel_closing: true
"""


def resource(config: NetworkingConfig) -> NetworkingResource:
    return NetworkingResource(with_defaults(config), {"teleport.dev/origin": "dynamic"}, "abc")


def yaml_error(text: str) -> str:
    with pytest.raises(NetworkingConfigError) as caught:
        config_yaml.from_yaml(text)
    return str(caught.value)


def test_yaml_matches_teleport() -> None:
    """Keys, nesting and durations are those that tctl prints."""
    config = NetworkingConfig(
        tunnel_strategy="proxy_peering", agent_connection_count=2, graceful_tunnel_closing=True
    )
    assert config_yaml.to_yaml(resource(config)) == YAML_TEXT
    assert config_yaml.from_yaml(YAML_TEXT) == resource(config)


_VALUES = {
    FieldKind.DURATION: st.integers(0, 10**12).map(lambda milliseconds: milliseconds / 1000),
    FieldKind.INTEGER: st.integers(-(2**31), 2**31 - 1),
    FieldKind.TEXT: st.text(st.characters(codec="utf-8", exclude_categories=["C"])),
    FieldKind.SWITCH: st.booleans(),
}


@settings(deadline=None)
@given(
    st.fixed_dictionaries(
        {
            field.name: st.sampled_from(field.choices)
            if field.kind is FieldKind.CHOICE
            else _VALUES[field.kind]
            for field in FIELDS
        }
    ),
    st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=3),
)
def test_documents_round_trip(values: dict[str, object], labels: dict[str, str]) -> None:
    """Every config survives conversion to YAML and to a JSON document."""
    before = NetworkingResource(NetworkingConfig(**values), labels, "r", "why")  # type: ignore[arg-type]
    if all(letter.isprintable() for text in (*labels, *labels.values()) for letter in text):
        assert config_yaml.from_yaml(config_yaml.to_yaml(before)) == before
    document = json.loads(json.dumps(config_yaml.to_document(before)))
    assert config_yaml.from_document(document, strict=False) == before


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("spec: {keep_alive: 1s}", "spec.keep_alive: is not a known key"),
        ("speck: {}", "speck: is not a known key"),
        (
            "spec: {tunnel_strategy: {type: agent_mesh, count: 1}}",
            "spec.tunnel_strategy.count: is not a known key",
        ),
        ("spec: {tunnel_strategy: {agent_connection_count: 1}}", "tunnel_strategy.type: is missing"),
        ("spec: {keep_alive_interval: 5}", "keep_alive_interval: 5 is not a duration"),
        ("spec: {keep_alive_interval: 1:30}", "keep_alive_interval: 90 is not a duration"),
        ("spec: {keep_alive_interval: [1]}", "keep_alive_interval: [1] is not a duration"),
        ("spec: {keep_alive_count_max: '3'}", "keep_alive_count_max: '3' is not a whole number"),
        ("spec: {keep_alive_count_max: true}", "keep_alive_count_max: True is not a whole number"),
        ("spec: {graceful_tunnel_closing: 1}", "graceful_tunnel_closing: 1 is not true or false"),
        ("spec: {idle_timeout_message: 1}", "idle_timeout_message: 1 is not text"),
        ("spec: [1]", "spec: is not a mapping"),
        ("[]", "the document: is not a mapping"),
        ("kind: role", "kind: 'role' is not supported. Use 'cluster_networking_config'"),
        ("version: v3", "version: 'v3' is not supported. Use 'v2'"),
        ("metadata: {name: x}", "metadata.name: must be 'cluster-networking-config'"),
        ("metadata: {labels: {a: 1}}", "metadata.labels: keys and values must be text"),
        ("metadata: {revision: 1}", "metadata.revision: must be text"),
        (
            "spec:\n  ssh_dial_timeout: 1s\n  ssh_dial_timeout: 2s\n",
            "line 3: the key 'ssh_dial_timeout' occurs twice",
        ),
        ("spec: {1: 2}", "1 is not text"),
        ("spec: {", "YAML: line 1"),
        ("a: 2026-13-40", "YAML: month"),
        ("a: !!python/object:os.system {}", "python/object:os.system' is not allowed"),
        ("\x00", "YAML: "),
    ],
)
def test_invalid_yaml_is_refused(text: str, error: str) -> None:
    """The error names the path of the wrong value."""
    assert error in yaml_error(text)


def test_all_yaml_problems_are_reported() -> None:
    """One attempt reports every mistake."""
    errors = yaml_error("spec: {keep_alive_interval: 5, keep_alive_count_max: x, other: 1}")
    assert all(path in errors for path in ("keep_alive_interval", "keep_alive_count_max", "spec.other"))


def test_unknown_keys_of_a_newer_document_are_ignored() -> None:
    """After a rollback, a program reads what a newer version wrote."""
    newer = {"spec": {"new": 1, "ssh_dial_timeout": "9s"}, "more": []}
    assert config_yaml.from_document(newer, strict=False).config == NetworkingConfig(ssh_dial_timeout=9.0)


def test_number_zero_is_a_duration() -> None:
    """YAML has no unit for it; any other number needs one."""
    text = YAML_TEXT.replace("keep_alive_interval: 5m0s", "keep_alive_interval: 0")
    assert config_yaml.from_yaml(text).config.keep_alive_interval == 0.0
    with pytest.raises(NetworkingConfigError, match="-1 is not a duration"):
        config_yaml.from_yaml(text.replace("keep_alive_interval: 0", "keep_alive_interval: -1"))


def test_empty_yaml_gives_the_defaults() -> None:
    """Empty documents and keys without values set nothing."""
    for text in ("", "spec:\n", "spec: {keep_alive_interval: , tunnel_strategy: }\nmetadata: {labels: }"):
        assert config_yaml.from_yaml(text) == NetworkingResource(NetworkingConfig(), {})


def test_very_long_yaml_is_refused() -> None:
    """The length is checked first: parsing would block a web process for half a minute."""
    assert "longer than 65536 characters" in yaml_error("spec: {" + "a: 1, " * 100_000 + "}")
