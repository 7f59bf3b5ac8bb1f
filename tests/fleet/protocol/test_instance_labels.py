"""Labels of instances are defined in one module and documented for users of other tools."""

from __future__ import annotations

from fleet.protocol import instance_labels
from tests.meta.house import ROOT, tracked_paths

_LABELS = {name: label for name, label in vars(instance_labels).items() if name.endswith("_LABEL")}


def test_labels_are_unique_and_have_a_domain() -> None:
    """Every label is unique and has a domain prefix, as Kubernetes requires."""
    assert len(set(_LABELS.values())) == len(_LABELS) > 0
    assert {label.split("/")[0] for label in _LABELS.values()} == {"refloat.dev", "teleport.internal"}


def test_labels_are_in_the_docs() -> None:
    """docs/reference/wire.md lists every label."""
    text = (ROOT / "docs" / "reference" / "wire.md").read_text(encoding="utf-8")
    assert [label for label in _LABELS.values() if f"`{label}`" not in text] == []


def test_labels_are_spelled_in_one_place() -> None:
    """Only one module contains the labels' text, so writers and readers cannot diverge."""
    paths = {
        path
        for path in tracked_paths()
        if path.startswith("fleet/")
        and path.endswith(".py")
        and any(label in (ROOT / path).read_text(encoding="utf-8") for label in _LABELS.values())
    }
    assert paths == {"fleet/protocol/instance_labels.py"}
