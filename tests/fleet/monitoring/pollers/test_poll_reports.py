from __future__ import annotations

from fleet.monitoring.pollers.poll_reports import PollReports
from fleet.monitoring.pollers.shard_poll import PollResult, ShardResult
from fleet.monitoring.sources import SourceError
from fleet.monitoring.sources.health import HEALTH
from fleet.monitoring.sources.source import PollTarget
from fleet.monitoring.state.poll_log import PollLog
from fleet.monitoring.state.rounds import Rounds, RoundStart
from fleet.monitoring.state.worker_reports import WorkerReports
from fleet.monitoring.state.writer import Writer
from fleet.vocabulary.instances import InstanceKind


def test_process_reports_at_most_once_per_second(writer: Writer) -> None:
    """And at once after its clock was set back."""
    moments = iter([10.0, 10.5, 11.0, 5.0])
    reports, store = (
        PollReports(writer.redis, writer.prefix, lambda: next(moments)),
        WorkerReports(writer.redis, writer.prefix),
    )
    report_times = []
    for _ in range(4):
        reports.note_alive("polls")
        report_times.append(store.read()[0].at)
    assert report_times == [10.0, 10.0, 11.0, 5.0]


def test_shard_with_failures(writer: Writer) -> None:
    """Targets that did not respond are counted."""
    target = PollTarget(0, InstanceKind.AUTH, "auth-1:3025", "")
    failure = PollResult(target, 10.0, {HEALTH: SourceError("refused", has_response=False)})
    shard_result = ShardResult((failure, PollResult(target, 10.0, {})), None, probe_succeeded=False, at=10.0)
    PollReports(writer.redis, writer.prefix, lambda: 10.0).note_shard("default", 7, 1, shard_result, 0.5)
    (entry,) = PollLog(writer.redis, writer.prefix).read_shards("default")
    assert (entry.round_number, entry.shard, entry.ended_at, entry.seconds) == (7, 1, 10.0, 0.5)
    assert (entry.target_count, entry.failed_count, entry.probe_succeeded) == (2, 1, False)


def test_round_has_its_start(writer: Writer) -> None:
    """A round whose claim has expired is left out: its duration is not known."""
    reports = PollReports(writer.redis, writer.prefix)
    Rounds(writer.redis, writer.prefix).claim("default", 7, RoundStart(10.0, "gen1@host", 9.9))
    for number in (7, 8):
        reports.note_round("default", number, 10.4, is_complete=True)
    (entry,) = PollLog(writer.redis, writer.prefix).read_rounds("default")
    assert (entry.number, entry.started_at, entry.ended_at) == (7, 10.0, 10.4)
    assert (entry.scheduler, entry.enqueued_at, entry.is_complete) == ("gen1@host", 9.9, True)
