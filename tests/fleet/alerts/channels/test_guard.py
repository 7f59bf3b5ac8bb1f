from __future__ import annotations

import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from pathlib import Path

import pytest

from fleet.alerts.channels.guard import public_only
from tests.fakes.receivers import receiving


def test_guard_refuses_what_is_not_public_and_says_what() -> None:
    """TCP, UDP by a name, and sockets in the file system; when it is over all is allowed again."""
    with receiving() as receiver:
        target = ("127.0.0.1", int(receiver.url.split(":")[2].split("/")[0]))
        with public_only() as guard:
            with pytest.raises(PermissionError, match="private"):
                socket.create_connection(target)
            assert guard.refused_address == str(target)
            with socket.socket(type=socket.SOCK_DGRAM) as datagrams, pytest.raises(PermissionError):
                datagrams.sendto(b"x", ("localhost", 514))
            with socket.socket(socket.AF_UNIX) as local, pytest.raises(PermissionError):
                local.connect(str(Path("/nowhere")))
        socket.create_connection(target).close()


def test_guard_goes_along_with_a_context_and_leaves_other_threads_alone() -> None:
    """A library's worker thread is guarded; the database and other channels of the process are not its business."""
    reached: list[bool] = []
    with receiving() as receiver:
        target = ("127.0.0.1", int(receiver.url.split(":")[2].split("/")[0]))

        def reach() -> None:
            socket.create_connection(target).close()
            reached.append(True)

        with public_only() as guard, ThreadPoolExecutor(1) as workers:
            other = threading.Thread(target=reach)
            other.start()
            other.join()
            assert (reached, guard.refused_address) == ([True], "")
            inside = workers.submit(copy_context().run, reach)
            with pytest.raises(PermissionError):
                inside.result()
    assert (reached, guard.refused_address) == ([True], str(target))
