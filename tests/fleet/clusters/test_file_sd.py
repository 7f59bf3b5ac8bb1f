"""file_sd files: valid ones, each kind of invalid one, and files that change while they are read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fleet.clusters.file_sd import FileReader, FileSDError, parse_targets

_YAML = b"""
- targets: [auth-1.example:3025, '[2001:db8::1]:3025']
  labels: {env: production}
- targets:
    - auth-1.example:3025
    - auth-2.example:3025
"""


def test_json_and_yaml_have_the_same_addresses() -> None:
    """Each address once, in the order of the file; labels are accepted."""
    document = [
        {"targets": ["auth-1.example:3025", "[2001:db8::1]:3025"], "labels": {"env": "production"}},
        {"targets": ["auth-1.example:3025", "auth-2.example:3025"]},
    ]
    addresses = ("auth-1.example:3025", "[2001:db8::1]:3025", "auth-2.example:3025")

    assert parse_targets("auths.json", json.dumps(document, indent="\t").encode()) == addresses
    assert parse_targets("auths.yml", _YAML) == addresses
    assert parse_targets("auths.json", b"[]") == ()


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("auths.json", b'[{"targets": ["a:1"', "line 1, column 20"),
        ("auths.json", b"", "line 1, column 1"),
        ("auths.json", b"\xff", "not UTF-8"),
        ("auths.json", b'{"targets": []}', "not a list of target groups"),
        ("auths.json", b"[null]", "group 1 is not a mapping"),
        ("auths.json", b'[{"targets": []}, {"target": []}]', "group 2 has the unknown key 'target'"),
        ("auths.json", b'[{"targets": "a:1"}]', "targets of group 1 is not a list"),
        ("auths.json", b'[{"targets": [1]}]', "targets of group 1 is not a list of texts"),
        ("auths.json", b'[{"targets": ["a:1"], "labels": []}]', "labels of group 1 is not a mapping"),
        ("auths.json", b'[{"targets": ["a:1", "b"]}]', "group 1: 'b' has no port"),
        ("auths.json", b"[" * 100_000, "nested|recursion"),
        ("auths.json", b" " * 1_048_577, "longer than"),
        ("auths.yml", b"- targets: &a [a:1]\n- targets: *a", "line 2: aliases are not allowed"),
        ("auths.yml", b"- targets: [a:1]\n  targets: [b:1]", "occurs twice"),
    ],
)
def test_an_invalid_file_says_where_it_is_invalid(name: str, content: bytes, reason: str) -> None:
    """Nothing of an invalid file is used."""
    with pytest.raises(FileSDError, match=reason):
        parse_targets(name, content)


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    """Also when it is replaced by a file of the same size."""
    path, reader = tmp_path / "auths.json", FileReader()
    path.write_text('[{"targets": ["a:1"]}]')
    assert reader.read(str(path)) == (["a:1"], [])

    replacement = tmp_path / "next.json"
    replacement.write_text('[{"targets": ["b:2"]}]')
    replacement.rename(path)

    assert reader.read(str(path)) == (["b:2"], [])


def test_the_last_valid_content_stays_in_use(tmp_path: Path) -> None:
    """After an invalid write, and after the file was removed; the problem is told until the file is valid again."""
    path, reader = tmp_path / "auths.yml", FileReader()
    path.write_text("- targets: [a:1, b:2]")
    reader.read(str(path))

    path.write_text("- targets: [a:1, b:2")
    addresses, (problem,) = reader.read(str(path))

    assert addresses == ["a:1", "b:2"]
    assert problem.text.startswith(f"{path} is not a valid file_sd file: line 1")
    assert problem.text.endswith("Refloat still uses its last 2 valid addresses.")
    assert reader.read(str(path)) == (addresses, [problem]), "it has not changed"
    path.unlink()
    addresses, (problem,) = reader.read(str(path))
    assert addresses == ["a:1", "b:2"]
    assert "cannot be read: no such file or directory" in problem.text
    path.write_text("- targets: [c:3]")
    assert reader.read(str(path)) == (["c:3"], [])


def test_a_file_that_was_never_valid_has_no_addresses(tmp_path: Path) -> None:
    """A folder in place of the file is a file that cannot be read."""
    (tmp_path / "auths.json").mkdir()

    addresses, (problem,) = FileReader().read(str(tmp_path / "auths.json"))

    assert not addresses
    assert problem.text == f"{tmp_path}/auths.json cannot be read: is a directory."
    assert "permissions" in problem.remedy


def test_a_pattern_reads_every_matching_file(tmp_path: Path) -> None:
    """In the order of their names; a pattern without a match is a problem."""
    (tmp_path / "b.json").write_text('[{"targets": ["b:1"]}]')
    (tmp_path / "a.json").write_text('[{"targets": ["a:1"]}]')
    (tmp_path / "a.txt").write_text("?")
    reader = FileReader()

    assert reader.read(f"{tmp_path}/*.json") == (["a:1", "b:1"], [])
    (tmp_path / "b.json").unlink()
    assert reader.read(f"{tmp_path}/*.json") == (["a:1"], [])
    addresses, (problem,) = reader.read(f"{tmp_path}/*.yml")
    assert not addresses
    assert problem.text == f"No file matches {tmp_path}/*.yml."
