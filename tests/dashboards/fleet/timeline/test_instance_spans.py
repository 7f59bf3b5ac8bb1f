from __future__ import annotations

from dataclasses import dataclass

from dashboards.fleet.timeline.instance_spans import InstanceSpan, SpanKind, spans_of


@dataclass(frozen=True)
class _Change:
    instance: str
    at: float
    new: str
    is_draining: bool | None = None


def test_spans_of_states() -> None:
    """From the change to the next one; what began before the range or lasts is whole."""
    changes = [
        _Change("p", 50, "silent"),
        _Change("q", 90, "ok"),
        _Change("p", 150, "ok"),
        _Change("p", 160, "unhealthy"),
        _Change("p", 170, "gone"),
    ]
    assert spans_of(changes, 100, 200) == {
        "p": (
            InstanceSpan(SpanKind.SILENT, 50, 150),
            InstanceSpan(SpanKind.UNHEALTHY, 160, 170),
            InstanceSpan(SpanKind.DEREGISTERED, 170, 200),
        ),
        "q": (),
    }


def test_draining_overlaps_states() -> None:
    """A change of the state does not end the drain; a change that was recorded without it does."""
    changes = [
        _Change("p", 110, "ok", is_draining=True),
        _Change("p", 120, "silent", is_draining=True),
        _Change("p", 130, "ok", is_draining=False),
        _Change("p", 140, "silent"),
        _Change("p", 145, "silent"),
    ]
    assert spans_of(changes, 100, 200)["p"] == (
        InstanceSpan(SpanKind.DRAINING, 110, 130),
        InstanceSpan(SpanKind.SILENT, 120, 130),
        InstanceSpan(SpanKind.SILENT, 140, 200),
    )


def test_spans_outside_are_left_out() -> None:
    """What ended where the range begins is not in it."""
    changes = [_Change("p", 10, "silent"), _Change("p", 100, "ok"), _Change("p", 200, "silent")]
    assert spans_of(changes, 100, 200) == {"p": ()}
    assert spans_of([], 100, 200) == {}


def test_labels_are_those_of_the_states() -> None:
    """As on other pages."""
    assert [kind.label for kind in SpanKind] == [
        "not responding", "unhealthy", "expired", "deregistered", "draining",
    ]  # fmt: skip
