from __future__ import annotations

from dashboards.clusters.source_words import describe_source
from fleet.source_plugins.nats import SOURCE as NATS
from fleet.source_plugins.teleport import SOURCE as TELEPORT
from fleet.vocabulary.capabilities import Capability


def test_a_teleport_cluster_and_its_role() -> None:
    """What the role does not allow is not called allowed; the versions are in their order."""
    missing_capabilities = {*Capability} - TELEPORT.capabilities | {Capability.AGENT_TO_AUTH}
    source_words = describe_source(
        TELEPORT, ["18.10.0", "", "18.9.1", "18.9.1"], ("refloat",), missing_capabilities
    )
    assert source_words.product == "Teleport 18.9.1 and 18.10.0"
    assert source_words.roles == ("refloat",)
    assert source_words.allowed_text.startswith("list of instances, list of agents, ")
    assert "auth of each agent" not in source_words.allowed_text
    assert "auth of each agent" in source_words.missing_text
    assert source_words.tested_with.startswith("Not tested with a real Teleport cluster")


def test_product_without_versions_and_roles() -> None:
    """A product that was tested itself needs no sentence about it; many versions are counted."""
    source_words = describe_source(NATS, [""], (), [Capability.POLICIES])
    assert (source_words.product, source_words.missing_text, source_words.tested_with) == (
        "NATS leaf nodes",
        "policies",
        "",
    )
    versions = [f"2.{number}.0" for number in range(12)]
    assert (
        describe_source(NATS, versions, (), []).product
        == "NATS leaf nodes 2.0.0, 2.1.0, 2.2.0 and 9 more versions"
    )
