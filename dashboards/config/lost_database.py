"""Log lines of a database that cannot be reached.

Every loop of every process fails until it is back, each time with the same stack, which says nothing about the cause.
"""

from __future__ import annotations

import logging
import sys

from django.db.utils import Error
from typing_extensions import override

from fleet.processes.log_format import replace_stack

#: Classes and codes of PostgreSQL's errors (PostgreSQL manual, appendix A): no connection, the server starts or shuts
#: down, it has too many connections. An error of the client has no code.
_SQLSTATES_OF_LOSS = ("08", "57P", "53300")


def is_database_lost(error: BaseException) -> bool:
    """Return whether a database error says that PostgreSQL cannot be reached, not that it refused a query."""
    # Only who uses PostgreSQL has imported it.
    psycopg = sys.modules.get("psycopg")
    if psycopg is None:
        return False
    driver_error = error.__cause__ if isinstance(error, Error) else error
    if not isinstance(driver_error, psycopg.OperationalError | psycopg.InterfaceError):
        return False
    return driver_error.sqlstate is None or driver_error.sqlstate.startswith(_SQLSTATES_OF_LOSS)


class LostDatabaseFilter(logging.Filter):
    """Replaces the stack of a lost database by the first line of its error."""

    @override
    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and is_database_lost(error):
            replace_stack(record, (str(error).splitlines() or [type(error).__name__])[0])
        return True
