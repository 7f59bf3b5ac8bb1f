"""Strict YAML, typed by a person or sent by a client: everything ambiguous or expensive is refused. Pure.

Refused are duplicate keys, keys that are not text, aliases and merge keys (which turn kilobytes of text into gigabytes
of values), deep nesting, numbers that are not finite or do not fit 64 bits, and tags that JSON does not have. Every
problem is one exception with one message. All YAML formats of Refloat use it: `tests/meta/house.py` checks that.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, Never

import yaml
from typing_extensions import override

#: Default maximum length of a text, characters: parsing takes some 10 s per million.
LONGEST = 1_048_576
#: Maximum nesting of lists and mappings; our formats have a dozen levels.
_MAX_DEPTH = 64
#: Maximum length of a number, characters: the time to convert one grows with the square of its length.
_LONGEST_NUMBER = 40
_LARGEST_NUMBER = 2**63


class StrictYAMLError(ValueError):
    """A text that is not YAML as we accept it; the message has the line number where there is one."""


def load(text: str, *, longest: int = LONGEST) -> Any:
    """Return one document of at most `longest` characters; None if empty. Raises StrictYAMLError."""
    documents = load_all(text, longest=longest)
    if len(documents) > 1:
        raise StrictYAMLError("the text contains more than one document. Use exactly one")
    return documents[0] if documents else None


def load_all(text: str, *, longest: int = LONGEST) -> list[Any]:
    """Return all documents that are not empty. Raises StrictYAMLError."""
    if len(text) > longest:
        raise StrictYAMLError(f"the text is longer than {longest} characters")
    try:
        # _StrictLoader is a SafeLoader that accepts less.
        return [document for document in yaml.load_all(text, Loader=_StrictLoader) if document is not None]
    except yaml.MarkedYAMLError as error:
        raise StrictYAMLError(_describe_syntax_error(error)) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise StrictYAMLError(
            f"line {line}: the character U+{ord(text[error.position]):04X} is not allowed"
        ) from None
    except RecursionError:
        raise StrictYAMLError("lists and mappings are nested too deeply") from None
    except (yaml.YAMLError, ValueError) as error:
        # PyYAML raises ValueError for an invalid timestamp.
        raise StrictYAMLError(str(error).partition("\n")[0]) from None


def find_lines(text: str, *, longest: int = LONGEST) -> dict[tuple[str | int, ...], int]:
    """Return the line of each value of one document, from 1, by the keys and list positions that lead to it.

    The line of a value of a mapping is that of its key. Raises StrictYAMLError, as `load`.
    """
    load(text, longest=longest)
    node: yaml.Node | None = _StrictLoader(text).get_single_node()
    lines: dict[tuple[str | int, ...], int] = {}
    if node is not None:
        _collect_lines(node, (), node.start_mark.line + 1, lines)
    return lines


def _collect_lines(
    node: yaml.Node, path: tuple[str | int, ...], line: int, lines: dict[tuple[str | int, ...], int]
) -> None:
    lines[path] = line
    if isinstance(node, yaml.MappingNode):
        for key_node, value_node in node.value:
            _collect_lines(value_node, (*path, str(key_node.value)), key_node.start_mark.line + 1, lines)
    elif isinstance(node, yaml.SequenceNode):
        for position, value_node in enumerate(node.value):
            _collect_lines(value_node, (*path, position), value_node.start_mark.line + 1, lines)


class _RefusedError(yaml.constructor.ConstructorError):
    """Valid YAML that we do not accept; the problem is a sentence of ours."""


#: Our words for PyYAML's syntax errors, by a pattern of its words.
_SYNTAX_ERROR_SENTENCES: tuple[tuple[str, str], ...] = (
    (r"expected the node content, but found '<stream end>'", "the text ends where a value is expected"),
    (r"expected the node content, but found (.*)", r"expected a value before \1"),
    (r"expected (',' or '.'), but got '<stream end>'", r"the text ends before \1"),
    (r"expected (',' or '.'), but got (.*)", r"expected \1 before \2"),
    (r"expected <block end>, but found .*", "the indentation or the quotes do not match the lines above"),
    (
        r"mapping values are not allowed here",
        "unexpected ': '. Put a value that contains ': ' in quotes, and check the indentation",
    ),
    (r"found character '\\t' that .*", "unexpected tab. Indent with spaces"),
    (r"found character (.*) that .*", r"unexpected \1. Put a value that starts with \1 in quotes"),
    (
        r"found unknown escape character '(.*)'",
        r"unknown escape \\\1. In double quotes, write a backslash as \\\\",
    ),
    (r"could not find expected ':'", "expected ':' after the key"),
    (r"could not determine a constructor for the tag (.*)", r"the tag \1 is not allowed"),
    (r"found incompatible YAML document.*", "this version of YAML is not supported. Use 1.1 or 1.2"),
)


def _describe_syntax_error(error: yaml.MarkedYAMLError) -> str:
    """Return the line, for syntax errors also the column, and the problem in our words."""
    mark, problem = error.problem_mark, error.problem or ""
    if isinstance(error, _RefusedError):
        return f"line {mark.line + 1}: {problem}" if mark else problem
    if problem == "found unexpected end of stream":
        # The mark of the problem is the end of the text; the context is the quoted text.
        mark, problem = error.context_mark, "this quoted text has no closing quote"
    for pattern, sentence_template in _SYNTAX_ERROR_SENTENCES:
        if match := re.fullmatch(pattern, problem):
            problem = match.expand(sentence_template)
            break
    return f"line {mark.line + 1}, column {mark.column + 1}: {problem}" if mark else problem


class _StrictLoader(yaml.SafeLoader):
    """Accepts JSON's types and timestamps; each value must be written out where it is used."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = 0

    @override
    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event: yaml.Event = self.peek_event()  # type: ignore[no-untyped-call] # PyYAML has no types
        if isinstance(event, yaml.AliasEvent):
            _refuse("aliases are not allowed. Write the value itself", event)
        if self._depth >= _MAX_DEPTH:
            _refuse("lists and mappings are nested too deeply", event)
        self._depth += 1
        try:
            node: yaml.Node | None = super().compose_node(parent, index)
        finally:
            self._depth -= 1
        return node

    @override
    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (AttributeError, LookupError, TypeError):
            # PyYAML raises these for a value that does not fit its explicit tag, such as `!!bool maybe`.
            _refuse(f"the value does not fit the tag {node.tag!r}", node)


def _refuse(sentence: str, node: Any) -> Never:
    raise _RefusedError(None, None, sentence, node.start_mark)


def _construct_mapping(loader: _StrictLoader, node: yaml.Node) -> dict[Any, Any]:
    if not isinstance(node, yaml.MappingNode):
        _refuse("the value is not a mapping", node)
    keys: set[Any] = set()
    for key_node, _ in node.value:
        if key_node.tag == "tag:yaml.org,2002:merge":
            _refuse("merge keys are not allowed. Write the values themselves", key_node)
        key = loader.construct_object(key_node)
        if not isinstance(key, str):
            _refuse(f"the key {key!r} is not text", key_node)
        if key in keys:
            _refuse(f"the key {key!r} occurs twice", key_node)
        keys.add(key)
    return loader.construct_mapping(node, deep=True)


def _construct_int(loader: _StrictLoader, node: yaml.Node) -> int:
    number: int = _construct_number(loader.construct_yaml_int, node)
    if abs(number) >= _LARGEST_NUMBER:
        _refuse("the number does not fit 64 bits", node)
    return number


def _construct_float(loader: _StrictLoader, node: yaml.Node) -> float:
    number: float = _construct_number(loader.construct_yaml_float, node)
    if not math.isfinite(number):
        _refuse("the number is not finite", node)
    return number


def _construct_number(construct: Callable[[Any], Any], node: yaml.Node) -> Any:
    if isinstance(node, yaml.ScalarNode) and len(node.value) > _LONGEST_NUMBER:
        _refuse(f"the number is longer than {_LONGEST_NUMBER} characters", node)
    return construct(node)


def _construct_other(loader: _StrictLoader, node: yaml.Node) -> Never:
    del loader
    _refuse(f"the tag {node.tag!r} is not allowed", node)


_StrictLoader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _construct_mapping)
_StrictLoader.add_constructor("tag:yaml.org,2002:int", _construct_int)
_StrictLoader.add_constructor("tag:yaml.org,2002:float", _construct_float)
for _name in ("binary", "omap", "pairs", "set"):
    _StrictLoader.add_constructor(f"tag:yaml.org,2002:{_name}", _construct_other)
