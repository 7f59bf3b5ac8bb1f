"""What a step found at several servers, as one verdict and one text. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from fleet.clusters.test_report import StepVerdict

#: Servers that a text names.
_MOST_NAMES = 3


class ServerProblem(NamedTuple):
    """What went wrong at a server, as the end of a sentence that begins with its name; and what to do."""

    text: str
    remedy: str
    verdict: StepVerdict = StepVerdict.FAILED


class StepFinding(NamedTuple):
    """Verdict, text and remedy of a step."""

    verdict: StepVerdict
    text: str
    remedy: str = ""


def skip_step(text: str) -> StepFinding:
    """Return the finding of a step that was not possible."""
    return StepFinding(StepVerdict.SKIPPED, text)


def summarize(problems: Sequence[tuple[str, ServerProblem | None]], success: str) -> StepFinding:
    """Return one finding for servers, each with its name and its problem, if any.

    Without problems the text is `success`. Where some servers have none, Refloat uses those: that is a warning.
    """
    by_problem: dict[ServerProblem, list[str]] = {}
    for name, problem in problems:
        if problem is not None:
            by_problem.setdefault(problem, []).append(name)
    if not by_problem:
        return StepFinding(StepVerdict.OK, success)
    has_working = any(problem is None or problem.verdict is StepVerdict.WARNING for _, problem in problems)
    sentences = [f"{_list_names(names)}: {problem.text}." for problem, names in by_problem.items()]
    if has_working and success:
        sentences.append(success)
    remedies = dict.fromkeys(problem.remedy for problem in by_problem if problem.remedy)
    verdict = StepVerdict.WARNING if has_working else StepVerdict.FAILED
    return StepFinding(verdict, " ".join(sentences), " ".join(remedies))


def count(number: int, noun: str, plural: str = "") -> str:
    """Return "1 proxy" or "3 proxies"."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def _list_names(names: Iterable[str]) -> str:
    unique_names = list(dict.fromkeys(names))
    shown_names = unique_names[:_MOST_NAMES]
    rest_count = len(unique_names) - len(shown_names)
    if rest_count:
        return f"{', '.join(shown_names)} and {rest_count} more"
    return " and ".join(filter(None, (", ".join(shown_names[:-1]), shown_names[-1])))
