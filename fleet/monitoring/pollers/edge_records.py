"""Which rounds poll the edge instances of a cluster, and how their answers become the record."""

from __future__ import annotations

from collections.abc import Mapping

from fleet.monitoring.pollers.edge_poll import EdgeAnswer
from fleet.monitoring.state.edge_store import EdgeStore
from fleet.vocabulary.edge_instances import EdgePoll, poll_after

#: Seconds between two polls where rounds are more frequent: no verdict waits for edge instances.
_MIN_INTERVAL = 2.0


def edge_addresses_in_round(
    addresses: Mapping[str, str], round_number: int, round_interval: float
) -> Mapping[str, str] | None:
    """Return the addresses of the edge instances if a round polls them, else None."""
    return addresses if round_number % max(1, round(_MIN_INTERVAL / round_interval)) == 0 else None


def record_edge_answers(
    store: EdgeStore,
    cluster: str,
    addresses: Mapping[str, str],
    answers: Mapping[str, EdgeAnswer],
    at: float,
) -> None:
    """Record the answers of attempts that ended at `at`; remove edge instances that have no address any more.

    An instance with a new address starts over. Raises StateUnavailableError.
    """
    previous_polls = store.polls(cluster)
    if not addresses and not previous_polls:
        return
    polls = []
    for name, address in addresses.items():
        previous = previous_polls.get(name)
        if previous is None or previous.address != address:
            previous = EdgePoll(name, address)
        polls.append(poll_after(previous, answers[name].response, at))
    documents = {name: answer.documents for name, answer in answers.items() if answer.documents is not None}
    store.write(cluster, polls, documents)
