"""Fields, defaults, ranges and origin rules of ClusterNetworkingConfig."""

from __future__ import annotations

from dataclasses import fields, replace

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


def wrong(config: NetworkingConfig) -> list[str]:
    with pytest.raises(NetworkingConfigError) as caught:
        rules.check(config)
    return [problem.key for problem in caught.value.problems]


def test_every_field_is_described() -> None:
    """The table and the record have the same fields, and each number says what 0 means."""
    assert {field.name for field in FIELDS} == {field.name for field in fields(NetworkingConfig)}
    for field in FIELDS:
        assert field.help.endswith(".")
        if field.kind in {FieldKind.DURATION, FieldKind.INTEGER}:
            assert field.zero
            assert 0 < field.lowest < field.highest


def test_defaults_are_upstreams() -> None:
    """5 minutes, 3, agent mesh; peering without a count means 1; what was said stays."""
    filled = rules.with_defaults(NetworkingConfig())
    assert (filled.keep_alive_interval, filled.keep_alive_count_max) == (300.0, 3)
    assert filled.tunnel_strategy == "agent_mesh"
    rules.check(filled)
    assert rules.with_defaults(NetworkingConfig(tunnel_strategy="proxy_peering")).agent_connection_count == 1
    assert rules.with_defaults(PEERING).agent_connection_count == 2
    assert rules.with_defaults(replace(PEERING, keep_alive_interval=7.0)).keep_alive_interval == 7.0


@pytest.mark.parametrize(
    "field", [field for field in FIELDS if field.kind in {FieldKind.DURATION, FieldKind.INTEGER}]
)
def test_numbers_out_of_range(field: rules.ConfigField) -> None:
    """Below, above and negative are refused by name; the ends and 0 are taken."""
    base = PEERING if field.name == "agent_connection_count" else NetworkingConfig()
    as_number = float if field.kind is FieldKind.DURATION else int
    for value in (field.lowest / 2 if field.kind is FieldKind.DURATION else -1, field.highest + 1, -5):
        assert field.key in wrong(replace(base, **{field.name: as_number(value)}))
    for value in (0, field.lowest, field.highest):
        config = replace(base, **{field.name: as_number(value)})
        if field.name == "tunnel_closing_wait_max":
            config = replace(config, tunnel_closing_wait_min=1.0)
        if field.name == "tunnel_closing_wait_min":
            config = replace(config, tunnel_closing_wait_max=field.highest)
        rules.check(config)


def test_only_what_was_changed_is_judged() -> None:
    """A value of a newer cluster that nobody touched is no reason to refuse another one."""
    odd = NetworkingConfig(tunnel_strategy="unknown", keep_alive_count_max=-1)
    rules.check(odd, odd)
    rules.check(replace(odd, ssh_dial_timeout=9.0), odd)
    with pytest.raises(NetworkingConfigError, match=r"^ssh_dial_timeout: "):
        rules.check(replace(odd, ssh_dial_timeout=9999.0), odd)


def test_words_that_are_none() -> None:
    """A choice nobody knows and a text that is too long or not text are refused by name."""
    config = NetworkingConfig(
        proxy_listener_mode="7",
        routing_strategy="nearest",
        tunnel_strategy="unknown",
        idle_timeout_message="x" * 1025 + "\x07",
    )
    assert wrong(config) == [
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
def test_contradictions(config: NetworkingConfig, key: str) -> None:
    """Fields that contradict each other: the one to change is named."""
    assert wrong(config) == [key]


def test_connection_count() -> None:
    """What agents are told: 0 for a mesh; upstream's agents read what is no number of tunnels as 1."""
    assert NetworkingConfig().connection_count == 0
    assert PEERING.connection_count == 2
    assert replace(PEERING, agent_connection_count=-3).connection_count == 1
    assert NetworkingConfig(tunnel_strategy="agent_mesh", agent_connection_count=3).connection_count == 0


def test_closing_wait() -> None:
    """30 to 60 minutes unless said otherwise; a long shortest wait moves the longest."""
    assert NetworkingConfig().closing_wait == (1800.0, 3600.0)
    assert NetworkingConfig(tunnel_closing_wait_min=7200.0).closing_wait == (7200.0, 7200.0)
    demo = NetworkingConfig(tunnel_closing_wait_min=5.0, tunnel_closing_wait_max=10.0)
    assert demo.closing_wait == (5.0, 10.0)


def test_changed_by_key() -> None:
    """Keys as in YAML, or their last part; values as a person writes them."""
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
    ("key", "text", "said"),
    [
        ("keepalive", "1s", "is not a field"),
        ("keep_alive_interval", "5", "not a duration"),
        ("keep_alive_count_max", "3.5", "not a whole number"),
        ("graceful_tunnel_closing", "yes", "is not a switch"),
    ],
)
def test_changed_to_what_is_none(key: str, text: str, said: str) -> None:
    """A key or a value that cannot be read is named, with what would do."""
    with pytest.raises(NetworkingConfigError, match=f"^{key}: .*{said}"):
        rules.set_fields(NetworkingConfig(), {key: text})


def test_rebased() -> None:
    """What I changed is done to what others made of it; where both changed the same, it is named."""
    base = NetworkingConfig(ssh_dial_timeout=1.0, keep_alive_count_max=3)
    mine = replace(base, ssh_dial_timeout=2.0)
    theirs = replace(base, keep_alive_count_max=4)
    assert rules.rebase(base, mine, theirs) == (replace(mine, keep_alive_count_max=4), ())
    theirs = replace(base, ssh_dial_timeout=3.0)
    merged, clashing = rules.rebase(base, mine, theirs)
    assert (merged, [field.key for field in clashing]) == (mine, ["ssh_dial_timeout"])
    assert rules.rebase(base, mine, mine) == (mine, ())
    ((field, before, after),) = rules.differences(base, mine)
    assert (field.key, before, after) == ("ssh_dial_timeout", 1.0, 2.0)


def test_origin() -> None:
    """The label says; without one somebody wrote it. Only what a file brought cannot be reset."""
    assert NetworkingResource(NetworkingConfig(), {}).origin == "dynamic"
    assert NetworkingResource(NetworkingConfig(), {rules.ORIGIN_LABEL: "config-file"}).origin == "config-file"
    assert rules.reset_refusal(Origin.CONFIG_FILE)
    assert not rules.reset_refusal(Origin.DYNAMIC)
    assert not rules.reset_refusal(Origin.DEFAULTS)
