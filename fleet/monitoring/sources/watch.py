"""An open watch of the agents of a cluster. docs/how-to/add-an-evidence-source.md, "A watch".

The worker opens it, reads its list, and then takes the changes in a thread, several times per round.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from fleet.monitoring.sources.presence import AgentChanges, ListedAgent
from fleet.monitoring.sources.source import SourceContext, WatchSource
from fleet.vocabulary.capabilities import Capability


class AgentWatch(Protocol):
    """Changes of a cluster's agents, from the moment when it was opened. Its memory is bounded."""

    @property
    def missing_capabilities(self) -> Mapping[Capability, str]:
        """Capabilities that the cluster does not have, with the reason as a sentence."""

    async def read_list(self, context: SourceContext) -> AgentChanges:
        """Return all agents as a full list. Later changes are those since this list. Raises SourceError.

        Adds `Capability.WATCH` to the missing capabilities of the context if changes of some agents would be missed:
        the watch is then closed.
        """

    def take_changes(self, seconds: float) -> dict[str, ListedAgent | None]:
        """Return the agents that changed since the last call; None for an agent whose resources were deleted.

        It may block for `seconds`, to see whether the instance still responds. Raises SourceError if the watch was
        lost: the stream ended, the instance does not respond, a change cannot be parsed, or too many are waiting.
        """

    def close(self) -> None:
        """Close the watch; it may be closed twice."""


AgentWatchSource = WatchSource[AgentWatch]
