"""Run a command of the console: one of Django's, or of Refloat's own."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence


def main(argv: Sequence[str]) -> None:
    """Run a command. Exits with 2 and one line if a setting or the database is wrong."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "dashboards.config.settings")
    # numpy reads it when it is imported. No code here multiplies matrices, and the console forks a process, which must
    # have one thread (docs/decisions/0008-copies-of-one-process.md).
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from django.core.management import execute_from_command_line
    from django.db import connection
    from django.db.utils import DatabaseError

    from dashboards.config import lenient_settings
    from dashboards.config.env import SettingError
    from fleet.management.database_errors import describe_database_error

    try:
        if list(argv[1:2]) == ["doctor"]:
            lenient_settings.load_settings()
        execute_from_command_line(list(argv))
    except SettingError as error:
        sys.stderr.write(f"refloat: {error}\n")
        sys.exit(2)
    except DatabaseError as error:
        sentence = describe_database_error(error, str(connection.settings_dict["NAME"]))
        if not sentence:
            raise
        sys.stderr.write(f"refloat: {sentence}\n")
        sys.exit(2)
