from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from django.core.management import call_command

pytestmark = pytest.mark.django_db


def _run_command(*arguments: str, encoding: str = "utf-8") -> tuple[int, str, str]:
    """Return exit code, stdout and stderr."""
    out, err = io.TextIOWrapper(io.BytesIO(), encoding, write_through=True), io.StringIO()
    code = 0
    try:
        call_command("doctor", *arguments, stdout=out, stderr=err)
    except SystemExit as end:
        code = int(str(end.code))
    out.seek(0)
    return code, out.read(), err.getvalue()


def test_errors_exit_with_1() -> None:
    """The console does not run here, and the last line counts the errors."""
    code, text, _ = _run_command()

    assert code == 1
    assert "✗ error    redis-connection: The embedded Valkey is not running" in text
    assert text.splitlines()[-1].endswith(("warnings", "warning"))


def test_terminal_without_symbols_gets_words() -> None:
    code, text, _ = _run_command(encoding="ascii")

    assert code == 1
    assert "  error    redis-connection" in text


def test_json_is_one_object() -> None:
    code, text, _ = _run_command("--json")

    document = json.loads(text)
    assert code == 1
    assert document["errors"] >= 1
    assert {"name", "area", "verdict", "summary", "remedy"} == set(document["findings"][0])


def test_bundle_that_cannot_be_written_exits_with_2(tmp_path: Path) -> None:
    code, _, error_text = _run_command("--bundle", str(tmp_path / "absent" / "bundle.zip"))

    assert code == 2
    assert "cannot write" in error_text
