from __future__ import annotations

from fleet.monitoring.evidence import LISTS, PRESENCE
from fleet.monitoring.sources.refloat import POLLING
from fleet.monitoring.sources.source import PollTarget
from fleet.vocabulary.instances import InstanceKind


def test_names_of_sources() -> None:
    """Names are unique; names of list sources are those of their feeds in the record."""
    names = [source.name for source in (*POLLING.instance_sources, *POLLING.list_sources)]
    assert names == ["health", "readyz", "tunnels", "trackers", LISTS, PRESENCE]


def test_every_instance_is_contacted() -> None:
    """The first source applies to every instance and is a contact source."""
    first = POLLING.instance_sources[0]
    assert first.proves_reachability
    assert all(first.applies_to(PollTarget(0, kind, "127.0.0.1:1")) for kind in InstanceKind)
