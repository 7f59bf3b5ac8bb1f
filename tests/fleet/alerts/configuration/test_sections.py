from __future__ import annotations

from dataclasses import fields

from fleet.alerts.channels.registry import CHANNEL_KINDS
from fleet.alerts.configuration.sections import NAME_FIELDS, Section, Setting, fields_of, number_keys
from fleet.alerts.rules import Rule


def test_fields_of_a_kind_do_not_hide_those_of_all_channels() -> None:
    """Each kind has its own, secret ones among them."""
    common_names = {*fields_of(Section.CHANNELS), *(spec.name for spec in NAME_FIELDS)}
    for slug, kind in CHANNEL_KINDS.items():
        keys = {field.key for field in kind.fields}
        assert not keys & common_names
        assert set(fields_of(Section.CHANNELS, slug)) == common_names - {"name", "cluster"} | keys


def test_rules_have_a_field_for_each_value() -> None:
    """A new value of rules must be in exports, too."""
    assert len(fields_of(Section.RULES)) + len(NAME_FIELDS) == len(fields(Rule))


def test_siblings_of_one_name_have_numbers() -> None:
    """Names are the same only within a cluster."""
    keys = number_keys([("", "a"), ("eu", "a"), ("", "a")], (("", "root", 0),))
    assert [key[-1] for key in keys] == [("", "a", 0), ("eu", "a", 0), ("", "a", 1)]
    setting = Setting(Section.ROUTES, keys[1], {})
    assert (setting.cluster, setting.name, setting.label) == ("eu", "a", "root > a")
