"""`refloat doctor` runs with settings that no other program accepts, and changes nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.meta.house import ROOT

_PROGRAM = """
import json, os
from dashboards.config import lenient_settings
before = dict(os.environ)
lenient_settings.load_settings()
from dashboards.config import settings
print(json.dumps({"errors": settings.REFLOAT_SETTING_ERRORS, "https": settings.REFLOAT_HTTPS,
                  "same": before == dict(os.environ), "key": len(settings.SECRET_KEY)}))
"""


def _load(home: Path, **environment: str) -> Any:
    kept_environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    process = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        env={**kept_environment, "PYTHONPATH": str(ROOT), "REFLOAT_HOME": str(home), **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)


def test_all_invalid_settings_are_reported_and_nothing_is_created(tmp_path: Path) -> None:
    """The environment stays for the report, and the installation for its owner."""
    outcome = _load(
        tmp_path / "home",
        REFLOAT_HTTPS="maybe",
        REFLOAT_SHARD_SIZE="many",
        DATABASE_URL="nonsense",
        REFLOAT_SECRET_KEY_FILE=str(tmp_path / "absent"),
    )

    assert sorted(text.partition("=")[0].partition(" ")[0] for text in outcome["errors"]) == [
        *("DATABASE_URL", "REFLOAT_HTTPS", "REFLOAT_SECRET_KEY_FILE", "REFLOAT_SHARD_SIZE")
    ]
    assert outcome["same"]
    assert outcome["https"] is False
    assert not (tmp_path / "home").exists()


def test_valid_settings_with_their_own_key(tmp_path: Path) -> None:
    """The key in REFLOAT_HOME is used."""
    (tmp_path / "secret_key").write_text("x" * 60)

    outcome = _load(tmp_path, REFLOAT_HTTPS="true")

    assert outcome == {"errors": [], "https": True, "same": True, "key": 60}


def test_empty_key_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "secret_key").write_text("")

    (text,) = _load(tmp_path)["errors"]

    assert "secret_key' is empty" in text
