"""Run a command of the console: one of Django's, or of Refloat's own."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from fleet.installation import default_home

#: Commands that never create an installation: a typing error in REFLOAT_HOME must not leave an empty
#: database, which `refloat restore` would then refuse to replace, nor a new secret key.
_COMMANDS_OF_AN_INSTALLATION = frozenset({"backup", "cluster", "token", "user"})
#: Commands that print their first line of their own seconds later: a terminal shows that they are loading.
_SLOW_COMMANDS = frozenset({"console", "demo", "serve"})
_HELP_FLAGS = frozenset({"-h", "--help"})


def main(argv: Sequence[str]) -> None:
    """Run a command. Exits with 2 and one line if a setting or the database is wrong."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "dashboards.config.settings")
    # numpy reads it when it is imported. No code here multiplies matrices, and the console forks a process, which must
    # have one thread (docs/decisions/0008-copies-of-one-process.md).
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    command = argv[1] if len(argv) > 1 else "help"
    asks_for_help = command == "help" or not _HELP_FLAGS.isdisjoint(argv[1:])
    if command in _SLOW_COMMANDS and not asks_for_help and sys.stderr.isatty():
        sys.stderr.write("Loading Refloat…\n")
        sys.stderr.flush()
    from django.core.management import execute_from_command_line
    from django.db import connection
    from django.db.utils import DatabaseError

    from dashboards.config import lenient_settings
    from dashboards.config.env import SettingError
    from fleet.management.database_errors import describe_database_error

    try:
        if command == "doctor":
            lenient_settings.load_settings()
        elif asks_for_help or command == "restore":
            lenient_settings.load_without_new_key()
        elif command in _COMMANDS_OF_AN_INSTALLATION:
            _require_database_file()
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


def _require_database_file() -> None:
    """Exit with 2 and one line if the file of SQLite does not exist: a connection would create an empty one."""
    if os.environ.get("DATABASE_URL") or os.environ.get("DATABASE_URL_FILE"):
        return
    path = Path(os.environ.get("REFLOAT_HOME") or default_home()) / "refloat.sqlite3"
    if not path.exists():
        sys.stderr.write(
            f"refloat: the database is not prepared ({path} does not exist): run `refloat prepare` first\n"
        )
        sys.exit(2)
