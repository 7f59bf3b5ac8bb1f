"""YAML that a person wrote: doubled keys and keys that are no words are refused. Pure.

Whatever is wrong is one exception with one sentence. Used by every format of ours that is read from YAML.
"""

from __future__ import annotations

from typing import Any

import yaml


class StrictYAMLError(ValueError):
    """A text that is not YAML as we read it; the sentence has the line where there is one."""


def load(text: str) -> Any:
    """Read one document. Raises StrictYAMLError."""
    found = load_all(text)
    if len(found) > 1:
        raise StrictYAMLError("there is more than one document")
    return found[0] if found else None


def load_all(text: str) -> list[Any]:
    """Read every document, without empty ones. Raises StrictYAMLError."""
    try:
        # _Strict is a SafeLoader that also refuses doubled keys.
        return [one for one in yaml.load_all(text, Loader=_Strict) if one is not None]
    except yaml.MarkedYAMLError as error:
        where = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise StrictYAMLError(f"{where}{error.problem}") from None
    except RecursionError:
        raise StrictYAMLError("it is nested too deeply") from None
    except (yaml.YAMLError, ValueError) as error:
        # PyYAML lets ValueError out for a timestamp that is none; of a character that is none it says more than a line.
        raise StrictYAMLError(str(error).partition("\n")[0]) from None


class _Strict(yaml.SafeLoader):
    """Refuses doubled keys: the last one would win silently."""


def _construct_mapping(loader: _Strict, node: yaml.MappingNode) -> dict[Any, Any]:
    seen: set[Any] = set()
    for key_node, _ in node.value:
        key = loader.construct_object(key_node)
        if not isinstance(key, str):
            raise yaml.constructor.ConstructorError(None, None, f"{key!r} is not a word", key_node.start_mark)
        if key in seen:
            raise yaml.constructor.ConstructorError(None, None, f"{key!r} stands twice", key_node.start_mark)
        seen.add(key)
    loader.flatten_mapping(node)
    return loader.construct_mapping(node, deep=True)


_Strict.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _construct_mapping)
