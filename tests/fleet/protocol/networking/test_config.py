"""ClusterNetworkingConfig: fields, defaults, ranges and origins."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from fleet.protocol.networking import config as rules
from fleet.protocol.networking.config import (
    FIELDS,
    FieldKind,
    NetworkingConfig,
    NetworkingConfigError,
    NetworkingResource,
    Origin,
)

PEERING = NetworkingConfig(tunnel_strategy="proxy_peering", agent_connection_count=2)


def invalid_keys(config: NetworkingConfig) -> list[str]:
    with pytest.raises(NetworkingConfigError) as caught:
        rules.check(config)
    return [problem.key for problem in caught.value.problems]


def test_every_field_is_described() -> None:
    """The table has the fields of the dataclass, and each number has a text for 0."""
    assert {field.name for field in FIELDS} == {field.name for field in fields(NetworkingConfig)}
    for field in FIELDS:
        assert field.help.endswith(".")
        if field.kind in {FieldKind.DURATION, FieldKind.INTEGER}:
            assert field.zero_meaning
            assert 0 < field.lowest < field.highest
        elif field.kind is not FieldKind.TEXT:
            assert (field.lowest, field.highest) == (0, 0)


def test_defaults_match_teleport() -> None:
    """Defaults: 5 minutes, 3, agent mesh; 1 connection with peering. Values that are set are kept."""
    filled = rules.with_defaults(NetworkingConfig())
    assert (filled.keep_alive_interval, filled.keep_alive_count_max) == (300.0, 3)
    assert filled.tunnel_strategy == "agent_mesh"
    rules.check(filled)
    assert rules.with_defaults(NetworkingConfig(tunnel_strategy="proxy_peering")).agent_connection_count == 1
    assert rules.with_defaults(PEERING).agent_connection_count == 2
    assert rules.with_defaults(replace(PEERING, keep_alive_interval=7.0)).keep_alive_interval == 7.0


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"keep_alive_interval": 0.5}, "500ms is out of range. Use 1s to 1h, or 0 for the default of 5 min"),
        ({"keep_alive_count_max": 101}, "101 is out of range. Use 1 to 100, or 0 for the default of 3"),
        ({"client_idle_timeout": 0.5}, "500ms is out of range. Use 1s to 720h, or 0 for never"),
        ({"ssh_dial_timeout": 660.0}, "11m0s is out of range. Use 1s to 10m, or 0 for the default of 30 s"),
    ],
)
def test_range_error_says_what_zero_means(values: dict[str, Any], problem: str) -> None:
    """The bounds are in the form that a person types."""
    with pytest.raises(NetworkingConfigError) as caught:
        rules.check(replace(NetworkingConfig(), **values))
    assert [problem.sentence for problem in caught.value.problems] == [problem]


@pytest.mark.parametrize(
    "field", [field for field in FIELDS if field.kind in {FieldKind.DURATION, FieldKind.INTEGER}]
)
def test_numbers_out_of_range_are_refused(field: rules.ConfigField) -> None:
    """Values below, above and negative are refused by field; the limits and 0 are accepted."""
    base = PEERING if field.name == "agent_connection_count" else NetworkingConfig()
    as_number = float if field.kind is FieldKind.DURATION else int
    for value in (field.lowest / 2 if field.kind is FieldKind.DURATION else -1, field.highest + 1, -5):
        assert field.key in invalid_keys(replace(base, **{field.name: as_number(value)}))
    for value in (0, field.lowest, field.highest):
        config = replace(base, **{field.name: as_number(value)})
        if field.name == "tunnel_closing_wait_max":
            config = replace(config, tunnel_closing_wait_min=1.0)
        if field.name == "tunnel_closing_wait_min":
            config = replace(config, tunnel_closing_wait_max=field.highest)
        rules.check(config)


def test_only_changed_fields_are_checked() -> None:
    """An unchanged value of a newer cluster does not prevent changes to other fields."""
    current = NetworkingConfig(tunnel_strategy="unknown", keep_alive_count_max=-1)
    rules.check(current, current)
    rules.check(replace(current, ssh_dial_timeout=9.0), current)
    with pytest.raises(NetworkingConfigError, match=r"^ssh_dial_timeout: "):
        rules.check(replace(current, ssh_dial_timeout=9999.0), current)


def test_invalid_texts_are_refused() -> None:
    """Unknown choices and texts that are too long or unprintable are refused by field."""
    config = NetworkingConfig(
        proxy_listener_mode="7",
        routing_strategy="nearest",
        tunnel_strategy="unknown",
        idle_timeout_message="x" * 1025 + "\x07",
    )
    assert invalid_keys(config) == [
        "idle_timeout_message",
        "idle_timeout_message",
        "proxy_listener_mode",
        "routing_strategy",
        "tunnel_strategy.type",
    ]


@pytest.mark.parametrize(
    ("config", "key"),
    [
        (NetworkingConfig(agent_connection_count=2), "tunnel_strategy.agent_connection_count"),
        (
            NetworkingConfig(tunnel_strategy="agent_mesh", agent_connection_count=2),
            "tunnel_strategy.agent_connection_count",
        ),
        (NetworkingConfig(tunnel_closing_wait_max=60.0), "tunnel_closing_wait_max"),
        (
            NetworkingConfig(tunnel_closing_wait_min=20.0, tunnel_closing_wait_max=10.0),
            "tunnel_closing_wait_max",
        ),
        (
            NetworkingConfig(graceful_tunnel_closing=True, tunnel_disconnect_threshold=60.0),
            "tunnel_disconnect_threshold",
        ),
    ],
)
def test_contradicting_fields_are_refused(config: NetworkingConfig, key: str) -> None:
    """The error names the field to change."""
    assert invalid_keys(config) == [key]


def test_connection_count() -> None:
    """A mesh gives 0; a negative count gives 1, as in Teleport's agents."""
    assert NetworkingConfig().connection_count == 0
    assert PEERING.connection_count == 2
    assert replace(PEERING, agent_connection_count=-3).connection_count == 1
    assert NetworkingConfig(tunnel_strategy="agent_mesh", agent_connection_count=3).connection_count == 0


def test_closing_wait_defaults() -> None:
    """The default is 30 to 60 minutes; a longer minimum raises the maximum."""
    assert NetworkingConfig().closing_wait_bounds == (1800.0, 3600.0)
    assert NetworkingConfig(tunnel_closing_wait_min=7200.0).closing_wait_bounds == (7200.0, 7200.0)
    demo = NetworkingConfig(tunnel_closing_wait_min=5.0, tunnel_closing_wait_max=10.0)
    assert demo.closing_wait_bounds == (5.0, 10.0)


def test_set_fields_by_key() -> None:
    """Keys are YAML paths or their last part; values are text."""
    config = rules.set_fields(
        NetworkingConfig(),
        {
            "tunnel_strategy.type": "proxy_peering",
            "agent_connection_count": "3",
            "keep_alive_interval": "1m30s",
            "graceful_tunnel_closing": "True",
            "idle_timeout_message": "bye",
        },
    )
    assert (config.tunnel_strategy, config.agent_connection_count) == ("proxy_peering", 3)
    assert (config.keep_alive_interval, config.graceful_tunnel_closing) == (90.0, True)
    assert config.idle_timeout_message == "bye"
    assert rules.set_fields(config, {"tunnel_strategy": "agent_mesh"}).agent_connection_count == 0


@pytest.mark.parametrize(
    ("key", "text", "error"),
    [
        ("keepalive", "1s", "is not a field"),
        ("keep_alive_interval", "5", "not a duration"),
        ("keep_alive_count_max", "3.5", "not a whole number"),
        ("graceful_tunnel_closing", "yes", "is not a boolean"),
    ],
)
def test_set_fields_refuses_invalid_input(key: str, text: str, error: str) -> None:
    """The error names the key and what is valid."""
    with pytest.raises(NetworkingConfigError, match=f"^{key}: .*{error}"):
        rules.set_fields(NetworkingConfig(), {key: text})


def test_rebase_merges_and_reports_conflicts() -> None:
    """Both sides' changes are merged; a field that both sides changed is reported as a conflict."""
    base = NetworkingConfig(ssh_dial_timeout=1.0, keep_alive_count_max=3)
    own_change = replace(base, ssh_dial_timeout=2.0)
    current = replace(base, keep_alive_count_max=4)
    assert rules.rebase(base, own_change, current) == (replace(own_change, keep_alive_count_max=4), ())
    current = replace(base, ssh_dial_timeout=3.0)
    merged_config, conflicts = rules.rebase(base, own_change, current)
    assert (merged_config, [field.key for field in conflicts]) == (own_change, ["ssh_dial_timeout"])
    assert rules.rebase(base, own_change, own_change) == (own_change, ())
    ((field, before, after),) = rules.differences(base, own_change)
    assert (field.key, before, after) == ("ssh_dial_timeout", 1.0, 2.0)


def test_origin_and_reset() -> None:
    """Without a label the origin is dynamic. Only a config from a file cannot be reset."""
    assert NetworkingResource(NetworkingConfig(), {}).origin == "dynamic"
    assert NetworkingResource(NetworkingConfig(), {rules.ORIGIN_LABEL: "config-file"}).origin == "config-file"
    assert rules.reset_refusal_of(Origin.CONFIG_FILE)
    assert not rules.reset_refusal_of(Origin.DYNAMIC)
    assert not rules.reset_refusal_of(Origin.DEFAULTS)
