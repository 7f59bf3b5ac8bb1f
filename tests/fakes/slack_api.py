"""Slack: chat.postMessage, chat.update and incoming webhooks, as strict as Slack, with the messages that result.

https://docs.slack.dev/reference/methods/chat.postMessage and chat.update.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.fakes.block_kit import BlocksTooLongError, InvalidBlocksError, check_blocks, render_text
from tests.fakes.post_server import PostAnswer, PostedRequest, serve_posts

TOKEN = "xoxb-1-2-secret"
OPS_ID = "C0000000001"
WEBHOOK_PATH = "/services/T0/B0/secret"
_MESSAGE_KEYS = {"text", "blocks"}
_POST_KEYS = _MESSAGE_KEYS | {
    "channel",
    "thread_ts",
    "reply_broadcast",
    "unfurl_links",
    "unfurl_media",
    "parse",
}
_UPDATE_KEYS = _MESSAGE_KEYS | {"channel", "ts", "parse", "link_names", "reply_broadcast"}
_WEBHOOK_KEYS = _MESSAGE_KEYS | {"unfurl_links", "unfurl_media"}


@dataclass
class SlackMessage:
    """A message of a channel."""

    ts: str
    text: str
    blocks: list[dict[str, Any]]
    thread_ts: str = ""
    is_broadcast: bool = False
    edit_count: int = 0

    @property
    def view(self) -> MessageView:
        """What people see."""
        view = MessageView()
        for block in self.blocks:
            if block["type"] == "header":
                view.title = render_text(block["text"])
            elif block["type"] == "section" and "fields" in block:
                texts = [render_text(text) for text in block["fields"]]
                view.facts = dict(zip(texts[::2], texts[1::2], strict=True))
            elif block["type"] == "section":
                view.texts.append(render_text(block["text"]))
            elif block["type"] == "context":
                view.footer = " ".join(render_text(text) for text in block["elements"])
            elif block["type"] == "actions":
                view.buttons = {render_text(button["text"]): button["url"] for button in block["elements"]}
        return view


@dataclass
class MessageView:
    """A message as people see it."""

    title: str = ""
    texts: list[str] = field(default_factory=list)
    facts: dict[str, str] = field(default_factory=dict)
    footer: str = ""
    buttons: dict[str, str] = field(default_factory=dict)


@dataclass
class SlackChannel:
    """A channel of the workspace."""

    name: str
    is_archived: bool = False
    #: The app was invited.
    is_member: bool = True
    allows_threads: bool = True
    all_messages: list[SlackMessage] = field(default_factory=list)

    @property
    def messages(self) -> list[SlackMessage]:
        """The messages outside of threads."""
        return [message for message in self.all_messages if not message.thread_ts]

    def thread_of(self, message: SlackMessage) -> list[str]:
        """Return the replies to a message; those that the channel shows, too, begin with `+`."""
        return [
            f"{'+' if reply.is_broadcast else ''}{reply.view.texts[0]}"
            for reply in self.all_messages
            if reply.thread_ts == message.ts
        ]

    def delete(self, message: SlackMessage) -> None:
        """Delete a message, as somebody in Slack does."""
        self.all_messages.remove(message)


class SlackRefusalError(Exception):
    """Slack answers `"ok": false`."""

    def __init__(self, code: str, **fields: str) -> None:
        super().__init__(code)
        self.fields = fields


@dataclass
class SlackWorkspace:
    """A workspace with the channel #ops, of which the app with `TOKEN` is a member."""

    url: str = ""
    scopes_by_token: dict[str, set[str]] = field(default_factory=lambda: {TOKEN: {"chat:write"}})
    revoked_tokens: set[str] = field(default_factory=set)
    channels: dict[str, SlackChannel] = field(default_factory=lambda: {OPS_ID: SlackChannel("ops")})
    #: Channels of incoming webhooks by path.
    webhooks: dict[str, str] = field(default_factory=lambda: {WEBHOOK_PATH: OPS_ID})
    #: Answers to the next requests, instead of Slack's own.
    answers: list[PostAnswer] = field(default_factory=list)
    #: Called before each request is answered.
    before_answer: Callable[[], None] = lambda: None
    #: Names of the methods that were called, and rules that requests broke.
    methods: list[str] = field(default_factory=list)
    broken_rules: list[str] = field(default_factory=list)
    _ts_count: int = 0

    @property
    def api_url(self) -> str:
        """Base URL of the API."""
        return f"{self.url}/api"

    @property
    def ops(self) -> SlackChannel:
        """The channel #ops."""
        return self.channels[OPS_ID]

    def answer(self, request: PostedRequest) -> PostAnswer:
        """Answer a request as Slack does."""
        self.before_answer()
        method = request.path.rpartition("/")[2]
        self.methods.append("webhook" if request.path.startswith("/services/") else method)
        if self.answers:
            return self.answers.pop(0)
        if request.path.startswith("/services/"):
            return self._answer_webhook(request)
        try:
            if request.path not in ("/api/chat.postMessage", "/api/chat.update"):
                raise SlackRefusalError("unknown_method")
            document = self._call(method, request)
        except SlackRefusalError as error:
            document = {"ok": False, "error": str(error), **error.fields}
        return PostAnswer(200, json.dumps(document).encode(), {"Content-Type": "application/json"})

    def _call(self, method: str, request: PostedRequest) -> Mapping[str, Any]:
        self._check_token(request.headers.get("authorization", ""))
        if request.media_type != "application/json":
            raise SlackRefusalError("invalid_post_type")
        arguments = _parse_arguments(request.body)
        keys = _POST_KEYS if method == "chat.postMessage" else _UPDATE_KEYS
        if unknown := set(arguments) - keys:
            self._refuse(f"unknown arguments {sorted(unknown)}", "invalid_arguments")
        channel_id, channel = self._find_channel(
            str(arguments.get("channel", "")), takes_names=keys is _POST_KEYS
        )
        self._check_message(arguments)
        if method == "chat.update":
            return self._update(channel_id, channel, arguments)
        return self._post(channel_id, channel, arguments)

    def _post(
        self, channel_id: str, channel: SlackChannel, arguments: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        if channel.is_archived:
            raise SlackRefusalError("is_archived")
        if not channel.is_member:
            raise SlackRefusalError("not_in_channel")
        thread_ts = arguments.get("thread_ts", "")
        if thread_ts and not channel.allows_threads:
            raise SlackRefusalError("restricted_action_non_threadable_channel")
        if thread_ts and not any(message.ts == thread_ts for message in channel.messages):
            self._refuse(f"no message {thread_ts} to reply to", "thread_not_found")
        if arguments.get("reply_broadcast") and not thread_ts:
            self._refuse("reply_broadcast without thread_ts", "invalid_arguments")
        message = self._append(channel, arguments)
        return {"ok": True, "channel": channel_id, "ts": message.ts, "message": {"text": message.text}}

    def _update(
        self, channel_id: str, channel: SlackChannel, arguments: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        ts = arguments.get("ts")
        message = next((message for message in channel.all_messages if message.ts == ts), None)
        if message is None:
            raise SlackRefusalError("message_not_found")
        if channel.is_archived:
            raise SlackRefusalError("is_inactive")
        message.text, message.blocks = arguments["text"], arguments["blocks"]
        message.edit_count += 1
        return {"ok": True, "channel": channel_id, "ts": message.ts, "text": message.text}

    def _answer_webhook(self, request: PostedRequest) -> PostAnswer:
        channel_id = self.webhooks.get(request.path)
        if channel_id is None:
            return PostAnswer(404, b"no_service")
        if channel_id not in self.channels:
            return PostAnswer(404, b"channel_not_found")
        if self.channels[channel_id].is_archived:
            return PostAnswer(410, b"channel_is_archived")
        try:
            arguments = _parse_arguments(request.body)
            if request.media_type != "application/json" or set(arguments) - _WEBHOOK_KEYS:
                raise SlackRefusalError("invalid_payload")
            self._check_message(arguments)
        except SlackRefusalError as error:
            return PostAnswer(400, str(error).encode())
        self._append(self.channels[channel_id], arguments)
        return PostAnswer(200, b"ok")

    def _append(self, channel: SlackChannel, arguments: Mapping[str, Any]) -> SlackMessage:
        self._ts_count += 1
        message = SlackMessage(
            f"1790000000.{self._ts_count:06}",
            arguments["text"],
            arguments["blocks"],
            arguments.get("thread_ts", ""),
            bool(arguments.get("reply_broadcast")),
        )
        channel.all_messages.append(message)
        return message

    def _check_token(self, authorization: str) -> None:
        scheme, _, token = authorization.partition(" ")
        if scheme != "Bearer" or not token:
            raise SlackRefusalError("not_authed")
        if token in self.revoked_tokens:
            raise SlackRefusalError("token_revoked")
        if token not in self.scopes_by_token:
            raise SlackRefusalError("invalid_auth")
        scopes = self.scopes_by_token[token]
        if "chat:write" not in scopes:
            raise SlackRefusalError("missing_scope", needed="chat:write", provided=",".join(sorted(scopes)))

    def _find_channel(self, address: str, *, takes_names: bool) -> tuple[str, SlackChannel]:
        for channel_id, channel in self.channels.items():
            if address == channel_id or (takes_names and address == f"#{channel.name}"):
                return channel_id, channel
        raise SlackRefusalError("channel_not_found")

    def _check_message(self, arguments: Mapping[str, Any]) -> None:
        text = arguments.get("text")
        if not isinstance(text, str) or not text.strip():
            self._refuse("no text for screen readers and notifications", "no_text")
        elif len(text) > 40_000:
            raise SlackRefusalError("msg_too_long")
        try:
            check_blocks(arguments.get("blocks"))
        except InvalidBlocksError as error:
            self._refuse(str(error), "invalid_blocks")
        except BlocksTooLongError:
            self._refuse("all blocks together are too long", "msg_blocks_too_long")

    def _refuse(self, rule: str, code: str) -> None:
        self.broken_rules.append(rule)
        raise SlackRefusalError(code)


def make_rate_limit(retry_after: str = "30") -> PostAnswer:
    """Return Slack's answer to too many requests."""
    document = {"ok": False, "error": "ratelimited"}
    return PostAnswer(429, json.dumps(document).encode(), {"Retry-After": retry_after})


def make_refusal(code: str, **fields: str) -> PostAnswer:
    """Return an answer with `"ok": false`."""
    return PostAnswer(200, json.dumps({"ok": False, "error": code, **fields}).encode())


@contextmanager
def run_slack() -> Iterator[SlackWorkspace]:
    """Run a workspace on a free port."""
    workspace = SlackWorkspace()
    with serve_posts(workspace.answer) as workspace.url:
        yield workspace
    assert not workspace.broken_rules, workspace.broken_rules


def _parse_arguments(body: bytes) -> dict[str, Any]:
    try:
        arguments: Any = json.loads(body.decode())
    except ValueError:
        raise SlackRefusalError("invalid_json") from None
    if not isinstance(arguments, dict):
        raise SlackRefusalError("json_not_object")
    return arguments
