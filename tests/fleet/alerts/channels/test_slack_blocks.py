from __future__ import annotations

import pytest

from fleet.alerts.channels.cards import Card, CardButton
from fleet.alerts.channels.slack_blocks import blocks_of, escape, fallback_of, text_block
from tests.fakes.block_kit import InvalidBlocksError, check_blocks, render_text

_HOSTILE_NAMES = [
    "<!channel>", "<!here|x>", "<@U012345>", "<#C012345>", "<http://evil.example|proxy-1>", "*bold*", "_it_", "~x~",
    "`code`", ":fire:", "a & b", "&lt;b&gt;", "> quote", "https://evil.example/",
]  # fmt: skip


def _card_about(text: str) -> Card:
    button = CardButton("incident", text, "https://console.example.com/incidents/7/")
    return Card(text, text, "", (("Cause", text),), text, text, (button,))


@pytest.mark.parametrize("name", _HOSTILE_NAMES)
def test_names_are_shown_literally(name: str) -> None:
    """Everywhere: nobody is mentioned, and nothing is formatted or linked."""
    header, headline, fields, agents, context, actions = blocks_of(_card_about(name))
    check_blocks([header, headline, fields, agents, context, actions])
    text_objects = [
        header["text"],
        headline["text"],
        fields["fields"][1],
        agents["text"],
        context["elements"][0],
        actions["elements"][0]["text"],
    ]
    assert [render_text(text_object) for text_object in text_objects] == [name] * 6


def test_long_texts_fit_the_limits_also_when_escaped() -> None:
    """`&amp;` counts as five characters."""
    url = f"https://console.example.com/{'x' * 970}"
    buttons = tuple(CardButton(str(number), "&" * 70, url) for number in range(5))
    facts = tuple((f"Label {number}", "&" * 400) for number in range(5))
    blocks = blocks_of(Card("&" * 140, "&" * 600, "", facts, "&" * 1000, "&" * 300, buttons))
    check_blocks(blocks)
    assert len(blocks[0]["text"]["text"]) <= 150
    assert render_text(blocks[0]["text"]).endswith("&…")


def test_body_is_split_at_its_lines() -> None:
    """All lines are there, in blocks of at most 3000 characters."""
    lines = [f"- incident {number} <{'x' * 280}>" for number in range(14)]
    blocks = blocks_of(Card("Digest", body="\n".join(lines)))
    check_blocks(blocks)
    sections = [render_text(block["text"]) for block in blocks if block["type"] == "section"]
    assert "\n".join(sections).splitlines() == lines
    assert len(sections) == 2


def test_card_without_details_is_a_header() -> None:
    """Slack refuses empty texts and empty lists."""
    assert [block["type"] for block in blocks_of(Card("Test"))] == ["header"]


@pytest.mark.parametrize("length", [1, 9, 10, 11, 1000])
def test_escaped_text_has_at_most_the_given_length(length: int) -> None:
    for text in ("<" * length, "a" * length, "a<" * length):
        escaped_text = escape(text, 10)
        assert len(escaped_text) <= 10
        assert escaped_text


def test_fallback_is_escaped() -> None:
    assert fallback_of("<!channel> & co") == "&lt;!channel&gt; &amp; co"
    assert len(fallback_of("<" * 100_000)) <= 4000


def test_the_strict_check_finds_what_slack_refuses() -> None:
    """Otherwise these tests would prove nothing."""
    good = text_block("x")
    for wrong in (
        [],
        [good] * 51,
        [{"type": "header", "text": {"type": "mrkdwn", "text": "x"}}],
        [{"type": "header", "text": {"type": "plain_text", "text": "x" * 151}}],
        [text_block("x") | {"colour": "red"}],
        [{"type": "section", "text": {"type": "plain_text", "text": ""}}],
        [{"type": "section", "fields": [{"type": "plain_text", "text": "x"}] * 11}],
        [{"type": "context", "elements": []}],
        [{"type": "table"}],
        [*blocks_of(_card_about("x")), blocks_of(_card_about("x"))[-1]],
    ):
        with pytest.raises(InvalidBlocksError):
            check_blocks(wrong)
    assert render_text({"type": "mrkdwn", "text": "*a* <!channel> <http://x|y>"}) == "⟦a⟧ ⟦!channel⟧ ⟦y⟧"
    assert render_text({"type": "plain_text", "text": ":fire: <!here>"}) == "⟦emoji⟧ ⟦!here⟧"
