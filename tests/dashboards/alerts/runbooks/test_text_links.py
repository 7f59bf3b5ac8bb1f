from __future__ import annotations

import pytest

from dashboards.alerts.runbooks.text_links import TextPart, split_links, split_paragraphs

WIKI = "https://wiki.example.com/a"


@pytest.mark.parametrize(
    ("line", "links"),
    [
        (f"See {WIKI}.", [WIKI]),
        (f"({WIKI}), then HTTP://x.example/b?c=d&e=f#g!", [WIKI, "HTTP://x.example/b?c=d&e=f#g"]),
        (f"{WIKI}_(b) and [{WIKI}]", [f"{WIKI}_(b)", WIKI]),
        ("javascript:alert(1) ftp://x data:text/html,x www.example.com", []),
        (f"<{WIKI}><script>", [WIKI]),
        (f'"{WIKI}"onclick=x', [WIKI]),
        ("https:// and https://... are no addresses", []),
        ("", []),
    ],
)
def test_only_web_addresses_become_links(line: str, links: list[str]) -> None:
    """Without the punctuation around them; no text is lost."""
    parts = split_links(line)
    assert "".join(part.text for part in parts) == line
    assert [part.url for part in parts if part.url] == links


def test_blank_lines_separate_paragraphs() -> None:
    """Other line breaks stay."""
    assert split_paragraphs("a\nb\n\n \nc") == [[[TextPart("a")], [TextPart("b")]], [[TextPart("c")]]]
    assert split_paragraphs("") == []
