"""The YAML diff of the editor; tests/dashboards/changes/views/test_networking.py asks for the forecast."""

from __future__ import annotations

from dashboards.changes.networking_forecast import changed_fields_of, diff_yaml
from fleet.protocol.networking.config import NetworkingConfig


def test_diff_has_lines_around_each_difference() -> None:
    """Each line with its kind."""
    before = "a: 1\nb: 2\nc: 3\nd: 4\ne: 5\n"
    assert diff_yaml(before, before.replace("d: 4", "d: 5")) == [
        ("skip", "…"),
        ("same", " b: 2"),
        ("same", " c: 3"),
        ("remove", "-d: 4"),
        ("add", "+d: 5"),
        ("same", " e: 5"),
    ]
    assert diff_yaml(before, before) == []


def test_changed_fields_are_in_words() -> None:
    """A value of 0 as what it means."""
    (row,) = changed_fields_of(NetworkingConfig(), NetworkingConfig(web_idle_timeout=60.0))
    assert (row.key, row.before, row.after) == ("web_idle_timeout", "never", "1 min")
