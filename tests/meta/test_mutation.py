"""The tool of `make mutate`: which mutants it makes, which tests it runs, and what it calls noticed."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.mutation import trial as trials
from tests.mutation.areas import AREAS, ROOT, list_modules
from tests.mutation.equivalents import EQUIVALENTS
from tests.mutation.mutants import count_places, sample_mutants
from tests.mutation.nearest import find_nearest_tests
from tests.mutation.trial import Baselines, BrokenBaselineError, Outcome, Trial

_SOURCE = """
@decorate(level=1)
def find(values: list[int | None], limit: int = 3) -> int | None:
    logger.info("searching")
    guard(values)
    for value in values:
        if value is not None and value < limit:
            return value
    return None
"""


def _changes_of(seed: int, count: int) -> list[tuple[str, str]]:
    mutants = sample_mutants("module.py", _SOURCE, count, random.Random(seed))
    return [(mutant.before.strip(), mutant.after.strip()) for mutant in mutants]


def test_every_area_has_modules() -> None:
    """A folder that was renamed would leave an area without mutants."""
    for area in AREAS:
        assert list_modules(area), area
        assert all((ROOT / module).is_file() for module in list_modules(area)), area


def test_places_are_those_where_behaviour_can_change() -> None:
    """No annotation, no decorator, no log line; a call without a result can be left out."""
    changes = {change for seed in range(40) for change in _changes_of(seed, 10)}
    changed_lines = {before for before, _ in changes}
    assert ("guard(values)", "pass") in changes
    assert ("for value in values:", "for value in []:") in changes
    assert not any(line.startswith(("@", "logger")) for line in changed_lines)
    assert not any(" & None" in after for _, after in changes)


def test_sample_is_that_of_its_seed_and_valid_python() -> None:
    """A run can be repeated; each mutant differs from the source."""
    count = count_places(_SOURCE)
    assert _changes_of(1, count) == _changes_of(1, count)
    for mutant in sample_mutants("module.py", _SOURCE, count, random.Random(1)):
        compile(mutant.source, "module.py", "exec")
        assert mutant.source != _SOURCE


def test_nearest_tests_begin_with_the_own_file() -> None:
    """Then come those that import the module; slow folders are left out."""
    tests = find_nearest_tests("fleet/alerts/outbox.py")
    assert tests[0] == "tests/fleet/alerts/test_outbox.py"
    assert all((ROOT / test).is_file() for test in tests)
    assert not any(test.startswith(("tests/flow", "tests/browser")) for test in tests)


def test_nearest_tests_of_a_module_behind_an_interface() -> None:
    """The law of the classifier imports the package, and not the rules that it tries."""
    law = "tests/fleet/monitoring/classify/test_columns.py"
    assert law in find_nearest_tests("fleet/monitoring/classify/column_rules.py")


def test_reasons_belong_to_lines_that_exist() -> None:
    """A reason must not excuse a mutant of another program."""
    for module, before, after in EQUIVALENTS:
        lines = {line.strip() for line in (ROOT / module).read_text().splitlines()}
        assert before.splitlines()[0].strip() in lines, (module, before)
        assert before != after


def test_mutants_are_judged_by_the_tests_of_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Noticed, not noticed, endless, without tests, and tests that fail without a mutant."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "double.py").write_text("def double(value):\n    return value * 2\n")
    (project / "test_double.py").write_text(
        "from double import double\n\n\ndef test_double():\n    assert double(2) == 4\n"
    )
    (project / "test_nothing.py").write_text("")
    (project / "test_broken.py").write_text("def test_broken():\n    assert False\n")
    git = shutil.which("git")
    assert git is not None
    subprocess.run([git, "init", "-q", str(project)], check=True)
    monkeypatch.setattr(trials, "ROOT", project)
    monkeypatch.setattr(trials, "_TIMEOUT_EXTRA_SECONDS", 1.0)
    # This test starts pytest a dozen times: loading all plugins of pytest would take most of its time.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_PLUGINS", "xdist")
    trial = Trial(tmp_path / "copy", Baselines())

    def judge(body: str, *tests: str) -> Outcome:
        return trial.judge("double.py", f"def double(value):\n    {body}\n", tests or ["test_double.py"])

    assert judge("return value * 3") is Outcome.KILLED
    assert judge("return value + 2") is Outcome.SURVIVED
    assert judge("while True: pass") is Outcome.TIMED_OUT
    assert trial.judge("double.py", "", []) is Outcome.UNTESTED
    assert judge("return value * 3", "test_nothing.py", "test_double.py") is Outcome.KILLED
    assert judge("return value + 2", "test_nothing.py", "test_double.py") is Outcome.SURVIVED
    assert judge("return value * 3", "test_nothing.py") is Outcome.UNTESTED
    with pytest.raises(BrokenBaselineError, match="assert False"):
        judge("return 1", "test_broken.py")
    assert (tmp_path / "copy" / "double.py").read_text() == (project / "double.py").read_text()
