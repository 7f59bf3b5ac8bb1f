"""Option types for the names of clusters and regions. Folders, keys and labels are made of them."""

from __future__ import annotations

import re

from fleet.nodes.shared.options import ParsedOption

_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9._]{0,62}[A-Za-z0-9])?")


def _option_type(subject: str) -> ParsedOption[str]:
    def parse(text: str) -> str:
        if _NAME.fullmatch(text) is None:
            raise ValueError(
                f"{text!r} is not a valid {subject} name: use 1 to 64 letters, digits, dots, dashes and underscores, "
                "with a letter or digit at both ends"
            )
        return text

    return ParsedOption("name", parse)


CLUSTER_NAME, REGION_NAME = _option_type("cluster"), _option_type("region")
