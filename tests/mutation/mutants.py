"""Mutants of a module: one change each, by the operators of Cosmic Ray and one of ours. Reads files, writes none."""

from __future__ import annotations

import ast
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import parso
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import MutationVisitor
from cosmic_ray.operators.operator import Operator
from cosmic_ray.plugins import get_operator

#: Operators whose mutants are programs that somebody might write. Others, such as `is` to `<`, fail at once.
_OPERATOR_NAMES = (
    *("AddNot", "ReplaceTrueWithFalse", "ReplaceFalseWithTrue", "ReplaceAndWithOr", "ReplaceOrWithAnd"),
    *("ReplaceBreakWithContinue", "ReplaceContinueWithBreak", "NumberReplacer", "ZeroIterationForLoop"),
    *("ExceptionReplacer", "ReplaceUnaryOperator_Delete_Not", "ReplaceUnaryOperator_USub_UAdd"),
    *(
        f"ReplaceComparisonOperator_{pair}"
        for pair in ("Eq_NotEq", "NotEq_Eq", "Lt_LtE", "Lt_GtE", "LtE_Lt", "LtE_Gt", "Gt_GtE", "Gt_LtE", "GtE_Gt",
                     "GtE_Lt", "Is_IsNot", "IsNot_Is")
    ),
    *(
        f"ReplaceBinaryOperator_{pair}"
        for pair in ("Add_Sub", "Sub_Add", "Mul_Div", "Div_Mul", "FloorDiv_Mul", "Mod_Mul", "BitOr_BitAnd",
                     "BitAnd_BitOr")
    ),
)  # fmt: skip

#: Calls that no test has to notice.
_UNTESTED_CALLS = ("logger.", "log.", "warnings.")

Position = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Mutant:
    """A module with one change."""

    #: Path of the module, relative to the repository.
    module: str
    #: Line and column of the change, from 1 and from 0.
    line: int
    column: int
    operator: str
    #: The changed lines, before and after.
    before: str
    after: str
    #: Source of the whole module with the change.
    source: str


class StatementRemover(Operator):  # type: ignore[misc]  # Cosmic Ray has no types
    """Replaces a call whose result is not used by `pass`: the guard, the audit entry or the notification is missing."""

    def mutation_positions(self, node: Any) -> Iterator[tuple[Position, Position]]:
        """Yield the position of a statement that is only a call."""
        if node.type in {"atom_expr", "await"} and node.parent.type in {"simple_stmt", "suite"}:
            text = node.get_code(include_prefix=False)
            if text.endswith(")") and not text.startswith(_UNTESTED_CALLS):
                yield node.start_pos, node.end_pos

    def mutate(self, node: Any, index: int) -> Any:
        """Return the statement that takes its place."""
        return parso.python.tree.Keyword("pass", node.start_pos, prefix=node.get_first_leaf().prefix)

    @classmethod
    def examples(cls) -> Sequence[Any]:
        """Return none: the tests of this project have them."""
        return ()


def list_operators() -> list[tuple[str, Operator]]:
    """Return the operators with their names."""
    operators = [(name, get_operator(f"core/{name}")()) for name in _OPERATOR_NAMES]
    return [*operators, ("StatementRemover", StatementRemover())]


def sample_mutants(module: str, source: str, count: int, rng: random.Random) -> list[Mutant]:
    """Return up to `count` mutants of a module at different places: each place is as likely as any other."""
    places = _list_places(source)
    sampled_places = rng.sample(sorted(places), min(count, len(places)))
    return [_make_mutant(module, source, place, *rng.choice(places[place])) for place in sampled_places]


def count_places(source: str) -> int:
    """Return the number of places that a mutant can change."""
    return len(_list_places(source))


def _list_places(source: str) -> dict[Position, list[tuple[str, Operator, int]]]:
    """Return what can be done at each place: operator with its name, and the number of the occurrence."""
    skipped_ranges = list(_skipped_ranges(ast.parse(source)))
    tree = get_ast(source)
    nodes = list(ast_nodes(tree))
    places = defaultdict[Position, list[tuple[str, Operator, int]]](list)
    for name, operator in list_operators():
        positions = (position for node in nodes for position in operator.mutation_positions(node))
        for occurrence, (start, _) in enumerate(positions):
            if not any(first <= start < last for first, last in skipped_ranges):
                places[start].append((name, operator, occurrence))
    return places


def _skipped_ranges(tree: ast.Module) -> Iterable[tuple[Position, Position]]:
    """Yield the ranges in which a change is no change of behaviour: annotations, decorators and
    `strict=` of zip."""
    for node in ast.walk(tree):
        parts = list[ast.expr | None]()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            parts = [node.returns, *node.decorator_list]
        elif isinstance(node, ast.ClassDef):
            parts = [*node.decorator_list]
        elif isinstance(node, ast.arg | ast.AnnAssign):
            parts = [node.annotation]
        elif isinstance(node, ast.Call):
            # A broken invariant, which no valid data has.
            parts = [keyword.value for keyword in node.keywords if keyword.arg == "strict"]
        for part in parts:
            if part is not None and part.end_lineno is not None and part.end_col_offset is not None:
                yield (part.lineno, part.col_offset), (part.end_lineno, part.end_col_offset)


def _make_mutant(
    module: str, source: str, place: Position, name: str, operator: Operator, occurrence: int
) -> Mutant:
    visitor = MutationVisitor(occurrence, operator)
    mutated = visitor.walk(get_ast(source)).get_code()
    before, after = source.splitlines(), mutated.splitlines()
    first = next(
        (number for number, lines in enumerate(zip(before, after, strict=False)) if lines[0] != lines[1]), 0
    )
    end = max(1, len(before) - len(after) + 1)
    return Mutant(
        module,
        *place,
        name,
        "\n".join(before[first : first + end]),
        after[first] if first < len(after) else "",
        mutated,
    )
