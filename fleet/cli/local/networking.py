"""`refloat fleet config`: the networking config of a cluster, through any of its auths."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from fleet.cli import config_editor
from fleet.cli.answers import Failure, pair, show_json
from fleet.cli.home import cluster_option, home_option
from fleet.cli.local.members import console_files
from fleet.nodes.local import record as fleet_record
from fleet.nodes.local.record import FleetError
from fleet.nodes.shared.addresses import parse, parse_list
from fleet.nodes.shared.options import Command, combined
from fleet.protocol.networking import config as rules
from fleet.protocol.networking import config_yaml
from fleet.protocol.networking.config import NetworkingConfig, NetworkingConfigError, Origin, NetworkingResource
from fleet.transport import channels
from fleet.transport.admin import (
    AdminError,
    RevisionConflict,
    NetworkingConfigAdmin,
    NotAllowedError,
    StoredConfig,
    UnreachableError,
)
from fleet.transport.retry.aio import RetryInterceptor
from fleet.transport.retry.read_retries import policy_by_method
from fleet.transport.tls import AUTH_NAME, TLSError, TLSFiles

Work = Callable[[NetworkingConfigAdmin], Awaitable[StoredConfig]]


@dataclass(frozen=True, slots=True)
class Auths:
    """Which auths to ask, and how."""

    #: Each with the role of the server.
    addresses: tuple[tuple[tuple[str, int], str], ...]
    tls: TLSFiles

    def do(self, work: Work) -> StoredConfig:
        """Do something through the first auth that answers. Raises AdminError, Failure."""
        return asyncio.run(self._do(work))

    async def _do(self, work: Work) -> StoredConfig:
        for number, (address, role) in enumerate(self.addresses, 1):
            try:
                target, retrying = channels.target_of([address]), RetryInterceptor(policy_by_method())
                tls = self.tls.for_role(role)
                async with channels.open_channel(target, tls, interceptors=[retrying]) as channel:
                    return await work(NetworkingConfigAdmin(channel))
            except TLSError as error:
                raise Failure(str(error)) from error
            except (UnreachableError, NotAllowedError):
                # An update that was done after all is refused by the next auth as a conflict, so asking on is safe.
                # A gateway shows auths its own certificate, and with that nobody writes.
                if number == len(self.addresses):
                    raise
        raise AssertionError("there is at least one address")


_PATH = click.Path(exists=True, dir_okay=False, path_type=Path)
_options = combined(
    cluster_option,
    home_option,
    click.option("--auth", help="host:port[,...] of auths; default: those of the local fleet."),
    click.option("--tls-ca", type=_PATH, envvar="REFLOAT_TLS_CA", help="CA of the auths, PEM."),
    click.option("--tls-cert", type=_PATH, envvar="REFLOAT_TLS_CERT", help="Our certificate, PEM."),
    click.option("--tls-key", type=_PATH, envvar="REFLOAT_TLS_KEY", help="Its key, PEM."),
    click.option(
        "--tls-server-name",
        default="",
        envvar="REFLOAT_TLS_SERVER_NAME",
        help=f"Name to expect in an auth's certificate; default: {AUTH_NAME}.",
    ),
)


def _auths_options(command: Command) -> Command:
    """Add how auths are found, below all other options; the command is given `auths`."""

    @functools.wraps(command)
    def run(
        cluster: str,
        home: Path,
        auth: str | None,
        tls_ca: Path | None,
        tls_cert: Path | None,
        tls_key: Path | None,
        tls_server_name: str,
        **given: Any,
    ) -> None:
        tls = TLSFiles(tls_cert, tls_key, tls_ca, tls_server_name)
        try:
            auths = _given(auth, tls) if auth else _of_fleet(home, cluster, tls)
            command(auths=auths, **given)
        except (FleetError, NetworkingConfigError, AdminError) as error:
            raise Failure(str(error)) from error

    return _options(run)


def _given(text: str, tls: TLSFiles) -> Auths:
    try:
        return Auths(tuple((address, "auth") for address in parse_list(text)), tls)
    except ValueError as error:
        raise Failure(f"--auth: {error}") from None


def _of_fleet(home: Path, cluster: str, tls: TLSFiles) -> Auths:
    record = fleet_record.load(home, cluster)
    if record.console and not tls.enabled:
        tls = console_files(record)
    # The gateway passes by an auth that is sick; when it is gone itself, the auths are asked.
    addresses = [(address, "gateway") for address in (record.gateway,) if address]
    addresses += [(address, "auth") for address in record.addresses("auth")]
    return Auths(tuple((parse(address), role) for address, role in addresses), tls)


@click.group()
def config() -> None:
    """Read and change the networking config of a cluster.

    KEY is as in YAML, tunnel_strategy.type, or its last part where that is enough: agent_connection_count.
    """


@config.command("get")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@_auths_options
def get_command(auths: Auths, as_json: bool) -> None:
    """Print the networking config."""
    resource = auths.do(_get).resource
    if as_json:
        show_json(config_yaml.to_document(resource))
    else:
        click.echo(config_yaml.to_yaml(resource), nl=False)


_confirm = click.option(
    "--confirm",
    is_flag=True,
    help="Change it although it comes from the auths' file, which wins at their start.",
)


@config.command("set")
@_confirm
@click.option("--json", "as_json", is_flag=True, help="Print the config as it is now, as JSON.")
@click.argument("values", metavar="KEY=VALUE...", nargs=-1, required=True)
@_auths_options
def set_command(auths: Auths, values: tuple[str, ...], confirm: bool, as_json: bool) -> None:
    """Change fields; the others stay as they are."""
    pairs = dict(pair(text, "KEY=VALUE") for text in values)
    before = auths.do(_get)
    _must_be_ours(before.resource, confirm=confirm)
    wanted = rules.set_fields(before.resource.config, pairs)
    rules.check(rules.with_defaults(wanted), rules.with_defaults(before.resource.config))
    try:
        after = auths.do(_update(before, replace(before.resource, config=wanted)))
    except RevisionConflict as error:
        raise Failure(
            f"nothing was written: {error}. Run it again to change the config as it is now"
        ) from error
    if as_json:
        show_json(config_yaml.to_document(after.resource))
    else:
        click.echo(_told(before.resource.config, after.resource))


@config.command("edit")
@_confirm
@_auths_options
def edit_command(auths: Auths, confirm: bool) -> None:
    """Change the config in $EDITOR; what is wrong is shown, and you may try again."""
    base = auths.do(_get)
    _must_be_ours(base.resource, confirm=confirm)
    text = config_editor.HEAD + config_yaml.to_yaml(base.resource)
    before = base.resource.config
    while True:
        edited = config_editor.edit(text, base.resource)
        text = edited.text
        if edited.resource == base.resource:
            click.echo("nothing changed, nothing written")
            return
        try:
            after = auths.do(_update(base, edited.resource))
        except RevisionConflict:
            base, text = _met(auths, base, edited)
            continue
        except AdminError as error:
            text = config_editor.try_again(edited.text, [str(error)])
            continue
        click.echo(_told(before, after.resource))
        return


def _met(auths: Auths, base: StoredConfig, edited: config_editor.Edited) -> tuple[StoredConfig, str]:
    """Somebody else wrote meanwhile: show what, and offer ours on top of theirs."""
    theirs = auths.do(_get)
    lines = ["somebody else changed the config meanwhile; nothing of yours was written. They changed:"]
    changes = _changes(base.resource.config, theirs.resource.config)
    lines += [f"  {line}" for line in changes or ["nothing of the spec"]]
    config, clashing = rules.rebase(base.resource.config, edited.resource.config, theirs.resource.config)
    lines += [f"you both changed {field.key}: yours would win" for field in clashing]
    config_editor.ask("\n".join(lines), "Edit theirs with your changes in it?", edited.text)
    wanted = replace(edited.resource, config=config, revision=theirs.resource.revision)
    return theirs, config_editor.HEAD + config_yaml.to_yaml(wanted)


def _must_be_ours(resource: NetworkingResource, *, confirm: bool) -> None:
    if resource.origin == Origin.CONFIG_FILE and not confirm:
        raise Failure(
            "the config comes from the auths' file and comes back when one of them starts: change it there, "
            "or say --confirm"
        )


@config.command("reset")
@_auths_options
def reset_command(auths: Auths) -> None:
    """Go back to the defaults."""
    before = auths.do(_get)
    click.echo(_told(before.resource.config, auths.do(_reset).resource))


async def _get(client: NetworkingConfigAdmin) -> StoredConfig:
    return await client.get()


async def _reset(client: NetworkingConfigAdmin) -> StoredConfig:
    return await client.reset()


def _update(before: StoredConfig, wanted: NetworkingResource) -> Work:
    async def work(client: NetworkingConfigAdmin) -> StoredConfig:
        return await client.update(before, wanted)

    return work


def _told(before: NetworkingConfig, after: NetworkingResource) -> str:
    return "\n".join([*_changes(before, after.config), f"written, revision {after.revision}"])


def _changes(before: NetworkingConfig, after: NetworkingConfig) -> list[str]:
    return [
        f"{field.key}: {rules.format_value(field, old)!r} -> {rules.format_value(field, new)!r}"
        for field, old, new in rules.differences(before, after)
    ]
