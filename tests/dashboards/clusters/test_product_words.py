from __future__ import annotations

from dashboards.clusters import product_words
from fleet.source_plugins.nats import SOURCE as NATS
from fleet.source_plugins.refloat import SOURCE as REFLOAT
from fleet.source_plugins.teleport import SOURCE as TELEPORT
from fleet.vocabulary.clusters import AddressKind


def test_words_of_a_product_without_auths() -> None:
    """Each hub lists only itself, so all of them must be entered."""
    assert product_words.address_kind_label_of(NATS.form) == "Find the hubs by"
    assert "Enter every hub" in product_words.address_help_of(NATS.form)
    examples = product_words.address_examples_of(NATS.form)
    assert examples.keys() == {kind.value for kind in AddressKind}
    assert examples["static"] == "hub-1.example.com:8222"
    assert "auth" not in str(examples)


def test_words_of_products_with_auths() -> None:
    """With the server name that an empty field means."""
    assert product_words.address_kind_label_of(REFLOAT.form) == "Find the first auths by"
    assert "One auth is enough" in product_words.address_help_of(REFLOAT.form)
    assert product_words.address_kind_label_of(TELEPORT.form) == "Find the auths by"
    assert "Enter at least two auths" in product_words.address_help_of(TELEPORT.form)
    assert "teleport.cluster.local" in product_words.server_name_help_of(TELEPORT.form)
    assert "their roles" in product_words.server_name_help_of(REFLOAT.form)
