"""Decisions of a reconnect campaign."""

from __future__ import annotations

import pytest

from fleet.vocabulary import campaigns
from fleet.vocabulary.campaigns import CampaignCounts, CampaignSettings


@pytest.mark.parametrize("name", list(campaigns.SETTING_RANGES))
@pytest.mark.parametrize("invalid_value", ["", "x", "-1", "1.5", "99999999999", "²", None])
def test_invalid_setting_is_a_problem(name: str, invalid_value: object) -> None:
    """A message at each field, and nothing of it is used."""
    outcome = campaigns.parse_campaign_settings({name: invalid_value})
    assert "whole number" in outcome.problems[name]
    assert outcome.settings == CampaignSettings()


@pytest.mark.parametrize("invalid_value", ["25:00", "1:60", "noon", "1440", "-1:00", "1:2:3"])
def test_invalid_time_window_is_a_problem(invalid_value: str) -> None:
    """Times of the day only."""
    assert (
        "time of day"
        in campaigns.parse_campaign_settings({"window_start": invalid_value}).problems["window_start"]
    )


def test_settings_are_parsed_with_defaults() -> None:
    """An unknown setting is a problem."""
    outcome = campaigns.parse_campaign_settings(
        {"rate_per_minute": "60", "window_start": "22:30", "window_end": "0"}
    )
    assert not outcome.problems
    assert (
        outcome.settings.rate_per_minute,
        outcome.settings.window_start,
        outcome.settings.concurrency,
    ) == (
        60,
        1350,
        CampaignSettings().concurrency,
    )
    problems = campaigns.parse_campaign_settings({"speed": 1}).problems
    assert problems["speed"].startswith("unknown setting; use window_start, window_end, rate_per_minute")


def test_admission_by_rate_and_canaries() -> None:
    """Canaries at once, nothing during the soak time, then the rate; a late step causes no burst."""
    settings = CampaignSettings(rate_per_minute=60, canary_size=2, soak_seconds=10)

    def admit(
        counts: CampaignCounts, elapsed_seconds: float = 1.0, done_at: float | None = None, now: float = 100.0
    ) -> int:
        return campaigns.decide_admission(
            counts,
            settings,
            credit=0.0,
            elapsed_seconds=elapsed_seconds,
            canaries_finished_at=done_at,
            now=now,
        ).agent_count

    assert admit(CampaignCounts(pending_count=10)) == 2
    assert admit(CampaignCounts(pending_count=1)) == 1
    assert admit(CampaignCounts(pending_count=8, in_progress_count=2)) == 0
    assert admit(CampaignCounts(pending_count=8, succeeded_count=2), done_at=95.0) == 0
    assert admit(CampaignCounts(pending_count=8, succeeded_count=2), done_at=90.0) == 1
    assert admit(CampaignCounts(pending_count=8, succeeded_count=2), elapsed_seconds=600.0, done_at=90.0) == 2
    assert admit(CampaignCounts(succeeded_count=10), done_at=90.0) == 0


@pytest.mark.parametrize(
    ("counts", "canary_size", "canaries_finished_at", "wait_reason"),
    [
        (CampaignCounts(pending_count=8, in_progress_count=2), 2, None,
         "waiting for the first 2 agents (timeout at 00:02:30 UTC)"),
        (CampaignCounts(pending_count=8, in_progress_count=1), 1, None,
         "waiting for the first agent (timeout at 00:02:30 UTC)"),
        (CampaignCounts(pending_count=8, succeeded_count=2), 2, 95.0,
         "the first 2 agents succeeded; the others follow at 00:01:45 UTC"),
        (CampaignCounts(pending_count=8, succeeded_count=1, failed_count=1), 2, 95.0,
         "1 of the first 2 agents failed; resumed by demo; the others follow at 00:01:45 UTC"),
        (CampaignCounts(pending_count=8, failed_count=1), 1, 95.0,
         "the first agent failed; resumed by demo; the others follow at 00:01:45 UTC"),
    ],
)  # fmt: skip
def test_wait_after_the_first_agents_has_its_end(
    counts: CampaignCounts, canary_size: int, canaries_finished_at: float | None, wait_reason: str
) -> None:
    """In words that need no knowledge of the settings."""
    admission = campaigns.decide_admission(
        counts,
        CampaignSettings(canary_size=canary_size, soak_seconds=10),
        credit=0.0,
        elapsed_seconds=1.0,
        canaries_finished_at=canaries_finished_at,
        now=100.0,
        canaries_time_out_at=150.0,
        resumed_by="demo",
    )
    assert admission.wait_reason == wait_reason


@pytest.mark.parametrize(
    ("counts", "percent", "warning"),
    [
        (CampaignCounts(pending_count=61, failed_count=5), 2,
         ("5 of 5 agents failed, more than the failure threshold of 2 %: after you resume it, the campaign aborts as "
         "soon as 20 agents have a result.")),
        (CampaignCounts(pending_count=495, succeeded_count=4, failed_count=1), 2,
         ("1 of 5 agents failed, more than the failure threshold of 2 %: after you resume it, the campaign aborts as "
         "soon as 20 agents have a result, unless at most 2 % of them failed.")),
        (CampaignCounts(pending_count=2, failed_count=1, skipped_count=9), 2,
         ("1 of 1 agent failed, more than the failure threshold of 2 %: after you resume it, the campaign aborts as "
         "soon as 3 agents have a result.")),
        (CampaignCounts(pending_count=61, failed_count=5), 25, ""),
        (CampaignCounts(pending_count=61, succeeded_count=5), 0, ""),
        (CampaignCounts(pending_count=400, succeeded_count=98, failed_count=2), 2, ""),
    ],
)  # fmt: skip
def test_resume_warns_of_the_failure_threshold(counts: CampaignCounts, percent: int, warning: str) -> None:
    """Only if the campaign aborts at the first check even though all agents until then succeed."""
    settings = CampaignSettings(failure_threshold_percent=percent)
    assert campaigns.describe_resume_risk(counts, settings) == warning


@pytest.mark.parametrize(
    ("counts", "canary_size", "canaries_finished_at", "is_waiting"),
    [
        (CampaignCounts(pending_count=61, in_progress_count=5), 5, None, True),
        (CampaignCounts(pending_count=61, scheduled_count=1, succeeded_count=4), 5, None, True),
        (CampaignCounts(pending_count=66), 5, None, False),
        (CampaignCounts(pending_count=61, succeeded_count=5), 5, 90.0, False),
        (CampaignCounts(pending_count=60, in_progress_count=1, succeeded_count=5), 5, 90.0, False),
        (CampaignCounts(in_progress_count=3), 5, None, False),
        (CampaignCounts(pending_count=61, in_progress_count=5), 0, None, False),
    ],
)
def test_nobody_knows_when_canaries_are_through(
    counts: CampaignCounts, canary_size: int, canaries_finished_at: float | None, is_waiting: bool
) -> None:
    """While they are in progress and others wait for them."""
    settings = CampaignSettings(canary_size=canary_size)
    assert campaigns.is_waiting_for_canaries(counts, settings, canaries_finished_at) is is_waiting


@pytest.mark.parametrize(
    ("start", "end", "minute", "inside"),
    [
        (0, 0, 5, True),
        (60, 120, 60, True),
        (60, 120, 120, False),
        (1380, 60, 0, True),
        (1380, 60, 600, False),
    ],
)
def test_time_window_may_span_midnight(start: int, end: int, minute: int, inside: bool) -> None:
    """Also over midnight."""
    settings = CampaignSettings(window_start=start, window_end=end, canary_size=0)
    assert campaigns.is_in_window(settings, minute * 60.0 + 86_400 * 3) is inside
    if not inside:
        admission = campaigns.decide_admission(
            CampaignCounts(pending_count=1),
            settings,
            credit=5,
            elapsed_seconds=1,
            canaries_finished_at=None,
            now=minute * 60.0,
        )
        assert (admission.agent_count, admission.credit) == (0, 0)
        assert "waiting for the time window" in admission.wait_reason


def test_campaign_aborts_at_its_thresholds() -> None:
    """By the share of failures, once there are enough; by how many more are stranded."""
    settings = CampaignSettings(failure_threshold_percent=2, stranded_threshold=10)

    def abort_reason(counts: CampaignCounts, stranded_count: int = 0) -> str:
        return campaigns.find_abort_reason(
            counts, settings, stranded_count=stranded_count, initial_stranded_count=3
        )

    assert not abort_reason(CampaignCounts(pending_count=100, succeeded_count=1, failed_count=1))
    assert not abort_reason(CampaignCounts(pending_count=100, succeeded_count=98, failed_count=2))
    assert "3 of 100" in abort_reason(CampaignCounts(pending_count=100, succeeded_count=97, failed_count=3))
    assert "1 of 2" in abort_reason(CampaignCounts(succeeded_count=1, failed_count=1))
    assert not abort_reason(CampaignCounts(pending_count=1), stranded_count=12)
    assert "10 more" in abort_reason(CampaignCounts(pending_count=1), stranded_count=13)


def test_counts_add_up_and_eta_follows_the_rate() -> None:
    """Done and remaining are all; the time left follows the rate."""
    counts = CampaignCounts(1, 2, 3, 4, 5, 6)
    assert counts.finished_count + counts.unfinished_count == counts.total_count == 21
    assert (
        campaigns.estimate_remaining_seconds(
            CampaignCounts(pending_count=300), CampaignSettings(rate_per_minute=300, jitter_seconds=0)
        )
        > 60
    )
    assert campaigns.estimate_remaining_seconds(CampaignCounts(succeeded_count=1), CampaignSettings()) == 0


@pytest.mark.parametrize(
    ("counts", "text"),
    [
        (CampaignCounts(succeeded_count=3), "3 of 3 agents succeeded"),
        (CampaignCounts(succeeded_count=2, failed_count=1), "2 of 3 agents succeeded"),
        (CampaignCounts(succeeded_count=1, skipped_count=2), "1 of 3 agents succeeded; 2 skipped: retired"),
        (CampaignCounts(skipped_count=6), "no agent moved; 6 skipped: retired"),
    ],
)
def test_result_says_how_many_moved_and_why_others_did_not(counts: CampaignCounts, text: str) -> None:
    """The most frequent reason."""
    assert campaigns.describe_result(counts, "retired") == text


@pytest.mark.parametrize(
    ("counts", "canary_size", "finished_at", "expected_soak_seconds"),
    [
        (CampaignCounts(pending_count=20), 5, None, 60),
        (CampaignCounts(pending_count=17, in_progress_count=3), 5, None, 60),
        (CampaignCounts(pending_count=15, succeeded_count=5), 5, 80.0, 40),
        (CampaignCounts(pending_count=15, succeeded_count=5), 5, 20.0, 0),
        (CampaignCounts(pending_count=5), 5, None, 0),
        (CampaignCounts(pending_count=2, in_progress_count=3, skipped_count=9), 5, None, 0),
        (CampaignCounts(in_progress_count=20), 5, None, 0),
        (CampaignCounts(pending_count=20), 0, None, 0),
    ],
)
def test_estimate_contains_the_soak_time_to_come(
    counts: CampaignCounts, canary_size: int, finished_at: float | None, expected_soak_seconds: int
) -> None:
    """Between the canaries and the agents after them, if there are any; then what is left of it."""

    def estimate(soak_seconds: int) -> float:
        settings = CampaignSettings(canary_size=canary_size, soak_seconds=soak_seconds)
        return campaigns.estimate_remaining_seconds(
            counts, settings, canaries_finished_at=finished_at, now=100.0
        )

    assert estimate(60) - estimate(0) == pytest.approx(expected_soak_seconds)
