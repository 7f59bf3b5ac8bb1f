from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from fleet.monitoring.sources import SourceError
from fleet.monitoring.sources.source import EvidenceSource, SourceContext
from fleet.transport.poll_connections import Connections
from tests.fakes.instances import FakeProxy
from tests.fakes.source_contexts import make_source_context
from tests.meta.house import ROOT


async def _query(_: SourceContext) -> int:
    return 1


async def _query_differently(_: SourceContext) -> int:
    return 2


def test_sources_are_equal_by_name() -> None:
    """Also if their queries differ."""
    responses = {EvidenceSource("tunnels", _query_differently, time_share=0.5): 2}
    assert responses[EvidenceSource("tunnels", _query)] == 2
    assert EvidenceSource("health", _query) not in responses


async def test_module_of_the_how_to_queries_instances(
    tmp_path: Path, proxy: FakeProxy, connections: Connections
) -> None:
    """The source in docs/how-to/add-an-evidence-source.md works."""
    text = (ROOT / "docs/how-to/add-an-evidence-source.md").read_text()
    module = tmp_path / "build.py"
    module.write_text(re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)[0])
    source: EvidenceSource[str] = runpy.run_path(str(module))["BUILD"]
    assert source.applies_to(make_source_context(connections, proxy).target)
    with pytest.raises(SourceError, match="name no version"):
        await source.query(make_source_context(connections, proxy))
    proxy.metrics = '# TYPE x gauge\nteleport_build_info{gitref="",goversion="g",version="18.1.0"} 1.0\n'
    assert await source.query(make_source_context(connections, proxy)) == "18.1.0"
