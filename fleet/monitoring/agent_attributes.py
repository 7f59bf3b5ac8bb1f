"""Versions and labels of agents: one row of numbers per agent, and lists of the distinct versions and label sets.

docs/reference/record.md, "Versions and labels". Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from fleet.monitoring.columns import ATTRIBUTE

T = TypeVar("T")

#: Labels as (key, value) pairs, by key.
Labels = tuple[tuple[str, str], ...]


class AgentAttributes(NamedTuple):
    """Version and labels that an agent reported; the version is empty if there is none."""

    version: str = ""
    labels: Labels = ()


@dataclass(frozen=True, slots=True)
class AttributeTable:
    """Versions and labels of all agents. Agents beyond the last row have neither."""

    #: `columns.ATTRIBUTE`: indices of `versions` and `label_sets`.
    rows: npt.NDArray[np.void] = field(default_factory=lambda: np.zeros(0, ATTRIBUTE))
    #: Distinct versions; the first one is empty: none was reported.
    versions: tuple[str, ...] = ("",)
    #: Distinct label sets; the first one is empty.
    label_sets: tuple[Mapping[str, str], ...] = ({},)

    def version_of(self, agent: int) -> str:
        """Return the version of an agent; empty if it reported none."""
        return self.versions[self.rows[agent]["version"]] if agent < len(self.rows) else ""

    def labels_of(self, agent: int) -> Mapping[str, str]:
        """Return the labels of an agent."""
        return self.label_sets[self.rows[agent]["label_set"]] if agent < len(self.rows) else {}

    def version_numbers(self, agent_count: int) -> npt.NDArray[np.uint32]:
        """Return the index in `versions` of each of the first `agent_count` agents."""
        return self._numbers("version", agent_count)

    def label_set_numbers(self, agent_count: int) -> npt.NDArray[np.uint32]:
        """Return the index in `label_sets` of each of the first `agent_count` agents."""
        return self._numbers("label_set", agent_count)

    def mask_by_version(self, accepts: Callable[[str], bool], agent_count: int) -> npt.NDArray[np.bool_]:
        """Return which agents have an accepted version; each distinct version is tested once."""
        return _mask_of(self.versions, accepts)[self.version_numbers(agent_count)]

    def mask_by_labels(
        self, accepts: Callable[[Mapping[str, str]], bool], agent_count: int
    ) -> npt.NDArray[np.bool_]:
        """Return which agents have accepted labels; each distinct label set is tested once."""
        return _mask_of(self.label_sets, accepts)[self.label_set_numbers(agent_count)]

    def _numbers(self, column: str, agent_count: int) -> npt.NDArray[np.uint32]:
        numbers = np.zeros(agent_count, np.uint32)
        head = self.rows[column][:agent_count]
        numbers[: len(head)] = head
        return numbers


def _mask_of(entries: Sequence[T], accepts: Callable[[T], bool]) -> npt.NDArray[np.bool_]:
    return np.fromiter(map(accepts, entries), np.bool_, len(entries))
