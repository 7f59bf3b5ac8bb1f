"""The console's HTTP API, asked from outside: address and token, errors as sentences."""

from __future__ import annotations

import json
import shlex
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleet.cli.answers import Failure

_TIMEOUT = 15.0
#: Agents in one page; the console allows no more than this in one answer.
_PAGE = 500
#: Agents whose name is looked at, of those in which it is contained.
_SEARCH_LIMIT = 10_000
#: Answers that mean: understood, and not done.
_REFUSAL_STATUSES = {409, 412, 428}
#: What fields of a confirmation are called here.
_FLAGS = {"typed": "--typed", "reason": "--reason"}


class NotFound(Failure):
    """The console knows no such thing."""


@dataclass(frozen=True, slots=True)
class Console:
    """Where a console is and who we are there."""

    url: str
    token: str

    def get(self, path: str, query: Mapping[str, Any] | None = None, *, cluster: str = "default") -> Any:
        """Ask for `/api/v1/...` of a cluster. Raises Failure."""
        params = {name: param for name, param in (query or {}).items() if param not in (None, "", ())}
        url = self._url(path, cluster)
        if params:
            url += f"?{urllib.parse.urlencode(params, doseq=True)}"
        return self._send_request(url)

    def post(
        self, path: str, body: Any, *, cluster: str = "default", headers: Mapping[str, str] | None = None
    ) -> Any:
        """Send JSON to `/api/v1/...` of a cluster. Raises Failure."""
        payload = json.dumps(body).encode()
        return self._send_request(
            self._url(path, cluster), payload, {"Content-Type": "application/json", **(headers or {})}
        )

    def _url(self, path: str, cluster: str) -> str:
        prefix = (
            "/api/v1" if cluster == "default" else f"/api/v1/clusters/{urllib.parse.quote(cluster, safe='')}"
        )
        return f"{self.url.rstrip('/')}{prefix}{path}"

    def _send_request(self, url: str, payload: bytes | None = None, extra_headers: Mapping[str, str] | None = None) -> Any:
        headers = {"Accept": "application/json", "Authorization": f"Bearer {self.token}", **(extra_headers or {})}
        try:
            request = urllib.request.Request(url, payload, headers)  # noqa: S310 - `find` lets only http(s) in
            with urllib.request.urlopen(request, timeout=_TIMEOUT) as response:  # noqa: S310
                return json.load(response)
        except urllib.error.HTTPError as error:
            with error:
                kind = NotFound if error.code == 404 else Failure
                raise kind(self._describe_refusal(error)) from error
        except OSError as error:
            reason = getattr(error, "reason", error)
            raise Failure(f"no console answers at {self.url}: {reason}. Is it running? (`make demo`)") from error
        except ValueError as error:
            raise Failure(f"{self.url} answered, but not as a Refloat console does") from error

    def agents(self, query: Mapping[str, Any], *, cluster: str, limit: int) -> Iterator[dict[str, Any]]:
        """List agents, page after page, `limit` of them at most. Raises Failure."""
        cursor: str | None = None
        while limit > 0:
            page = self.get(
                "/agents", {**query, "limit": min(limit, _PAGE), "cursor": cursor}, cluster=cluster
            )
            yield from page["agents"]
            limit -= len(page["agents"])
            cursor = page["next"]
            if not cursor:
                return

    def request_agent(self, text: str, send_request: Callable[[str], Any], *, cluster: str) -> Any:
        """Ask about an agent by its id, or else by its name; `ask` gets the id as part of a path. Raises Failure."""
        try:
            return send_request(urllib.parse.quote(text, safe=""))
        except NotFound:
            ids = self._ids_of(text, cluster)
            if not ids:
                raise
        if len(ids) > 1:
            raise Failure(f"{len(ids)} agents are called {text}; name one by its id: {', '.join(ids[:5])}")
        return send_request(urllib.parse.quote(ids[0], safe=""))

    def _ids_of(self, name: str, cluster: str) -> list[str]:
        try:
            agents = self.agents({"q": shlex.quote(name)}, cluster=cluster, limit=_SEARCH_LIMIT)
            return [agent["id"] for agent in agents if agent["name"] == name]
        except Failure:
            return []  # no name that the filter understands

    def _describe_refusal(self, error: urllib.error.HTTPError) -> str:
        detail, problems = _read_error(error)
        if error.code in _REFUSAL_STATUSES or problems:
            problem_lines = [f"{_FLAGS.get(key, key)}: {problem}" for key, problem in problems.items()]
            if len(problem_lines) == 1 and detail.rstrip(".").lower() == next(iter(problems.values())).lower():
                return f"nothing was changed: {problem_lines[0]}"
            return "\n  ".join([f"nothing was changed: {detail}", *problem_lines])
        if error.code == 401:
            return f"the console at {self.url} does not know this token: make one on its page *Tokens*"
        if error.code == 403:
            return f"the console at {self.url} does not allow it: {detail}"
        if error.code == 503:
            return f"the console at {self.url} cannot tell now: {detail}"
        return f"the console at {self.url} answered {error.code}: {detail}"


def find_console(url: str | None, token: str | None, home: Path) -> Console:
    """Take address and token as given, or those of the demo that runs in `home`. Raises Failure."""
    if not url or not token:
        demo = _read_demo_account(home)
        # The demo's token is for the demo alone: it is never sent to another address.
        if url in (None, "", demo.get("url")):
            url, token = demo.get("url"), token or demo.get("token")
    if not url or not token:
        raise Failure(
            f"which console? Give --url and --token, or REFLOAT_URL and REFLOAT_TOKEN; there is no {home / 'demo.json'}"
        )
    if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
        raise Failure(f"{url!r} is no address of a console: write it like https://console.example.com")
    return Console(url, token)


def _read_demo_account(home: Path) -> dict[str, str]:
    path = home / "demo.json"
    try:
        document: dict[str, str] = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise Failure(f"{path} cannot be read: {error}") from error
    return document


def _read_error(error: urllib.error.HTTPError) -> tuple[str, dict[str, str]]:
    """What a console says of an error, and of each field."""
    try:
        document = json.loads(error.read())
    except (OSError, ValueError):
        return str(error.reason), {}
    detail = document.get("detail", "") if isinstance(document, dict) else ""
    problems = document.get("problems") if isinstance(document, dict) else None
    return detail if isinstance(detail, str) and detail else str(error.reason), problems or {}
