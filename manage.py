#!/usr/bin/env python
"""The command line of the console: Django's commands and Refloat's own."""

from __future__ import annotations

import os
import sys

from django.core.management import execute_from_command_line
from django.db.utils import OperationalError, ProgrammingError

from dashboards.config.env import SettingError

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "dashboards.config.settings")
    # numpy reads it when it is imported. No code here multiplies matrices, and the console forks a process, which must
    # have one thread (docs/decisions/0008-copies-of-one-process.md).
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        execute_from_command_line(sys.argv)
    except SettingError as error:
        sys.stderr.write(f"refloat: {error}\n")
        sys.exit(2)
    except (OperationalError, ProgrammingError) as error:
        if "no such table" not in str(error) and "does not exist" not in str(error):
            raise
        sys.stderr.write(f"refloat: the database is not prepared ({error}): run `manage.py prepare` first\n")
        sys.exit(2)
