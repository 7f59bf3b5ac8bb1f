from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from fleet.monitoring.sources import SourceError
from fleet.monitoring.sources.source import EvidenceSource, SourceContext
from fleet.transport.poll_connections import Connections
from tests.fakes.instances import FakeProxy
from tests.fakes.questions import question
from tests.meta.house import ROOT


async def _ask(_: SourceContext) -> int:
    return 1


async def _ask_elsewhere(_: SourceContext) -> int:
    return 2


def test_sources_of_one_name_are_the_same_evidence() -> None:
    """What uses an answer finds it also when another product is asked in another way."""
    answers = {EvidenceSource("tunnels", _ask_elsewhere, share=0.5): 2}
    assert answers[EvidenceSource("tunnels", _ask)] == 2
    assert EvidenceSource("health", _ask) not in answers


async def test_module_of_the_how_to_asks(tmp_path: Path, proxy: FakeProxy, connections: Connections) -> None:
    """The source that docs/how-to/add-an-evidence-source.md shows is one that works."""
    text = (ROOT / "docs/how-to/add-an-evidence-source.md").read_text()
    module = tmp_path / "build.py"
    module.write_text(re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)[0])
    source: EvidenceSource[str] = runpy.run_path(str(module))["BUILD"]
    assert source.applies_to(question(connections, proxy).target)
    with pytest.raises(SourceError, match="name no version"):
        await source.query(question(connections, proxy))
    proxy.metrics = '# TYPE x gauge\nteleport_build_info{gitref="",goversion="g",version="18.1.0"} 1.0\n'
    assert await source.query(question(connections, proxy)) == "18.1.0"
