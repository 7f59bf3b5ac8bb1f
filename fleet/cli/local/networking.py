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
from fleet.cli.local.members import console_tls_files_of
from fleet.nodes.local import record as fleet_record
from fleet.nodes.local.record import FleetError
from fleet.nodes.shared.addresses import parse, parse_list
from fleet.nodes.shared.options import Command, combine
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

AdminCall = Callable[[NetworkingConfigAdmin], Awaitable[StoredConfig]]


@dataclass(frozen=True, slots=True)
class AuthConfigClient:
    """Which auths to ask, and how."""

    #: Each with the role of the server.
    addresses: tuple[tuple[tuple[str, int], str], ...]
    tls: TLSFiles

    def call_first(self, call: AdminCall) -> StoredConfig:
        """Do something through the first auth that answers. Raises AdminError, Failure."""
        return asyncio.run(self._call_first(call))

    async def _call_first(self, call: AdminCall) -> StoredConfig:
        for number, (address, role) in enumerate(self.addresses, 1):
            try:
                target, retry_interceptor = channels.target_of([address]), RetryInterceptor(policy_by_method())
                tls = self.tls.for_role(role)
                async with channels.open_channel(target, tls, interceptors=[retry_interceptor]) as channel:
                    return await call(NetworkingConfigAdmin(channel))
            except TLSError as error:
                raise Failure(str(error)) from error
            except (UnreachableError, NotAllowedError):
                # An update that was done after all is refused by the next auth as a conflict, so asking on is safe.
                # A gateway shows auths its own certificate, and with that nobody writes.
                if number == len(self.addresses):
                    raise
        raise AssertionError("there is at least one address")


_PATH = click.Path(exists=True, dir_okay=False, path_type=Path)
_options = combine(
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
        **command_options: Any,
    ) -> None:
        tls = TLSFiles(tls_cert, tls_key, tls_ca, tls_server_name)
        try:
            auths = _parse_auths(auth, tls) if auth else _auths_of_fleet(home, cluster, tls)
            command(auths=auths, **command_options)
        except (FleetError, NetworkingConfigError, AdminError) as error:
            raise Failure(str(error)) from error

    return _options(run)


def _parse_auths(text: str, tls: TLSFiles) -> AuthConfigClient:
    try:
        return AuthConfigClient(tuple((address, "auth") for address in parse_list(text)), tls)
    except ValueError as error:
        raise Failure(f"--auth: {error}") from None


def _auths_of_fleet(home: Path, cluster: str, tls: TLSFiles) -> AuthConfigClient:
    record = fleet_record.load(home, cluster)
    if record.console and not tls.enabled:
        tls = console_tls_files_of(record)
    # The gateway passes by an auth that is sick; when it is gone itself, the auths are asked.
    addresses = [(address, "gateway") for address in (record.gateway,) if address]
    addresses += [(address, "auth") for address in record.addresses("auth")]
    return AuthConfigClient(tuple((parse(address), role) for address, role in addresses), tls)


@click.group()
def config() -> None:
    """Read and change the networking config of a cluster.

    KEY is as in YAML, tunnel_strategy.type, or its last part where that is enough: agent_connection_count.
    """


@config.command("get")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@_auths_options
def get_command(auths: AuthConfigClient, as_json: bool) -> None:
    """Print the networking config."""
    resource = auths.call_first(_get).resource
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
def set_command(auths: AuthConfigClient, values: tuple[str, ...], confirm: bool, as_json: bool) -> None:
    """Change fields; the others stay as they are."""
    pairs = dict(pair(text, "KEY=VALUE") for text in values)
    before = auths.call_first(_get)
    _require_confirmation(before.resource, confirm=confirm)
    new_config = rules.set_fields(before.resource.config, pairs)
    rules.check(rules.with_defaults(new_config), rules.with_defaults(before.resource.config))
    try:
        after = auths.call_first(_update(before, replace(before.resource, config=new_config)))
    except RevisionConflict as error:
        raise Failure(
            f"nothing was written: {error}. Run it again to change the config as it is now"
        ) from error
    if as_json:
        show_json(config_yaml.to_document(after.resource))
    else:
        click.echo(_format_written(before.resource.config, after.resource))


@config.command("edit")
@_confirm
@_auths_options
def edit_command(auths: AuthConfigClient, confirm: bool) -> None:
    """Change the config in $EDITOR; what is wrong is shown, and you may try again."""
    base = auths.call_first(_get)
    _require_confirmation(base.resource, confirm=confirm)
    text = config_editor.INSTRUCTIONS + config_yaml.to_yaml(base.resource)
    before = base.resource.config
    while True:
        edited_config = config_editor.edit(text, base.resource)
        text = edited_config.text
        if edited_config.resource == base.resource:
            click.echo("nothing changed, nothing written")
            return
        try:
            after = auths.call_first(_update(base, edited_config.resource))
        except RevisionConflict:
            base, text = _rebase_edit(auths, base, edited_config)
            continue
        except AdminError as error:
            text = config_editor.ask_to_retry(edited_config.text, [str(error)])
            continue
        click.echo(_format_written(before, after.resource))
        return


def _rebase_edit(auths: AuthConfigClient, base: StoredConfig, edited_config: config_editor.EditedConfig) -> tuple[StoredConfig, str]:
    """Somebody else wrote meanwhile: show what, and offer ours on top of theirs."""
    stored = auths.call_first(_get)
    lines = ["somebody else changed the config meanwhile; nothing of yours was written. They changed:"]
    changes = _format_changes(base.resource.config, stored.resource.config)
    lines += [f"  {line}" for line in changes or ["nothing of the spec"]]
    config, conflicts = rules.rebase(base.resource.config, edited_config.resource.config, stored.resource.config)
    lines += [f"you both changed {field.key}: yours would win" for field in conflicts]
    config_editor.ask_to_continue("\n".join(lines), "Edit theirs with your changes in it?", edited_config.text)
    resource = replace(edited_config.resource, config=config, revision=stored.resource.revision)
    return stored, config_editor.INSTRUCTIONS + config_yaml.to_yaml(resource)


def _require_confirmation(resource: NetworkingResource, *, confirm: bool) -> None:
    if resource.origin == Origin.CONFIG_FILE and not confirm:
        raise Failure(
            "the config comes from the auths' file and comes back when one of them starts: change it there, "
            "or say --confirm"
        )


@config.command("reset")
@_auths_options
def reset_command(auths: AuthConfigClient) -> None:
    """Go back to the defaults."""
    before = auths.call_first(_get)
    click.echo(_format_written(before.resource.config, auths.call_first(_reset).resource))


async def _get(client: NetworkingConfigAdmin) -> StoredConfig:
    return await client.get()


async def _reset(client: NetworkingConfigAdmin) -> StoredConfig:
    return await client.reset()


def _update(before: StoredConfig, resource: NetworkingResource) -> AdminCall:
    async def call(client: NetworkingConfigAdmin) -> StoredConfig:
        return await client.update(before, resource)

    return call


def _format_written(before: NetworkingConfig, after: NetworkingResource) -> str:
    return "\n".join([*_format_changes(before, after.config), f"written, revision {after.revision}"])


def _format_changes(before: NetworkingConfig, after: NetworkingConfig) -> list[str]:
    return [
        f"{field.key}: {rules.format_value(field, old)!r} -> {rules.format_value(field, new)!r}"
        for field, old, new in rules.differences(before, after)
    ]
