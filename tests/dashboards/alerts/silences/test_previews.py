from __future__ import annotations

import time
from zoneinfo import ZoneInfo

import pytest

from dashboards.alerts.silences.matches import read_scope
from dashboards.alerts.silences.previews import preview_incident_silence, preview_period, preview_silence
from dashboards.alerts.silences.sentences import SilencePeriod
from fleet.models.alerting import Silence
from fleet.models.clusters import ensure_default_cluster
from fleet.models.incidents import Incident
from tests.fakes.reader import FakeReader

pytestmark = pytest.mark.django_db

_UTC = ZoneInfo("UTC")
#: 2026-11-28 12:30 UTC.
_NOW = 1795869000.0


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, 3600),
        ({"period": "7200"}, 7200),
        ({"period": "7200", "duration": "nonsense"}, 7200),
        ({"duration": "90 min"}, 5400),
        ({"period": "custom", "duration": "1 h", "starts": "2026-11-29T12:30"}, 90_000),
        ({"period": "custom"}, "Enter a duration, for example 1 h 30 min."),
        ({"period": "custom", "duration": "1 min"}, "Enter at least 3 min."),
        ({"starts": "2020-01-01T00:00"}, "A silence must start now or within the next 90 days."),
        ({"starts": "yesterday"}, "The start is not a date and time."),
    ],
)
def test_period_is_read_from_the_fields(fields: dict[str, str], expected: float | str) -> None:
    """Or what is wrong with it."""
    period = preview_period(fields, _NOW, _UTC)
    assert (period if isinstance(period, str) else period.ends_at - _NOW) == expected


def test_preview_has_matches_and_sentences(fake_reader: FakeReader) -> None:
    """An error of the matchers comes first; one of the period leaves the matches."""
    scope, period = read_scope("default", _NOW), SilencePeriod(_NOW, _NOW + 3600, _NOW)
    preview = preview_silence("agent=agent-1", scope, period)
    assert preview.matches is not None
    assert preview.matches.agent_count == 1
    assert preview.sentences == ("Alert rules do not count matching agents until 13:30 UTC.",)
    assert preview_silence("", scope, "wrong").error == "wrong"
    assert preview_silence("colour=red", scope, "wrong").error == ""


def test_preview_of_an_incident_respects_longer_silences(fake_reader: FakeReader) -> None:
    """The sentence is true also if another silence lasts longer; and names the time in the user's zone."""
    row = Incident.objects.create(
        cluster=ensure_default_cluster(), key="proxy/1", cause_kind="proxy", cause_id="1", cause_name="proxy-1",
        generation=1, state="firing", severity=2, opened_at=1.0,
    )  # fmt: skip
    now = time.time()
    period = SilencePeriod(_NOW, _NOW + 3600, _NOW)
    first, local, *_ = preview_incident_silence(row, period, ZoneInfo("Europe/Berlin")).sentences
    assert first == "No new notifications about proxy-1 until 13:30 UTC."
    assert local == "In your time zone: until 14:30 Europe/Berlin."
    Silence.objects.create(
        cluster="default",
        matchers="kind=proxy",
        reason="move",
        creator="ada",
        starts_at=now - 1e9,
        ends_at=_NOW + 7200,
    )
    (first, *_) = preview_incident_silence(row, period, _UTC).sentences
    assert first == "No new notifications about proxy-1 until 14:30 UTC."
    assert preview_incident_silence(row, "wrong", _UTC).error == "wrong"
    row.acknowledged_at = _NOW
    assert preview_incident_silence(row, period, _UTC).sentences[-1].endswith("and does not escalate.")
