"""Tones of words."""

from __future__ import annotations

from collections import defaultdict

from fleet.vocabulary.actions import AuditOutcome
from fleet.vocabulary.campaigns import CampaignAgentState
from fleet.vocabulary.changes import ChangeState
from fleet.vocabulary.rollouts import RolloutStepState
from fleet.vocabulary.tags import Tone
from tests.meta.house import ROOT


def test_equal_values_of_several_enums_have_one_tone() -> None:
    """The class of a tag is named after the word alone: `tag-failed`."""
    tones = defaultdict(set)
    for state in (*ChangeState, *CampaignAgentState, *RolloutStepState, *AuditOutcome):
        assert type(state)(state.value) is state
        tones[state.value].add(state.tone)
    assert {len(tones_of_value) for tones_of_value in tones.values()} == {1}


def test_style_sheet_reads_what_tones_set() -> None:
    """A custom property that no rule reads would leave tags as they are."""
    sheet = (ROOT / "dashboards/static/dashboards/css/parts.css").read_text()
    names = {part.partition(":")[0] for tone in Tone for part in tone.value.split("; ")}
    assert names == {"--edge", "--ground", "--dash", "--weight", "--word"}
    assert all(f"var({name}," in sheet for name in names)
