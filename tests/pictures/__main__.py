"""`python -m tests.pictures faults OUT [--only NAME]... [--key FILE] [--dark]`: make pictures of a real demo.

docs/reference/tests.md, "Pictures".
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from pathlib import Path

from tests.pictures.demo_faults import photograph_fault
from tests.pictures.faults import assign_letters, format_key, select_faults


def main(argv: list[str]) -> int:
    """Make the pictures. Exit code 2 for unknown names."""
    parser = argparse.ArgumentParser(prog="python -m tests.pictures", description="Make pictures of a demo.")
    parser.add_argument("subject", choices=["faults"], help="the map after each fault")
    parser.add_argument("out", type=Path, help="folder of the pictures")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="only this fault")
    parser.add_argument(
        "--key", type=Path, help="name the pictures by letters, and write here what they show"
    )
    parser.add_argument("--dark", action="store_true", help="in the dark theme")
    options = parser.parse_args(argv)
    try:
        faults = select_faults(options.only)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    names = {fault.name: fault.name for fault in faults}
    if options.key is not None:
        names = assign_letters(faults, seed=time.time_ns())
        options.key.write_text(format_key(faults, names), "utf-8")
    for fault in faults:
        asyncio.run(photograph_fault(fault, options.out / names[fault.name], dark=options.dark))
        print(f"{fault.name}: {names[fault.name]}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
