from __future__ import annotations

from pathlib import Path

import pytest

from fleet import installation
from fleet.installation import default_home, find_checkout, folder_of_package
from tests.meta.house import ROOT


def test_checkout_keeps_its_state_in_var() -> None:
    """As it always did; `make clean` keeps it."""
    assert find_checkout() == ROOT
    assert default_home() == ROOT / "var"


def test_package_keeps_its_state_in_the_data_folder_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not beside the code, which the next version replaces."""
    monkeypatch.setattr(installation, "_PARENT", tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert find_checkout() is None
    assert default_home() == tmp_path / "data" / "refloat"


def test_folder_of_a_package_is_found_without_importing_it() -> None:
    """A package that is missing is named."""
    assert (folder_of_package("plotly") / "package_data").is_dir()
    with pytest.raises(ModuleNotFoundError, match="the package absent_package is not installed"):
        folder_of_package("absent_package")
