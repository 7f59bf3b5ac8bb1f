"""The addresses of rounds: cached, read again, and never waited for longer than allowed."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from fleet.clusters.address_cache import AddressCache
from fleet.vocabulary.clusters import AddressKind

_LONG = 30.0


class _Clock:
    """Monotonic seconds that a test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def _await_refresh() -> None:
    """Wait for the threads that resolve."""
    for thread in threading.enumerate():
        if thread.name.startswith("addresses-"):
            thread.join(_LONG)


def test_static_addresses_need_no_thread() -> None:
    """They are the entries, each once."""
    resolution = AddressCache().addresses_of("c", AddressKind.STATIC, ["b:1", "a:1", "b:1"], wait_seconds=0.0)

    assert resolution.addresses == ("b:1", "a:1")
    assert not [thread for thread in threading.enumerate() if thread.name == "addresses-c"]


def test_a_file_is_read_again_when_the_result_is_old(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Until then the last result is returned; an invalid file keeps it, and is logged once."""
    path, clock = tmp_path / "auths.json", _Clock()
    cache = AddressCache(clock)

    def read() -> tuple[str, ...]:
        return cache.addresses_of("c", AddressKind.FILE_SD, [str(path)], wait_seconds=_LONG).addresses

    path.write_text('[{"targets": ["a:1"]}]')
    assert read() == ("a:1",)
    path.write_text('[{"targets": ["a:1", "b:1"]}]')
    assert read() == ("a:1",)
    clock.now += 10
    read()
    _await_refresh()
    assert read() == ("a:1", "b:1")

    path.write_text("?")
    for _ in range(3):
        clock.now += 10
        read()
        _await_refresh()
    assert read() == ("a:1", "b:1")
    assert len([record for record in caplog.records if "not a valid file_sd file" in record.message]) == 1


def test_a_file_that_hangs_does_not_hold_a_round(tmp_path: Path) -> None:
    """A FIFO without a writer is a file whose open never returns; other entries are resolved meanwhile."""
    fifo, path = tmp_path / "fifo.json", tmp_path / "auths.json"
    os.mkfifo(fifo)
    path.write_text('[{"targets": ["a:1"]}]')
    cache = AddressCache()

    assert not cache.addresses_of("c", AddressKind.FILE_SD, [str(fifo)], wait_seconds=0.01).addresses
    start = time.monotonic()
    assert not cache.addresses_of("c", AddressKind.FILE_SD, [str(fifo)], wait_seconds=_LONG).addresses
    assert time.monotonic() - start < _LONG / 2, "only the first call waits"
    other_cluster = cache.addresses_of("d", AddressKind.FILE_SD, [str(path)], wait_seconds=_LONG)
    changed_entries = cache.addresses_of("c", AddressKind.FILE_SD, [str(path)], wait_seconds=_LONG)

    assert other_cluster.addresses == changed_entries.addresses == ("a:1",)
    with fifo.open("wb"):  # ends the thread
        pass
    _await_refresh()
