"""`python -m tests.bench NAME [OPTIONS]`: run a bench; the last line is one JSON object.

docs/reference/benchmarks.md has them all.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import pkgutil
import sys
from pathlib import Path
from typing import Any

from tests.bench.measure import BenchError, Outcome, to_json_line, to_table

#: Modules here that are no benches.
_HELPERS = {"__main__", "measure"}


def names() -> list[str]:
    """The benches there are: one module each, with a function `run(quick) -> Outcome`."""
    modules = pkgutil.iter_modules([str(Path(__file__).parent)])
    return sorted(
        module.name for module in modules if module.name not in _HELPERS and not module.name.startswith("_")
    )


def describe(name: str) -> str:
    """The first line of a bench's docstring."""
    doc = importlib.import_module(f"tests.bench.{name}").__doc__
    return (doc or "").partition("\n")[0]


def main(argv: list[str]) -> int:
    """Run one bench, or list them. Exit code 0 when it measured, 1 when `--strict` refuses it, 2 when it could not."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description="Measure.")
    parser.add_argument("name", nargs="?", help="which bench")
    parser.add_argument("--quick", action="store_true", help="smaller and fewer: does it run at all?")
    parser.add_argument("--strict", action="store_true", help="exit with 1 when a target or a peer is missed")
    parser.add_argument("--list", action="store_true", help="list the benches")
    parser.add_argument("--base", type=Path, help="a checkout of another commit, measured in the same run")
    parser.add_argument("--rows", type=int, help="rows of the history, for a smaller run")
    parser.add_argument("--keep", type=Path, help="keep the databases in this folder, or measure those in it")
    parser.add_argument("--case", help="only one case of the bench")
    options = parser.parse_args(argv)
    if options.list or options.name is None:
        for name in names():
            print(f"{name:<12} {describe(name)}")
        return 0
    if options.name not in names():
        print(f"no bench is called {options.name!r}: there are {', '.join(names())}", file=sys.stderr)
        return 2
    measure = importlib.import_module(f"tests.bench.{options.name}").run
    parameters = inspect.signature(measure).parameters
    extra: dict[str, Any] = {} if options.base is None else {"base": options.base.resolve()}
    if options.rows is not None:
        extra["rows"] = options.rows
    if options.keep is not None:
        extra["keep"] = options.keep.resolve()
    if options.case is not None:
        extra["case"] = options.case
    for name, problem in (
        ("base", "compares with no other commit"),
        ("rows", "has no rows to choose"),
        ("keep", "has no databases to keep"),
        ("case", "has no cases to choose"),
    ):
        if name in extra and name not in parameters:
            print(f"the bench {options.name!r} {problem}: leave --{name} out", file=sys.stderr)
            return 2
    try:
        outcome = measure(quick=options.quick, **extra)
    except BenchError as error:
        print(f"bench {options.name}: {error}", file=sys.stderr)
        return 2
    print(to_table(outcome))
    print(to_json_line(options.name, outcome), flush=True)
    return 1 if options.strict and _report_misses(options.name, outcome) else 0


def _report_misses(name: str, outcome: Outcome) -> bool:
    """Name missed targets and missing peers on stderr; return whether there are any."""
    misses = {"missed targets": outcome.missed_targets, "missing peers": outcome.missing_peers}
    for kind, members in misses.items():
        if members:
            print(f"bench {name}: {kind}: {', '.join(members)}", file=sys.stderr)
    return any(misses.values())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
