"""Plans and forecasts of campaigns, for the page and the API."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime

from dashboards.changes.target_agents import select_campaign_targets
from dashboards.shared import record_reader
from fleet.audit import RequestActor
from fleet.changes import ChangeRefusedError, engine
from fleet.changes.campaigns import campaigns
from fleet.changes.campaigns.forecast import CampaignForecast, forecast_campaign
from fleet.models.changes import Change
from fleet.vocabulary import campaigns as campaign_rules
from fleet.vocabulary.campaign_presets import DEFAULT_PRESET, PRESETS_BY_SLUG
from fleet.vocabulary.campaigns import CampaignSettings
from fleet.vocabulary.changes import ChangeKind


def plan_campaign(
    cluster: str,
    filters: Mapping[str, str],
    raw_settings: Mapping[str, object],
    actor: RequestActor,
    now: datetime,
    preset_slug: str = "",
) -> Change:
    """Plan a campaign and return the change; a refusal has an audit entry.

    Raises ChangeRefusedError with problems, StateError.
    """
    table = record_reader.reader().table(cluster, record_reader.current_time())
    with engine.record_refused_plan(ChangeKind.RECONNECT, cluster, actor, now):
        settings = parse_settings(raw_settings, preset_slug)
        return campaigns.plan_campaign(
            cluster,
            table,
            select_campaign_targets(table, filters),
            settings,
            actor,
            now,
            random.shuffle,
        )


def forecast_targets(cluster: str, filters: Mapping[str, str]) -> CampaignForecast:
    """Return what a campaign with these target agents would do now. Raises ChangeRefusedError, StateError."""
    table = record_reader.reader().table(cluster, record_reader.current_time())
    return forecast_campaign(table, select_campaign_targets(table, filters))


def parse_settings(raw_settings: Mapping[str, object], preset_slug: str = "") -> CampaignSettings:
    """Return the settings of a preset, with those that differ from it. Raises ChangeRefusedError with problems."""
    preset = PRESETS_BY_SLUG.get(preset_slug) if preset_slug else DEFAULT_PRESET
    if preset is None:
        problem = f"preset {preset_slug!r} was not found: use {', '.join(PRESETS_BY_SLUG)}"
        raise ChangeRefusedError(problem, {"preset": problem})
    parsed_settings = campaign_rules.parse_campaign_settings({**asdict(preset.settings), **raw_settings})
    if parsed_settings.problems:
        raise ChangeRefusedError(
            "; ".join(f"{name}: {reason}" for name, reason in parsed_settings.problems.items()),
            dict(parsed_settings.problems),
        )
    return parsed_settings.settings
