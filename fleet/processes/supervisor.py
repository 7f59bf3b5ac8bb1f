"""Run several programs as one: start them, wait until all are ready, watch them, stop them all.

Used in the main thread:

    with Supervisor(logs=home / "logs") as supervisor:        # Ctrl-C, SIGTERM, SIGHUP now stop everything
        first = supervisor.start("auth-1", argv, readiness_probe=has_ready_line)
        supervisor.await_ready(timeout=20.0)                  # StartError names the child and its log
        supervisor.watch(on_exit=report)                      # returns after such a signal
                                                              # leaving the block stops every child, last stage first

A child is ready when `readiness_probe(child)` is true: `has_ready_line` waits for the line of JSON that nodes print on
stdout, other callables can probe the child; without one, a child is ready as soon as it runs.
Stdout and stderr of a child go to its log, so that no pipe has to be drained, or breaks when the parent dies.
"""

from __future__ import annotations

import json
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType, TracebackType
from typing import IO, Any, Protocol, Self

from typing_extensions import override

from fleet.processes import children, folders

#: Seconds between two checks of a child that is not ready.
_READY_POLL = 0.05
#: Seconds between two checks of all children, if no SIGCHLD comes.
_WATCH_POLL = 0.5
_END_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class SupervisorError(Exception):
    """Base class of errors that prevent a start."""


class StartError(SupervisorError):
    """A child did not become ready."""

    def __init__(self, child: Child, reason: str) -> None:
        super().__init__(child, reason)
        self.child = child
        self.reason = reason

    @override
    def __str__(self) -> str:
        last_line = self.child.last_line()
        return (
            f"{self.child.name} {self.reason}{f': {last_line}' if last_line else ''} (log: {self.child.log})"
        )


class InterruptedStartError(SupervisorError):
    """Ctrl-C or SIGTERM came before all children were ready."""


class Spawn(Protocol):
    """A function that starts a program in another way than `children.spawn`."""

    def __call__(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None,
        log: IO[bytes],
        on_parent_death: signal.Signals,
    ) -> children.ChildProcess:
        """Start the program. Raises OSError."""


@dataclass(eq=False)
class Child:
    """A supervised program."""

    name: str
    argv: tuple[str, ...]
    log: Path
    process: children.ChildProcess
    #: Stop order, highest first.
    stage: int = 0
    env: Mapping[str, str] | None = None
    on_parent_death: signal.Signals = signal.SIGTERM
    readiness_probe: Callable[[Child], bool] | None = None
    #: The function that starts the program; None: `children.spawn`.
    spawn: Spawn | None = None
    #: The JSON of the ready line; empty before, and for children without a ready line.
    ready_message: Mapping[str, Any] = field(default_factory=dict)
    #: True after the end of the child was reported, or was intended.
    is_end_reported: bool = False
    #: Bytes of the log that were searched for the ready line.
    searched_log_bytes: int = 0

    @property
    def pid(self) -> int:
        """The process id."""
        return self.process.pid

    def is_alive(self) -> bool:
        """Return whether the child has not ended (it may be frozen). Reaps a child that has."""
        return self.process.poll() is None

    def last_line(self) -> str:
        """Return the last line of the log; empty if there is none."""
        try:
            lines = self.log.read_text(errors="replace").split("\n")
        except OSError:
            return ""
        return next((line.strip() for line in reversed(lines) if line.strip()), "")


def has_ready_line(child: Child) -> bool:
    """Return whether the child has printed its ready line: a JSON object with `"event": "ready"`."""
    with child.log.open("rb") as log:
        log.seek(child.searched_log_bytes)
        text = log.read()
    whole = text.rfind(b"\n") + 1
    child.searched_log_bytes += whole
    for line in text[:whole].split(b"\n"):
        if not line.startswith(b"{"):
            continue
        try:
            message = json.loads(line)
        except ValueError:
            continue
        if message.get("event") == "ready":
            child.ready_message = message
            return True
    return False


class Supervisor:
    """The children of one command."""

    def __init__(self, logs: Path) -> None:
        self.logs = logs
        self.children: list[Child] = []
        #: True after a signal to stop, or `finish`.
        self.is_ending = False
        self._wake_reader, self._wake_writer = os.pipe()
        self._previous_signal_handlers: dict[int, Any] = {}

    def __enter__(self) -> Self:
        assert threading.current_thread() is threading.main_thread(), (
            "children end with the thread that started them"
        )
        try:
            folders.create_private_folder(self.logs)
        except FileExistsError as error:
            raise SupervisorError(
                f"{self.logs} is a file, and logs need a folder of this name: move the file away"
            ) from error
        except OSError as error:
            raise SupervisorError(
                f"cannot create the folder of the logs, {self.logs}: {error.strerror}"
            ) from error
        for end in (self._wake_reader, self._wake_writer):
            os.set_blocking(end, False)
        for number in (*_END_SIGNALS, signal.SIGCHLD):
            # An ignored signal stays ignored: nohup sets that for SIGHUP.
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._previous_signal_handlers[number] = signal.signal(number, self._on_signal)
        self._previous_wakeup_fd = signal.set_wakeup_fd(self._wake_writer, warn_on_full_buffer=False)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        signal.set_wakeup_fd(self._previous_wakeup_fd)
        for number, handler in self._previous_signal_handlers.items():
            signal.signal(number, handler)
        os.close(self._wake_reader)
        os.close(self._wake_writer)

    def start(
        self,
        name: str,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        stage: int = 0,
        readiness_probe: Callable[[Child], bool] | None = None,
        on_parent_death: signal.Signals = signal.SIGTERM,
        spawn: Spawn | None = None,
    ) -> Child:
        """Start a program with an empty log LOGS/NAME.log. Children of a higher `stage` are stopped first.

        A program that may be frozen (SIGSTOP) needs `on_parent_death=SIGKILL`, because it does not handle SIGTERM then.
        Raises SupervisorError if the program cannot be started.
        """
        log = self.logs / f"{name}.log"
        try:
            log.write_bytes(b"")
        except OSError as error:
            raise SupervisorError(f"cannot write the log {log}: {error.strerror}") from error
        process = self._spawn(argv, log, env, on_parent_death, spawn)
        child = Child(name, tuple(argv), log, process, stage, env, on_parent_death, readiness_probe, spawn)
        self.children.append(child)
        return child

    def adopt(self, name: str, process: children.ChildProcess, *, log: Path, stage: int = 0) -> Child:
        """Supervise a child that `children.spawn` started, such as the embedded Valkey. It counts as ready."""
        child = Child(name, (), log, process, stage)
        self.children.append(child)
        return child

    def restart(self, child: Child) -> None:
        """Start a dead child again with the same arguments and log; wait for it with `await_ready`."""
        assert not child.is_alive(), f"{child.name} still runs"
        assert child.argv, f"{child.name} was adopted: only its owner can restart it"
        child.searched_log_bytes = child.log.stat().st_size
        child.ready_message, child.is_end_reported = {}, False
        child.process = self._spawn(child.argv, child.log, child.env, child.on_parent_death, child.spawn)

    def await_ready(
        self,
        awaited_children: Sequence[Child] | None = None,
        *,
        timeout: float,
        on_ready: Callable[[Child], None] | None = None,
    ) -> None:
        """Wait until all `awaited_children` (default: all) are ready; call `on_ready` for each.

        Raises StartError if a child ends or is not ready within `timeout` seconds, InterruptedStartError on Ctrl-C.
        """
        pending_children = list(self.children if awaited_children is None else awaited_children)
        deadline = time.monotonic() + timeout
        while True:
            for child in list(pending_children):
                if child.readiness_probe is None or child.readiness_probe(child):
                    pending_children.remove(child)
                    if on_ready is not None:
                        on_ready(child)
                elif not child.is_alive():
                    child.is_end_reported = True
                    raise StartError(
                        child, f"ended with exit code {child.process.returncode} before it was ready"
                    )
            if not pending_children:
                return
            if time.monotonic() > deadline:
                raise StartError(pending_children[0], f"was not ready within {timeout:.0f} s")
            self._sleep(_READY_POLL)
            if self.is_ending:
                raise InterruptedStartError("interrupted before all processes were ready")

    def watch(self, *, on_exit: Callable[[Child], None], on_tick: Callable[[], None] | None = None) -> None:
        """Run until a signal to stop, or `finish`; call `on_exit` once for each child that ends by itself.

        `on_tick` is called twice a second, and at once after a signal. Other children keep running when a child ends:
        call `finish` from `on_exit` to stop them.
        """
        while not self.is_ending:
            for child in self.children:
                if not child.is_end_reported and not child.is_alive():
                    child.is_end_reported = True
                    on_exit(child)
            if on_tick is not None:
                on_tick()
            if not self.is_ending:
                self._sleep(_WATCH_POLL)

    def finish(self) -> None:
        """Make `watch` return."""
        self.is_ending = True

    def stop(self, *, grace: float = 5.0) -> None:
        """Stop all children, highest stage first: SIGTERM, then SIGKILL after `grace` seconds."""
        for stage in sorted({child.stage for child in self.children}, reverse=True):
            children.stop([child.process for child in self.children if child.stage == stage], grace=grace)

    def _spawn(
        self,
        argv: Sequence[str],
        log: Path,
        env: Mapping[str, str] | None,
        on_parent_death: signal.Signals,
        spawn: Spawn | None,
    ) -> children.ChildProcess:
        try:
            with log.open("ab") as out:
                return (spawn or children.spawn)(argv, env=env, log=out, on_parent_death=on_parent_death)
        except OSError as error:
            raise SupervisorError(f"cannot start {argv[0]}: {error.strerror}") from error

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if number in _END_SIGNALS:
            self.is_ending = True

    def _sleep(self, seconds: float) -> None:
        """Sleep, but return at once after a signal; time.sleep would continue (PEP 475)."""
        select.select([self._wake_reader], [], [], seconds)
        try:
            os.read(self._wake_reader, 4096)
        except BlockingIOError:
            return
