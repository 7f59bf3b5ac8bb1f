from __future__ import annotations

from pathlib import Path

import pytest

from fleet.cli.alerts.settings import confirm, find_setting, parse_values, read_secrets, require_change
from fleet.cli.api import ConsoleClient
from fleet.cli.output import Failure
from tests.fakes.console import TOKEN, run_console


def test_setting_is_found_by_number_or_name() -> None:
    """One of the cluster before one of the installation; several of a name are an error."""
    rows = [
        {"number": 1, "name": "a", "cluster": ""},
        {"number": 2, "name": "a", "cluster": "default"},
        {"number": 3, "name": "b", "cluster": ""},
        {"number": 4, "name": "b", "cluster": ""},
    ]
    with run_console() as console:
        console.responses["/api/v1/routes"] = (200, {"routes": rows})
        client = ConsoleClient(console.url, TOKEN)

        def find(text: str) -> int:
            return int(find_setting(client, "default", "routes", "Route", text)["number"])

        assert [find("1"), find("a"), find("4")] == [1, 2, 4]
        with pytest.raises(Failure, match="use a number: 3, 4"):
            find("b")
        with pytest.raises(Failure, match="`refloat routes list` lists all"):
            find("c")


def test_secrets_are_read_from_the_environment_a_file_or_standard_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last newline is not a part of it."""
    (tmp_path / "key").write_text("from file\n")
    monkeypatch.setenv("HOOK", "from env")
    pairs = ("url=env:HOOK", f"signing_key=file:{tmp_path}/key")
    assert read_secrets(pairs) == {"url": "from env", "signing_key": "from file"}


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        ("url=https://hooks.example.com/s3cret", "never stand on the command line"),
        ("url=env:REFLOAT_NO_SUCH_VARIABLE", "is not set"),
        ("url=file:/no/such/file", "cannot be read"),
        ("url", "expected FIELD=SOURCE"),
    ],
)
def test_wrong_source_of_a_secret_is_an_error(pair: str, message: str) -> None:
    """A secret on the command line is not repeated."""
    with pytest.raises(Failure, match=message) as error_info:
        read_secrets([pair])
    assert "s3cret" not in str(error_info.value)


def test_two_secrets_from_standard_input_are_an_error() -> None:
    """There is only one."""
    with pytest.raises(Failure, match="only one secret"):
        read_secrets(["a=-", "b=-"])


def test_empty_secret_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would keep the stored one."""
    monkeypatch.setenv("HOOK", "\n")
    with pytest.raises(Failure, match="is empty"):
        read_secrets(["url=env:HOOK"])


def test_question_needs_a_flag_without_a_terminal() -> None:
    """Nothing is changed by a script that did not say so."""
    confirm("Delete it?", is_confirmed=True)
    with pytest.raises(Failure, match="Delete it\\? Add --yes to confirm"):
        confirm("Delete it?", is_confirmed=False)


def test_values_are_pairs() -> None:
    """The text may contain an equals sign."""
    assert parse_values(["to=a@b.c", "x=y=z"]) == {"to": "a@b.c", "x": "y=z"}
    require_change({"version": "", "name": "x"})
