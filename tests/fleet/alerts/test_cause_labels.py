from __future__ import annotations

import pytest

from fleet.alerts.cause_labels import describe_cause_key, format_named_matchers, name_causes, read_cause_names
from fleet.alerts.matchers import format_matchers, parse_matchers
from fleet.models.clusters import Cluster, ensure_default_cluster
from fleet.models.incidents import Incident
from fleet.models.inventory import Instance

pytestmark = pytest.mark.django_db


def _make_rows() -> None:
    Instance.objects.create(
        cluster=ensure_default_cluster(), instance_id="90569a4c", kind="auth", name="auth 1", position=0
    )
    other_cluster = Cluster.objects.create(id="other", name="other")
    Instance.objects.create(cluster=other_cluster, instance_id="77", kind="proxy", name="foreign", position=0)
    Incident.objects.create(
        cluster=ensure_default_cluster(), key="region/eu", cause_kind="region", cause_id="eu", cause_name="region eu",
        generation=1, state="firing", severity=2, opened_at=1.0,
    )  # fmt: skip


def test_keys_of_causes_are_named() -> None:
    """By their instance or incident; what is not known, other fields and other clusters stay."""
    _make_rows()
    matchers = parse_matchers("cause=auth/90569a4c|region/eu|proxy-2|proxy/77 kind=auth")
    names = read_cause_names([matchers], "default")
    assert names == {"auth/90569a4c": "auth 1", "region/eu": "region eu"}
    assert (
        format_matchers(name_causes(matchers, names)) == "cause='auth 1|region eu|proxy-2|proxy/77' kind=auth"
    )
    assert format_named_matchers(parse_matchers("cause=auth/90569a4c"), "default") == "cause='auth 1'"
    assert format_named_matchers((), "default") == "everything"


def test_names_without_keys_need_no_query(django_assert_num_queries: pytest.FixtureRequest) -> None:
    """A list of silences with names reads no instances."""
    with django_assert_num_queries(0):  # type: ignore[operator] # a fixture that is called
        assert read_cause_names([parse_matchers("cause=proxy-1 severity=critical")], "default") == {}


def test_label_of_a_cause_has_its_kind() -> None:
    """As incidents show it."""
    assert describe_cause_key("proxy/1", "web-1") == "proxy web-1"
    assert describe_cause_key("region/eu", "region eu") == "region eu"
    assert describe_cause_key("unknown/1", "thing") == "thing"
