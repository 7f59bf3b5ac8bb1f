"""Files that are looked at: another content, another file, none, and at command."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from fleet.nodes.shared import watched_files
from fleet.nodes.shared.watched_files import WatchedFiles
from tests.fakes.waiting import eventually


class Reader:
    """Counts, and fails when told to."""

    def __init__(self) -> None:
        self.reads = 0
        self.broken = False

    async def read(self) -> None:
        self.reads += 1
        if self.broken:
            raise RuntimeError("a bug")


@asynccontextmanager
async def looking(files: WatchedFiles, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    monkeypatch.setattr(watched_files, "_LOOK", 0.01)
    task = asyncio.create_task(files.watch())
    yield
    task.cancel()


async def test_each_change_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of either file: written, replaced, gone and back; nothing is read while nothing changes."""
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text("a")
    two.write_text("a")
    reader = Reader()
    files = WatchedFiles([one, two], reader.read)
    files.record_stamps()
    async with looking(files, monkeypatch):
        for number, change in enumerate(
            (
                lambda: one.write_text("longer"),
                lambda: one.rename(two),
                lambda: one.write_text("back"),
                two.unlink,
                files.reload_now,
            ),
            start=1,
        ):
            change()
            await eventually(lambda number=number: reader.reads == number)  # type: ignore[misc]


async def test_file_that_is_still_being_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is read when it stays as it is: not between two parts, as whoever writes in place makes them."""
    path = tmp_path / "file"
    path.write_text("a")
    reader = Reader()
    files = WatchedFiles([path], reader.read)
    files.record_stamps()
    stamps = iter([(0, 0, 0, size) for size in (1, 2, 3, 4)])
    last = (0, 0, 0, 5)
    looks = 0

    def stamp(path: Path) -> tuple[int, int, int, int]:
        nonlocal looks
        looks += 1
        assert reader.reads == 0 or looks > 5
        return next(stamps, last)

    monkeypatch.setattr(watched_files, "_stamp", stamp)
    async with looking(files, monkeypatch):
        await eventually(lambda: reader.reads == 1)
        seen = looks
        await eventually(lambda: looks > seen + 2)
    assert reader.reads == 1


async def test_file_behind_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Kubernetes gives ConfigMaps: the file is a link through a folder that is a link, and that one is replaced."""
    for name, content in (("v1", "a"), ("v2", "b")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(content)
    (tmp_path / "data").symlink_to("v1")
    (tmp_path / "file").symlink_to("data/file")
    reader = Reader()
    files = WatchedFiles([tmp_path / "file"], reader.read)
    files.record_stamps()
    async with looking(files, monkeypatch):
        (tmp_path / "new").symlink_to("v2")
        (tmp_path / "new").rename(tmp_path / "data")
        await eventually(lambda: reader.reads == 1)


async def test_reader_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is on the log with its traceback, once for each change, and the next one is read."""
    path = tmp_path / "file"
    reader = Reader()
    files = WatchedFiles([path], reader.read)
    reader.broken = True
    async with looking(files, monkeypatch):
        await eventually(lambda: "a bug" in caplog.text)
        reader.broken = False
        path.write_text("x")
        await eventually(lambda: reader.reads == 2)
