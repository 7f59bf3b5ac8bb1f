"""Every Redis key of the record, and nobody else spells one. docs/record.md says what each holds."""

from __future__ import annotations

from dataclasses import dataclass


class _Key:
    """One key of every cluster, by the last part of its name."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, keys: Keys, owner: type[Keys]) -> str:
        return _key_name(keys, self._name)


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one cluster."""

    prefix: str
    cluster: str

    #: String: random, made with the record.
    epoch = _Key("epoch")
    #: String: append-only `id TAB name LF`, by agent index.
    agents = _Key("agents")
    #: String: append-only `id TAB kind TAB name LF`, by instance index.
    instances = _Key("instances")
    #: String: HEARTBEAT rows.
    heartbeats = _Key("heartbeats")
    #: Hash: instance index of a proxy -> TUNNEL rows.
    tunnels = _Key("tunnels")
    #: Hash: instance index of a proxy -> TUNNEL rows of a full list that is not complete yet.
    listings = _Key("listings")
    #: String: MEMORY rows.
    memory = _Key("memory")
    #: Counter: raised by every write to `memory`.
    memory_version = _Key("memory-version")
    #: String: header and VERDICT rows, so that one GET is one moment.
    verdicts = _Key("verdicts")
    #: String: the newest round that was concluded.
    concluded = _Key("concluded")
    #: Hash: instance index -> what its resource says.
    resources = _Key("resources")
    #: Hash: instance index -> its last attempts and answers.
    polls = _Key("polls")
    #: Hash: instance index -> its state in the newest round, and since when it is sick.
    spells = _Key("spells")
    #: Hash: `presence` or the instance index of a proxy -> place in the feed, and its freshness.
    feeds = _Key("feeds")
    #: List: what concluded rounds still owe to the database.
    outbox = _Key("outbox")
    #: Hash: instance index of a proxy -> agents to be asked through it in the next round, as u4.
    asked = _Key("asked")
    #: Hash: agent index -> TOLD row, of agents that were asked lately.
    told = _Key("told")
    #: Hash: agent index -> all that it said of itself, or why it did not answer.
    answers = _Key("answers")
    #: Hash: instance id -> what it said of its policies, or why it did not; of no epoch.
    policies = _Key("policies")
    #: String: the newest round that was begun.
    open_round = _Key("round")
    #: String: when a self-probe of a poller last succeeded.
    probe = _Key("probe")

    @property
    def record(self) -> tuple[str, ...]:
        """Everything that means nothing in another epoch."""
        return (
            *(self.epoch, self.agents, self.instances, self.heartbeats, self.tunnels, self.listings),
            *(self.memory, self.memory_version, self.verdicts, self.concluded, self.resources, self.polls),
            *(self.spells, self.feeds, self.outbox, self.probe, self.asked, self.told, self.answers),
        )

    def round_claim(self, number: int) -> str:
        """String: set by the one who started the round."""
        return _key_name(self, f"round:{number}")

    def shard_claim(self, number: int, shard: int) -> str:
        """String: set by the one who polls the shard."""
        return _key_name(self, f"round:{number}:shard:{shard}")

    def pending_shards(self, number: int) -> str:
        """Set: shards of the round that have not ended."""
        return _key_name(self, f"round:{number}:pending")


def _key_name(keys: Keys, name: str) -> str:
    return f"{keys.prefix}:{keys.cluster}:{name}"
