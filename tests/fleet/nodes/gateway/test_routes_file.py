"""The routes file: read again when it changes; one that cannot be obeyed leaves the old one in force."""

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


class Node:
    """Takes routes in force."""

    def __init__(self, path: Path) -> None:
        self.names: list[str] = []
        self.reports: list[tuple[bool, bool]] = []
        self.file = RoutesFile(path, self._apply, self._report)

    async def _apply(self, table: RouteTable) -> None:
        self.names = [one.name for one in table.routes]

    def _report(self, *, valid: bool, is_loaded: bool) -> None:
        self.reports.append((valid, is_loaded))


@pytest.fixture
async def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Node]:
    """One that looks often."""
    monkeypatch.setattr(watched_files, "_LOOK", 0.01)
    node = Node(write_routes(tmp_path / "routes.yaml", route(name="first")))
    await node.file.load()
    task = asyncio.create_task(node.file.files.watch())
    yield node
    task.cancel()


async def test_changed_file_is_in_force(node: Node) -> None:
    """Written in place, or put in its place."""
    write_routes(node.file.path, route(name="second"))
    await eventually(lambda: node.names == ["second"])
    write_routes(node.file.path.with_suffix(".new"), route(name="third")).rename(node.file.path)
    await eventually(lambda: node.names == ["third"])


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
async def test_mistake_is_told_by_its_path(
    node: Node, rule: dict[str, Any], problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Once on the log, and for as long as it is there in `problems`; the old routes stay."""
    caplog.set_level(logging.INFO)
    write_routes(node.file.path, route(rule, name="bad"))
    await eventually(lambda: bool(node.file.problems))

    assert node.file.problems[0].startswith(problem)
    assert node.names == ["first"]
    assert node.reports[-1] == (False, False)
    assert caplog.text.count("the previous routes stay in effect") == 1
    write_routes(node.file.path, route(name="good"))
    await eventually(lambda: node.names == ["good"])
    assert node.file.problems == []
    assert "is valid again" in caplog.text


@pytest.mark.parametrize("content", [b"", b"kind: [", b"\xff\xfe", b"- 1", b"x" * 1_100_000])
async def test_file_that_is_none(node: Node, content: bytes) -> None:
    """Empty, no YAML, no text, no mapping, too long."""
    node.file.path.write_bytes(content)
    await eventually(lambda: bool(node.file.problems))

    assert node.names == ["first"]


async def test_file_that_vanishes_comes_back(node: Node) -> None:
    """As editors do it."""
    node.file.path.unlink()
    await eventually(lambda: node.file.problems == ["cannot be read: No such file or directory"])
    write_routes(node.file.path, route(name="back"))
    await eventually(lambda: node.names == ["back"])


async def test_read_at_command(node: Node) -> None:
    """SIGHUP: also when nothing seems to have changed."""
    loaded_at = node.file.loaded_at
    node.file.files.reload_now()

    await eventually(lambda: node.file.loaded_at > loaded_at)


async def test_routes_that_cannot_be_applied_end_no_loop(
    node: Node, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bug is on the log with its traceback, and the next file is read."""

    async def broken(table: RouteTable) -> None:
        raise RuntimeError("a bug")

    with monkeypatch.context() as patch:
        patch.setattr(node.file, "_apply", broken)
        write_routes(node.file.path, route(name="x"))
        await eventually(lambda: "a bug" in caplog.text)
    write_routes(node.file.path, route(name="yy"))
    await eventually(lambda: node.names == ["yy"])


async def test_calls_go_on_while_a_file_is_read(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parsing a long one takes seconds: they are not the loop's."""
    reading, go_on = threading.Event(), threading.Event()
    read = routes_file.read

    def slow(path: Path) -> RouteTable:
        reading.set()
        assert go_on.wait(20.0)
        return read(path)

    with monkeypatch.context() as patch:
        patch.setattr(routes_file, "read", slow)
        write_routes(node.file.path, route(name="long"))
        await eventually(reading.is_set)  # the loop runs: this was seen from it
    go_on.set()
    await eventually(lambda: node.names == ["long"])


def test_what_is_no_file(tmp_path: Path) -> None:
    """A pipe would be waited for without end; a device may have none."""
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(RoutesFileError, match="is not a regular file"):
            routes_file.read(path)


async def test_start_with_a_bad_file(tmp_path: Path) -> None:
    """Every mistake in one sentence."""
    document = route({"retry": {"attempts": -1, "backoff": "x"}})
    path = tmp_path / "routes.yaml"
    path.write_text(yaml.safe_dump(document))

    with pytest.raises(RoutesFileError) as caught:
        routes_file.read(path)

    assert len(caught.value.problems) == 2
    assert str(caught.value).startswith(f"{path}: spec.rules[0].retry.attempts: -1")
