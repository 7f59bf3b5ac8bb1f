"""What a silence would do, for the live sentences of forms: what it matches now, and what it keeps quiet."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

from dashboards.alerts.forms.silences import PeriodForm
from dashboards.alerts.silences.matches import FleetScope, SilenceMatches, find_text_matches
from dashboards.alerts.silences.rows import find_active_silences_of
from dashboards.alerts.silences.sentences import (
    SilencePeriod,
    describe_incident_silence,
    describe_silence,
    read_receivers,
    read_reminded_names,
)
from dashboards.shared.pages import sentence_of
from dashboards.shared.time_zones import format_moment
from fleet.alerts import incident_actions, store
from fleet.alerts.incident_actions import ActionError
from fleet.models.incidents import Incident


@dataclass(frozen=True, slots=True)
class SilencePreview:
    """Matches and sentences of `dashboards/_silence_preview.html`."""

    matches: SilenceMatches | None
    is_blank: bool
    sentences: tuple[str, ...] = ()
    error: str = ""


def preview_period(params: Any, now: float, zone: ZoneInfo) -> SilencePeriod | str:
    """Return the period that the fields of a form describe, or what is wrong with it as a sentence."""
    form = PeriodForm(params, zone=zone)
    if not form.is_valid():
        return next(iter(str(errors[0]) for errors in form.errors.values()))
    try:
        starts_at = incident_actions.starts_at_of(_parse_start(params.get("starts", "")), now)
    except (ActionError, ValueError) as error:
        return sentence_of(error)
    return SilencePeriod(starts_at, form.end_after(starts_at, zone), now)


def preview_silence(text: str, scope: FleetScope, period: SilencePeriod | str) -> SilencePreview:
    """Return what a silence with these matchers would do."""
    preview = SilencePreview(find_text_matches(text, scope), not text.strip())
    assert preview.matches is not None, "made above"
    if preview.matches.error:
        return preview
    if isinstance(period, str):
        return replace(preview, error=period)
    sentences = describe_silence(
        period,
        read_receivers(preview.matches.rows),
        incident_count=len(preview.matches.rows),
        is_about_agents=preview.matches.is_about_agents,
    )
    return replace(preview, sentences=tuple(sentences))


def preview_incident_silence(row: Incident, period: SilencePeriod | str, zone: ZoneInfo) -> SilencePreview:
    """Return what a silence of an incident's cause would do."""
    if isinstance(period, str):
        return SilencePreview(None, is_blank=False, error=period)
    incident = store.incident_of(row)
    silences = find_active_silences_of(incident, row.cluster_id, period.now, ())
    # Another silence may last longer than the new one.
    period = replace(period, ends_at=max(period.ends_at, *(silence.ends_at for silence in silences), 0.0))
    sentences = describe_incident_silence(
        incident.cause.label,
        period,
        read_receivers([row]),
        reminded_names=read_reminded_names(row, period.reminder_at),
        is_acknowledged=incident.acknowledged_at is not None,
    )
    if zone.key != "UTC":
        sentences.insert(1, f"In your time zone: until {format_moment(period.ends_at, period.now, zone)}.")
    return SilencePreview(None, is_blank=False, sentences=tuple(sentences))


def _parse_start(text: str) -> datetime | None:
    """Return the start of a silence in UTC; None if it is empty. Raises ValueError."""
    if not text.strip():
        return None
    try:
        return datetime.fromisoformat(text.strip()).replace(tzinfo=UTC)
    except ValueError as error:
        raise ValueError("the start is not a date and time") from error
