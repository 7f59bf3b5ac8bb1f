"""Every Redis key of the record, and nobody else spells one. docs/record.md says what each holds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one cluster."""

    prefix: str
    cluster: str

    def _of(self, name: str) -> str:
        return f"{self.prefix}:{self.cluster}:{name}"

    @property
    def epoch(self) -> str:
        """String: random, made with the record."""
        return self._of("epoch")

    @property
    def agents(self) -> str:
        """String: append-only `id TAB name LF`, by agent index."""
        return self._of("agents")

    @property
    def instances(self) -> str:
        """String: append-only `id TAB kind TAB name LF`, by instance index."""
        return self._of("instances")

    @property
    def heartbeats(self) -> str:
        """String: HEARTBEAT rows."""
        return self._of("heartbeats")

    @property
    def tunnels(self) -> str:
        """Hash: instance index of a proxy -> TUNNEL rows."""
        return self._of("tunnels")

    @property
    def listings(self) -> str:
        """Hash: instance index of a proxy -> TUNNEL rows of a full list that is not complete yet."""
        return self._of("listings")

    @property
    def memory(self) -> str:
        """String: MEMORY rows."""
        return self._of("memory")

    @property
    def memory_version(self) -> str:
        """Counter: raised by every write to `memory`."""
        return self._of("memory-version")

    @property
    def verdicts(self) -> str:
        """String: header and VERDICT rows, so that one GET is one moment."""
        return self._of("verdicts")

    @property
    def concluded(self) -> str:
        """String: the newest round that was concluded."""
        return self._of("concluded")

    @property
    def resources(self) -> str:
        """Hash: instance index -> what its resource says."""
        return self._of("resources")

    @property
    def polls(self) -> str:
        """Hash: instance index -> its last attempts and answers."""
        return self._of("polls")

    @property
    def spells(self) -> str:
        """Hash: instance index -> its state in the newest round, and since when it is sick."""
        return self._of("spells")

    @property
    def feeds(self) -> str:
        """Hash: `presence` or the instance index of a proxy -> place in the feed, and its freshness."""
        return self._of("feeds")

    @property
    def outbox(self) -> str:
        """List: what concluded rounds still owe to the database."""
        return self._of("outbox")

    @property
    def asked(self) -> str:
        """Hash: instance index of a proxy -> agents to be asked through it in the next round, as u4."""
        return self._of("asked")

    @property
    def told(self) -> str:
        """Hash: agent index -> TOLD row, of agents that were asked lately."""
        return self._of("told")

    @property
    def answers(self) -> str:
        """Hash: agent index -> all that it said of itself, or why it did not answer."""
        return self._of("answers")

    @property
    def policies(self) -> str:
        """Hash: instance id -> what it said of its policies, or why it did not; of no epoch."""
        return self._of("policies")

    @property
    def probe(self) -> str:
        """String: when a self-probe of a poller last succeeded."""
        return self._of("probe")

    @property
    def record(self) -> tuple[str, ...]:
        """Everything that means nothing in another epoch."""
        return (
            *(self.epoch, self.agents, self.instances, self.heartbeats, self.tunnels, self.listings),
            *(self.memory, self.memory_version, self.verdicts, self.concluded, self.resources, self.polls),
            *(self.spells, self.feeds, self.outbox, self.probe, self.asked, self.told, self.answers),
        )

    @property
    def open_round(self) -> str:
        """String: the newest round that was begun."""
        return self._of("round")

    def round_claim(self, number: int) -> str:
        """String: set by the one who started the round."""
        return self._of(f"round:{number}")

    def shard_claim(self, number: int, shard: int) -> str:
        """String: set by the one who polls the shard."""
        return self._of(f"round:{number}:shard:{shard}")

    def pending(self, number: int) -> str:
        """Set: shards of the round that have not ended."""
        return self._of(f"round:{number}:pending")
