"""`refloat serve`: all programs of the console under one command. `manage.py console` is the same."""

from __future__ import annotations

from fleet.management.commands.console import Command as Command
