"""Report of a connection test of a cluster: a verdict per step, in words. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from fleet.vocabulary.connection_tests import StepName
from fleet.vocabulary.enum_types import LabelledEnum

__all__ = [
    "ConnectionTestReport",
    "ConnectionTestStep",
    "StepName",
    "StepVerdict",
    "pack_report",
    "unpack_report",
]

#: Seconds until a requested test that no worker has started counts as failed: workers start it at once.
_START_WITHIN_SECONDS = 30.0
#: Seconds until a test that has not ended counts as failed: each step has a timeout.
_END_WITHIN_SECONDS = 120.0


class StepVerdict(LabelledEnum):
    """Result of a step."""

    OK = "ok", "OK"
    #: It works, with a problem that will matter.
    WARNING = "warning", "Warning"
    FAILED = "failed", "Failed"
    #: Not possible after an earlier failure, or not applicable.
    SKIPPED = "skipped", "Skipped"


@dataclass(frozen=True, slots=True)
class ConnectionTestStep:
    """A finished step. `text`: the result; `remedy`: what to do, empty if nothing. Sentences."""

    name: StepName
    verdict: StepVerdict
    text: str
    remedy: str = ""
    seconds: float = 0.0

    @property
    def label(self) -> str:
        """Return the label of the step."""
        return self.name.label


@dataclass(frozen=True, slots=True)
class ConnectionTestReport:
    """A test, from its request on. Times in seconds since the epoch; None: not yet."""

    test_id: str
    cluster: str
    requested_at: float
    steps: tuple[ConnectionTestStep, ...] = ()
    started_at: float | None = None
    ended_at: float | None = None
    #: All steps of the test, in their order.
    step_names: tuple[StepName, ...] = tuple(StepName)

    def is_running(self, now: float) -> bool:
        """Return whether more steps are expected."""
        return self.ended_at is None and not self.is_lost(now)

    def is_lost(self, now: float) -> bool:
        """Return whether no worker started the test in time, or the worker ended before the test."""
        if self.ended_at is not None:
            return False
        if self.started_at is None:
            return now - self.requested_at > _START_WITHIN_SECONDS
        return now - self.started_at > _END_WITHIN_SECONDS

    @property
    def pending_steps(self) -> tuple[StepName, ...]:
        """Return the steps that have not ended."""
        finished_names = {step.name for step in self.steps}
        return tuple(name for name in self.step_names if name not in finished_names)

    @property
    def verdict(self) -> StepVerdict:
        """Return the worst verdict of the steps so far; OK without any."""
        verdicts = {step.verdict for step in self.steps}
        return next(
            (worst for worst in (StepVerdict.FAILED, StepVerdict.WARNING) if worst in verdicts),
            StepVerdict.OK,
        )

    @property
    def first_problem(self) -> ConnectionTestStep | None:
        """Return the first step that failed, else the first with a warning: later ones often follow from it."""
        return next((step for step in self.steps if self.verdict is step.verdict is not StepVerdict.OK), None)


def pack_report(report: ConnectionTestReport) -> dict[str, Any]:
    """Return a report as a JSON document."""
    return asdict(report)


def unpack_report(document: Mapping[str, Any]) -> ConnectionTestReport | None:
    """Return the report of a document; None when another version wrote it."""
    try:
        steps = tuple(
            ConnectionTestStep(
                StepName(step["name"]),
                StepVerdict(step["verdict"]),
                str(step["text"]),
                str(step["remedy"]),
                float(step["seconds"]),
            )
            for step in document["steps"]
        )
        return ConnectionTestReport(
            str(document["test_id"]),
            str(document["cluster"]),
            float(document["requested_at"]),
            steps,
            _parse_moment(document["started_at"]),
            _parse_moment(document["ended_at"]),
            tuple(map(StepName, document["step_names"])),
        )
    except (ValueError, KeyError, TypeError):
        return None


def _parse_moment(seconds: Any) -> float | None:
    return None if seconds is None else float(seconds)
