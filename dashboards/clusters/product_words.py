"""Texts of a cluster's form that follow its product: labels, help texts and examples. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from fleet.source_plugins.declaration import AddressReach, SourceForm
from fleet.vocabulary.clusters import AddressKind


def address_kind_label_of(form: SourceForm) -> str:
    """Return the label of the choice of the kind of address."""
    first = "first " if form.address_reach is AddressReach.INSTANCES else ""
    return f"Find the {first}{form.address_noun}s by"


def address_help_of(form: SourceForm) -> str:
    """Return which addresses to enter."""
    noun = form.address_noun
    match form.address_reach:
        case AddressReach.INSTANCES:
            return f"One per line. One {noun} is enough: Refloat gets all others from its list."
        case AddressReach.LISTS:
            return (
                f"One per line. Enter at least two {noun}s: Refloat reads the lists of the cluster from one of them, "
                "and from the next if that one does not respond."
            )
        case AddressReach.ITSELF:
            return f"One per line. Enter every {noun}: Refloat shows only these."


def server_name_help_of(form: SourceForm) -> str:
    """Return what the server name is, and what an empty one means."""
    if form.default_server_name:
        return f"Expected in the certificates of {form.address_noun}s. Leave it empty for {form.default_server_name}."
    return (
        "Expected in the certificates of auths and proxies. Leave it empty for certificates with the names of their "
        "roles, which Refloat's own CA issues."
    )


def address_examples_of(form: SourceForm) -> Mapping[str, str]:
    """Return an entry of each kind of address, by the value of the kind."""
    noun, port = form.address_noun, form.default_port
    return {
        AddressKind.STATIC.value: f"{noun}-1.example.com:{port}",
        AddressKind.DNS.value: f"{noun}s.example.com:{port}",
        AddressKind.SRV.value: f"_refloat-{noun}._tcp.example.com",
        AddressKind.FILE_SD.value: f"/etc/refloat/{noun}s.json",
    }
