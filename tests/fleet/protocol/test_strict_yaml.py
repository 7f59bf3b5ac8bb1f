"""Strict YAML: documents that people write, and malicious documents."""

from __future__ import annotations

import contextlib
import time

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fleet.protocol import strict_yaml
from fleet.protocol.strict_yaml import StrictYAMLError


def test_documents_are_loaded_in_order() -> None:
    """Empty documents are left out."""
    assert strict_yaml.load_all("a: 1\n---\n---\n- b\n") == [{"a": 1}, ["b"]]
    assert strict_yaml.load("a: {b: [1]}") == {"a": {"b": [1]}}
    assert strict_yaml.load("# nothing\n") is None


@pytest.mark.parametrize(
    ("text", "expected_error"),
    [
        ("a: 1\na: 2", "line 2: the key 'a' occurs twice"),
        ("1: a", "line 1: the key 1 is not text"),
        ("? [a]\n: b", "line 1: .* is not text"),
        ("a: [", "line 1, column 5: the text ends where a value is expected"),
        ("a: [1\nb: 2", "line 2, column 2: expected ',' or ']' before ':'"),
        ("a: 1\n b: 2", "line 2, column 3: unexpected ': '. Put"),
        ("a:\n\tb: 2", "line 2, column 1: unexpected tab. Indent with spaces"),
        ("a: @b", "line 1, column 4: unexpected '@'. Put"),
        ("a: 'b\n", "line 1, column 4: this quoted text has no closing quote"),
        ("a: 2020-99-99", "month"),
        ("a: \x00", "line 1: the character U\\+0000 is not allowed"),
        ("[" * 5000, "nested too deeply"),
        ("{a: " * 65, "nested too deeply"),
        ("- " * 65, "nested too deeply"),
        ("a: " + "9" * 5000, "longer than 40 characters"),
        ("a: 0x" + "f" * 5000, "longer than 40 characters"),
        ("a: 1" + ":59" * 5000, "longer than 40 characters"),
        ("a: 1" + ":59" * 5000 + ".5", "longer than 40 characters"),
        ("a: 9223372036854775808", "the number does not fit 64 bits"),
        ("a: 0xffffffffffffffff", "the number does not fit 64 bits"),
        ("a: .inf", "the number is not finite"),
        ("a: -.inf", "the number is not finite"),
        ("a: .nan", "the number is not finite"),
        ("a: 1.0e+999", "the number is not finite"),
        ("a: &x [1]\nb: *x", "line 2: aliases are not allowed"),
        ("a: &x\n  b: *x", "line 2: aliases are not allowed"),
        ("<<: {a: 1}", "line 1: merge keys are not allowed"),
        ("<<: [{a: 1}, {a: 2}]", "line 1: merge keys are not allowed"),
        ("a: !!map b", "line 1: the value is not a mapping"),
        ("a: !!set {b}", "the tag 'tag:yaml.org,2002:set' is not allowed"),
        ("a: !!binary eA==", "the tag 'tag:yaml.org,2002:binary' is not allowed"),
        ("a: !!omap [b: 1]", "the tag 'tag:yaml.org,2002:omap' is not allowed"),
        ("a: !!pairs [b: 1]", "the tag 'tag:yaml.org,2002:pairs' is not allowed"),
        ("a: !!bool maybe", "line 1: the value does not fit the tag"),
        ("a: !!timestamp soon", "line 1: the value does not fit the tag"),
        ("a: !!int ''", "line 1: the value does not fit the tag"),
        ("a: !!float ''", "line 1: the value does not fit the tag"),
        ("a: !!int many", "invalid literal"),
        ("a: !!python/object:os.system b", "line 1, column 4: the tag .* is not allowed"),
    ],
)
def test_invalid_text_is_refused(text: str, expected_error: str) -> None:
    """Every refusal is a StrictYAMLError, with the line number if there is one."""
    with pytest.raises(StrictYAMLError, match=expected_error):
        strict_yaml.load(text)


def _merge_bomb(levels: int) -> str:
    """Return mappings each of which merges two copies of the one before."""
    lines = ["a0: &a0 {x: 1}"]
    lines += [f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}]}}" for n in range(1, levels)]
    return "\n".join(lines)


def _alias_bomb(levels: int) -> str:
    lines = ["a0: &a0 [x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, levels)]
    return "\n".join(lines)


@pytest.mark.parametrize("text", [_merge_bomb(64), _alias_bomb(64)])
def test_expanding_text_is_refused_quickly(text: str) -> None:
    """Both texts are a few kilobytes; expanded, they would fill the memory."""
    started_at = time.process_time()
    with pytest.raises(StrictYAMLError, match="are not allowed"):
        strict_yaml.load(text)
    assert time.process_time() - started_at < 1.0


def test_text_over_the_limit_is_refused() -> None:
    """The length is checked before the text is parsed."""
    with pytest.raises(StrictYAMLError, match="longer than 10 characters"):
        strict_yaml.load("a: 123456789", longest=10)
    with pytest.raises(StrictYAMLError, match="longer than 1048576 characters"):
        strict_yaml.load_all("[" * 2_000_000)


def test_numbers_in_range_are_loaded() -> None:
    """The largest integers, signs and exponents are accepted."""
    assert strict_yaml.load("[9223372036854775807, -5, 0x7f, 1.5, -2.5e+3]") == [
        2**63 - 1,
        -5,
        127,
        1.5,
        -2500.0,
    ]


def test_error_is_one_line() -> None:
    """PyYAML's error about an invalid character has two lines."""
    with pytest.raises(StrictYAMLError) as caught:
        strict_yaml.load("a: \x07")
    assert "\n" not in str(caught.value)


def test_second_document_is_refused() -> None:
    """`load` reads one document; a second one would be ignored silently."""
    with pytest.raises(StrictYAMLError, match="more than one"):
        strict_yaml.load("a: 1\n---\nb: 2")


@given(st.text(alphabet="[]{}:,-?!&*<>|'\"#%@ \n\tab01.~e+x", max_size=60))
def test_any_text_is_loaded_or_refused(text: str) -> None:
    """No text raises another exception than StrictYAMLError."""
    with contextlib.suppress(StrictYAMLError):
        strict_yaml.load_all(text)


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**62), 2**62) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="ascii", min_codepoint=32), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", min_size=1), inner, max_size=3),
    max_leaves=12,
)  # fmt: skip


@given(st.dictionaries(st.text("abc", min_size=1), _VALUES, max_size=4))
def test_json_values_round_trip(document: dict[str, object]) -> None:
    """Strict loading returns every JSON value that PyYAML dumped."""
    assert strict_yaml.load(yaml.safe_dump(document)) == document


def test_lines_of_values_are_found_by_path() -> None:
    """The line of a value of a mapping is that of its key; an invalid document is refused."""
    lines = strict_yaml.find_lines("a:\n- b: 1\n  c:\n    d: 2\n- x\n")
    assert lines == {
        (): 1,
        ("a",): 1,
        ("a", 0): 2,
        ("a", 0, "b"): 2,
        ("a", 0, "c"): 3,
        ("a", 0, "c", "d"): 4,
        ("a", 1): 5,
    }
    assert strict_yaml.find_lines("# nothing\n") == {}
    with pytest.raises(StrictYAMLError):
        strict_yaml.find_lines("a: &a [*a]")
