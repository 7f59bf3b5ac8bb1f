"""YAML that a person wrote, or that somebody sent: what may mean two things, or grow when it is read, is refused. Pure.

Keys that stand twice and keys that are no words, aliases and merge keys, which make kilobytes of text gigabytes of
values, deep nesting, numbers that do not fit 64 bits or are none, and tags beside those of JSON. Whatever is wrong is
one exception with one sentence. Used by every format of ours that is read from YAML: `tests/meta/house.py` sees to it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Never

import yaml
from typing_extensions import override

#: Characters of a text, if its reader does not say less: reading takes some 10 s for each million.
LONGEST = 1_048_576
#: Levels of lists and mappings; formats of ours have a dozen.
_DEEPEST = 64
#: Characters of a number: a longer one takes time by the square of its length.
_LONGEST_NUMBER = 40
_LARGEST_NUMBER = 2**63


class StrictYAMLError(ValueError):
    """A text that is not YAML as we read it; the sentence has the line where there is one."""


def load(text: str, *, longest: int = LONGEST) -> Any:
    """Read one document of at most so many characters. Raises StrictYAMLError."""
    documents = load_all(text, longest=longest)
    if len(documents) > 1:
        raise StrictYAMLError("there is more than one document")
    return documents[0] if documents else None


def load_all(text: str, *, longest: int = LONGEST) -> list[Any]:
    """Read every document, without empty ones. Raises StrictYAMLError."""
    if len(text) > longest:
        raise StrictYAMLError(f"it has more than {longest} characters")
    try:
        # _Strict is a SafeLoader that takes less.
        return [document for document in yaml.load_all(text, Loader=_Strict) if document is not None]
    except yaml.MarkedYAMLError as error:
        position = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise StrictYAMLError(f"{position}{error.problem}") from None
    except RecursionError:
        raise StrictYAMLError("it is nested too deeply") from None
    except (yaml.YAMLError, ValueError) as error:
        # PyYAML lets ValueError out for a timestamp that is none; of a character that is none it says more than a line.
        raise StrictYAMLError(str(error).partition("\n")[0]) from None


class _Strict(yaml.SafeLoader):
    """Takes what JSON has, and timestamps; each value is written where it stands."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = 0

    @override
    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event: yaml.Event = self.peek_event()  # type: ignore[no-untyped-call] # it has no types
        if isinstance(event, yaml.AliasEvent):
            _refuse("an alias is not taken here: write the value itself", event)
        if self._depth >= _DEEPEST:
            _refuse("it is nested too deeply", event)
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
            # What PyYAML makes of a value that does not fit its explicit tag, such as `!!bool maybe`.
            _refuse(f"it does not fit the tag {node.tag!r}", node)


def _refuse(sentence: str, node: Any) -> Never:
    raise yaml.constructor.ConstructorError(None, None, sentence, node.start_mark)


def _construct_mapping(loader: _Strict, node: yaml.Node) -> dict[Any, Any]:
    if not isinstance(node, yaml.MappingNode):
        _refuse("it is no mapping", node)
    keys: set[Any] = set()
    for key_node, _ in node.value:
        if key_node.tag == "tag:yaml.org,2002:merge":
            _refuse("a merge key is not taken here: write the values themselves", key_node)
        key = loader.construct_object(key_node)
        if not isinstance(key, str):
            _refuse(f"{key!r} is not a word", key_node)
        if key in keys:
            _refuse(f"{key!r} stands twice", key_node)
        keys.add(key)
    return loader.construct_mapping(node, deep=True)


def _construct_int(loader: _Strict, node: yaml.Node) -> int:
    number: int = _number(loader.construct_yaml_int, node)
    if abs(number) >= _LARGEST_NUMBER:
        _refuse("the number is too large", node)
    return number


def _construct_float(loader: _Strict, node: yaml.Node) -> float:
    number: float = _number(loader.construct_yaml_float, node)
    if not math.isfinite(number):
        _refuse("the number is infinite, or none", node)
    return number


def _number(construct: Callable[[Any], Any], node: yaml.Node) -> Any:
    if isinstance(node, yaml.ScalarNode) and len(node.value) > _LONGEST_NUMBER:
        _refuse(f"a number has at most {_LONGEST_NUMBER} characters, digits and all", node)
    return construct(node)


def _construct_other(loader: _Strict, node: yaml.Node) -> Never:
    del loader
    _refuse(f"the tag {node.tag!r} is not taken here", node)


_Strict.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _construct_mapping)
_Strict.add_constructor("tag:yaml.org,2002:int", _construct_int)
_Strict.add_constructor("tag:yaml.org,2002:float", _construct_float)
for _name in ("binary", "omap", "pairs", "set"):
    _Strict.add_constructor(f"tag:yaml.org,2002:{_name}", _construct_other)
