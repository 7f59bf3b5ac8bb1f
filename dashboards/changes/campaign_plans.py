"""Plans and forecasts of campaigns, for the page and the API."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import asdict, replace
from datetime import datetime

import numpy as np

from dashboards.changes.target_agents import select_campaign_targets
from dashboards.shared import record_reader
from fleet.audit import RequestActor
from fleet.changes import ChangeRefusedError, engine
from fleet.changes.campaigns import campaigns
from fleet.changes.campaigns.forecast import CampaignForecast, forecast_campaign
from fleet.models.changes import Change
from fleet.monitoring.views import FleetTable
from fleet.vocabulary import campaigns as campaign_rules
from fleet.vocabulary.campaign_presets import DEFAULT_PRESET, FAST_PRESET, PRESETS_BY_SLUG, CampaignPreset
from fleet.vocabulary.campaigns import CampaignSettings
from fleet.vocabulary.changes import ChangeKind
from fleet.vocabulary.verdicts import AFFECTED_STATES


def plan_campaign(
    cluster: str,
    filters: Mapping[str, str],
    raw_settings: Mapping[str, object],
    actor: RequestActor,
    now: datetime,
    preset_slug: str = "",
    *,
    is_spread: bool = False,
) -> Change:
    """Plan a campaign and return the change; a refusal has an audit entry.

    `is_spread`: the target agents were selected so that their move makes the loads even.

    Raises ChangeRefusedError with problems, StateError.
    """
    table = record_reader.reader().table(cluster, record_reader.current_time())
    with engine.record_refused_plan(ChangeKind.RECONNECT, cluster, actor, now):
        settings = parse_settings(raw_settings, preset_slug)
        return campaigns.plan_campaign(
            cluster,
            table,
            replace(select_campaign_targets(table, filters), is_spread=is_spread),
            settings,
            actor,
            now,
            random.shuffle,
        )


def forecast_targets(cluster: str, filters: Mapping[str, str]) -> CampaignForecast:
    """Return what a campaign with these target agents would do now. Raises ChangeRefusedError, StateError."""
    table = record_reader.reader().table(cluster, record_reader.current_time())
    return forecast_campaign(table, select_campaign_targets(table, filters))


def suggest_preset(table: FleetTable, filters: Mapping[str, str]) -> CampaignPreset:
    """Return the preset that suits these target agents: the fast one if some of them are stranded or will be soon."""
    try:
        indices = select_campaign_targets(table, filters).indices
    except ChangeRefusedError:
        return DEFAULT_PRESET
    return FAST_PRESET if np.isin(table.verdicts["state"][indices], AFFECTED_STATES).any() else DEFAULT_PRESET


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
