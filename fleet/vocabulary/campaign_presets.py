"""Presets of campaign settings, from careful to fast, each declared once. Pure.

docs/reference/campaigns.md, "Presets".
"""

from __future__ import annotations

from dataclasses import dataclass

from fleet.vocabulary.campaigns import CampaignSettings


@dataclass(frozen=True, slots=True)
class CampaignPreset:
    """Settings of a campaign under a name."""

    slug: str
    label: str
    #: When to use it, as a sentence.
    help: str
    settings: CampaignSettings

    @property
    def summary(self) -> str:
        """The rate and the thresholds in words."""
        return describe_settings(self.settings)


def describe_settings(settings: CampaignSettings) -> str:
    """Return rate, canaries and abort thresholds of a campaign in one sentence."""
    canaries = (
        f"{settings.canary_size:,} canar{'y' if settings.canary_size == 1 else 'ies'} first"
        if settings.canary_size
        else "without canaries"
    )
    return (
        f"{settings.rate_per_minute:,} agents per minute, {canaries}. Aborts if more than "
        f"{settings.failure_threshold_percent} % fail or {settings.stranded_threshold:,} more agents are stranded."
    )


PRESETS = (
    CampaignPreset(
        "careful",
        "Careful",
        "For the first campaign after an upgrade, and for production at peak load.",
        CampaignSettings(
            rate_per_minute=60,
            concurrency=10,
            canary_size=10,
            soak_seconds=60,
            failure_threshold_percent=1,
            stranded_threshold=3,
        ),
    ),
    CampaignPreset("standard", "Standard", "For everyday maintenance.", CampaignSettings()),
    CampaignPreset(
        "fast",
        "Fast",
        "For agents that are stranded or will be soon.",
        CampaignSettings(
            rate_per_minute=3_000,
            concurrency=200,
            canary_size=5,
            soak_seconds=2,
            jitter_seconds=1,
            failure_threshold_percent=10,
            stranded_threshold=25,
        ),
    ),
)
PRESETS_BY_SLUG = {preset.slug: preset for preset in PRESETS}
DEFAULT_PRESET = PRESETS_BY_SLUG["standard"]
#: For agents that need help now.
FAST_PRESET = PRESETS_BY_SLUG["fast"]


def find_preset(settings: CampaignSettings) -> CampaignPreset | None:
    """Return the preset with these settings, whatever the time window; None when it is none of them."""
    return next(
        (
            preset
            for preset in PRESETS
            if all(
                getattr(preset.settings, name) == getattr(settings, name)
                for name in CampaignSettings.__slots__
                if not name.startswith("window_")
            )
        ),
        None,
    )
