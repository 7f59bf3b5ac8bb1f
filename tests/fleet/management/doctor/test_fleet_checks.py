from __future__ import annotations

import pytest
from redis import Redis

from fleet.management.doctor.findings import CheckVerdict
from fleet.management.doctor.fleet_checks import InstanceCounts, check_instances, read_instances
from fleet.monitoring.state.writer import RecordSeed, Writer
from fleet.vocabulary.verdicts import State
from tests.fakes import record


def test_instances_are_read_from_the_record(valkey_url: str, prefix: str) -> None:
    """An instance that nobody polls any more does not respond; a cluster that never had an instance has none."""
    with Redis.from_url(valkey_url) as client:
        writer = Writer(client, prefix)
        record.fill(writer, [State.HEALTHY], auths=1, proxies=2)
        writer.create("empty", RecordSeed())

        fresh, empty = read_instances(client, prefix, ["default", "empty"], record.AS_OF)
        (stale,) = read_instances(client, prefix, ["default"], record.AS_OF + 900)

    assert fresh == InstanceCounts("default", 3, ())
    assert empty == InstanceCounts("empty", 0, ())
    assert stale == InstanceCounts("default", 3, ("auth-1", "proxy-1", "proxy-2"))


@pytest.mark.parametrize(
    ("counts", "verdict", "phrase"),
    [
        (InstanceCounts("default", 0, ()), CheckVerdict.ERROR, "no auth has ever responded"),
        (
            InstanceCounts("default", 2, ("auth-1", "proxy-1")),
            CheckVerdict.ERROR,
            "none of 2 instances responds",
        ),
        (
            InstanceCounts("default", 2, ("auth-1",)),
            CheckVerdict.WARNING,
            "1 of 2 instances did not respond: auth-1.",
        ),
        (
            InstanceCounts("default", 9, tuple("abcdefg")),
            CheckVerdict.WARNING,
            "7 of 9 instances did not respond: a, b, c, d, e and 2 more.",
        ),
        (InstanceCounts("default", 2, ()), CheckVerdict.OK, "has 2 instances"),
    ],
)
def test_instances(counts: InstanceCounts, verdict: CheckVerdict, phrase: str) -> None:
    (finding,) = check_instances([counts])

    assert finding.verdict is verdict
    assert phrase in finding.summary
