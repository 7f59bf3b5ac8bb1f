"""Presets and usual values of policies."""

from __future__ import annotations

import pytest

from fleet.protocol.policies import env_policies
from fleet.protocol.policies.env_policies import POLICIES, EnvPolicy
from fleet.protocol.policies.presets import PRESETS, PolicyPreset, options_of


@pytest.mark.parametrize("preset", PRESETS, ids=lambda preset: preset.slug)
def test_presets_are_valid_for_their_roles(preset: PolicyPreset) -> None:
    """An instance accepts all values together."""
    for role, values in preset.values.items():
        normalized_values, errors = env_policies.check(role, values)
        assert not errors
        assert normalized_values.keys() == values.keys()


def test_preset_keeps_other_desired_values() -> None:
    """Of the same role and of others; it is in effect only when each of its values is desired."""
    preset = PRESETS[1]
    before = {"auth": {"OTHER": "1"}, "auth-id-1": {"X": "2"}}
    after = preset.apply_to(before)
    assert not preset.is_in_effect(before)
    assert preset.is_in_effect(after)
    assert (after["auth"]["OTHER"], after["auth-id-1"]) == ("1", {"X": "2"})
    assert before == {"auth": {"OTHER": "1"}, "auth-id-1": {"X": "2"}}


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_options_are_valid_values(policy: EnvPolicy) -> None:
    """Of every policy, each with another label."""
    options = options_of(policy)
    assert len({option.label for option in options}) == len(options) > 1
    for option in options:
        env_policies.normalize(policy.name, option.text)
