from __future__ import annotations

import pytest

from tests import scheduling
from tests.meta.house import ROOT


@pytest.mark.parametrize(
    ("nodeid", "scope"),
    [
        ("tests/fleet/protocol/test_tracker.py::test_x[a::b]", "tests/fleet/protocol/test_tracker.py"),
        ("tests/flow/test_demo.py::test_x", "the demo"),
        ("tests/browser/test_console.py::test_x", "the demo"),
        ("tests/browser/test_map.py::test_x", "the console"),
    ],
)
def test_tests_that_share_a_program_share_a_process(nodeid: str, scope: str) -> None:
    """A file is one scope, and so are all files that share the demo or the console."""
    assert scheduling.scope_of(nodeid) == scope


def test_long_tests_begin() -> None:
    """What takes long comes before what is quick."""
    demo, flow, quick = (
        scheduling.rank_of(f"{file}::test_x")
        for file in ("tests/flow/test_demo.py", "tests/flow/test_rounds.py", "tests/fleet/test_checks.py")
    )
    assert demo < flow < quick


def test_long_names_are_there() -> None:
    """A file that was moved is not waited for any more."""
    assert [name for name in scheduling.LONG if not (ROOT / name).exists()] == []
