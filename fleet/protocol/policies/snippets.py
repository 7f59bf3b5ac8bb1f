"""What to write where policies are set by hand: systemd, compose, Helm values, a shell. Pure. docs/policies.md"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping


def systemd(role: str, values: Mapping[str, str]) -> str:
    """A drop-in of the unit: `%` and `\\` mean something there."""
    lines = [f"# /etc/systemd/system/teleport-{role}.service.d/policies.conf", "[Service]"]
    for name, value in sorted(values.items()):
        assignment = f"{name}={value}".replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
        lines.append(f'Environment="{assignment}"')
    return "\n".join([*lines, f"# then: systemctl daemon-reload && systemctl restart teleport-{role}"])


def compose(role: str, values: Mapping[str, str]) -> str:
    """The environment of a compose service: `$` is doubled there."""
    lines = ["services:", f"  {role}:", "    environment:"]
    lines += [
        f"      {name}: {json.dumps(value.replace('$', '$$'), ensure_ascii=False)}"
        for name, value in sorted(values.items())
    ]
    return "\n".join(lines)


def helm(role: str, values: Mapping[str, str]) -> str:
    """Values of Teleport's chart: `extraEnv` of the role."""
    lines = [f"{role}:", "  extraEnv:"]
    for name, value in sorted(values.items()):
        lines += [f"    - name: {name}", f"      value: {json.dumps(value, ensure_ascii=False)}"]
    return "\n".join(lines)


def shell(role: str, values: Mapping[str, str]) -> str:
    """Exports for a POSIX shell."""
    del role
    return "\n".join(f"export {name}={shlex.quote(value)}" for name, value in sorted(values.items()))


def all_of(role: str, values: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Every kind as (what for, text); none when nothing is wanted."""
    if not values:
        return ()
    return (
        ("systemd", systemd(role, values)),
        ("compose", compose(role, values)),
        ("Helm", helm(role, values)),
        ("shell", shell(role, values)),
    )
