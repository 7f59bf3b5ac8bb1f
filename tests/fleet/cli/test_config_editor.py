"""Editing as tests/fleet/cli/local/test_networking.py does not see it: whose the origin is."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet.cli import config_editor
from fleet.protocol.networking.config import NetworkingConfig, NetworkingResource


def test_revision_and_origin_are_not_theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever they type there, those of the config that was read are sent; other labels are theirs."""
    base = NetworkingResource(NetworkingConfig(), {"teleport.dev/origin": "dynamic", "a": "b"}, "r1")
    typed = tmp_path / "typed"
    typed.write_text("metadata: {revision: r2, labels: {teleport.dev/origin: defaults, c: d}}")
    monkeypatch.setenv("VISUAL", f"cp {typed}")
    edited = config_editor.edit("", base)
    assert edited.resource == NetworkingResource(
        NetworkingConfig(), {"teleport.dev/origin": "dynamic", "c": "d"}, "r1"
    )
