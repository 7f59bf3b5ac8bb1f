"""Values of clusters: one sentence for each field that is wrong."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fleet.clusters.cluster_values import (
    ClusterValues,
    find_form_problems,
    find_id_problem,
    find_problems,
    find_shared_addresses,
)
from fleet.models.clusters import Cluster
from fleet.source_plugins.declaration import SourceForm
from fleet.source_plugins.refloat import SOURCE
from fleet.vocabulary.clusters import AddressKind, TLSSource
from tests.fakes.identity_files import make_identity_file

_TELEPORT = {"source": "teleport"}


@pytest.mark.parametrize("cluster_id", ["eu", "eu-west-1", "1", "a" * 64])
def test_valid_ids(cluster_id: str) -> None:
    """Lowercase letters, digits and hyphens."""
    assert find_id_problem(cluster_id) == ""


@pytest.mark.parametrize("cluster_id", ["", "EU", "-eu", "eu_west", "eu/west", "eu\n", "a" * 65])
def test_invalid_ids(cluster_id: str) -> None:
    """The sentence says what to enter."""
    assert "such as eu-west" in find_id_problem(cluster_id)


@pytest.mark.parametrize("cluster_id", ["celery", "layer", "new"])
def test_reserved_ids(cluster_id: str) -> None:
    """Removing such a cluster would delete the Redis keys of Celery; `new` is a page."""
    assert "reserved" in find_id_problem(cluster_id)


@pytest.mark.parametrize(
    ("values", "field", "part_of_sentence"),
    [
        ({"name": " "}, "name", "Enter a name"),
        ({"name": "x" * 101}, "name", "at most 100"),
        ({"name": "a\0b"}, "name", "printable"),
        ({"source": "other"}, "source", "Use refloat"),
        ({"address_kind": "x"}, "address_kind", "Use static, dns, srv, file_sd"),
        ({"auths": ["auth-1"]}, "auths", "has no port"),
        ({"tls_source": "x"}, "tls_source", "Use settings, none, files, uploaded"),
        ({"tls_server_name": "a b"}, "tls_server_name", "not a host name"),
        ({"source": "teleport", "diag_addresses": {"a": "b"}}, "diag_addresses", "has no port"),
        ({"tls_source": "files"}, "tls_files.authority", "Enter the path"),
        ({"tls_source": "files", "tls_files": {"authority": "ca.pem"}}, "tls_files.authority", "absolute"),
        ({"tls_source": "files", "tls_files": {"key": "/k"}}, "tls_files.certificate", "belong together"),
        ({"tls_source": "files", "tls_files": {"ca": "/k"}}, "tls_files", "Use authority, certificate, key"),
        ({"tls_source": "uploaded"}, "tls_uploads.authority", "Upload the CA"),
        ({**_TELEPORT, "tls_source": "identity"}, "tls_files.identity", "Enter the path"),
        (
            {**_TELEPORT, "tls_source": "identity", "tls_files": {"identity": "id"}},
            "tls_files.identity",
            "absolute",
        ),
        ({**_TELEPORT, "tls_source": "identity_upload"}, "tls_uploads.identity", "Upload the identity file"),
        (
            {"tls_source": "identity", "tls_files": {"identity": "/id"}},
            "tls_source",
            "do not have this source",
        ),
    ],
)
def test_invalid_values(values: dict[str, Any], field: str, part_of_sentence: str) -> None:
    """One sentence, at its field."""
    problems = find_problems(ClusterValues(**{"name": "EU", **values}), {})
    assert list(problems) == [field]
    assert part_of_sentence in problems[field]


def test_valid_values() -> None:
    """Also a name or an IP address that the certificates have."""
    for name in ("", "auth.example.com", "10.0.0.1", "2001:db8::1"):
        values = ClusterValues("EU", auths=["auth-1:3025", "[::1]:3025"], tls_server_name=name)
        assert find_problems(values, {}) == {}


def test_fields_that_do_not_apply_to_a_source() -> None:
    """A kind of address, a source of TLS files and a server name that the product does not have."""
    form = SourceForm((AddressKind.STATIC,), (TLSSource.NONE,), has_server_name=False)
    source = replace(SOURCE, label="NATS", form=form)
    values = ClusterValues(
        "EU", address_kind="srv", tls_source="files", tls_server_name="a", diag_addresses={"a": "a:1"}
    )
    assert find_form_problems(source, values) == {
        "address_kind": "NATS clusters do not have this kind of address. Use static.",
        "tls_source": "NATS clusters do not have this source of TLS files. Use none.",
        "tls_server_name": "NATS clusters do not have a server name. Leave it empty.",
        "diag_addresses": "Refloat needs no diag addresses of NATS clusters. Leave them empty.",
    }
    assert find_form_problems(source, ClusterValues("EU", tls_source="none")) == {}


def test_upload_that_is_too_long() -> None:
    """It is not parsed."""
    values = ClusterValues("EU", tls_source="uploaded")
    assert find_problems(values, {"authority": "x" * 300_000}) == {
        "tls_uploads.authority": "The file has more than 256 KB."
    }


def test_shared_addresses() -> None:
    """The same auth, however it is written; entries of another kind are no addresses."""
    row = Cluster(auths=["Auth-1.example.:3025"])
    values = ClusterValues("EU", auths=["auth-2:3025", "auth-1.example:3025"])
    assert find_shared_addresses(values, row) == ["auth-1.example:3025"]
    assert find_shared_addresses(ClusterValues("EU", address_kind="dns", auths=values.auths), row) == []


def test_uploaded_identity_is_checked_when_it_is_uploaded() -> None:
    """A stored one that has expired since does not keep other values from being changed."""
    now = datetime.now(UTC)
    old_identity = make_identity_file(
        begins_at=now - timedelta(hours=2), ends_at=now - timedelta(hours=1)
    ).decode()
    values = ClusterValues("T", source="teleport", tls_source="identity_upload")
    assert find_problems(values, {"identity": old_identity}) == {}
    problems = find_problems(
        replace(values, tls_uploads={"identity": old_identity}), {"identity": old_identity}
    )
    assert "expired" in problems["tls_uploads.identity"]
    assert "Sign a new identity" in problems["tls_uploads.identity"]
    valid = make_identity_file(begins_at=now, ends_at=now + timedelta(hours=1)).decode()
    assert find_problems(replace(values, tls_uploads={"identity": valid}), {"identity": valid}) == {}
