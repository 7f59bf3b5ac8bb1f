"""The examples of docs/reference/pick-healthy.md are programs that run."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from tests.fakes.auths import FakeAuth

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("example", ["pick_healthy_aio.py", "pick_healthy_blocking.py"])
async def test_example_leaves_a_sick_server(example: str) -> None:
    """The example prints which server responds, and another one after that server reports NOT_SERVING."""
    first, second = await FakeAuth("a").start(), await FakeAuth("b").start()
    program = await asyncio.create_subprocess_exec(
        sys.executable,
        str(ROOT / "docs" / "examples" / example),
        *(f"{host}:{port}" for host, port in (first.address, second.address)),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    try:
        assert program.stdout is not None
        async with asyncio.timeout(240):
            assert await _line_of(program.stdout, "a") == "a: reconnect, SERVING"
            first.set_health(healthy=False)
            assert await _line_of(program.stdout, "b") == "b: reconnect, SERVING"
    finally:
        program.kill()
        await program.wait()
        await first.stop()
        await second.stop()


async def _line_of(stdout: asyncio.StreamReader, name: str) -> str:
    while line := (await stdout.readline()).decode():
        if line.startswith(f"{name}:"):
            return line.strip()
    raise AssertionError(f"it ended, and never spoke of {name}")
