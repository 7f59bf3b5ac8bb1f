from __future__ import annotations

import struct

from tests.meta.house import ROOT
from tests.pictures.demo_docs import SIZE_BY_NAME
from tests.pictures.windows import THEMES

_FOLDER = ROOT / "docs" / "pictures"


def test_the_documents_have_each_picture_in_both_themes_and_its_size() -> None:
    sizes = {
        path.stem: struct.unpack(">II", path.read_bytes()[16:24]) for path in sorted(_FOLDER.glob("*.png"))
    }
    assert sizes == {f"{name}-{theme}": size for name, size in SIZE_BY_NAME.items() for theme in THEMES}
