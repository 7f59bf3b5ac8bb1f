"""Typefaces of a known width, built by the tests: a page that is measured with them does not depend on the fonts
of the machine. Every character is a box with one and the same advance.
"""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass
from functools import cache
from io import BytesIO

from fontTools.fontBuilder import FontBuilder
from fontTools.pens.ttGlyphPen import TTGlyphPen

#: Units of a glyph's em square.
EM = 1000
#: Basic Latin and Latin-1; punctuation, arrows and mathematical signs; geometric shapes and dingbats.
CHARACTERS = (*range(0x20, 0x180), *range(0x2000, 0x2300), *range(0x2500, 0x2800))
#: Characters without ink.
BLANK = frozenset((0x20, 0xA0, *range(0x2000, 0x2010), 0x2028, 0x2029, 0x202F))


@dataclass(frozen=True, slots=True)
class Typeface:
    """A typeface in which every character is `advance` thousandths of the font size wide."""

    family: str
    advance: int

    @property
    def rule(self) -> str:
        """Return the `@font-face` rule with the whole file in it, for every weight and style."""
        return (
            f'@font-face {{ font-family: "{self.family}"; font-weight: 1 1000; '
            f'src: url("data:font/ttf;base64,{b64encode(file_of(self)).decode()}") }}'
        )


#: Wider than DejaVu Sans and Verdana, whose text is about 0.6 em a character.
WIDE = Typeface("Refloat Wide", 680)
#: Narrower than Arial Narrow, whose text is about 0.45 em a character.
NARROW = Typeface("Refloat Narrow", 420)


@cache
def file_of(face: Typeface) -> bytes:
    """Return the TrueType file of a typeface."""
    names = [".notdef", "blank", "box"]
    builder = FontBuilder(EM, isTTF=True)
    builder.setupGlyphOrder(names)
    builder.setupCharacterMap({code: "blank" if code in BLANK else "box" for code in CHARACTERS})
    builder.setupGlyf(
        {".notdef": _box(face.advance), "blank": TTGlyphPen(None).glyph(), "box": _box(face.advance)}
    )
    builder.setupHorizontalMetrics(dict.fromkeys(names, (face.advance, 0)))
    builder.setupHorizontalHeader(ascent=930, descent=-240)
    builder.setupNameTable({"familyName": face.family, "styleName": "Regular"})
    builder.setupOS2(sTypoAscender=930, sTypoDescender=-240, usWinAscent=930, usWinDescent=240)
    builder.setupPost()
    buffer = BytesIO()
    builder.save(buffer)
    return buffer.getvalue()


def _box(advance: int) -> object:
    """Return a rectangle as high as a lower-case letter, with a little room at its sides."""
    pen = TTGlyphPen(None)
    pen.moveTo((60, 0))
    for corner in ((60, 540), (advance - 60, 540), (advance - 60, 0)):
        pen.lineTo(corner)
    pen.closePath()
    return pen.glyph()
