from __future__ import annotations

from pathlib import Path

import pytest

from tests import scheduling
from tests.meta.house import ROOT


@pytest.mark.parametrize(
    ("nodeid", "scope"),
    [
        (
            "tests/fleet/protocol/recovery/test_tracker.py::test_x[a::b]",
            "tests/fleet/protocol/recovery/test_tracker.py",
        ),
        ("tests/flow/test_demo.py::test_x", "the demo"),
        ("tests/flow/test_benches.py::test_x[a]", "tests/flow/test_benches.py::test_x[a]"),
        ("tests/flow/test_detection.py::test_x", "the demo"),
        ("tests/browser/test_console.py::test_x", "the demo"),
        ("tests/browser/test_map.py::test_x", "the console"),
        ("tests/fleet/migrations/test_names.py::test_x", "the migrations"),
    ],
)
def test_tests_that_share_a_program_share_a_process(nodeid: str, scope: str) -> None:
    """A file is one scope, and so are all files that share the demo, the console or the migrations."""
    assert scheduling.scope_of(nodeid) == scope


def test_long_tests_begin() -> None:
    """What takes long comes before what is quick."""
    demo, flow, quick = (
        scheduling.rank_of(f"{file}::test_x")
        for file in ("tests/flow/test_demo.py", "tests/flow/test_rounds.py", "tests/fleet/test_checks.py")
    )
    assert demo < flow < quick


@pytest.mark.parametrize(
    ("expression", "demanded", "excluded"),
    [
        ("", [], []),
        ("not slow", [], ["slow"]),
        ("slow", ["slow"], []),
        ("slow and not browser", ["slow"], ["browser"]),
        ("slow and browser", ["slow", "browser"], []),
        ("slow or browser", [], []),
        ("not (slow and browser)", [], []),
    ],
)
def test_marks_that_every_test_of_a_run_has(
    expression: str, demanded: list[str], excluded: list[str]
) -> None:
    """Only these may leave a file out."""
    assert scheduling.marks_of(expression) == (demanded, excluded)


def test_file_of_other_marks_is_left_out(pytestconfig: pytest.Config, tmp_path: Path) -> None:
    """A folder, a file of helpers and a run that demands nothing leave nothing out."""
    quick, slow, pair = (tmp_path / f"test_{name}.py" for name in ("quick", "slow", "pair"))
    quick.write_text("def test_x(): ...")
    slow.write_text("pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]")
    pair.write_text("@pytest.mark.slow\ndef test_x(): ...\n\n\ndef test_y(): ...")
    (tmp_path / "fakes.py").write_text("")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pytestconfig.option, "markexpr", "slow and not browser")
        left_out = [path.name for path in tmp_path.iterdir() if _ignored(path, pytestconfig)]
        assert left_out == ["test_quick.py"]
        patch.setattr(pytestconfig.option, "markexpr", "not slow")
        assert [path.name for path in tmp_path.iterdir() if _ignored(path, pytestconfig)] == ["test_slow.py"]
        patch.setattr(pytestconfig.option, "markexpr", "")
        assert not any(_ignored(path, pytestconfig) for path in tmp_path.iterdir())
    assert not _ignored(tmp_path, pytestconfig)


def test_file_without_properties_is_left_out(pytestconfig: pytest.Config, tmp_path: Path) -> None:
    """Hypothesis itself marks them, so no file contains the mark."""
    example, properties = tmp_path / "test_example.py", tmp_path / "test_properties.py"
    example.write_text("def test_x(): ...")
    properties.write_text("from hypothesis import given")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pytestconfig.option, "markexpr", "hypothesis and not slow")
        assert _ignored(example, pytestconfig)
        assert not _ignored(properties, pytestconfig)


def _ignored(path: Path, config: pytest.Config) -> bool:
    return scheduling.pytest_ignore_collect(path, config) is True


def test_long_names_are_there() -> None:
    """A file that was moved is not waited for any more."""
    assert [name for name in (*scheduling.LONG, *scheduling.BY_TEST) if not (ROOT / name).exists()] == []
