"""Links to the page of an auth or proxy. The tag `instance_link` writes them in templates."""

from __future__ import annotations

from urllib.parse import quote


def instance_path_of(id_or_name: str) -> str:
    """Return the path of the page of an instance below the prefix of its cluster; empty if no path can have the name.

    By name, the page redirects to that of the id.
    """
    if not id_or_name.strip(".") or "/" in id_or_name:
        return ""
    return f"/instances/{quote(id_or_name, safe='')}/"
