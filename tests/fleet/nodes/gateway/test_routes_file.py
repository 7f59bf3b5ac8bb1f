"""The routes file is read again when it changes; an invalid file leaves the previous routes in effect."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from fleet.nodes.gateway import routes_file
from fleet.nodes.gateway.routes_file import RoutesFile, RoutesFileError
from fleet.nodes.shared import watched_files
from fleet.protocol.retry.route_table import RouteTable
from tests.fakes.echoing import route, write_routes
from tests.fakes.waiting import eventually


class RoutesRecorder:
    """Record the route names in effect and the reports of the file."""

    def __init__(self, path: Path) -> None:
        self.names: list[str] = []
        self.reports: list[tuple[bool, bool]] = []
        self.file = RoutesFile(path, self._apply, self._report)

    async def _apply(self, table: RouteTable) -> None:
        self.names = [table_route.name for table_route in table.routes]

    def _report(self, *, is_valid: bool, is_loaded: bool) -> None:
        self.reports.append((is_valid, is_loaded))


@pytest.fixture
async def recorder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[RoutesRecorder]:
    """Yield a recorder that checks its file often."""
    monkeypatch.setattr(watched_files, "_CHECK_INTERVAL", 0.01)
    recorder = RoutesRecorder(write_routes(tmp_path / "routes.yaml", route(name="first")))
    await recorder.file.load()
    task = asyncio.create_task(recorder.file.watched_files.watch())
    yield recorder
    task.cancel()


async def test_changed_file_takes_effect(recorder: RoutesRecorder) -> None:
    """The file may be rewritten or replaced."""
    write_routes(recorder.file.path, route(name="second"))
    await eventually(lambda: recorder.names == ["second"])
    write_routes(recorder.file.path.with_suffix(".new"), route(name="third")).rename(recorder.file.path)
    await eventually(lambda: recorder.names == ["third"])


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        (
            {"retry": {"reasons": ["wobbly"]}},
            "spec.rules[0].retry.reasons[0]: 'wobbly' is not a retry reason",
        ),
        ({"retry": {"attempts": -1}}, "spec.rules[0].retry.attempts: -1 is out of range. Use 0 or more"),
        ({"retry": {"backoff": "1.5h"}}, "spec.rules[0].retry.backoff: '1.5h' is not a duration"),
        ({"retry": {"backoff": "5ms\n"}}, "spec.rules[0].retry.backoff: '5ms\\n' is not a duration"),
        (
            {"timeouts": {"request": "99999h99999h"}},
            "spec.rules[0].timeouts.request: '99999h99999h' is longer than",
        ),
        ({"timeouts": {"backendRequest": "999999h"}}, "spec.rules[0].timeouts.backendRequest: '999999h'"),
        ({"backendRefs": [{"name": "a", "port": 99999}]}, "spec.rules[0].backendRefs[0].port: 99999"),
        ({"filters": []}, "spec.rules[0].filters: is not a known or supported key"),
    ],
)
async def test_invalid_field_is_reported_with_its_path(
    recorder: RoutesRecorder, rule: dict[str, Any], problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The problem is logged once and listed in `problems`, and the previous routes stay in effect."""
    caplog.set_level(logging.INFO)
    write_routes(recorder.file.path, route(rule, name="bad"))
    await eventually(lambda: bool(recorder.file.problems))

    assert recorder.file.problems[0].startswith(problem)
    assert recorder.names == ["first"]
    assert recorder.reports[-1] == (False, False)
    assert caplog.text.count("the previous routes stay in effect") == 1
    write_routes(recorder.file.path, route(name="good"))
    await eventually(lambda: recorder.names == ["good"])
    assert recorder.file.problems == []
    assert "is valid again" in caplog.text


@pytest.mark.parametrize("content", [b"", b"kind: [", b"\xff\xfe", b"- 1", b"x" * 1_100_000])
async def test_unreadable_file_keeps_the_routes(recorder: RoutesRecorder, content: bytes) -> None:
    """The file is empty, no YAML, no UTF-8, no mapping or too long."""
    recorder.file.path.write_bytes(content)
    await eventually(lambda: bool(recorder.file.problems))

    assert recorder.names == ["first"]


async def test_missing_file_is_read_when_it_is_back(recorder: RoutesRecorder) -> None:
    """Editors delete and create a file when they save it."""
    recorder.file.path.unlink()
    await eventually(lambda: recorder.file.problems == ["cannot be read: No such file or directory"])
    write_routes(recorder.file.path, route(name="back"))
    await eventually(lambda: recorder.names == ["back"])


async def test_reload_reads_an_unchanged_file(recorder: RoutesRecorder) -> None:
    """SIGHUP reads the file even if nothing has changed."""
    loaded_at = recorder.file.loaded_at
    recorder.file.watched_files.reload_now()

    await eventually(lambda: recorder.file.loaded_at > loaded_at)


async def test_error_while_applying_routes_does_not_end_the_watch(
    recorder: RoutesRecorder, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error is logged with its traceback, and the next file is read."""

    async def raise_error(table: RouteTable) -> None:
        raise RuntimeError("a bug")

    with monkeypatch.context() as patch:
        patch.setattr(recorder.file, "_apply", raise_error)
        write_routes(recorder.file.path, route(name="x"))
        await eventually(lambda: "a bug" in caplog.text)
    write_routes(recorder.file.path, route(name="yy"))
    await eventually(lambda: recorder.names == ["yy"])


async def test_loop_runs_while_a_file_is_parsed(
    recorder: RoutesRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long file takes seconds to parse, in a thread."""
    is_reading, can_continue = threading.Event(), threading.Event()
    read = routes_file.read

    def read_slowly(path: Path) -> RouteTable:
        is_reading.set()
        assert can_continue.wait(20.0)
        return read(path)

    with monkeypatch.context() as patch:
        patch.setattr(routes_file, "read", read_slowly)
        write_routes(recorder.file.path, route(name="long"))
        await eventually(is_reading.is_set)  # the event loop runs meanwhile
    can_continue.set()
    await eventually(lambda: recorder.names == ["long"])


def test_pipe_and_device_are_refused(tmp_path: Path) -> None:
    """Reading a pipe or a device could block for ever."""
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(RoutesFileError, match="is not a regular file"):
            routes_file.read(path)


async def test_invalid_file_at_start_lists_every_mistake(tmp_path: Path) -> None:
    """The error has the path of the file and of each field."""
    document = route({"retry": {"attempts": -1, "backoff": "x"}})
    path = tmp_path / "routes.yaml"
    path.write_text(yaml.safe_dump(document))

    with pytest.raises(RoutesFileError) as caught:
        routes_file.read(path)

    assert len(caught.value.problems) == 2
    assert str(caught.value).startswith(f"{path}: spec.rules[0].retry.attempts: -1")
