"""What every program of `fleet.nodes` does around its work."""

from __future__ import annotations

import asyncio
import gc
import logging
import resource
from collections.abc import Iterator

import grpc.aio
import pytest

from fleet.nodes.shared import lifecycle


@pytest.fixture
def hard_file_limit() -> Iterator[int]:
    """Set the usual soft limit of open files, and yield the hard limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(1024, soft), hard))
    yield hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_file_limit_is_raised_to_the_hard_limit(hard_file_limit: int) -> None:
    """The soft limit of open files becomes the hard limit."""
    lifecycle.raise_file_limit()
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == hard_file_limit


def test_start_error_is_one_line_and_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    """Stderr has the reason without a traceback."""

    def work() -> None:
        raise lifecycle.NodeStartError("the port is in use")

    with pytest.raises(SystemExit) as caught:
        lifecycle.run(work)
    assert caught.value.code == 2
    assert capsys.readouterr().err == "the port is in use\n"


async def _fail_unawaited_task(error: Exception) -> None:
    """Leave a task that failed with `error` to the loop's exception handler."""

    async def fail() -> None:
        raise error

    task = asyncio.create_task(fail())
    await asyncio.wait([task])
    del task
    gc.collect()


def test_response_that_cannot_be_sent_is_not_logged_as_error(caplog: pytest.LogCaptureFixture) -> None:
    """grpc.aio cannot send a response to a caller that has just disconnected."""
    lifecycle.run_on_loop(_fail_unawaited_task(grpc.aio.InternalError('Failed "execute_batch"')))
    assert not [record for record in caplog.records if record.levelname != "DEBUG"]


async def _log_servicer_error(error: Exception) -> None:
    """Log an error as grpc.aio logs an exception of a method."""
    try:
        raise error
    except type(error):
        logging.getLogger("grpc._cython.cygrpc").exception("raised by servicer method")


def test_late_refusal_is_not_logged_as_error(caplog: pytest.LogCaptureFixture) -> None:
    """A refusal after the caller's deadline is no error; other exceptions of a method are logged."""
    lifecycle.run_on_loop(_log_servicer_error(grpc.aio.InternalError('Failed "execute_batch"')))
    assert not [record for record in caplog.records if record.levelname != "DEBUG"]
    lifecycle.run_on_loop(_log_servicer_error(ValueError("a bug")))
    assert [record.levelname for record in caplog.records if record.levelname != "DEBUG"] == ["ERROR"]


def test_other_unhandled_error_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """The log record has the traceback."""
    lifecycle.run_on_loop(_fail_unawaited_task(ValueError("a bug")))
    (error_record,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert error_record.exc_info
    assert isinstance(error_record.exc_info[1], ValueError)
