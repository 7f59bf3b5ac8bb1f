"""Where this installation is: a checkout, or packages; where its state is by default, and its dependencies are."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import platformdirs

_PARENT = Path(__file__).resolve().parents[1]


def find_checkout() -> Path | None:
    """Return the folder of the checkout that this code runs from; None if it was installed as a package."""
    is_checkout = (_PARENT / "manage.py").is_file() and (_PARENT / "pyproject.toml").is_file()
    return _PARENT if is_checkout else None


def folder_of_package(name: str) -> Path:
    """Return the folder of a dependency, without importing it. Raises ModuleNotFoundError."""
    spec = find_spec(name)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"the package {name} is not installed", name=name)
    return Path(spec.origin).parent


def default_home() -> Path:
    """Return the folder of the state without REFLOAT_HOME: `var` of a checkout, else the data folder of the user.

    The data folder is `~/.local/share/refloat`, or follows XDG_DATA_HOME, or is that of macOS.
    """
    checkout = find_checkout()
    return platformdirs.user_data_path("refloat", appauthor=False) if checkout is None else checkout / "var"
