"""YAML that a person wrote."""

from __future__ import annotations

import pytest

from fleet.protocol import strict_yaml
from fleet.protocol.strict_yaml import StrictYAMLError


def test_documents() -> None:
    """Each in its order, empty ones left out."""
    assert strict_yaml.load_all("a: 1\n---\n---\n- b\n") == [{"a": 1}, ["b"]]
    assert strict_yaml.load("a: {b: [1]}") == {"a": {"b": [1]}}
    assert strict_yaml.load("# nothing\n") is None


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a: 1\na: 2", "line 2: 'a' stands twice"),
        ("1: a", "line 1: 1 is not a word"),
        ("a: [", "line 1: "),
        ("a: 2020-99-99", "month"),
        ("a: \x00", "special characters"),
        ("[" * 5000, "nested too deeply"),
        ("a: " + "9" * 5000, "digits"),
    ],
)
def test_text_that_is_refused(text: str, sentence: str) -> None:
    """One exception, with a sentence, and the line where there is one."""
    with pytest.raises(StrictYAMLError, match=sentence):
        strict_yaml.load(text)


def test_refusal_is_one_line() -> None:
    """PyYAML's of a character that is none are two."""
    with pytest.raises(StrictYAMLError) as caught:
        strict_yaml.load("a: \x07")
    assert "\n" not in str(caught.value)


def test_two_documents_where_one_is_wanted() -> None:
    """Refused: the second would be ignored silently."""
    with pytest.raises(StrictYAMLError, match="more than one"):
        strict_yaml.load("a: 1\n---\nb: 2")
