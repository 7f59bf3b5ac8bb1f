from __future__ import annotations

import numpy as np

from fleet.monitoring.agent_attributes import AttributeTable
from fleet.monitoring.columns import ATTRIBUTE

TABLE = AttributeTable(
    rows=np.array([(1, 1), (0, 0), (2, 2)], ATTRIBUTE),
    versions=("", "1.0", "2.0"),
    label_sets=({}, {"env": "prod"}, {"env": "dev", "site": "oslo"}),
)


def test_version_and_labels_of_an_agent() -> None:
    """An agent beyond the last row has neither."""
    assert [TABLE.version_of(agent) for agent in range(4)] == ["1.0", "", "2.0", ""]
    assert [TABLE.labels_of(agent).get("env") for agent in range(4)] == ["prod", None, "dev", None]


def test_each_distinct_entry_is_tested_once() -> None:
    """The mask has as many agents as the caller has, more or fewer than rows."""
    tested_versions: list[str] = []

    def accepts(version: str) -> bool:
        tested_versions.append(version)
        return version != "1.0"

    assert TABLE.mask_by_version(accepts, 5).tolist() == [False, True, True, True, True]
    assert tested_versions == ["", "1.0", "2.0"]
    assert TABLE.mask_by_labels(lambda labels: "site" in labels, 3).tolist() == [False, False, True]
    assert TABLE.mask_by_labels(lambda labels: "env" in labels, 1).tolist() == [True]


def test_empty_table_has_agents_without_attributes() -> None:
    assert AttributeTable().mask_by_labels(lambda labels: not labels, 2).tolist() == [True, True]
    assert AttributeTable().version_of(0) == ""
