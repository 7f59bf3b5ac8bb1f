"""Configuration snippets to set policies by hand: systemd, compose, Helm values, shell. Pure.

docs/reference/policies.md
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping


def systemd(role: str, values: Mapping[str, str]) -> str:
    """Return a systemd drop-in; `%` and `\\` are escaped."""
    lines = [f"# /etc/systemd/system/teleport-{role}.service.d/policies.conf", "[Service]"]
    for name, value in sorted(values.items()):
        assignment = f"{name}={value}".replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
        lines.append(f'Environment="{assignment}"')
    return "\n".join([*lines, f"# Then run: systemctl daemon-reload && systemctl restart teleport-{role}"])


def compose(role: str, values: Mapping[str, str]) -> str:
    """Return the environment of a compose service; `$` is doubled."""
    lines = ["services:", f"  {role}:", "    environment:"]
    lines += [
        f"      {name}: {json.dumps(value.replace('$', '$$'), ensure_ascii=False)}"
        for name, value in sorted(values.items())
    ]
    return "\n".join(lines)


def helm(role: str, values: Mapping[str, str]) -> str:
    """Return values for Teleport's Helm chart: `extraEnv` of the role."""
    lines = [f"{role}:", "  extraEnv:"]
    for name, value in sorted(values.items()):
        lines += [f"    - name: {name}", f"      value: {json.dumps(value, ensure_ascii=False)}"]
    return "\n".join(lines)


def shell(role: str, values: Mapping[str, str]) -> str:
    """Return exports for a POSIX shell."""
    del role
    return "\n".join(f"export {name}={shlex.quote(value)}" for name, value in sorted(values.items()))


def all_of(role: str, values: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return every snippet as (tool, text); none when there are no desired values."""
    if not values:
        return ()
    return (
        ("systemd", systemd(role, values)),
        ("compose", compose(role, values)),
        ("Helm", helm(role, values)),
        ("shell", shell(role, values)),
    )
