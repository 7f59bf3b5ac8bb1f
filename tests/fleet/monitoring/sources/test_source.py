from __future__ import annotations

from fleet.monitoring.sources.source import EvidenceSource, Question


async def _ask(_: Question) -> int:
    return 1


async def _ask_elsewhere(_: Question) -> int:
    return 2


def test_sources_of_one_name_are_the_same_evidence() -> None:
    """What uses an answer finds it also when another product is asked in another way."""
    answers = {EvidenceSource("tunnels", _ask_elsewhere, share=0.5): 2}
    assert answers[EvidenceSource("tunnels", _ask)] == 2
    assert EvidenceSource("health", _ask) not in answers
