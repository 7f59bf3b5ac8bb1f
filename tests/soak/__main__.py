"""Command line of the soak. The last line of its output is one JSON object."""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

from tests.soak.day import plan_day, play_day
from tests.soak.run import run_soak
from tests.soak.run_external import plan_external, run_external_soak
from tests.soak.schedule import Shape, format_schedule, plan

#: What needs no process is played at full length, on a simulated clock.
_SIMULATED_HOURS = 24


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--seed", type=int, help="replay the schedule of a run (default: a new one)")
    parser.add_argument(
        "--minutes", type=float, default=40.0, help="how long faults are injected (default: 40)"
    )
    parser.add_argument(
        "--external",
        action="store_true",
        help="two of every process, with PostgreSQL and Valkey; kill any of them",
    )
    parser.add_argument("--list", action="store_true", help="print the schedule and run nothing")
    parser.add_argument("--home", type=Path, help="keep logs and database in this new folder")
    return parser.parse_args()


def main() -> int:
    """Run a soak; exit with 1 if an invariant was violated."""
    options = _parse_arguments()
    seed = random.SystemRandom().randrange(10**6) if options.seed is None else options.seed
    shape = Shape()
    steps = (plan_external if options.external else plan)(seed, options.minutes, shape)
    arguments = f"--seed {seed} --minutes {options.minutes:g}{' --external' if options.external else ''}"
    print(f"schedule of {arguments}:\n{format_schedule(steps)}", flush=True)
    if options.list:
        return 0
    with tempfile.TemporaryDirectory(prefix="refloat-soak-") as folder:
        home = options.home or Path(folder)
        home.mkdir(parents=True, exist_ok=True)
        with (run_external_soak if options.external else run_soak)(home, seed, shape, _write_line) as soak:
            outcome = soak.run(steps, options.minutes)
    outages = plan_day(seed, _SIMULATED_HOURS)
    simulation, sentences = play_day(outages)
    _write_line(
        f"{_SIMULATED_HOURS} h of alerting on a simulated clock: {len(outages)} outages, "
        f"{len(simulation.fired_incidents)} incidents, {len(simulation.notifications)} notifications; "
        f"{'; '.join(sentences) or 'ok'}"
    )
    outcome.violations += sentences
    for violation in outcome.violations:
        print(f"violation: {violation}")
    if outcome.violations:
        print(f'replay: make soak ARGS="{arguments}"')
    print(json.dumps(asdict(outcome)))
    return 1 if outcome.violations else 0


def _write_line(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {line}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
