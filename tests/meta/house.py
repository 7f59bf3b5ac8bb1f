"""House rules as patterns, each with its reason: `python -m tests.meta.house` lists what breaks them, and exits 1.

Ruff, mypy and import-linter come first; a rule stands here only when none of them can say it.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: This file spells the things it forbids.
_ITSELF = ("tests/meta/house.py", "tests/meta/test_house.py")
_LONGEST = 500
_OF_PRODUCT = r"^(fleet|dashboards)/.*\.py$"
_CODE = (".py", ".js", ".html", ".css")
_ANY = (
    *_CODE,
    ".md",
    ".toml",
    ".txt",
    ".sh",
    ".yml",
    ".yaml",
    ".service",
    ".env",
    ".proto",
    "Makefile",
    "run",
)


@dataclass(frozen=True, slots=True)
class Rule:
    """A pattern that is forbidden in files whose path matches `path_pattern` and not `excluded_pattern`."""

    name: str
    message: str
    pattern: str
    ends: tuple[str, ...] = (".py",)
    path_pattern: str = ""
    excluded_pattern: str = r"(?!)"


RULES = (
    Rule(
        "swallowed",
        "an error is swallowed: name the exception, or log it",
        r"except( Exception.*)?:\s*pass\b",
    ),
    Rule("bare-ignore", "`type: ignore` needs its error code", r"#\s*type:\s*ignore(?!\[)"),
    Rule(
        "environment",
        "the environment is read at the edge only: dashboards/config, cli, nodes",
        r"\bos\.(environ|getenv)\b",
        path_pattern=r"^(fleet|dashboards)/",
        excluded_pattern=r"^(dashboards/config|fleet/(cli|nodes|management))/",
    ),
    Rule(
        "settings",
        "settings are read at the edge and handed down as values",
        r"from django\.conf import",
        path_pattern=r"^fleet/",
        excluded_pattern=r"^fleet/(tasks|checks|apps|monitoring/publish)\.py|^fleet/(management|models|migrations|monitoring/history)/",
    ),
    Rule(
        "late-cycle",
        "imports for types only hide a cycle: move the name",
        r"if (typing\.)?TYPE_CHECKING:",
        # No import: Django's fields are generic in their stubs only.
        excluded_pattern=r"^fleet/models/moments\.py",
    ),
    Rule("fork", "GRPC_ENABLE_FORK_SUPPORT must keep its default", r"GRPC_ENABLE_FORK_SUPPORT"),
    Rule(
        "httpx",
        "probe with aiohttp: httpx collapses at 500 hosts",
        r"^\s*(import|from) httpx\b",
        path_pattern=r"^fleet/",
    ),
    Rule(
        "uncontained",
        "a listener of a stream that raises ends the connection, with everybody's calls: @contain_errors above it",
        r"(?<!@contain_errors\n    )def on_(headers|data|reset|lost)\(",
        path_pattern=r"^fleet/nodes/",
    ),
    Rule(
        "time-of-a-timer",
        "uvloop has no time for a timer that is due at once: keep the deadline yourself",
        r"\.when\(\)",
        path_pattern=r"^fleet/",
    ),
    Rule(
        "redis-keys",
        "Redis keys are spelled in fleet/monitoring/state/keys.py only",
        r"f[\"']\{(self\.)?_?prefix\}:",
        path_pattern=r"^(fleet|dashboards)/",
        excluded_pattern=r"^fleet/monitoring/state/keys\.py",
    ),
    Rule(
        "bare-instance",
        "the name of an auth or proxy links to its page everywhere: {% instance_link name id %}",
        r"<(th|td|li|b|span class=\"card-name\")(?: [^>]*)?>\{\{ *"
        r"(card|cause|tunnel|proxy|instance|row\.instance|step\.row|facts|bar)\.(name|proxy) *\}\}",
        (".html",),
        path_pattern=r"^templates/",
    ),
    Rule(
        "open-folder",
        "make folders by fleet.processes.folders: what is in them is not for others on the machine",
        r"\.mkdir\(|\bmakedirs\(",
        path_pattern=r"^(fleet|dashboards)/",
        excluded_pattern=r"^fleet/processes/folders\.py|^fleet/transport/certificate_authority\.py",
    ),
    Rule(
        "one-for-all",
        "what goes wrong with one cluster or change is kept from the others: loop by each_cluster or each_change",
        r"^ +for (cluster|change) in |\bin (Cluster|Change)\.objects\b|\bin runners\.due\(",
        ends=("fleet/tasks.py",),
    ),
    Rule(
        "whole-row",
        "others write the row as well: save(update_fields=...), or an UPDATE that names what must still hold",
        r"\.save\(\)",
        path_pattern=r"^fleet/(alerts|changes|models|monitoring|tasks)",
    ),
    Rule(
        "thread",
        "a loop of the console that ends by a fault ends for good: keep each turn `apart`",
        r"threading\.Thread\(",
        path_pattern=r"^(fleet/(alerts|changes|monitoring|management|tasks)|dashboards)/",
        # Of Apprise it is one attempt, whose faults go to who waits for it. A watch that ends gives back its lease, and
        # the next round opens another one.
        excluded_pattern=r"^fleet/(alerts/(alerting_loops|channels/apprise)"
        r"|monitoring/(pollers/watch_holder|sources/teleport/(event_stream|watch)))\.py",
    ),
    Rule(
        "new-pool",
        "a task takes its connections to Redis from `process()`: a new pool for each call is never closed",
        r"\bconnect\(settings\.REDIS_URL\)(?!\n    writer = )",
        ends=("fleet/tasks.py",),
    ),
    Rule(
        "raw-log-lines",
        "names of agents bring control characters: log by fleet.processes.log_format.create_handler()",
        r"\bbasicConfig\([^)]*\bformat=|\blogging\.Formatter\(",
        path_pattern=r"^(fleet|dashboards)/",
        excluded_pattern=r"^fleet/processes/log_format\.py",
    ),
    Rule(
        "unbounded-number",
        "5,000 digits are a number as well, and int() refuses them: dashboards.shared.row_ids.parse_row_id()",
        r"\bint\((\w+)\) if \1\.is(decimal|digit|numeric)\(\) else",
        path_pattern=r"^(fleet|dashboards)/",
    ),
    Rule(
        "silent-refusal",
        "what is refused is kept for the log: dashboards.shared.refusals.complain()",
        r"\bmessages\.(error|warning)\(|refloat_refusal|_queued_messages",
        path_pattern=r"^dashboards/",
        excluded_pattern=r"^dashboards/shared/refusals\.py",
    ),
    Rule(
        "deep-json",
        "a thousand brackets are a RecursionError: catch it beside ValueError",
        r"\bjson\.loads\([^\n]*\n(?: *[^\n]*\n)?? *except ValueError\b",
        path_pattern=r"^(fleet/(protocol|nodes|monitoring/sources)|dashboards)/",
    ),
    Rule(
        "yaml",
        "read YAML by fleet.protocol.strict_yaml: a kilobyte of it may mean gigabytes",
        r"\byaml\.(safe_|full_|unsafe_)?(load|compose|parse|scan|construct)|from yaml import"
        r"|\b(?!MigrationLoader\b)\w*Loader\b",
        path_pattern=r"^(fleet|dashboards)/",
        excluded_pattern=r"^fleet/protocol/strict_yaml\.py",
    ),
    Rule(
        "redis-pool",
        "a pool of redis-py lends connections that were reset: use fleet.transport.backend, whose pool does not",
        r"^\s*(import|from) redis\.asyncio\b",
        path_pattern=r"^fleet/",
        excluded_pattern=r"^fleet/transport/backend(_pool)?\.py",
    ),
    Rule(
        "role-dialled",
        "a console expects the role that it dials in the certificate: fleet.transport.poll_connections.Connections",
        r"\bopen_channel\(|\b(in)?secure_channel\(",
        path_pattern=r"^fleet/(changes|monitoring)/|^fleet/tasks\.py",
        excluded_pattern=r"^fleet/transport/poll_connections\.py",
    ),
    Rule(
        "proof",
        "ask for recent proof by dashboards.shared.recent_proof only",
        r"\breauthentication_required\b",
        path_pattern=r"^dashboards/",
        excluded_pattern=r"^dashboards/shared/recent_proof\.py",
    ),
    Rule("unsafe", "`|safe` opens the page to whoever names an agent", r"\|\s*safe\b", ends=(".html",)),
    Rule(
        "cdn",
        "assets come out of installed wheels, never from another host",
        r"<(script|link|img)\b[^>]*(src|href)=[\"'](https?:)?//|url\([\"']?(https?:)?//|@import",
        ends=(".html", ".css"),
    ),
    Rule(
        "inline-script",
        "inline script breaks the content security policy",
        r"\son(click|load|change|submit|input|error)=|<script>|javascript:",
        ends=(".html",),
        path_pattern=r"^(templates|dashboards)/",
    ),
    Rule("eval", "eval breaks the content security policy", r"\beval\(|new Function\(", ends=(".js",)),
    Rule(
        "later",
        "finish it, or leave it out and say so",
        r"\b(TODO|FIXME|XXX|for now(?! in\b))\b|NotImplementedError",
        ends=_ANY,
    ),
    Rule(
        "luck",
        "a test that fails at random is a bug",
        r"mark\.xfail|\bflaky\b|--reruns",
        path_pattern=r"^tests/",
    ),
    Rule(
        "fixed-port",
        "tests listen on ports the system chose",
        r"(127\.0\.0\.1|localhost):(80|8000|8080|3025|6379)\b",
        path_pattern=r"^tests/(flow|fleet|fakes)/",
    ),
    Rule(
        "registry",
        "no file names a package registry's host",
        # Spelled so that this file obeys the rule itself.
        r"pyp[i]\.org|npm[j]s\.(org|com)|files\.pythonhost[e]d|deb\.debia[n]|proxy\.gola[n]g|registry\.yarnpk[g]",
        ends=_ANY,
    ),
    Rule(
        "state-set",
        "sets of instance states have one declaration each, with what they mean: fleet/vocabulary/instances.py",
        r"[{(\[]\s*InstanceState\.\w+,\s*InstanceState\.",
        path_pattern=r"^(fleet|dashboards)/",
        excluded_pattern=r"^fleet/vocabulary/instances\.py",
    ),
    Rule(
        "machine-path",
        "a path of one machine",
        r"(?<![\w.])/(work|root|farm|home/\w+)/|/tmp/[a-z]",
        ends=_ANY,
    ),
)


def tracked_paths() -> list[str]:
    """The files git knows or would add, relative to the root."""
    process = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    return sorted(name for name in process.stdout.splitlines() if (ROOT / name).is_file())


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


def broken_by_pattern(name: str, text: str) -> Iterator[str]:
    """Every rule that `text`, standing in the file `name`, breaks, as `file:line: rule: message`."""
    for rule in RULES:
        if (
            not name.endswith(rule.ends)
            or not re.search(rule.path_pattern, name)
            or re.search(rule.excluded_pattern, name)
        ):
            continue
        for match in re.finditer(rule.pattern, text, re.MULTILINE):
            yield f"{name}:{_line(text, match.start())}: {rule.name}: {rule.message}"


def _sleeps(name: str, tree: ast.Module) -> Iterator[str]:
    """Sleeps that block a loop, and in tests sleeps outside a loop that polls for something."""

    def visit(node: ast.AST, *, in_async: bool, in_loop: bool) -> Iterator[str]:
        if isinstance(node, ast.AsyncFunctionDef):
            in_async, in_loop = True, False
        elif isinstance(node, ast.FunctionDef | ast.Lambda):
            in_async, in_loop = False, False
        elif isinstance(node, ast.While | ast.For | ast.AsyncFor):
            in_loop = True
        if isinstance(node, ast.Call):
            function_name = ast.unparse(node.func)
            if function_name == "time.sleep" and in_async:
                yield f"{name}:{node.lineno}: blocking-sleep: time.sleep stops the whole loop"
            zero = len(node.args) == 1 and isinstance(node.args[0], ast.Constant) and node.args[0].value == 0
            if (
                name.startswith("tests/")
                and function_name in {"time.sleep", "asyncio.sleep"}
                and not in_loop
                and not zero
            ):
                yield f"{name}:{node.lineno}: fixed-sleep: poll for what must be seen, with a deadline"
        for child in ast.iter_child_nodes(node):
            yield from visit(child, in_async=in_async, in_loop=in_loop)

    yield from visit(tree, in_async=False, in_loop=False)


#: Tasks in a field whose outcome somebody asks for, by file and field.
_AWAITED = {
    ("fleet/nodes/agent/program.py", "self._tasks"): "AgentGroup asks each agent at every tick of its clock",
    ("fleet/nodes/proxy/auth_sessions.py", "self._refresh_task"): "each call that needs the auths awaits it",
    ("fleet/monitoring/pollers/probe.py", "self._tasks"): "the end of the probe gathers both",
    ("fleet/transport/tunnel/link.py", "self._run_task"): "the end of the connection is its result",
}


def _unwatched_tasks(name: str, tree: ast.Module) -> Iterator[str]:
    """Tasks that an object keeps in a field: asyncio reports their faults only when the object goes."""
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        text = ast.unparse(function)
        for node in ast.walk(function):
            if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
                continue
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            fields = [
                ast.unparse(target) for target in targets if isinstance(target, ast.Attribute | ast.Subscript)
            ]
            starts = any(
                isinstance(call, ast.Call)
                and isinstance(call.func, ast.Attribute)
                and call.func.attr in {"create_task", "ensure_future"}
                for call in ast.walk(node.value)
            )
            for field in fields if starts else ():
                if (name, field) not in _AWAITED and f"{field}.add_done_callback(" not in text:
                    start = "start it by fleet.processes.background: its fault must be seen"
                    yield f"{name}:{node.lineno}: unwatched-task: {start}"


def broken(name: str, text: str) -> Iterator[str]:
    """Everything that breaks a rule in one file."""
    if name in _ITSELF or "/wire/" in name:
        return
    yield from broken_by_pattern(name, text)
    lines = text.count("\n")
    if name.endswith(_CODE) and "/migrations/" not in name and lines > _LONGEST:
        yield f"{name}:{lines}: too-long: over {_LONGEST} lines: split it by idea"
    # Parsing the whole tree takes seconds; few files sleep.
    if name.endswith(".py") and "sleep(" in text:
        yield from _sleeps(name, ast.parse(text))
    if re.search(_OF_PRODUCT, name) and re.search(r"create_task\(|ensure_future\(", text):
        yield from _unwatched_tasks(name, ast.parse(text))


def main() -> int:
    """Print what breaks the rules; 1 when something does."""
    complaints = [
        complaint
        for name in tracked_paths()
        if name.endswith(_ANY)
        for complaint in broken(name, (ROOT / name).read_text(encoding="utf-8"))
    ]
    print("\n".join(complaints) if complaints else "house rules kept")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
