"""`python -m tests.pictures faults|docs OUT [flags]`: make pictures of a real demo.

docs/reference/tests.md, "Pictures".
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from pathlib import Path

from tests.pictures.demo_docs import photograph_docs
from tests.pictures.demo_faults import photograph_fault
from tests.pictures.faults import assign_letters, format_key, select_faults
from tests.pictures.windows import THEMES, Theme


def main(argv: list[str]) -> int:
    """Make the pictures. Exit code 2 for unknown names."""
    parser = argparse.ArgumentParser(prog="python -m tests.pictures", description="Make pictures of a demo.")
    subjects = parser.add_subparsers(dest="subject", required=True)
    docs = subjects.add_parser("docs", help="the pictures of the documents, in both themes")
    faults = subjects.add_parser("faults", help="the map after each fault")
    for subject in (docs, faults):
        subject.add_argument("out", type=Path, help="folder of the pictures")
    faults.add_argument("--only", action="append", default=[], metavar="NAME", help="only this fault")
    faults.add_argument(
        "--key", type=Path, help="name the pictures by letters, and write here what they show"
    )
    faults.add_argument(
        "--theme", choices=THEMES, default="light", help="theme of the pages (default: light)"
    )
    options = parser.parse_args(argv)
    options.out.mkdir(parents=True, exist_ok=True)
    if options.subject == "docs":
        asyncio.run(photograph_docs(options.out))
        return 0
    return _photograph_faults(options.out, options.only, options.key, options.theme)


def _photograph_faults(folder: Path, names: list[str], key: Path | None, theme: Theme) -> int:
    try:
        faults = select_faults(names)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    picture_names = {fault.name: fault.name for fault in faults}
    if key is not None:
        picture_names = assign_letters(faults, seed=time.time_ns())
        key.write_text(format_key(faults, picture_names), "utf-8")
    for fault in faults:
        asyncio.run(photograph_fault(fault, folder / picture_names[fault.name], theme))
        print(f"{fault.name}: {picture_names[fault.name]}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
