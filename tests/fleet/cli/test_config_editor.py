"""Revision and labels in the config editor; editing is tested in tests/fleet/cli/local/test_networking.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet.cli import config_editor
from fleet.protocol.networking.config import NetworkingConfig, NetworkingResource


def test_edit_keeps_revision_and_origin_of_the_config(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other labels can be edited."""
    base = NetworkingResource(NetworkingConfig(), {"teleport.dev/origin": "dynamic", "a": "b"}, "r1")
    edited_file = tmp_path / "typed"
    edited_file.write_text("metadata: {revision: r2, labels: {teleport.dev/origin: defaults, c: d}}")
    monkeypatch.setenv("VISUAL", f"cp {edited_file}")
    outcome = config_editor.edit("", base)
    assert outcome.resource == NetworkingResource(
        NetworkingConfig(), {"teleport.dev/origin": "dynamic", "c": "d"}, "r1"
    )
