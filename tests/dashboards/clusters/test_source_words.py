from __future__ import annotations

from dashboards.clusters.source_words import describe_source
from fleet.source_plugins.nats import SOURCE as NATS
from fleet.source_plugins.teleport import SOURCE as TELEPORT
from fleet.vocabulary.capabilities import Capability


def test_a_teleport_cluster_and_its_role() -> None:
    """What the role does not allow is not called allowed; the versions are in their order."""
    missing = [*(item for item in Capability if item not in TELEPORT.capabilities), Capability.AGENT_TO_AUTH]
    words = describe_source(TELEPORT, ["18.10.0", "", "18.9.1", "18.9.1"], ("refloat",), missing)
    assert words.product == "Teleport 18.9.1 and 18.10.0"
    assert words.roles == ("refloat",)
    assert words.allowed.startswith("list of instances, list of agents, ")
    assert "auth of each agent" not in words.allowed
    assert "auth of each agent" in words.not_available
    assert words.tested_with.startswith("Not tested with a real Teleport cluster")


def test_product_without_versions_and_roles() -> None:
    """A product that was tested itself needs no sentence about it; many versions are counted."""
    words = describe_source(NATS, [""], (), [Capability.POLICIES])
    assert (words.product, words.not_available, words.tested_with) == ("NATS leaf nodes", "policies", "")
    versions = [f"2.{number}.0" for number in range(12)]
    assert (
        describe_source(NATS, versions, (), []).product
        == "NATS leaf nodes 2.0.0, 2.1.0, 2.2.0 and 9 more versions"
    )
