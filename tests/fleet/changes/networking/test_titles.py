"""Titles of networking config changes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fleet.changes.networking.titles import describe_changes
from fleet.protocol.networking import config as rules
from fleet.protocol.networking.config import FIELDS, FieldKind, NetworkingConfig, Strategy

BASE = rules.with_defaults(NetworkingConfig())


def _title_of(**fields: object) -> str:
    config = rules.with_defaults(replace(BASE, **fields))  # type: ignore[arg-type] # fields by name
    return describe_changes(rules.differences(BASE, config))


@pytest.mark.parametrize(
    ("fields", "title"),
    [
        ({"graceful_tunnel_closing": True}, "Turn on graceful tunnel closing"),
        ({"agent_connection_count": 2}, "Set agent connection count to 2"),
        (
            {"tunnel_strategy": Strategy.PROXY_PEERING, "agent_connection_count": 2},
            "Set tunnel strategy to proxy peering and set agent connection count to 2",
        ),
        (
            {"tunnel_closing_wait_min": 20.0, "tunnel_closing_wait_max": 40.0},
            "Set tunnel closing wait to 20 s to 40 s",
        ),
        ({"tunnel_closing_wait_min": 60.0}, "Set tunnel closing wait min to 1 min"),
        ({"ssh_dial_timeout": 10.0}, "Set SSH dial timeout to 10 s"),
        ({"idle_timeout_message": "Bye."}, "Set idle timeout message"),
        (
            {"keep_alive_count_max": 5, "case_insensitive_routing": True, "graceful_tunnel_closing": True},
            "Change 3 networking fields: keep alive count max, case insensitive routing, graceful tunnel closing",
        ),
    ],
)
def test_title_is_what_a_person_writes(fields: dict[str, object], title: str) -> None:
    """A verb, the field and its value."""
    assert _title_of(**fields) == title


@pytest.mark.parametrize("field", FIELDS, ids=lambda field: field.name)
def test_every_field_has_a_title(field: rules.ConfigField) -> None:
    """Without underscores, and with another title for its default."""
    value: rules.FieldValue = {
        FieldKind.SWITCH: True,
        FieldKind.DURATION: 77.0,
        FieldKind.INTEGER: 7,
        FieldKind.TEXT: "text",
        FieldKind.CHOICE: field.choices[-1] if field.choices else "",
    }[field.kind]
    title = describe_changes([(field, 0, value)])
    assert "_" not in title
    assert title.startswith(("Set ", "Turn on "))
    default = False if field.kind is FieldKind.SWITCH else "" if field.kind is FieldKind.TEXT else 0
    assert describe_changes([(field, value, default)]) != title
