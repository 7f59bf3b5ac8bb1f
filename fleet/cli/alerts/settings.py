"""What the commands on channels, routes and alert rules share: finding by name, confirmation, and secrets."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import click

from fleet.cli import api
from fleet.cli.output import Failure, split_pair

#: Longest secret to read, characters.
_MAX_SECRET_LENGTH = 4_000
_SOURCE_FORM = "FIELD=SOURCE, with the source env:NAME, file:PATH or - for standard input"

yes_option = click.option("--yes", "-y", "is_confirmed", is_flag=True, help="Do not ask for confirmation.")
scope_option = click.option(
    "--scope",
    type=click.Choice(["installation", "cluster"]),
    default="installation",
    show_default=True,
    help="Belongs to the whole installation, or to the cluster of --cluster.",
)


def find_setting(
    console: api.ConsoleClient, cluster: str, resource: str, noun: str, number_or_name: str
) -> dict[str, Any]:
    """Return a channel, route or rule by its number or name; one of the cluster before one of the installation.

    `resource`: `channels`. `noun`: `Channel`. Raises Failure.
    """
    list_key = "rules" if resource == "alert-rules" else resource
    settings: list[dict[str, Any]] = console.get(f"/{resource}", cluster=cluster)[list_key]
    same_number = [setting for setting in settings if str(setting["number"]) == number_or_name]
    same_name = [setting for setting in settings if setting["name"] == number_or_name]
    own = [setting for setting in same_name if setting["cluster"]]
    candidates = same_number or own or same_name
    if not candidates:
        raise Failure(
            f"{noun} {number_or_name!r} was not found in cluster {cluster}. `refloat {list_key} list` lists all."
        )
    if len(candidates) > 1:
        numbers = ", ".join(str(setting["number"]) for setting in candidates)
        raise Failure(
            f"{len(candidates)} {list_key} have the name {number_or_name!r}; use a number: {numbers}"
        )
    return candidates[0]


def find_numbers(
    console: api.ConsoleClient, cluster: str, resource: str, noun: str, names: Iterable[str]
) -> list[int]:
    """Return the numbers of channels by number or name. Raises Failure."""
    return [find_setting(console, cluster, resource, noun, name)["number"] for name in names]


def confirm(question: str, *, is_confirmed: bool) -> None:
    """Ask a question unless it is confirmed by a flag. Raises Failure on any other answer than yes."""
    if is_confirmed:
        return
    if not sys.stdin.isatty():
        raise Failure(f"nothing was changed: {question} Add --yes to confirm.")
    if not click.confirm(question):
        raise Failure("nothing was changed")


def require_change(body: dict[str, Any]) -> None:
    """Raise UsageError for a body with nothing but the version."""
    if len(body) == 1:
        raise click.UsageError("nothing to change: give an option")


def drop_missing(**values: Any) -> dict[str, Any]:
    """Return the values that were given."""
    return {name: value for name, value in values.items() if value is not None}


def parse_values(pairs: Sequence[str]) -> dict[str, str]:
    """Return the values of `--value FIELD=TEXT`. Raises Failure."""
    return dict(split_pair(pair, "FIELD=TEXT") for pair in pairs)


def read_secrets(pairs: Sequence[str]) -> dict[str, str]:
    """Return the secrets of `--secret FIELD=SOURCE`, which never stand on the command line. Raises Failure."""
    secrets = {}
    sources = [split_pair(pair, _SOURCE_FORM) for pair in pairs]
    if [source for _, source in sources].count("-") > 1:
        raise Failure("only one secret can be read from standard input")
    for field, source in sources:
        secret = _read_source(source).removesuffix("\n").removesuffix("\r")
        if not secret or len(secret) > _MAX_SECRET_LENGTH:
            raise Failure(f"the secret for {field} is empty or longer than {_MAX_SECRET_LENGTH} characters")
        secrets[field] = secret
    return secrets


def _read_source(source: str) -> str:
    scheme, _, rest = source.partition(":")
    if source == "-":
        return sys.stdin.read()
    if scheme == "env" and rest:
        if rest not in os.environ:
            raise Failure(f"the environment variable {rest} is not set")
        return os.environ[rest]
    if scheme == "file" and rest:
        try:
            return Path(rest).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise Failure(f"{rest} cannot be read: {error}") from error
    # The text may be a secret: it is not repeated.
    raise Failure(f"invalid --secret: expected {_SOURCE_FORM}. Secrets never stand on the command line")
