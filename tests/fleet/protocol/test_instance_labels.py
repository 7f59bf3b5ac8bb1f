"""Labels of instances are spelled once, and told to whoever reads a resource with other tools."""

from __future__ import annotations

from fleet.protocol import instance_labels
from tests.meta.house import ROOT, tracked

_LABELS = {name: label for name, label in vars(instance_labels).items() if name.endswith("_LABEL")}


def test_labels_are_told_apart() -> None:
    """No two mean the same, and each is in a domain, as Kubernetes would have it."""
    assert len(set(_LABELS.values())) == len(_LABELS) > 0
    assert {label.split("/")[0] for label in _LABELS.values()} == {"refloat.dev", "teleport.internal"}


def test_labels_are_in_the_docs() -> None:
    """docs/reference/wire.md names all of them."""
    text = (ROOT / "docs" / "reference" / "wire.md").read_text(encoding="utf-8")
    assert [label for label in _LABELS.values() if f"`{label}`" not in text] == []


def test_labels_are_spelled_in_one_place() -> None:
    """Who writes and who reads them must not drift apart."""
    found = {
        path
        for path in tracked()
        if path.startswith("fleet/")
        and path.endswith(".py")
        and any(label in (ROOT / path).read_text(encoding="utf-8") for label in _LABELS.values())
    }
    assert found == {"fleet/protocol/instance_labels.py"}
