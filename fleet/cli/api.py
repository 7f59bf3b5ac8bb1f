"""Client of the console's HTTP API: address, token, and errors as messages for the terminal."""

from __future__ import annotations

import json
import re
import shlex
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleet.cli.output import Failure

_TIMEOUT = 15.0
#: Agents per page; the console accepts no larger limit.
_PAGE_SIZE = 500
#: Maximum number of search results to compare with a name.
_SEARCH_LIMIT = 10_000
#: Status codes of valid requests that the console refused.
_REFUSAL_STATUSES = {409, 412, 428}
#: Flags of the command line by the field of a confirmation.
_CONFIRMATION_FLAGS = {"confirmation": "--confirm-cluster", "reason": "--reason"}
#: What the API says of an id in a path; commands accept names too.
_ID_HINT = re.compile(r": paths take ids\..*")
#: Flags of `refloat reconnect` by field of the API.
_CAMPAIGN_FLAGS = {
    "q": "--search",
    "proxy": "--proxy",
    "auth": "--auth",
    "agents": "--agent",
    "connection": "--connection",
}
#: Keys of problems that are about several flags together, so the problem is shown without its key.
_KEYS_WITHOUT_FLAG = {"target_agents"}
#: Flags of the command line by the words in which the API asks for the same.
_FLAGS_BY_API_WORDS = {
    "Send `confirm_alive: true`": "Add --confirm-alive",
    "Send `allow_last: true`": "Add --allow-last",
    "Enter the word “everything” as confirmation": "Add --everything to confirm",
}
_LOGIN_HINT = (
    "Create a token on the console's page API tokens, or on its machine with "
    "`refloat token create USER --name NAME`."
)
#: Commands that list the ids and names, by the noun with which a "was not found" begins.
_LIST_COMMANDS = {
    "Agent": "refloat agents",
    "Change": "refloat changes list",
    "Channel": "refloat channels list",
    "Cluster": "refloat cluster list",
    "Incident": "refloat incidents --state all",
    "Instance": "refloat instances",
    "Maintenance window": "refloat maintenance list",
    "Revision": "refloat config history",
    "Route": "refloat routes list",
    "Rule": "refloat rules list",
    "Silence": "refloat silence list",
}
#: Flags of the command line by rollout setting.
ROLLOUT_FLAGS = {
    "concurrency": "--concurrency",
    "drain_seconds": "--drain-time",
    "soak_seconds": "--soak-time",
    "timeout_seconds": "--instance-timeout",
}


class NotFound(Failure):
    """The console answered 404: the resource was not found."""


@dataclass(frozen=True, slots=True)
class ConsoleClient:
    """The URL of a console and the API token for it."""

    url: str
    token: str

    def get(self, path: str, query: Mapping[str, Any] | None = None, *, cluster: str = "default") -> Any:
        """Send GET `/api/v1/...` for a cluster and return the JSON response. Raises Failure."""
        params = {name: param for name, param in (query or {}).items() if param not in (None, "", ())}
        url = self._url(path, cluster)
        if params:
            url += f"?{urllib.parse.urlencode(params, doseq=True)}"
        return self._send_request(url)

    def post(
        self, path: str, body: Any, *, cluster: str = "default", headers: Mapping[str, str] | None = None
    ) -> Any:
        """Send POST `/api/v1/...` with JSON for a cluster and return the JSON response. Raises Failure."""
        payload = json.dumps(body).encode()
        return self._send_request(
            self._url(path, cluster), payload, {"Content-Type": "application/json", **(headers or {})}
        )

    def _url(self, path: str, cluster: str) -> str:
        prefix = (
            "/api/v1" if cluster == "default" else f"/api/v1/clusters/{urllib.parse.quote(cluster, safe='')}"
        )
        return f"{self.url.rstrip('/')}{prefix}{path}"

    def _send_request(
        self, url: str, payload: bytes | None = None, extra_headers: Mapping[str, str] | None = None
    ) -> Any:
        headers = {
            "Accept": "application/json",
            "Authorization": f"Bearer {self.token}",
            **(extra_headers or {}),
        }
        try:
            request = urllib.request.Request(url, payload, headers)  # noqa: S310 - `find_console` lets only http(s) in
            with urllib.request.urlopen(request, timeout=_TIMEOUT) as response:  # noqa: S310
                return json.load(response)
        except urllib.error.HTTPError as error:
            with error:
                kind = NotFound if error.code == 404 else Failure
                raise kind(self._describe_error(error, is_change=payload is not None)) from error
        except OSError as error:
            reason = getattr(error, "reason", error)
            raise Failure(
                f"cannot reach the console at {self.url}: {reason}. Check --url, or start it with "
                "`refloat serve` or `refloat demo`"
            ) from error
        except ValueError as error:
            raise Failure(
                f"{self.url} is not a Refloat console: its response is not JSON. Check --url"
            ) from error

    def iterate_agents(
        self, query: Mapping[str, Any], *, cluster: str, limit: int
    ) -> Iterator[dict[str, Any]]:
        """Yield at most `limit` agents, requested page by page. Raises Failure."""
        cursor: str | None = None
        while limit > 0:
            page = self.get(
                "/agents", {**query, "limit": min(limit, _PAGE_SIZE), "cursor": cursor}, cluster=cluster
            )
            yield from page["agents"]
            limit -= len(page["agents"])
            cursor = page["next"]
            if not cursor:
                return

    def send_for_agent(self, id_or_name: str, send_request: Callable[[str], Any], *, cluster: str) -> Any:
        """Return `send_request(id)` for an agent given by id or name; the id is quoted for a path. Raises Failure."""
        try:
            return send_request(urllib.parse.quote(id_or_name, safe=""))
        except NotFound:
            ids = self._find_agent_ids(id_or_name, cluster)
            if not ids:
                raise
        if len(ids) > 1:
            raise Failure(f"{len(ids)} agents have the name {id_or_name}; use an id: {', '.join(ids[:5])}")
        return send_request(urllib.parse.quote(ids[0], safe=""))

    def _find_agent_ids(self, name: str, cluster: str) -> list[str]:
        try:
            agents = self.iterate_agents({"q": shlex.quote(name)}, cluster=cluster, limit=_SEARCH_LIMIT)
            return [agent["id"] for agent in agents if agent["name"] == name]
        except Failure:
            return []  # the search cannot parse this name

    def _describe_error(self, error: urllib.error.HTTPError, *, is_change: bool) -> str:
        detail, problems = _read_error(error)
        detail = _ID_HINT.sub(".", detail)
        for api_words, flag_words in _FLAGS_BY_API_WORDS.items():
            detail = detail.replace(api_words, flag_words)
        hint = _list_hint_for(detail)
        prefix = "nothing was changed: " if is_change else ""
        if error.code in _REFUSAL_STATUSES or problems:
            flags = _CONFIRMATION_FLAGS
            if error.url.endswith("/policies/plan"):
                flags = flags | ROLLOUT_FLAGS
            elif error.url.endswith("/reconnect/plan"):
                flags = flags | _CAMPAIGN_FLAGS
            problem_lines = [
                problem
                if key in _KEYS_WITHOUT_FLAG
                else f"{flags.get(key) or _format_problem_key(key)}: {problem}"
                for key, problem in problems.items()
            ]
            if problems and all(problem.lower() in detail.lower() for problem in problems.values()):
                names_every_key = all(f"{key}: ".lower() in detail.lower() for key in problems)
                repeats_problem = detail.rstrip(".").lower() in {
                    problem.lower() for problem in problems.values()
                }
                return prefix + (
                    "\n  ".join(problem_lines) if names_every_key or repeats_problem else detail + hint
                )
            return "\n  ".join([f"{prefix}{detail}", *problem_lines])
        if error.code == 401:
            return f"the console at {self.url} rejected the token: {detail}"
        if error.code == 403:
            return f"{detail} (HTTP 403 from the console at {self.url}; tokens are created on its page API tokens)"
        if error.code == 503:
            return f"the console at {self.url} cannot answer now: {detail}"
        return f"{detail}{hint} (HTTP {error.code} from the console at {self.url})"


def find_console(url: str | None, token: str | None, home: Path) -> ConsoleClient:
    """Return the console at `url`, or the console of the demo that runs in `home`. Raises Failure."""
    if not url or not token:
        demo_account = _read_demo_account(home)
        # The demo's token is for the demo alone: it is never sent to another address.
        if url in (None, "", demo_account.get("url")):
            url, token = demo_account.get("url"), token or demo_account.get("token")
    if url and not token:
        raise Failure(f"no token for the console at {url}: give --token, or set REFLOAT_TOKEN. {_LOGIN_HINT}")
    if not url or not token:
        raise Failure(
            "no URL or no token of a console: give --url and --token, or set REFLOAT_URL and REFLOAT_TOKEN. "
            f"{_LOGIN_HINT} Or start the demo with `refloat demo`, which writes {home / 'demo.json'}"
        )
    if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
        raise Failure(f"{url!r} is not the URL of a console: use a URL such as https://console.example.com")
    return ConsoleClient(url, token)


def _read_demo_account(home: Path) -> dict[str, str]:
    path = home / "demo.json"
    try:
        document: dict[str, str] = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise Failure(f"{path} cannot be read: {error}") from error
    return document


def _list_hint_for(detail: str) -> str:
    """Return which command lists the ids and names, if the detail says that one was not found; otherwise empty."""
    not_found_match = re.match(r"(\w+(?: window)?) \S+ was not found", detail)
    if not not_found_match or not_found_match[1] not in _LIST_COMMANDS:
        return ""
    return f" `{_LIST_COMMANDS[not_found_match[1]]}` lists all {not_found_match[1].lower()}s."


def _format_problem_key(key: str) -> str:
    """Return `VARIABLE of auth` for the key `auth.VARIABLE` of a policy problem, and any other key unchanged."""
    target, _, name = key.rpartition(".")
    return f"{name} of {target}" if target and name.startswith("TELEPORT_") else key


def _read_error(error: urllib.error.HTTPError) -> tuple[str, dict[str, str]]:
    """Return the detail of an error response, and the problem of each field."""
    try:
        document = json.loads(error.read())
    except (OSError, ValueError):
        return str(error.reason), {}
    detail = document.get("detail", "") if isinstance(document, dict) else ""
    problems = document.get("problems") if isinstance(document, dict) else None
    return detail if isinstance(detail, str) and detail else str(error.reason), problems or {}
