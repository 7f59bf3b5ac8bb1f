from __future__ import annotations

import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from pathlib import Path

import pytest

from fleet.alerts.channels.guard import refuse_private_addresses
from tests.fakes.receivers import run_receiver


def test_guard_refuses_private_addresses_and_names_them() -> None:
    """TCP, UDP by host name and Unix sockets; after the block everything is allowed again."""
    with run_receiver() as receiver:
        target = ("127.0.0.1", int(receiver.url.split(":")[2].split("/")[0]))
        with refuse_private_addresses() as guard:
            with pytest.raises(PermissionError, match="private"):
                socket.create_connection(target)
            assert guard.refused_address == str(target)
            with socket.socket(type=socket.SOCK_DGRAM) as datagrams, pytest.raises(PermissionError):
                datagrams.sendto(b"x", ("localhost", 514))
            with socket.socket(socket.AF_UNIX) as unix_socket, pytest.raises(PermissionError):
                unix_socket.connect(str(Path("/nowhere")))
        socket.create_connection(target).close()


def test_guard_applies_to_its_context_and_not_to_other_threads() -> None:
    """A worker thread of a library is guarded; the database and other channels of the process are not."""
    connections: list[bool] = []
    with run_receiver() as receiver:
        target = ("127.0.0.1", int(receiver.url.split(":")[2].split("/")[0]))

        def connect() -> None:
            socket.create_connection(target).close()
            connections.append(True)

        with refuse_private_addresses() as guard, ThreadPoolExecutor(1) as workers:
            unguarded_thread = threading.Thread(target=connect)
            unguarded_thread.start()
            unguarded_thread.join()
            assert (connections, guard.refused_address) == ([True], "")
            future = workers.submit(copy_context().run, connect)
            with pytest.raises(PermissionError):
                future.result()
    assert (connections, guard.refused_address) == ([True], str(target))
