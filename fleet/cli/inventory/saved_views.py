"""`refloat views`: list, save, change and delete saved views of the list of agents."""

from __future__ import annotations

from typing import Any

import click

from fleet.cli import api
from fleet.cli.console import console_options
from fleet.cli.output import format_table, prints_response


def _format_views(views: list[dict[str, Any]]) -> str:
    rows = [
        (
            str(view["id"]),
            view["name"],
            "shared" if view["is_shared"] else "private",
            view["owner"],
            view["q"],
        )
        for view in views
    ]
    return format_table(("id", "name", "visibility", "owner", "filter"), rows) if rows else "no saved views"


def _format_view(view: dict[str, Any]) -> str:
    return f"view {view['name']} ({view['id']}) is {'shared' if view['is_shared'] else 'private'}"


def _format_deleted_view(view: dict[str, Any]) -> str:
    return f"view {view['name']} deleted"


@click.group()
def views() -> None:
    """Manage saved views of the list of agents."""


@views.command("list")
@console_options
@prints_response(_format_views)
def list_views(console: api.ConsoleClient, cluster: str) -> Any:
    """List your views and the shared ones."""
    return console.get("/agent-views", cluster=cluster)["views"]


@views.command()
@click.argument("name")
@click.option("--search", metavar="QUERY", default="", help="Filter of the view, such as 'state:stranded'.")
@click.option(
    "--group", metavar="KEY", default="", help="Group by cause, state, proxy, auth, version or label.KEY."
)
@click.option(
    "--sort", metavar="KEY", default="", help="Sort by name, state, since or version; -KEY reverses."
)
@click.option("--columns", metavar="NAMES", default="", help="Columns, separated by commas.")
@click.option(
    "--shared", "is_shared", is_flag=True, help="Share the view with everybody who sees the cluster."
)
@console_options
@prints_response(_format_view)
def save(
    console: api.ConsoleClient,
    cluster: str,
    name: str,
    search: str,
    group: str,
    sort: str,
    columns: str,
    is_shared: bool,
) -> Any:
    """Save a view as NAME, and replace your view with this name."""
    body = {
        "name": name,
        "q": search,
        "group": group,
        "sort": sort,
        "columns": columns,
        "is_shared": is_shared,
    }
    return console.post("/agent-views", body, cluster=cluster)


@views.command()
@click.argument("view_id", metavar="ID", type=click.IntRange(min=1))
@click.option("--name", help="New name.")
@click.option("--shared/--private", "is_shared", default=None, help="Share the view, or make it private.")
@console_options
@prints_response(_format_view)
def change(
    console: api.ConsoleClient, cluster: str, view_id: int, name: str | None, is_shared: bool | None
) -> Any:
    """Rename the view with this ID, share it, or make it private."""
    if name is None and is_shared is None:
        raise click.UsageError("give --name, --shared or --private")
    body = {"name": name, "is_shared": is_shared}
    return console.post(f"/agent-views/{view_id}", body, cluster=cluster)


@views.command()
@click.argument("view_id", metavar="ID", type=click.IntRange(min=1))
@console_options
@prints_response(_format_deleted_view)
def delete(console: api.ConsoleClient, cluster: str, view_id: int) -> Any:
    """Delete the view with this ID."""
    return console.post(f"/agent-views/{view_id}/delete", {}, cluster=cluster)
