"""`python -m dashboards COMMAND`: the commands of the console, as `refloat` runs them."""

from __future__ import annotations

import sys

from dashboards.config.program import main

if __name__ == "__main__":
    main(["refloat", *sys.argv[1:]])
