from __future__ import annotations

from fleet.alerts.channels.registry import CHANNEL_KINDS
from fleet.alerts.setup.channels import MergedValues, default_digest_of, merge_values

_WEBHOOK = CHANNEL_KINDS["webhook"]
_STORED = {"url": "https://a.example.com/x", "signing_key": "k"}
_ORIGIN = "https://a.example.com:443"


def _merge(
    *, url: str = "", signing_key: str = "", can_allow_private: bool = False, is_key_removed: bool = False
) -> MergedValues:
    return merge_values(
        _WEBHOOK,
        {"url": url, "signing_key": signing_key},
        _STORED,
        _ORIGIN,
        allow_private=True,
        can_allow_private=can_allow_private,
        removed_keys=["signing_key"] if is_key_removed else [],
    )


def test_secrets_without_a_new_value_are_kept() -> None:
    """Also for another path of the same origin."""
    assert _merge() == MergedValues(_STORED, True, {})
    assert _merge(url="https://a.example.com/y").field_values["signing_key"] == "k"
    assert _merge(signing_key="new").field_values == _STORED | {"signing_key": "new"}


def test_another_origin_gets_no_stored_secret() -> None:
    """And no private addresses, unless the user may allow them."""
    new_values = _merge(url="https://b.example.com/")
    assert new_values.problems == {
        "signing_key": "The address changed: enter the signing key again, or remove it."
    }
    assert new_values.field_values["signing_key"] == ""
    new_values = _merge(url="https://b.example.com/", is_key_removed=True)
    assert new_values == MergedValues({"url": "https://b.example.com/", "signing_key": ""}, False, {})
    assert _merge(url="https://b.example.com/", can_allow_private=True).allow_private


def test_stored_secret_is_removed_on_purpose_only() -> None:
    """For the same address, too; a new value is kept."""
    assert _merge(is_key_removed=True).field_values == {"url": _STORED["url"], "signing_key": ""}
    assert _merge(signing_key="new", is_key_removed=True).field_values["signing_key"] == "new"


def test_required_and_invalid_values_are_problems() -> None:
    """By the key of the field."""
    new_values = merge_values(
        CHANNEL_KINDS["email"], {"to": ""}, {}, "", allow_private=False, can_allow_private=False
    )
    assert new_values.problems == {"to": "Enter the recipients."}
    assert list(_merge(url="file:///etc/passwd").problems) == ["url"]


def test_only_kinds_that_people_read_have_a_digest() -> None:
    """Others would open an alert that never resolves."""
    assert [default_digest_of(CHANNEL_KINDS[kind]) for kind in ("email", "pagerduty")] == ["weekly", ""]
