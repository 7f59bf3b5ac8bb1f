"""Watched files: changed, replaced, deleted and reloaded on request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from fleet.nodes.shared import watched_files
from fleet.nodes.shared.watched_files import WatchedFiles
from tests.fakes.waiting import eventually


class ReadCounter:
    """Count the reads, and fail if `is_failing` is set."""

    def __init__(self) -> None:
        self.read_count = 0
        self.is_failing = False

    async def read(self) -> None:
        self.read_count += 1
        if self.is_failing:
            raise RuntimeError("a bug")


@asynccontextmanager
async def watch(files: WatchedFiles, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    monkeypatch.setattr(watched_files, "_CHECK_INTERVAL", 0.01)
    task = asyncio.create_task(files.watch())
    yield
    task.cancel()


async def test_every_change_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write, a replacement, a deletion and a reload are read; no read happens without a change."""
    first, second = tmp_path / "one", tmp_path / "two"
    first.write_text("a")
    second.write_text("a")
    counter = ReadCounter()
    files = WatchedFiles([first, second], counter.read)
    files.record_stamps()
    async with watch(files, monkeypatch):
        for number, change in enumerate(
            (
                lambda: first.write_text("longer"),
                lambda: first.rename(second),
                lambda: first.write_text("back"),
                second.unlink,
                files.reload_now,
            ),
            start=1,
        ):
            change()
            await eventually(lambda number=number: counter.read_count == number)  # type: ignore[misc]


async def test_file_is_read_after_its_last_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is read when its stamp stays the same, not between two writes."""
    path = tmp_path / "file"
    path.write_text("a")
    counter = ReadCounter()
    files = WatchedFiles([path], counter.read)
    files.record_stamps()
    stamps = iter([(0, 0, 0, size) for size in (1, 2, 3, 4)])
    last = (0, 0, 0, 5)
    check_count = 0

    def stamp(path: Path) -> tuple[int, int, int, int]:
        nonlocal check_count
        check_count += 1
        assert counter.read_count == 0 or check_count > 5
        return next(stamps, last)

    monkeypatch.setattr(watched_files, "_stamp_of", stamp)
    async with watch(files, monkeypatch):
        await eventually(lambda: counter.read_count == 1)
        previous_count = check_count
        await eventually(lambda: check_count > previous_count + 2)
    assert counter.read_count == 1


async def test_replaced_link_of_a_folder_is_a_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kubernetes mounts ConfigMaps like this: the file is a link through a linked folder, which is replaced."""
    for name, content in (("v1", "a"), ("v2", "b")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(content)
    (tmp_path / "data").symlink_to("v1")
    (tmp_path / "file").symlink_to("data/file")
    reader = ReadCounter()
    files = WatchedFiles([tmp_path / "file"], reader.read)
    files.record_stamps()
    async with watch(files, monkeypatch):
        (tmp_path / "new").symlink_to("v2")
        (tmp_path / "new").rename(tmp_path / "data")
        await eventually(lambda: reader.read_count == 1)


async def test_failed_read_is_logged_and_the_next_change_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The traceback is logged once for each change."""
    path = tmp_path / "file"
    reader = ReadCounter()
    files = WatchedFiles([path], reader.read)
    reader.is_failing = True
    async with watch(files, monkeypatch):
        await eventually(lambda: "a bug" in caplog.text)
        reader.is_failing = False
        path.write_text("x")
        await eventually(lambda: reader.read_count == 2)
