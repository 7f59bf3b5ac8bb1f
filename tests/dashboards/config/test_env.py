"""Readers of the environment refuse invalid values and name the variable."""

from __future__ import annotations

from pathlib import Path

import pytest

from dashboards.config import env


@pytest.mark.parametrize(("text", "read"), [("true", True), ("False", False), ("", True)])
def test_switch(monkeypatch: pytest.MonkeyPatch, text: str, read: bool) -> None:
    """True and false in any case; empty means the default."""
    monkeypatch.setenv("REFLOAT_X", text)

    assert env.switch("REFLOAT_X", default=True) is read


@pytest.mark.parametrize("text", ["yes", "1", "on"])
def test_switch_refuses_other_values(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """`yes` is refused: the message lists the valid values."""
    monkeypatch.setenv("REFLOAT_X", text)

    with pytest.raises(env.SettingError, match=r"REFLOAT_X=.* use true or false"):
        env.switch("REFLOAT_X")


@pytest.mark.parametrize("text", ["0", "-1", "soon", "nan", "inf"])
def test_seconds_refuses_invalid_durations(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """A round of no length would be a busy loop."""
    monkeypatch.setenv("REFLOAT_X", text)

    with pytest.raises(env.SettingError, match="positive number of seconds"):
        env.seconds("REFLOAT_X", 1.0)


def test_seconds_reads_fractions(monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo's rounds are shorter than a second."""
    monkeypatch.setenv("REFLOAT_X", "0.6")

    assert env.seconds("REFLOAT_X", 1.0) == 0.6
    assert env.seconds("REFLOAT_UNSET", 1.5) == 1.5


def test_integer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Digits or the default; anything else is refused."""
    monkeypatch.setenv("REFLOAT_X", "12")
    assert env.integer("REFLOAT_X", 1) == 12
    assert env.integer("REFLOAT_UNSET", 7) == 7

    for text in ("1.5", "²", "٣", "-1", "9" * 5000):
        monkeypatch.setenv("REFLOAT_X", text)
        with pytest.raises(env.SettingError, match="whole number"):
            env.integer("REFLOAT_X", 1)


def test_items_drop_empty_strings(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trailing comma adds no item."""
    monkeypatch.setenv("REFLOAT_X", "a, b,,")

    assert env.string_list("REFLOAT_X") == ["a", "b"]


def test_secret_from_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """NAME_FILE wins over NAME, and the newline of an editor is not part of the secret."""
    secret_file = tmp_path / "secret"
    secret_file.write_text("from the file\n")
    monkeypatch.setenv("REFLOAT_X", "from the environment")
    assert env.secret("REFLOAT_X") == "from the environment"

    monkeypatch.setenv("REFLOAT_X_FILE", str(secret_file))
    assert env.secret("REFLOAT_X") == "from the file"


def test_missing_secret_file_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A secret that cannot be read never becomes an empty one."""
    monkeypatch.setenv("REFLOAT_X_FILE", str(tmp_path / "nowhere"))

    with pytest.raises(env.SettingError, match=r"REFLOAT_X_FILE=.*nowhere' cannot be read: No such file"):
        env.secret("REFLOAT_X")


@pytest.mark.parametrize(
    ("content", "sentence"), [(b"", "is empty"), (b" \n", "is empty"), (b"\xff\xfe", "not UTF-8 text")]
)
def test_secret_file_with_nothing_to_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: bytes, sentence: str
) -> None:
    """A key that was not mounted must not be replaced by one of our own."""
    (tmp_path / "secret").write_bytes(content)
    monkeypatch.setenv("REFLOAT_X_FILE", str(tmp_path / "secret"))

    with pytest.raises(env.SettingError, match=rf"REFLOAT_X_FILE=.* {sentence}"):
        env.secret("REFLOAT_X")


def test_text_and_secret_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing set: the default, and no secret."""
    monkeypatch.delenv("REFLOAT_X", raising=False)

    assert env.text("REFLOAT_X", "word") == "word"
    assert env.secret("REFLOAT_X") is None


def test_names_of_settings_are_those_that_were_read() -> None:
    """Those of secrets with the file that may hold them."""
    env.secret("REFLOAT_SECRET_OF_A_TEST")

    assert {
        "REFLOAT_SECRET_OF_A_TEST",
        "REFLOAT_SECRET_OF_A_TEST_FILE",
        "DATABASE_URL",
    } <= env.setting_names()
