from __future__ import annotations

import json

import pytest

from fleet.management.data_health.queued_tasks import QueuedTask, read_task

_EXPIRES = "2026-11-29T01:00:05+00:00"
_EXPIRES_AT = 1795914005.0


def _message(**headers: object) -> bytes:
    return json.dumps({"headers": headers}).encode()


def test_task_of_the_scheduler() -> None:
    """A round expires one interval after it was enqueued, the chores after a second."""
    message = _message(task="fleet.tasks.start_round", expires=_EXPIRES, origin="gen1@host")
    assert read_task(message, 5.0) == QueuedTask(
        "fleet.tasks.start_round", _EXPIRES_AT - 5, "gen1@host", is_of_scheduler=True
    )
    chores = read_task(_message(task="fleet.tasks.tend", expires=_EXPIRES), 5.0)
    assert chores is not None
    assert (chores.enqueued_at, chores.origin) == (_EXPIRES_AT - 1, "")


def test_task_of_a_worker() -> None:
    task = read_task(_message(task="fleet.tasks.poll_shard", expires=_EXPIRES), 5.0)
    assert task is not None
    assert not task.is_of_scheduler


@pytest.mark.parametrize(
    "message",
    [
        b"", b"{}", b"[]", b"7", b"\xff", b"[" * 5000, _message(task="fleet.tasks.start_round", expires=None),
        _message(task="fleet.tasks.start_round", expires="soon"), _message(task=[], expires=_EXPIRES),
        _message(task="fleet.tasks.run_change", expires=_EXPIRES), b'{"headers": null}',
    ],
)  # fmt: skip
def test_message_that_does_not_tell(message: bytes) -> None:
    assert read_task(message, 5.0) is None
