"""Commands are imported only when they run."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.meta.house import ROOT

#: Each takes longer to load than a short command takes to run.
HEAVY = ("grpc", "yaml", "aiohttp", "cryptography", "numpy", "django", "redis", "asyncio")


@pytest.mark.parametrize(
    ("command", "needed_modules"),
    [
        ("", set()),
        ("fleet ps", set()),
        ("fleet freeze", set()),
        ("agents", set()),
        ("connect", {"grpc", "asyncio"}),
    ],
)
def test_command_loads_no_more_than_it_needs(command: str, needed_modules: set[str]) -> None:
    """A person who freezes a process does not wait for gRPC to load."""
    code = (
        "import sys; from fleet.cli.main import main\n"
        f"main({[*command.split(), '--help']!r}, standalone_mode=False)\n"
        f"print('loaded:', *[name for name in {HEAVY!r} if name in sys.modules])"
    )
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True
    )
    loaded_modules = set(process.stdout.rpartition("loaded:")[2].split())
    assert loaded_modules <= needed_modules
