from __future__ import annotations

from dataclasses import replace

import pytest

from fleet.changes.networking.plan import FleetSnapshot, plan_of
from fleet.changes.networking.source_rules import SourceRules, list_fixed_fields, rules_of_source
from fleet.protocol.networking import config as networking
from fleet.protocol.networking import config_yaml
from fleet.protocol.networking.config import OWN_FIELD_NAMES, NetworkingConfig, NetworkingResource
from fleet.source_plugins.refloat import SOURCE as REFLOAT
from fleet.source_plugins.teleport import SOURCE as TELEPORT

_CONFIG = networking.with_defaults(NetworkingConfig())
_RULES = rules_of_source(TELEPORT)
_FLEET = FleetSnapshot((), (), {}, agent_count=40, as_of=1000.0, age_seconds=1.0)


def test_refloat_changes_and_forecasts_everything() -> None:
    """So does a source that is not installed: what its cluster lacks is not known."""
    assert rules_of_source(REFLOAT) == rules_of_source(None) == SourceRules()


def test_teleport_has_no_fields_of_refloat() -> None:
    """A plan that sets one names it, with the reason; fields of Teleport can be set."""
    assert {*OWN_FIELD_NAMES, "proxy_listener_mode"} == _RULES.fixed_fields.keys()
    desired_config = replace(_CONFIG, graceful_tunnel_closing=True, keep_alive_count_max=7)
    [problem] = _RULES.find_fixed_problems(_CONFIG, desired_config)
    assert problem.key == "graceful_tunnel_closing"
    assert problem.sentence.startswith("Teleport has no GracefulTunnelClosing")
    assert not problem.sentence.endswith(".")
    assert _RULES.find_fixed_problems(_CONFIG, replace(_CONFIG, keep_alive_interval=60.0)) == ()
    assert _RULES.no_closing_reason == f"{problem.sentence}."


def test_fixed_fields_are_listed_in_display_order() -> None:
    keys = [key for key, _ in list_fixed_fields(_RULES)]
    assert keys[0] == "proxy_listener_mode"
    assert keys[1:] == list(OWN_FIELD_NAMES)


def test_documents_leave_out_what_the_product_does_not_have() -> None:
    """Also after they were stored and read again."""
    resource = NetworkingResource(_CONFIG, {}, "r1", omitted_keys=_RULES.omitted_keys)
    document = config_yaml.to_document(resource)
    assert "graceful_tunnel_closing" not in document["spec"]
    assert config_yaml.to_document(config_yaml.from_document(document, strict=False)) == document
    own_document = config_yaml.to_document(NetworkingResource(_CONFIG, {}, "r1"))
    assert own_document["spec"]["graceful_tunnel_closing"] is False
    assert config_yaml.to_document(config_yaml.from_document(own_document, strict=False)) == own_document


def test_plan_says_that_there_is_no_forecast() -> None:
    """It may affect every agent, and nothing is verified by tunnels."""
    peering = replace(_CONFIG, tunnel_strategy="proxy_peering", agent_connection_count=2)
    plan = plan_of(_CONFIG, peering, _FLEET, _RULES)
    assert plan["affected_count"] == 40
    assert "closing" not in plan
    [note] = plan["notes"]
    assert note.endswith("with a tunnel to a proxy. Refloat cannot forecast how many tunnels open or close.")


@pytest.mark.parametrize(("rules", "has_note"), [(_RULES, False), (SourceRules(), True)])
def test_only_programs_of_refloat_ignore_fields(rules: SourceRules, has_note: bool) -> None:
    notes = plan_of(_CONFIG, replace(_CONFIG, ssh_dial_timeout=5.0), None, rules)["notes"]
    assert any("ignore ssh_dial_timeout" in note for note in notes) is has_note
