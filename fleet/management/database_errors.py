"""Sentences for errors of the console's database, for commands. Pure."""

from __future__ import annotations

from django.db.utils import DatabaseError, OperationalError, ProgrammingError

#: What SQLite says of tables and columns that migrations add.
_MISSING_IN_SQLITE = ("no such table", "no such column")
#: What SQLite says of a file that is damaged, or never was a database.
_DAMAGED_FILE = ("file is not a database", "disk image is malformed")


def describe_database_error(error: DatabaseError, database: str) -> str:
    """Return what is wrong with a database and what to do; empty for an error in a command itself.

    `database`: its name, or the path of its file.
    """
    text = str(error).partition("\n")[0]
    is_missing_in_postgresql = isinstance(error, ProgrammingError) and "does not exist" in text
    if is_missing_in_postgresql or any(phrase in text for phrase in _MISSING_IN_SQLITE):
        return f"the database is not prepared ({text}): run `refloat prepare` first"
    if isinstance(error, OperationalError) or any(phrase in text for phrase in _DAMAGED_FILE):
        return f"cannot use the database {database} (DATABASE_URL): {text}"
    return ""
