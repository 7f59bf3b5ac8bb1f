"""`python -m fleet.cli`: the `refloat` command where it is not installed."""

from __future__ import annotations

from fleet.cli.main import main

main(prog_name="refloat")
