"""Values of a cluster as people enter them, and what is wrong with them: one sentence for each field."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from fleet.clusters.address_entries import add_default_port, check_entries, is_server_name, parse_address
from fleet.clusters.diag_addresses import EDGE_FORM, find_diag_address_problems
from fleet.clusters.tls_uploads import (
    IDENTITY_PART,
    MAX_PEM_LENGTH,
    TLS_PARTS,
    find_identity_problem,
    find_upload_problems,
)
from fleet.models.clusters import Cluster
from fleet.source_plugins.declaration import ClusterSource
from fleet.source_plugins.registry import DEFAULT_SOURCE, find_source, source_labels
from fleet.vocabulary.clusters import AddressKind, TLSSource

_MAX_ID_LENGTH = 64
_MAX_NAME_LENGTH = 100
_MAX_PATH_LENGTH = 1024
_ID = re.compile(r"[a-z0-9][a-z0-9-]*")
#: Ids that would be a page, or the Redis keys of Celery and Channels (dashboards/config/settings.py).
_RESERVED_IDS = frozenset({"celery", "layer", "new"})


@dataclass(frozen=True, slots=True)
class ClusterValues:
    """Values of a cluster; `fleet.models.clusters.Cluster` documents the fields."""

    name: str
    source: str = DEFAULT_SOURCE
    address_kind: str = AddressKind.STATIC.value
    auths: Sequence[str] = ()
    tls_source: str = TLSSource.SETTINGS.value
    #: Paths by `authority`, `certificate` and `key`; with an identity file by `identity`.
    tls_files: Mapping[str, str] = field(default_factory=dict)
    #: PEM by the same names. A part that is None or left out keeps the stored file, an empty one removes it.
    tls_uploads: Mapping[str, str | None] = field(default_factory=dict, repr=False)
    tls_server_name: str = ""
    #: host:port by name or id of the instance.
    diag_addresses: Mapping[str, str] = field(default_factory=dict)
    #: host:port of the diag ports of gateways and tunnel servers by name.
    edge_instances: Mapping[str, str] = field(default_factory=dict)
    production: bool = False
    review_required: bool = False


def values_of(row: Cluster) -> ClusterValues:
    """Return the values of a stored cluster, which keep its uploaded files."""
    return ClusterValues(
        name=row.name,
        source=row.source,
        address_kind=row.address_kind,
        auths=tuple(row.auths),
        tls_source=row.tls_source,
        tls_files=dict(row.tls_files),
        tls_server_name=row.tls_server_name,
        diag_addresses=dict(row.diag_addresses),
        edge_instances=dict(row.edge_instances),
        production=row.production,
        review_required=row.review_required,
    )


def find_id_problem(cluster_id: str) -> str:
    """Return why a cluster cannot have this id; empty if it can."""
    if not _ID.fullmatch(cluster_id) or len(cluster_id) > _MAX_ID_LENGTH:
        return (
            "Enter lowercase letters, digits and hyphens, with a letter or digit first: "
            f"at most {_MAX_ID_LENGTH} characters, such as eu-west."
        )
    if cluster_id in _RESERVED_IDS:
        return f"{cluster_id} is reserved. Choose another id."
    return ""


def find_problems(values: ClusterValues, upload_contents: Mapping[str, str]) -> dict[str, str]:
    """Return what is wrong with values, a sentence by field; for TLS files by `tls_files.key` and `tls_uploads.key`.

    `upload_contents`: the uploaded files as they would be stored.
    """
    problems: dict[str, str] = {}
    if not values.name.strip():
        problems["name"] = "Enter a name."
    elif len(values.name) > _MAX_NAME_LENGTH or not values.name.isprintable():
        problems["name"] = f"Enter a name of at most {_MAX_NAME_LENGTH} printable characters."
    source = find_source(values.source)
    if source is None:
        problems["source"] = f"{values.source[:50]!r} is not a source. Use {_list(source_labels())}."
    if values.address_kind not in set(AddressKind):
        problems["address_kind"] = (
            f"{values.address_kind[:50]!r} is not a kind of address. Use {_list(AddressKind)}."
        )
    elif entry_problems := check_entries(AddressKind(values.address_kind), values.auths):
        problems["auths"] = " ".join(entry_problems)
    if values.tls_server_name and not is_server_name(values.tls_server_name):
        problems["tls_server_name"] = (
            "This is not a host name or IP address. Enter a name that is in the certificates of the instances, "
            "such as auth.example.com."
        )
    if address_problems := find_diag_address_problems(values.diag_addresses):
        problems["diag_addresses"] = " ".join(address_problems)
    if edge_problems := find_diag_address_problems(values.edge_instances, EDGE_FORM):
        problems["edge_instances"] = " ".join(edge_problems)
    if values.tls_source not in set(TLSSource):
        problems["tls_source"] = (
            f"{values.tls_source[:50]!r} is not a source of TLS files. Use {_list(TLSSource)}."
        )
    elif values.tls_source == TLSSource.FILES:
        problems |= _find_path_problems(values.tls_files)
    elif values.tls_source == TLSSource.UPLOADED:
        problems |= _find_upload_problems(upload_contents)
    elif values.tls_source == TLSSource.IDENTITY:
        problems |= _find_identity_path_problems(values.tls_files)
    elif values.tls_source == TLSSource.IDENTITY_UPLOADED:
        problems |= _find_identity_upload_problems(values, upload_contents)
    return problems if source is None else find_form_problems(source, values) | problems


def find_form_problems(source: ClusterSource, values: ClusterValues) -> dict[str, str]:
    """Return the fields that do not apply to a source."""
    form, problems = source.form, dict[str, str]()
    if values.address_kind not in set(form.address_kinds):
        problems["address_kind"] = (
            f"{source.label} clusters do not have this kind of address. Use {_list(form.address_kinds)}."
        )
    if values.tls_source not in set(form.tls_sources):
        problems["tls_source"] = (
            f"{source.label} clusters do not have this source of TLS files. Use {_list(form.tls_sources)}."
        )
    if values.tls_server_name and not form.has_server_name:
        problems["tls_server_name"] = f"{source.label} clusters do not have a server name. Leave it empty."
    if values.diag_addresses and not form.has_diag_addresses:
        problems["diag_addresses"] = (
            f"Refloat needs no diag addresses of {source.label} clusters. Leave them empty."
        )
    return problems


def complete_addresses(values: ClusterValues) -> ClusterValues:
    """Return the values with the port of the product in addresses that have none."""
    source = find_source(values.source)
    if source is None or values.address_kind not in set(AddressKind):
        return values
    kind, port = AddressKind(values.address_kind), source.form.default_port
    return replace(values, auths=tuple(add_default_port(kind, entry, port) for entry in values.auths))


def find_shared_addresses(values: ClusterValues, other_row: Cluster) -> list[str]:
    """Return the entries that another cluster has too: two clusters with one auth are one fleet that counts twice."""
    if values.address_kind != other_row.address_kind:
        return []
    other_entries = {_normalize(values.address_kind, entry) for entry in other_row.auths}
    return [entry for entry in values.auths if _normalize(values.address_kind, entry) in other_entries]


def _normalize(kind: str, entry: str) -> str:
    if kind in {AddressKind.STATIC, AddressKind.DNS}:
        try:
            address = parse_address(entry)
        except ValueError:
            return entry
        return f"{address.host.lower().removesuffix('.')}:{address.port}"
    return entry.lower().removesuffix(".") if kind == AddressKind.SRV else entry


def _find_path_problems(paths: Mapping[str, str]) -> dict[str, str]:
    problems = _find_unknown_parts("tls_files", paths, TLS_PARTS)
    for part, path in paths.items():
        if path and not _is_absolute_path(path):
            problems[f"tls_files.{part}"] = "Enter an absolute path, such as /etc/refloat/ca.pem."
    if not any(paths.values()):
        problems["tls_files.authority"] = (
            "Enter the path of the CA certificate, or turn TLS off for this cluster."
        )
    elif bool(paths.get("certificate")) != bool(paths.get("key")):
        missing_part = "key" if paths.get("certificate") else "certificate"
        problems.setdefault(
            f"tls_files.{missing_part}",
            "A certificate and its private key belong together. Enter both paths, or neither.",
        )
    return problems


def _find_upload_problems(contents: Mapping[str, str]) -> dict[str, str]:
    problems = _find_unknown_parts("tls_uploads", contents, TLS_PARTS)
    too_long = [part for part, pem in contents.items() if len(pem) > MAX_PEM_LENGTH]
    if not any(contents.values()):
        problems["tls_uploads.authority"] = "Upload the CA certificate, or turn TLS off for this cluster."
    if too_long:
        return problems | {
            f"tls_uploads.{part}": f"The file has more than {MAX_PEM_LENGTH // 1024} KB." for part in too_long
        }
    return problems | {
        f"tls_uploads.{part}": sentence for part, sentence in find_upload_problems(contents).items()
    }


def _find_identity_path_problems(paths: Mapping[str, str]) -> dict[str, str]:
    path = paths.get(IDENTITY_PART, "")
    problems = _find_unknown_parts("tls_files", paths, (IDENTITY_PART,))
    if not path:
        problems.setdefault("tls_files.identity", "Enter the path of the identity file.")
    elif not _is_absolute_path(path):
        problems["tls_files.identity"] = "Enter an absolute path, such as /etc/refloat/identity."
    return problems


def _find_identity_upload_problems(values: ClusterValues, contents: Mapping[str, str]) -> dict[str, str]:
    """Return what is wrong with an uploaded identity file. A stored one may have expired since it was uploaded."""
    problems = _find_unknown_parts("tls_uploads", values.tls_uploads, (IDENTITY_PART,))
    pem, is_new = contents.get(IDENTITY_PART, ""), bool(values.tls_uploads.get(IDENTITY_PART))
    if not pem:
        problems.setdefault("tls_uploads.identity", "Upload the identity file.")
    elif len(pem) > MAX_PEM_LENGTH:
        problems["tls_uploads.identity"] = f"The file has more than {MAX_PEM_LENGTH // 1024} KB."
    elif is_new and (sentence := find_identity_problem(pem, datetime.now(UTC))):
        problems["tls_uploads.identity"] = sentence
    return problems


def _is_absolute_path(path: str) -> bool:
    return path.startswith("/") and len(path) <= _MAX_PATH_LENGTH and path.isprintable()


def _find_unknown_parts(name: str, parts: Iterable[str], known_parts: Iterable[str]) -> dict[str, str]:
    unknown_parts = sorted(set(parts) - set(known_parts))
    if not unknown_parts:
        return {}
    return {name: f"{unknown_parts[0][:50]!r} is not a TLS file. Use {_list(known_parts)}."}


def _list(names: Iterable[str]) -> str:
    return ", ".join(map(str, names))
