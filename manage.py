#!/usr/bin/env python
"""The command line of the console: Django's commands and Refloat's own."""

from __future__ import annotations

import sys

from dashboards.config.program import main

if __name__ == "__main__":
    main(sys.argv)
