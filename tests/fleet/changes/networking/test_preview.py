"""The effect of a config while it is edited."""

from __future__ import annotations

from dataclasses import replace

from fleet.changes.networking.closing_plan import ClosingRule, ObservedAgent, ObservedProxy, ObservedTunnel
from fleet.changes.networking.plan import FleetSnapshot, plan_of
from fleet.changes.networking.preview import preview_config
from fleet.protocol.networking import config as rules
from fleet.protocol.networking.config import NetworkingConfig, Strategy

BASE = rules.with_defaults(
    NetworkingConfig(tunnel_strategy=str(Strategy.PROXY_PEERING), agent_connection_count=2)
)
FLEET = FleetSnapshot(
    agents=tuple(
        ObservedAgent(f"a-{n}", 2, (ObservedTunnel("p-1"), ObservedTunnel("p-2")), can_close=True)
        for n in range(3)
    ),
    proxies=(ObservedProxy("p-1", "proxy-1"), ObservedProxy("p-2", "proxy-2")),
    tunnel_counts_by_proxy={"p-1": 3, "p-2": 3},
    agent_count=3,
    as_of=1.0,
    age_seconds=0.1,
)


def test_tunnels_in_excess_stay_open_without_a_rule() -> None:
    """The preview says what would close if the rule were on."""
    preview = preview_config(BASE, replace(BASE, agent_connection_count=1), FLEET)
    assert (preview.rule, preview.closing["closing_count"]) == (ClosingRule.NONE, [0, 0])
    assert preview.closing_if_on is not None
    assert preview.closing_if_on["closing_count"] == [3, 3]


def test_rule_closes_them_within_the_waits() -> None:
    """There is nothing more that would close."""
    config = replace(
        BASE,
        agent_connection_count=1,
        graceful_tunnel_closing=True,
        tunnel_closing_wait_min=20.0,
        tunnel_closing_wait_max=40.0,
    )
    preview = preview_config(BASE, config, FLEET)
    assert (preview.rule, preview.closing_if_on) == (ClosingRule.RFD, None)
    (step,) = preview.closing["steps"]
    assert (step["tunnel_count"], step["earliest_seconds"], step["latest_seconds"]) == (3, 20.0, 40.0)


def test_unchanged_config_has_a_preview_too() -> None:
    """What it does now."""
    preview = preview_config(BASE, BASE, FLEET)
    assert (preview.closing["closing_count"], preview.notes) == ([0, 0], ())


def test_notes_are_those_of_the_plan() -> None:
    """Of tunnels and of all other fields."""
    config = replace(BASE, agent_connection_count=1, keep_alive_interval=60.0, web_idle_timeout=60.0)
    notes = preview_config(BASE, config, FLEET).notes
    plan_notes = plan_of(BASE, config, FLEET)["notes"]
    # The preview has the tunnels that stay open in numbers.
    assert list(notes) == [note for note in plan_notes if "stay open for ever" not in note]
    assert [note.split()[0] for note in notes] == ["Half-open", "Refloat's"]
