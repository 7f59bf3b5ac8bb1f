"""What every node does around its work."""

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
def few_files() -> Iterator[int]:
    """A process that may open as few files as a shell gives it; the hard limit is the answer."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(1024, soft), hard))
    yield hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_file_limit_is_raised(few_files: int) -> None:
    """As many open files as the system lets us."""
    lifecycle.raise_file_limit()
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == few_files


def test_start_error_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """A node that cannot start says why and exits with 2."""

    def work() -> None:
        raise lifecycle.NodeStartError("the port is in use")

    with pytest.raises(SystemExit) as caught:
        lifecycle.run(work)
    assert caught.value.code == 2
    assert capsys.readouterr().err == "the port is in use\n"


async def _nobody_awaits(error: Exception) -> None:
    """Leave a task that failed with `error` to the loop's exception handler."""

    async def fail() -> None:
        raise error

    task = asyncio.create_task(fail())
    await asyncio.wait([task])
    del task
    gc.collect()


def test_unsent_answer_is_no_fault(caplog: pytest.LogCaptureFixture) -> None:
    """What grpc.aio could not send, for its caller had just gone, is not logged as an error."""
    lifecycle.on_loop(_nobody_awaits(grpc.aio.InternalError('Failed "execute_batch"')))
    assert not [record for record in caplog.records if record.levelname != "DEBUG"]


async def _say_of(error: Exception) -> None:
    """Log an error as grpc.aio logs what came of a method."""
    try:
        raise error
    except type(error):
        logging.getLogger("grpc._cython.cygrpc").exception("raised by servicer method")


def test_unsent_refusal_is_no_fault(caplog: pytest.LogCaptureFixture) -> None:
    """Nor is a refusal that came a moment after its caller's deadline; whatever else a method raises is told."""
    lifecycle.on_loop(_say_of(grpc.aio.InternalError('Failed "execute_batch"')))
    assert not [record for record in caplog.records if record.levelname != "DEBUG"]
    lifecycle.on_loop(_say_of(ValueError("a bug")))
    assert [record.levelname for record in caplog.records if record.levelname != "DEBUG"] == ["ERROR"]


def test_other_fault_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever else nobody caught is logged with its traceback."""
    lifecycle.on_loop(_nobody_awaits(ValueError("a bug")))
    (said,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert said.exc_info
    assert isinstance(said.exc_info[1], ValueError)
