"""`refloat fleet config`: read and change the networking config of a cluster on one of its auths."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from fleet.cli import config_editor
from fleet.cli.home import cluster_option, home_option
from fleet.cli.local.members import console_tls_files_of
from fleet.cli.output import Failure, print_json, split_pair
from fleet.nodes.local import record as fleet_record
from fleet.nodes.local.record import FleetError
from fleet.nodes.shared.addresses import parse, parse_list
from fleet.nodes.shared.options import Command, combine
from fleet.protocol.networking import config as rules
from fleet.protocol.networking import config_yaml
from fleet.protocol.networking.config import (
    NetworkingConfig,
    NetworkingConfigError,
    NetworkingResource,
    Origin,
)
from fleet.transport import channels
from fleet.transport.admin import (
    AdminError,
    NetworkingConfigClient,
    NotAllowedError,
    RevisionConflictError,
    StoredConfig,
    UnreachableError,
)
from fleet.transport.retry.aio import RetryInterceptor
from fleet.transport.retry.read_retries import policy_by_method
from fleet.transport.tls import AUTH_SERVER_NAME, TLSError, TLSFiles

AdminCall = Callable[[NetworkingConfigClient], Awaitable[StoredConfig]]


@dataclass(frozen=True, slots=True)
class AuthConfigClient:
    """Addresses of auths, and the TLS files to reach them."""

    #: Address and role (auth or gateway) of each server, in the order in which they are tried.
    addresses: tuple[tuple[tuple[str, int], str], ...]
    tls: TLSFiles

    def call_first_reachable(self, call: AdminCall) -> StoredConfig:
        """Run `call` on the first auth that answers, and return its result. Raises AdminError, Failure."""
        return asyncio.run(self._call_first_reachable(call))

    async def _call_first_reachable(self, call: AdminCall) -> StoredConfig:
        for number, (address, role) in enumerate(self.addresses, 1):
            try:
                target, retry_interceptor = (
                    channels.target_of([address]),
                    RetryInterceptor(policy_by_method()),
                )
                tls = self.tls.for_role(role)
                async with channels.open_channel(target, tls, interceptors=[retry_interceptor]) as channel:
                    return await call(NetworkingConfigClient(channel))
            except TLSError as error:
                raise Failure(str(error)) from error
            except (UnreachableError, NotAllowedError):
                # Trying the next auth is safe: if the update was stored after all, the next auth reports a conflict.
                # A gateway presents its own certificate to auths, which does not allow writes.
                if number == len(self.addresses):
                    raise
        raise AssertionError("there is at least one address")


_FILE_TYPE = click.Path(exists=True, dir_okay=False, path_type=Path)
_options = combine(
    cluster_option,
    home_option,
    click.option(
        "--auth", help="Addresses of auths, host:port[,...]. Default: the auths of the local fleet."
    ),
    click.option("--tls-ca", type=_FILE_TYPE, envvar="REFLOAT_TLS_CA", help="CA of the auths, PEM."),
    click.option("--tls-cert", type=_FILE_TYPE, envvar="REFLOAT_TLS_CERT", help="Client certificate, PEM."),
    click.option("--tls-key", type=_FILE_TYPE, envvar="REFLOAT_TLS_KEY", help="Key of --tls-cert, PEM."),
    click.option(
        "--tls-server-name",
        default="",
        envvar="REFLOAT_TLS_SERVER_NAME",
        help=f"Name to expect in an auth's certificate. Default: {AUTH_SERVER_NAME}.",
    ),
)


def _auth_options(command: Command) -> Command:
    """Add the options that select auths, below all other options; the command gets `client`."""

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
            client = (
                _create_client_of_addresses(auth, tls)
                if auth
                else _create_client_of_fleet(home, cluster, tls)
            )
            command(client=client, **command_options)
        except UnreachableError as error:
            hint = (
                "Check --auth"
                if auth
                else "`refloat fleet ps` shows the state of the auths and of their backend"
            )
            raise Failure(f"no auth can serve the networking config: {error}. {hint}") from error
        except (FleetError, NetworkingConfigError, AdminError) as error:
            raise Failure(str(error)) from error

    return _options(run)


def _create_client_of_addresses(text: str, tls: TLSFiles) -> AuthConfigClient:
    try:
        return AuthConfigClient(tuple((address, "auth") for address in parse_list(text)), tls)
    except ValueError as error:
        raise Failure(f"--auth: {error}") from None


def _create_client_of_fleet(home: Path, cluster: str, tls: TLSFiles) -> AuthConfigClient:
    record = fleet_record.load(home, cluster)
    if record.console and not tls.enabled:
        tls = console_tls_files_of(record)
    # The gateway skips unhealthy auths; if the gateway is down, the auths are tried directly.
    addresses = [(address, "gateway") for address in (record.gateway,) if address]
    addresses += [(address, "auth") for address in record.addresses_of("auth")]
    return AuthConfigClient(tuple((parse(address), role) for address, role in addresses), tls)


@click.group()
def config() -> None:
    """Read and change the networking config on the auths.

    No console is needed. KEY is a field as `get` prints it (tunnel_strategy.type), or its last part if that is unique
    (agent_connection_count).
    """


@config.command("get")
@click.option("--json", "as_json", is_flag=True, help="Print the config as JSON.")
@_auth_options
def get_command(client: AuthConfigClient, as_json: bool) -> None:
    """Print the networking config."""
    resource = client.call_first_reachable(_get_config).resource
    if as_json:
        print_json(config_yaml.to_document(resource))
    else:
        click.echo(config_yaml.to_yaml(resource), nl=False)


_confirm_option = click.option(
    "--confirm",
    is_flag=True,
    help="Change the config even if it comes from the auths' config file, which replaces it when an auth starts.",
)


@config.command("set")
@_confirm_option
@click.option("--json", "as_json", is_flag=True, help="Print the new config as JSON.")
@click.argument("values", metavar="KEY=VALUE...", nargs=-1, required=True)
@_auth_options
def set_command(client: AuthConfigClient, values: tuple[str, ...], confirm: bool, as_json: bool) -> None:
    """Change fields; other fields keep their values."""
    field_texts = dict(split_pair(text, "KEY=VALUE") for text in values)
    before = client.call_first_reachable(_get_config)
    _require_confirmation(before.resource, confirm=confirm)
    new_config = rules.set_fields(before.resource.config, field_texts)
    rules.check(rules.with_defaults(new_config), rules.with_defaults(before.resource.config))
    try:
        after = client.call_first_reachable(
            _create_update_call(before, replace(before.resource, config=new_config))
        )
    except RevisionConflictError as error:
        raise Failure(
            f"nothing was changed: {error}. Run the command again to change the current config"
        ) from error
    if as_json:
        print_json(config_yaml.to_document(after.resource))
    else:
        click.echo(_format_update_result(before.resource.config, after.resource))


@config.command("edit")
@_confirm_option
@_auth_options
def edit_command(client: AuthConfigClient, confirm: bool) -> None:
    """Edit the networking config in $EDITOR. An invalid config is shown with its problems and can be edited again."""
    base = client.call_first_reachable(_get_config)
    _require_confirmation(base.resource, confirm=confirm)
    text = config_editor.INSTRUCTIONS + config_yaml.to_yaml(base.resource)
    before = base.resource.config
    while True:
        edited_config = config_editor.edit(text, base.resource)
        text = edited_config.text
        if edited_config.resource == base.resource:
            click.echo("no changes: the config stays as it is")
            return
        try:
            after = client.call_first_reachable(_create_update_call(base, edited_config.resource))
        except RevisionConflictError:
            base, text = _rebase_edit(client, base, edited_config)
            continue
        except AdminError as error:
            text = config_editor.ask_to_retry(edited_config.text, [str(error)])
            continue
        click.echo(_format_update_result(before, after.resource))
        return


def _rebase_edit(
    client: AuthConfigClient, base: StoredConfig, edited_config: config_editor.EditedConfig
) -> tuple[StoredConfig, str]:
    """Show what somebody else changed meanwhile, and return the current config with our changes merged into it."""
    stored = client.call_first_reachable(_get_config)
    lines = [
        "conflict: the config was changed while you edited it, and your changes were not applied. Changed meanwhile:"
    ]
    changes = _format_changes(base.resource.config, stored.resource.config)
    lines += [f"  {line}" for line in changes or ["no field of the spec"]]
    config, conflicts = rules.rebase(
        base.resource.config, edited_config.resource.config, stored.resource.config
    )
    lines += [f"{field.key} was changed by both: your value would be used" for field in conflicts]
    config_editor.confirm_or_save_text(
        "\n".join(lines), "Edit the current config with your changes merged?", edited_config.text
    )
    resource = replace(edited_config.resource, config=config, revision=stored.resource.revision)
    return stored, config_editor.INSTRUCTIONS + config_yaml.to_yaml(resource)


def _require_confirmation(resource: NetworkingResource, *, confirm: bool) -> None:
    if resource.origin == Origin.CONFIG_FILE and not confirm:
        raise Failure(
            "the config comes from the auths' config file, which replaces any change when an auth starts: "
            "change the file, or use --confirm"
        )


@config.command("reset")
@_auth_options
def reset_command(client: AuthConfigClient) -> None:
    """Reset the networking config to its defaults."""
    before = client.call_first_reachable(_get_config)
    click.echo(
        _format_update_result(before.resource.config, client.call_first_reachable(_reset_config).resource)
    )


async def _get_config(client: NetworkingConfigClient) -> StoredConfig:
    return await client.get()


async def _reset_config(client: NetworkingConfigClient) -> StoredConfig:
    return await client.reset()


def _create_update_call(before: StoredConfig, resource: NetworkingResource) -> AdminCall:
    async def call(client: NetworkingConfigClient) -> StoredConfig:
        return await client.update(before, resource)

    return call


def _format_update_result(before: NetworkingConfig, after: NetworkingResource) -> str:
    return "\n".join([*_format_changes(before, after.config), f"config updated, revision {after.revision}"])


def _format_changes(before: NetworkingConfig, after: NetworkingConfig) -> list[str]:
    return [
        f"{field.key}: {rules.format_value(field, old)!r} -> {rules.format_value(field, new)!r}"
        for field, old, new in rules.differences(before, after)
    ]
