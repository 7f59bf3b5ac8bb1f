"""`python -m fleet.cli`: run the `refloat` command from a checkout without installing it."""

from __future__ import annotations

from fleet.cli.main import main

main(prog_name="refloat")
