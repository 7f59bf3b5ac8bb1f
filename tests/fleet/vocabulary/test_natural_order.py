from __future__ import annotations

from fleet.vocabulary.natural_order import natural_sort_key, version_sort_key


def test_names_are_ordered_as_people_count() -> None:
    """The second of ten comes before the tenth."""
    assert sorted(["proxy-10", "proxy-2", "proxy-1"], key=natural_sort_key) == [
        "proxy-1",
        "proxy-2",
        "proxy-10",
    ]


def test_name_of_thousands_of_digits_is_ordered() -> None:
    """Whatever an agent calls itself, the list has an order; zeros in front do not count."""
    names = ["a" + "9" * 5000, "a10", "a009", "a", "a0"]
    assert sorted(names, key=natural_sort_key) == ["a", "a0", "a009", "a10", names[0]]


def test_versions_are_ordered_by_every_number() -> None:
    """Zeros in front do not count, and no length is too long."""
    versions = ["", "18.9.1", "18.09.2", "18.10.0", "18.10.0-rc2", "18.10.0-rc10", "v2", "x" + "9" * 5000]
    assert sorted({*versions}, key=version_sort_key) == versions
