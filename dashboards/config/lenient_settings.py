"""Settings for commands that create nothing; for `refloat doctor`, also with defaults in place of invalid values."""

from __future__ import annotations

import importlib
import os
import re
import secrets
import sys
from pathlib import Path
from types import ModuleType

from dashboards.config.env import SettingError
from fleet.installation import default_home

_MODULE = "dashboards.config.settings"
_KEY = "REFLOAT_SECRET_KEY"
#: The variable that a message of SettingError begins with.
_VARIABLE = re.compile(r"[A-Z][A-Z_]+")


def load_settings() -> None:
    """Load the settings, and set REFLOAT_SETTING_ERRORS to the problems of those that cannot be read.

    The environment stays unchanged. Raises SettingError if the settings cannot be loaded with defaults, either.
    """
    original_environment = dict(os.environ)
    error_texts: list[str] = []
    try:
        _avoid_new_key()
        while True:
            try:
                module = importlib.import_module(_MODULE)
                _check_driver(module)
                break
            except SettingError as error:
                error_texts.append(str(error))
                # A module that could not be imported leaves no trace, so the next import starts over.
                _replace_invalid_variable(error)
        vars(module)["REFLOAT_SETTING_ERRORS"] = tuple(error_texts)
    finally:
        os.environ.clear()
        os.environ.update(original_environment)


def load_without_new_key() -> None:
    """Load the settings, with a temporary secret key instead of a new one. Raises SettingError.

    The environment stays unchanged.
    """
    configured_key = os.environ.get(_KEY)
    _avoid_new_key()
    try:
        importlib.import_module(_MODULE)
    finally:
        if configured_key is None:
            os.environ.pop(_KEY, None)


def _avoid_new_key() -> None:
    """Use a temporary key where the settings would create REFLOAT_HOME and its key.

    Only commands that create an installation may create a key. The user of others may not be that of the console,
    which then could not read the key.
    """
    home = Path(os.environ.get("REFLOAT_HOME") or default_home())
    is_configured = os.environ.get(_KEY) or os.environ.get(f"{_KEY}_FILE")
    if not is_configured and not (home / "secret_key").exists():
        os.environ[_KEY] = secrets.token_urlsafe(64)


def _check_driver(module: ModuleType) -> None:
    """Raise SettingError if the driver of the database is not installed: Django could not even load the models."""
    if not module.DATABASES["default"]["ENGINE"].endswith("postgresql"):
        return
    try:
        importlib.import_module("psycopg")
    except ImportError as error:
        del sys.modules[_MODULE]
        name = "DATABASE_URL_FILE" if os.environ.get("DATABASE_URL_FILE") else "DATABASE_URL"
        raise SettingError(
            f"{name} names a PostgreSQL database, but its driver is not installed ({error}): "
            "run `pip install 'refloat[postgres]'`"
        ) from error


def _replace_invalid_variable(error: SettingError) -> None:
    """Remove the variable that an error names from the environment. Raises the error if that cannot help."""
    variable = _VARIABLE.match(str(error))
    name = variable[0] if variable else ""
    if name in {"", "REFLOAT_HOME"}:
        # The key file cannot be read. REFLOAT_HOME stays, because another folder is another installation.
        if _KEY in os.environ:
            raise error
        os.environ[_KEY] = secrets.token_urlsafe(64)
        return
    if name not in os.environ:
        raise error
    del os.environ[name]
    if name == f"{_KEY}_FILE":
        os.environ.setdefault(_KEY, secrets.token_urlsafe(64))
