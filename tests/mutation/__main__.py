"""Command line of mutation testing. The last line of its output is one JSON object."""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue

from tests.mutation.areas import AREAS, ROOT, list_modules
from tests.mutation.equivalents import EQUIVALENTS
from tests.mutation.mutants import Mutant, count_places, sample_mutants
from tests.mutation.nearest import find_nearest_tests
from tests.mutation.trial import Baselines, BrokenBaselineError, Outcome, Trial

#: Outcomes of mutants that no test noticed.
SURVIVING = (Outcome.SURVIVED, Outcome.UNTESTED)


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("areas", nargs="*", metavar="AREA", help=f"default: all of {', '.join(AREAS)}")
    parser.add_argument("--count", type=int, default=200, help="number of mutants (default: %(default)s)")
    parser.add_argument(
        "--seed", type=int, default=None, help="repeat the sample of a run (default: a new one)"
    )
    parser.add_argument("--module", action="append", default=[], help="only this module; may be repeated")
    parser.add_argument("--jobs", type=int, default=2, help="mutants at a time (default: %(default)s)")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a mutant survives")
    options = parser.parse_args()
    if unknown := set(options.areas) - set(AREAS):
        parser.error(f"unknown area {min(unknown)!r}; use {', '.join(AREAS)}")
    for module in options.module:
        if not (ROOT / module).is_file():
            parser.error(
                f"{module} is no file of this repository; give a path such as fleet/alerts/outbox.py"
            )
    return options


def choose_mutants(modules: Sequence[str], count: int, seed: int) -> list[Mutant]:
    """Return mutants of modules; each place of all modules is as likely as any other."""
    rng = random.Random(seed)
    sources = {module: (ROOT / module).read_text() for module in modules}
    weights = {module: count_places(source) for module, source in sources.items()}
    places = [module for module, weight in weights.items() for _ in range(weight)]
    count_by_module = Counter(rng.sample(places, min(count, len(places))))
    return [
        mutant
        for module in modules
        if count_by_module[module]
        for mutant in sample_mutants(module, sources[module], count_by_module[module], rng)
    ]


def main() -> int:
    """Run mutants, print each survivor, the kill rate by module, and the result as JSON."""
    options = _parse_arguments()
    seed = random.SystemRandom().randrange(10**6) if options.seed is None else options.seed
    modules = options.module or [module for area in (options.areas or AREAS) for module in list_modules(area)]
    mutants = choose_mutants(modules, options.count, seed)
    print(f"{len(mutants)} mutants of {len({mutant.module for mutant in mutants})} modules, --seed {seed}")
    outcomes = _judge_all(mutants, options.jobs)
    survivors = _report(list(zip(mutants, outcomes, strict=True)))
    print(
        json.dumps(
            {
                "seed": seed,
                "mutants": len(mutants),
                "killed": sum(outcome in (Outcome.KILLED, Outcome.TIMED_OUT) for outcome in outcomes),
                "equivalent": sum(bool(_reason_of(mutant)) for mutant in mutants),
                "survived": len(survivors),
                "not_judged": outcomes.count(Outcome.BROKEN),
            }
        )
    )
    if Outcome.BROKEN in outcomes:
        return 2
    return 1 if options.strict and survivors else 0


def _judge_all(mutants: Sequence[Mutant], jobs: int) -> list[Outcome]:
    """Return the outcomes in the order of the mutants, and print each when it is known."""
    with tempfile.TemporaryDirectory(prefix="refloat-mutation-") as folder:
        trials, baselines = Queue[Trial](), Baselines()
        for number in range(jobs):
            trials.put(Trial(Path(folder, str(number)), baselines))

        def judge(entry: tuple[int, Mutant]) -> Outcome:
            number, mutant = entry
            if _reason_of(mutant):
                return Outcome.KILLED
            trial = trials.get()
            try:
                outcome = trial.judge(mutant.module, mutant.source, find_nearest_tests(mutant.module))
            except BrokenBaselineError as error:
                print(error, file=sys.stderr)
                outcome = Outcome.BROKEN
            finally:
                trials.put(trial)
            place = f"{mutant.module}:{mutant.line}"
            change = _describe(mutant) if outcome in SURVIVING else ""
            print(f"[{number}/{len(mutants)}] {outcome:9} {mutant.operator:34} {place}{change}", flush=True)
            return outcome

        with ThreadPoolExecutor(jobs) as executor:
            return list(executor.map(judge, enumerate(mutants, 1)))


def _reason_of(mutant: Mutant) -> str:
    """Return why a mutant behaves like the program; empty if it does not."""
    return EQUIVALENTS.get((mutant.module, mutant.before.strip(), mutant.after.strip()), "")


def _describe(mutant: Mutant) -> str:
    """Return the changed lines, each on a line of its own."""
    before = "".join(f"\n  - {line}" for line in mutant.before.splitlines())
    return f"{before}\n  + {mutant.after}"


def _report(results: Sequence[tuple[Mutant, Outcome]]) -> list[Mutant]:
    """Print the survivors and the kill rate by module; return the survivors."""
    survivors = [mutant for mutant, outcome in results if outcome in SURVIVING]
    for mutant in survivors:
        print(f"\n{mutant.module}:{mutant.line} ({mutant.operator}){_describe(mutant)}")
    counts = defaultdict[str, Counter[bool]](Counter)
    for mutant, outcome in results:
        counts[mutant.module][outcome in (Outcome.KILLED, Outcome.TIMED_OUT)] += 1
    print("\n  killed  of  module")
    for module, outcome_counts in sorted(counts.items()):
        print(f"  {outcome_counts[True]:6} {outcome_counts.total():3}  {module}")
    return survivors


if __name__ == "__main__":
    sys.exit(main())
