from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection

from fleet import lease
from fleet.lease import ALERTS, CHANGES, LEASE_TTL_BY_PURPOSE, LeaseHeldError, LeaseLostError
from fleet.models.changes import Change
from fleet.models.clusters import Cluster, ClusterLease
from tests.fakes.waiting import eventually_sync
from tests.meta.house import ROOT

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
LATE = NOW + LEASE_TTL_BY_PURPOSE[CHANGES]


@pytest.fixture
def cluster(db: None) -> Cluster:
    """The default cluster."""
    return Cluster.objects.get_or_create(id="default", defaults={"name": "Default"})[0]


def _take(holder: str, now: datetime = NOW, change: Change | None = None) -> ClusterLease:
    return lease.take("default", CHANGES, holder, now, change)


def _change(cluster: Cluster) -> Change:
    return Change.objects.create(
        cluster=cluster, kind="policy", title="x", actor_name="a", actor_kind="person"
    )


def _write(current_lease: ClusterLease, name: str) -> None:
    """Write under the lease: the name of the cluster."""
    with lease.fenced_transaction(current_lease):
        Cluster.objects.update(name=name)


def test_take_while_another_holds_the_lease_names_the_holder(cluster: Cluster) -> None:
    """One process at a time; a lease that was given back is free."""
    first = _take("worker 1")
    with pytest.raises(
        LeaseHeldError, match="worker 1 holds the lease of cluster default until 12:00:30 UTC"
    ):
        _take("worker 2")
    assert lease.clusters_of("worker 1", CHANGES, NOW) == ["default"]
    lease.release(first)
    assert lease.clusters_of("worker 1", CHANGES, NOW) == []
    assert _take("worker 2").token > first.token


def test_leases_of_two_purposes_are_independent(cluster: Cluster) -> None:
    """Alerting evaluates a cluster while a change of it runs; clusters do not wait for each other."""
    Cluster.objects.create(id="other", name="Other")
    leases = [
        lease.take(name, purpose, f"{name} {purpose}", NOW)
        for name in ("default", "other")
        for purpose in LEASE_TTL_BY_PURPOSE
    ]
    for current_lease in leases:
        with lease.fenced_transaction(current_lease):
            pass
    assert lease.clusters_of("other alerts", ALERTS, NOW) == ["other"]


def test_holder_of_an_expired_lease_that_was_taken_over_is_fenced(cluster: Cluster) -> None:
    """A process that was paused for too long can neither renew nor write, and its release frees nothing."""
    old = _take("worker 1")
    new = _take("worker 2", LATE)
    with pytest.raises(LeaseLostError):
        lease.renew(old, LATE)
    with pytest.raises(LeaseLostError):
        _write(old, "written by worker 1")
    lease.release(old)
    _write(new, "written by worker 2")
    assert Cluster.objects.get().name == "written by worker 2"
    assert ClusterLease.objects.get().holder == "worker 2"


def test_holder_of_the_same_name_is_fenced(cluster: Cluster) -> None:
    """A restarted process may have the same host name and number."""
    old = _take("worker 1")
    _take("worker 1", LATE)
    with pytest.raises(LeaseLostError):
        _write(old, "written by the old process")


def test_renewed_lease_is_valid_for_its_full_time(cluster: Cluster) -> None:
    """Also an expired lease that no other process took; a fenced transaction renews it as well."""
    current_lease = _take("worker 1")
    later = NOW + timedelta(minutes=5)
    lease.renew(current_lease, later)
    with pytest.raises(LeaseHeldError):
        _take("worker 2", later + timedelta(seconds=1))
    with lease.fenced_transaction(current_lease, later + timedelta(hours=1)):
        pass
    with pytest.raises(LeaseHeldError, match="until 13:05:30 UTC"):
        _take("worker 2", later + timedelta(minutes=1))


def test_failed_fenced_transaction_writes_nothing(cluster: Cluster) -> None:
    """It does not extend the lease either."""
    current_lease = _take("worker 1")

    def fail() -> None:
        with lease.fenced_transaction(current_lease, LATE + timedelta(hours=1)):
            Cluster.objects.update(name="written")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert Cluster.objects.get().name == "Default"
    assert _take("worker 2", LATE).holder == "worker 2"


def test_hold_lease_releases_the_lease_after_an_error(cluster: Cluster) -> None:
    """The next process does not have to wait for the expiry."""
    with pytest.raises(KeyError), lease.hold_lease(_change(cluster), "worker 1", NOW) as current_lease:
        raise KeyError
    with pytest.raises(LeaseLostError):
        _write(current_lease, "written")
    _take("worker 2")


def test_revoke_keeps_the_lease_of_another_change(cluster: Cluster) -> None:
    """A person ends a change that is over already: the process that works on the next one keeps the lease."""
    first, second = _change(cluster), _change(cluster)
    current_lease = _take("worker 1", change=second)
    lease.revoke(first)
    _write(current_lease, "written")
    lease.revoke(second)
    with pytest.raises(LeaseLostError):
        _write(current_lease, "written after the lease was revoked")
    assert Cluster.objects.get().name == "written"


@pytest.mark.django_db(transaction=True)
def test_concurrent_take_has_one_winner(cluster: Cluster) -> None:
    """For a new lease and for an expired one."""
    for now in (NOW, LATE):
        winners: list[str] = []
        barrier = threading.Barrier(4)

        def contend(
            holder: str,
            now: datetime = now,
            winners: list[str] = winners,
            start_barrier: threading.Barrier = barrier,
        ) -> None:
            start_barrier.wait(timeout=60)
            try:
                _take(holder, now)
            except LeaseHeldError:
                return
            winners.append(holder)

        _run(*(lambda number=number: contend(f"worker {number}") for number in range(4)))
        assert winners == [ClusterLease.objects.get().holder]


@pytest.mark.django_db(transaction=True)
def test_take_waits_for_the_fenced_transaction_of_the_previous_holder(cluster: Cluster) -> None:
    """The new holder sees all that the old one wrote: its lease begins after that transaction."""
    old = _take("worker 1")
    in_block, taken_over = threading.Event(), threading.Event()
    names: list[str] = []

    def take_over() -> None:
        assert in_block.wait(timeout=60)
        _take("worker 2", LATE)
        taken_over.set()
        names.append(Cluster.objects.get().name)

    def write() -> None:
        with lease.fenced_transaction(old):
            in_block.set()
            # Long enough for a take that does not wait.
            assert not taken_over.wait(timeout=0.3)
            Cluster.objects.update(name="written by worker 1")

    _run(write, take_over)
    assert names == ["written by worker 1"]


#: A process that takes the lease of a cluster by a clock that is off by some seconds, and writes under it: a line each.
_PROCESS = """
import sys
import django
django.setup()
from datetime import UTC, datetime, timedelta
from django.db import connection
connection.settings_dict["NAME"] = sys.argv[1]
from fleet import lease
from fleet.models.clusters import Cluster
print("ready", flush=True)
held = None
for line in sys.stdin:
    verb, seconds = line.split()
    try:
        if verb == "take":
            now = datetime.now(UTC) + timedelta(seconds=float(seconds))
            held = lease.take("default", lease.ALERTS, "host/1", now)
        else:
            with lease.fenced_transaction(held):
                Cluster.objects.update(name=sys.argv[2])
        print("done", flush=True)
    except lease.LeaseHeldError as error:
        print(type(error).__name__, flush=True)
"""


class _Process:
    """Another process that works on the cluster; its signals are real."""

    def __init__(self, name: str) -> None:
        self.popen = subprocess.Popen(
            [sys.executable, "-c", _PROCESS, str(connection.settings_dict["NAME"]), name],
            cwd=ROOT,
            env=os.environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def send_command(self, command: str = "") -> str:
        """Send a command and return the response."""
        assert self.popen.stdin is not None
        assert self.popen.stdout is not None
        if command:
            self.popen.stdin.write(f"{command}\n")
            self.popen.stdin.flush()
        return self.popen.stdout.readline().strip()

    def end(self) -> None:
        """Kill it, as the kernel does where memory is short."""
        self.popen.kill()
        self.popen.communicate()


@pytest.mark.django_db(transaction=True)
def test_paused_and_killed_processes_lose_their_lease_after_its_time(cluster: Cluster) -> None:
    """A process paused past its lease writes nothing; the lease of a killed process expires."""
    first, second = processes = _Process("first"), _Process("second")
    try:
        assert [process.send_command() for process in processes] == ["ready", "ready"]
        assert first.send_command("take 3600") == "done"
        assert second.send_command("take 0") == "LeaseHeldError"
        assert first.send_command("write 0") == "done"
        ClusterLease.objects.update(expires_at=datetime.now(UTC) - timedelta(minutes=1))
        first.popen.send_signal(signal.SIGSTOP)
        # Its lease ends in a second.
        assert second.send_command("take -14") == "done"
        assert second.send_command("write 0") == "done"
        first.popen.send_signal(signal.SIGCONT)
        assert first.send_command("write 0") == "LeaseLostError"
        assert Cluster.objects.get().name == "second"
        second.end()
        eventually_sync(lambda: first.send_command("take 0") == "done")
        assert first.send_command("write 0") == "done"
        assert Cluster.objects.get().name == "first"
    finally:
        for process in processes:
            process.end()


def _run(*works: Callable[[], None]) -> None:
    """Run each in a thread with a connection of its own. Raises the first error."""
    errors: list[BaseException] = []

    def run(work: Callable[[], None]) -> None:
        with closing(connection):
            try:
                work()
            except BaseException as error:  # noqa: BLE001 - raised in the thread of the test
                errors.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert not any(thread.is_alive() for thread in threads)
    if errors:
        raise errors[0]
