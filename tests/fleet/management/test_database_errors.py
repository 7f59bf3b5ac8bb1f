"""Errors of the console's database in commands."""

from __future__ import annotations

import pytest
from django.db.utils import DatabaseError, IntegrityError, OperationalError, ProgrammingError

from fleet.management.database_errors import describe_database_error

PREPARE = "run `refloat prepare` first"


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (OperationalError("no such table: t"), f"the database is not prepared (no such table: t): {PREPARE}"),
        (
            ProgrammingError('relation "t" does not exist\nLINE 1: SELECT'),
            f'the database is not prepared (relation "t" does not exist): {PREPARE}',
        ),
        (
            OperationalError("connection failed: refused\n\tIs the server running?"),
            "cannot use the database refloat (DATABASE_URL): connection failed: refused",
        ),
        (
            OperationalError('FATAL: database "refloat" does not exist'),
            'cannot use the database refloat (DATABASE_URL): FATAL: database "refloat" does not exist',
        ),
        (
            DatabaseError("file is not a database"),
            "cannot use the database refloat (DATABASE_URL): file is not a database",
        ),
        (IntegrityError("UNIQUE constraint failed"), ""),
        (ProgrammingError("syntax error"), ""),
    ],
)
def test_error_is_one_line_that_says_what_to_do(error: DatabaseError, sentence: str) -> None:
    """Empty for an error in the command, which keeps its traceback."""
    assert describe_database_error(error, "refloat") == sentence
