"""Two moments of a fleet in memory: `past` is the table of the history."""

from __future__ import annotations

import csv
import io
import time
from dataclasses import replace

import pytest

from dashboards.fleet.timeline.comparison import DifferenceKind
from dashboards.fleet.timeline.comparison_rows import (
    compare_moments,
    describe_stale,
    iterate_csv_chunks,
    present_instances,
)
from dashboards.shared import rewind
from dashboards.shared.rewind import MomentError
from fleet.monitoring.history.past_table import NotRecordedError
from fleet.monitoring.views import FleetTable
from fleet.vocabulary.instances import InstanceState
from fleet.vocabulary.verdicts import NO_CAUSE, State
from tests.fakes.reader import FakeReader

#: Index of the proxy whose state FakeReader sets.
PROXY_1 = 2
#: 2023-11-14T22:13:20Z.
AT = 1_700_000_000.0
AT_TEXT = "2023-11-14T22:13:20Z"


@pytest.fixture(autouse=True)
def past(monkeypatch: pytest.MonkeyPatch, fake_reader: FakeReader) -> FakeReader:
    """In the past, the first of three agents was stranded; now there are four."""
    fake = FakeReader(states=[State.STRANDED, State.HEALTHY, State.HEALTHY], as_of=AT)

    def read(cluster: str, at: float, present: FleetTable) -> FleetTable:
        if at < AT:
            raise NotRecordedError(AT)
        return replace(fake.table(cluster, AT), is_past=True)

    monkeypatch.setattr(rewind, "read_past_table", read)
    monkeypatch.setattr(rewind, "_past_readers", rewind._PastReaders())
    return fake


def test_past_and_present() -> None:
    """An empty moment is now, and has a text that leads back to it."""
    compared = compare_moments(AT_TEXT, "", "default")
    assert compared.before_at_text == "2023-11-14T22:13:20.000Z"
    assert abs(rewind.parse_at(compared.after_at_text, time.time() + 9) - time.time()) < 60  # type: ignore[operator]
    assert compared.comparison.select(DifferenceKind.STATE).tolist() == [2, 3, 0]
    assert describe_stale(compared) == ""


def test_moment_without_polls_is_said(past: FakeReader) -> None:
    """Its states are unknown."""
    past.as_of = AT - 100
    sentence = describe_stale(compare_moments(AT_TEXT, "", "default"))
    assert sentence.startswith("Polling had stopped at 2023-11-14 22:13:20 UTC: all agents")


@pytest.mark.parametrize(
    ("texts", "sentence"),
    [
        (("soon", ""), "Moment A: Invalid time 'soon'"),
        ((AT_TEXT, "soon"), "Moment B: Invalid time 'soon'"),
        (("2023-11-14T22:13:19Z", ""), "Moment A: Refloat has no record of 2023-11-14 22:13:19 UTC"),
    ],
)
def test_errors_name_the_moment(texts: tuple[str, str], sentence: str) -> None:
    """One of two times is wrong."""
    with pytest.raises(MomentError, match=sentence):
        compare_moments(*texts, "default")


def test_instances_as_pages_show_them(past: FakeReader) -> None:
    """Labels of states."""
    past.proxy_state = InstanceState.SILENT
    (row,) = present_instances(compare_moments(AT_TEXT, "", "default").comparison)
    assert row.before is not None
    assert row.after is not None
    assert (row.name, row.before.label, row.after.label) == ("proxy-1", "not responding", "OK")


@pytest.mark.parametrize(("cause", "css_class"), [(NO_CAUSE, "instance-silent"), (PROXY_1, "state-stranded")])
def test_instance_that_strands_agents_is_red(
    past: FakeReader, monkeypatch: pytest.MonkeyPatch, cause: int, css_class: str
) -> None:
    """At the moment at which it is the cause; an instance that only fails is amber."""
    past.proxy_state = InstanceState.SILENT
    read = rewind.read_past_table

    def read_with_cause(cluster: str, at: float, present: FleetTable) -> FleetTable:
        table = read(cluster, at, present)
        table.verdicts["cause"] = cause
        return table

    monkeypatch.setattr(rewind, "read_past_table", read_with_cause)
    (row,) = present_instances(compare_moments(AT_TEXT, "", "default").comparison)
    assert row.before is not None
    assert row.after is not None
    assert (row.before.label, row.before.css_class) == ("not responding", css_class)
    assert row.after.css_class == "instance-ok"


def test_csv_has_all_agents_that_differ() -> None:
    """In the order of the page; an agent that was not recorded yet has empty cells."""
    comparison = compare_moments(AT_TEXT, "", "default").comparison
    rows = list(csv.DictReader(io.StringIO("".join(iterate_csv_chunks(comparison, None)), newline="")))
    assert [(row["name"], row["state_a"], row["state_b"]) for row in rows] == [
        ("agent-2", "healthy", "stranded"),
        ("agent-3", "", "at_risk"),
        ("agent-0", "stranded", "healthy"),
    ]
    assert (rows[0]["auth_a"], rows[0]["proxies_b"], rows[1]["auth_a"]) == ("auth-1", "proxy-1", "")
    assert list(iterate_csv_chunks(comparison, DifferenceKind.AUTH)) == [
        "id,name,state_a,state_b,auth_a,auth_b,proxies_a,proxies_b\r\n"
    ]
