"""Presets of campaign settings."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fleet.vocabulary.campaign_presets import (
    DEFAULT_PRESET,
    PRESETS,
    CampaignPreset,
    describe_settings,
    find_preset,
)
from fleet.vocabulary.campaigns import SETTING_RANGES, CampaignSettings


@pytest.mark.parametrize("preset", PRESETS, ids=lambda preset: preset.slug)
def test_presets_are_valid_and_found_by_their_settings(preset: CampaignPreset) -> None:
    """A time window does not change which preset it is."""
    for name, (low, high, *_) in SETTING_RANGES.items():
        assert low <= getattr(preset.settings, name) <= high
    assert find_preset(replace(preset.settings, window_start=60, window_end=120)) is preset


def test_presets_are_ordered_from_careful_to_fast() -> None:
    """The default is in the middle."""
    rates = [preset.settings.rate_per_minute for preset in PRESETS]
    assert rates == sorted(rates)
    assert DEFAULT_PRESET.settings == CampaignSettings()
    assert find_preset(CampaignSettings(rate_per_minute=7)) is None


def test_summary_names_rate_canaries_and_thresholds() -> None:
    """In one line."""
    assert describe_settings(CampaignSettings(canary_size=1)) == (
        "300 agents per minute, 1 canary first. Aborts if more than 2 % fail or 10 more agents are stranded."
    )
    assert "without canaries" in describe_settings(CampaignSettings(canary_size=0))
