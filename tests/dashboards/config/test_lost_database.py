from __future__ import annotations

import logging

import psycopg
import pytest
from django.db import InterfaceError, OperationalError
from django.db.utils import ProgrammingError

from dashboards.config.lost_database import LostDatabaseFilter, is_database_lost
from fleet.processes.log_format import LineFormatter

_CLOSED = psycopg.OperationalError("the server closed the connection\n\tThis probably means that it ended.")


def _raise(error: Exception, cause: BaseException | None = None) -> Exception:
    """Return an error with a stack, as a handler of errors gets it."""
    try:
        raise error from cause
    except type(error) as raised_error:
        return raised_error


def _log(error: BaseException | None, message: str = "cluster %s: not evaluated", *args: object) -> str:
    """Return what a log shows of an error."""
    exc_info = (type(error), error, error.__traceback__) if error is not None else None
    record = logging.LogRecord("fleet.x", logging.ERROR, __file__, 1, message, args or ("prod",), exc_info)
    assert LostDatabaseFilter().filter(record)
    return LineFormatter("%(levelname)s %(message)s").format(record)


@pytest.mark.parametrize(
    "error",
    [
        _raise(OperationalError(str(_CLOSED)), _CLOSED),
        _raise(InterfaceError(str(_CLOSED)), psycopg.InterfaceError("the connection is closed")),
        _raise(_CLOSED),
    ],
    ids=["of a query", "of a closed connection", "of the driver"],
)
def test_lost_database_is_one_line(error: Exception) -> None:
    """With the reason, without the stack."""
    assert _log(error) == "ERROR cluster prod: not evaluated: the server closed the connection"


def test_reason_that_the_line_has_is_not_repeated() -> None:
    """Celery's lines about failed tasks end with the error."""
    line = _log(_raise(_CLOSED), "task poll: %s", str(_CLOSED).splitlines()[0])
    assert line == "ERROR task poll: the server closed the connection"


@pytest.mark.parametrize(
    ("error", "is_lost"),
    [
        (psycopg.errors.lookup("57P01")("terminating connection"), True),
        (psycopg.errors.lookup("57P03")("the database system is starting up"), True),
        (psycopg.errors.lookup("53300")("sorry, too many clients already"), True),
        (psycopg.errors.lookup("08006")("connection failure"), True),
        (psycopg.errors.lookup("40P01")("deadlock detected"), False),
        (psycopg.errors.lookup("42P01")("no such table"), False),
    ],
    ids=lambda value: getattr(value, "sqlstate", ""),
)
def test_loss_is_told_from_refused_queries_by_the_code(error: psycopg.Error, is_lost: bool) -> None:
    """A refused query is a fault of the program, and its stack stays."""
    assert is_database_lost(error) == is_lost
    assert is_database_lost(_raise(OperationalError("x"), error)) == is_lost
    assert ("Traceback" in _log(_raise(error))) != is_lost


def test_error_of_anything_else_keeps_its_stack() -> None:
    """Also of SQLite, which has no server to lose, and of a line without an error nothing changes."""
    for error in (ValueError("x"), OperationalError("database is locked"), ProgrammingError("syntax")):
        assert not is_database_lost(error)
        assert "Traceback" in _log(_raise(error))
    assert _log(None) == "ERROR cluster prod: not evaluated"
