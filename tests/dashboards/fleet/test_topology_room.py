from __future__ import annotations

from dataclasses import replace

from dashboards.fleet.topology_room import topology_height_of
from fleet.vocabulary.instances import InstanceKind, InstanceState
from tests.fakes.headline_fleets import table_with


def test_longer_column_of_instances_decides() -> None:
    """From a minimum on, and up to the number of instances that the topology shows; deregistered ones do not count."""
    table = table_with()
    (view, *_) = [view for view in table.instances.values() if view.facts.kind is InstanceKind.PROXY]

    def height(count: int, state: InstanceState = InstanceState.OK) -> int:
        instances = dict(enumerate([replace(view, state=state)] * count))
        return topology_height_of(replace(table, instances=instances))

    assert [height(count) for count in (1, 3, 4, 5, 6, 100)] == [220, 220, 232, 292, 320, 320]
    assert height(0) == height(3, InstanceState.GONE) == 0
