"""Whatever the program has a word for happens: in the running system, in a flow test.

docs/reference/tests.md, "Producers".

This test reads the lines `produced(...)` of the flow tests, without running them. That they hold is seen when they run.
"""

from __future__ import annotations

import ast
import functools
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.flow.producers import Pages, produced
from tests.meta.house import ROOT
from tests.meta.vocabularies import Vocabulary, vocabularies

_FLOW = ROOT / "tests" / "flow"
#: Statements whose body runs when they do.
_PLAIN = (ast.With, ast.AsyncWith, ast.Try)
#: A test with one of these in it may not run at all.
_SKIPS = ("skip", "skipif", "skip_without", "skip_without_go_program", "importorskip", "xfail")


@dataclass(frozen=True, slots=True)
class Claim:
    """A flow test says that it produces a member."""

    vocabulary: str
    member: str
    test: str


class UnreadableClaimError(Exception):
    """A line `produced(...)` cannot be read, or may not run."""


def claims_of(name: str, text: str) -> Iterator[Claim]:
    """Yield the claims of a file. Raises UnreadableClaimError."""
    tree = ast.parse(text)
    read = 0
    for test in tree.body:
        if isinstance(test, ast.FunctionDef | ast.AsyncFunctionDef) and test.name.startswith("test_"):
            for call in _calls(test.body):
                read += 1
                if skips := _skips(test) + _skips_of_file(tree):
                    raise UnreadableClaimError(
                        f"{name}::{test.name} may be skipped ({skips[0]}): that proves nothing"
                    )
                yield from _claims(call, f"{name}::{test.name}")
    claim_count = sum(
        isinstance(node, ast.Call) and _function_name(node) == "produced" for node in ast.walk(tree)
    )
    if claim_count > read:
        raise UnreadableClaimError(
            f"{name}: {claim_count - read} of calls of `produced` may not run: write each as a statement of its test"
            " itself, under no `if`, `for` or function"
        )


def _calls(body: list[ast.stmt]) -> Iterator[ast.Call]:
    """Yield the calls of `produced` that run whenever the body does, to its end."""
    for statement in body:
        if isinstance(statement, ast.Expr):
            value = statement.value.value if isinstance(statement.value, ast.Await) else statement.value
            # In a thread, where there is an event loop: await asyncio.to_thread(produced, ...).
            if isinstance(value, ast.Call) and _function_name(value) == "produced":
                yield value
        elif isinstance(statement, _PLAIN):
            yield from _calls(statement.body)
            if isinstance(statement, ast.Try):
                yield from _calls(statement.finalbody)
        elif isinstance(statement, ast.Return):
            return


def _function_name(call: ast.Call) -> str:
    """Return the name of the function that is called, or that a thread calls."""
    name = ast.unparse(call.func)
    if name == "asyncio.to_thread" and call.args:
        return ast.unparse(call.args[0])
    return name


def _claims(call: ast.Call, test: str) -> Iterator[Claim]:
    for keyword in call.keywords:
        if keyword.arg == "seconds":
            continue
        members = _literals(keyword.value)
        if members is None:
            raise UnreadableClaimError(f"{test}: write {keyword.arg} as a tuple of literals")
        yield from (Claim(str(keyword.arg), member, test) for member in members)


def _literals(node: ast.expr) -> list[str] | None:
    """Return the strings of a tuple, and of tuples that are unpacked in it; None if there is anything else in it."""
    if not isinstance(node, ast.Tuple):
        return None
    strings: list[str] = []
    for element in node.elts:
        if isinstance(element, ast.Starred):
            inner = _literals(element.value)
            if inner is None:
                return None
            strings += inner
        elif isinstance(element, ast.Constant) and isinstance(element.value, str):
            strings.append(element.value)
        else:
            return None
    return strings


def _skips(test: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    return [name for node in ast.walk(test) for name in _names(node) if name in _SKIPS]


def _skips_of_file(tree: ast.Module) -> list[str]:
    marks = [
        statement
        for statement in tree.body
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "pytestmark"
    ]
    return [name for mark in marks for node in ast.walk(mark) for name in _names(node) if name in _SKIPS]


def _names(node: ast.AST) -> tuple[str, ...]:
    if isinstance(node, ast.Attribute):
        return (node.attr,)
    return (node.id,) if isinstance(node, ast.Name) else ()


@functools.cache
def _all_claims() -> list[Claim]:
    return [
        claim
        for path in sorted(_FLOW.glob("test_*.py"))
        if "produced(" in (text := path.read_text(encoding="utf-8")) or "(produced," in text
        for claim in claims_of(str(path.relative_to(ROOT)), text)
    ]


def problems(vocabulary: Vocabulary, claims: list[Claim]) -> list[str]:
    """Return what is wrong with the claims to one vocabulary, each as a sentence that says what to do."""
    tests: defaultdict[str, list[str]] = defaultdict(list)
    for claim in claims:
        if claim.vocabulary == vocabulary.name:
            tests[claim.member].append(claim.test)
    unclaimed = [
        f"nothing produces {member!r} ({vocabulary.declaration}): have a test in tests/flow make it happen in the"
        f" running system, and end the test with\n"
        f"    produced({vocabulary.evidence}, {vocabulary.name}=({member!r},))\n"
        "of tests/flow/producers.py; or, if nothing can produce it, delete it"
        for member in sorted(vocabulary.members - tests.keys())
    ]
    unknown = [
        f"{', '.join(tests[member])} claims the {vocabulary.name} {member!r}, which"
        f" {vocabulary.declaration} does not have: take it out there"
        for member in sorted(tests.keys() - vocabulary.members)
    ]
    return unclaimed + unknown


@pytest.mark.parametrize("vocabulary", vocabularies().values(), ids=lambda vocabulary: vocabulary.name)
def test_every_member_is_produced_by_a_flow_test(vocabulary: Vocabulary) -> None:
    """The failure names the call to add and its file."""
    violations = problems(vocabulary, _all_claims())
    if violations:
        pytest.fail("\n".join(violations), pytrace=False)


def test_every_claim_is_to_a_vocabulary() -> None:
    """A keyword that is none would never be missed."""
    unknown = {claim.vocabulary for claim in _all_claims()} - set(vocabularies())
    assert not unknown, f"no vocabulary of tests/meta/vocabularies.py: {sorted(unknown)}"


def test_vocabularies_are_read() -> None:
    """Those that are found by patterns are found still."""
    all_vocabularies = vocabularies()
    assert {
        "hello",
        "headline",
        "delta",
        "beat",
        "stale",
        "layout",
        "instances",
        "incidents",
    } == all_vocabularies["events"].members
    assert {"refloat_websocket_connections", "refloat_gateway_calls", "process_state"} <= all_vocabularies[
        "metrics"
    ].members
    assert {"token.create", "page"} <= all_vocabularies["actions"].members


_SMALL = Vocabulary("verdicts", frozenset({"healthy", "retired"}), "a.py: State", "Database(home)")


def test_missing_member_is_named_with_the_required_call() -> None:
    """Whoever adds a word reads where its line goes."""
    (problem,) = problems(_SMALL, [Claim("verdicts", "healthy", "t.py::test_a")])
    assert "'retired' (a.py: State)" in problem
    assert "produced(Database(home), verdicts=('retired',))" in problem


def test_claim_to_a_deleted_member_is_named() -> None:
    """A word that is gone leaves no claim behind."""
    claims = [Claim("verdicts", slug, "t.py::test_a") for slug in ("healthy", "retired", "happy")]
    (problem,) = problems(_SMALL, claims)
    assert problem.startswith("t.py::test_a claims the verdicts 'happy'")


_CLAIM = 'produced(Database(home), verdicts=("healthy",))'


@pytest.mark.parametrize(
    "body",
    [
        f"    {_CLAIM}",
        f"    with console():\n        {_CLAIM}",
        f"    try:\n        {_CLAIM}\n    finally:\n        end()",
    ],
)
def test_claim_in_a_test_is_read(body: str) -> None:
    """Wherever it runs for sure."""
    assert list(claims_of("t.py", f"def test_a(home):\n{body}\n")) == [
        Claim("verdicts", "healthy", "t.py::test_a")
    ]


def test_claim_of_a_thread_is_read() -> None:
    """A test with an event loop waits in a thread."""
    text = 'async def test_a():\n    await asyncio.to_thread(produced, Frames(f), events=("hello",))\n'
    assert list(claims_of("t.py", text)) == [Claim("events", "hello", "t.py::test_a")]


@pytest.mark.parametrize(
    "text",
    [
        f"def test_a(home):\n    if home:\n        {_CLAIM}\n",
        f"def test_a(home):\n    return\n    {_CLAIM}\n",
        f"def test_a(home):\n    def never():\n        {_CLAIM}\n",
        f"def helper(home):\n    {_CLAIM}\n",
        f"@pytest.mark.skipif(True)\ndef test_a(home):\n    {_CLAIM}\n",
        f"def test_a(home):\n    skip_without(CURL)\n    {_CLAIM}\n",
        f"pytestmark = pytest.mark.skip\ndef test_a(home):\n    {_CLAIM}\n",
        "def test_a(home):\n    produced(Database(home), verdicts=tuple(State))\n",
        'def test_a(home):\n    produced(Database(home), verdicts=("healthy"))\n',
    ],
    ids=[
        "if",
        "return",
        "function",
        "helper",
        "skipif",
        "skip in it",
        "skip of the file",
        "computed",
        "string",
    ],
)
def test_claim_that_proves_nothing_is_refused(text: str) -> None:
    """It may not run, or it cannot be read."""
    with pytest.raises(UnreadableClaimError):
        list(claims_of("t.py", text))


def test_claim_without_evidence_fails() -> None:
    """It says what is missing."""
    evidence = {"verdicts": ["healthy"], "reasons": []}
    produced(evidence.__getitem__, verdicts=("healthy",))
    with pytest.raises(AssertionError, match=r"has not produced \{'reasons': \['stale'\]\}"):
        produced(evidence.__getitem__, seconds=0.05, verdicts=("healthy",), reasons=("stale",))


def test_metric_that_stays_zero_is_no_evidence() -> None:
    """It counts nothing that happened, in whatever series; when a counter was made is no count."""
    page = (
        '# TYPE a_total counter\na_total{x="1"} 0.0\na_total{x="2"} 2.0\n'
        "# TYPE b_total counter\nb_total 0.0\n# TYPE b_created gauge\nb_created 1.7e9\n"
    )
    assert set(Pages(lambda: [page])("metrics")) == {"a", "b_created"}


def test_flow_tests_are_where_they_are_looked_for() -> None:
    """There are some that claim something."""
    assert _all_claims()
    assert Path(_FLOW / "producers.py").exists()
