"""The field of diag addresses, and the marks of products that have them."""

from __future__ import annotations

import pytest
from django.core.exceptions import ValidationError

from dashboards.clusters.diag_address_field import (
    DiagAddressesField,
    EdgeInstancesField,
    SourceSelect,
    has_diag_addresses,
)


def test_lines_are_cleaned_to_addresses_by_instance() -> None:
    """Empty ones are left out; an empty field is no address."""
    field = DiagAddressesField()
    assert field.clean("auth-1 10.0.0.1:3000\r\n\r\n") == {"auth-1": "10.0.0.1:3000"}
    assert field.clean("") == {}


@pytest.mark.parametrize(
    ("lines", "part_of_sentence"),
    [
        ("auth-1", "'auth-1' is not an instance and an address"),
        ("proxy-1 a:1\nproxy-1 b:1", "'proxy-1' is entered twice"),
        ("a\x00b c:1", "Null characters"),
        ("x" * 250_001, "at most 250000 characters"),
    ],
)
def test_wrong_lines_are_named(lines: str, part_of_sentence: str) -> None:
    with pytest.raises(ValidationError) as error_info:
        DiagAddressesField().clean(lines)
    assert part_of_sentence in str(error_info.value)


def test_only_products_with_diag_addresses_are_marked() -> None:
    """The style sheet shows the field for these."""
    select = SourceSelect(choices=[("refloat", "Refloat"), ("teleport", "Teleport"), ("gone", "Gone")])
    html = select.render("source", "refloat")
    assert '<option value="teleport" data-has-diag-addresses>' in html
    assert html.count("data-has-diag-addresses") == 1
    assert not has_diag_addresses("gone")


def test_field_of_edge_instances_has_its_own_words() -> None:
    """Their flag is another one."""
    field = EdgeInstancesField()
    assert "--diag-listen" in field.help_text
    assert field.clean("edge-1 10.0.0.5:3000") == {"edge-1": "10.0.0.5:3000"}
