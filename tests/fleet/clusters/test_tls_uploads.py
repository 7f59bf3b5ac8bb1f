"""Uploaded TLS files: what is wrong with them, and what is told about them."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat
from pytest_django import Settings

from fleet.clusters.tls_uploads import describe_tls, find_upload_problems, read_upload_facts
from fleet.models.clusters import Cluster
from fleet.models.sealed_secrets import seal
from fleet.vocabulary.clusters import TLSSource
from tests.fleet.clusters.pem_files import PemFiles, create_pem_files


@pytest.fixture
def pem(tmp_path: Path) -> PemFiles:
    """Files of a CA."""
    return create_pem_files(tmp_path)


def test_files_that_belong_together(pem: PemFiles) -> None:
    """No problem: all three, only a CA, or only a certificate with its key."""
    pair = {"certificate": pem.certificate, "key": pem.key}
    assert find_upload_problems({"authority": pem.authority, **pair}) == {}
    assert find_upload_problems({"authority": pem.authority}) == {}
    assert find_upload_problems(pair) == {}


def test_files_that_cannot_be_used(pem: PemFiles) -> None:
    """A sentence at the file that must be replaced."""
    encrypted_key = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"x")
    )

    def problems_of(**contents: str) -> dict[str, str]:
        return find_upload_problems(contents)

    assert "another certificate" in problems_of(certificate=pem.certificate, key=pem.other_key)["key"]
    assert "belong together" in problems_of(certificate=pem.certificate)["key"]
    assert "belong together" in problems_of(key=pem.key)["certificate"]
    assert "is a private key" in problems_of(authority=pem.key)["authority"]
    assert "not a PEM certificate" in problems_of(authority="nonsense\ud800")["authority"]
    assert "is a certificate" in problems_of(certificate=pem.certificate, key=pem.certificate)["key"]
    assert "not a PEM private key" in problems_of(certificate=pem.certificate, key="nonsense")["key"]
    assert "encrypted" in problems_of(certificate=pem.certificate, key=encrypted_key.decode())["key"]


def test_description_of_uploads_has_owner_and_expiry_but_no_file(pem: PemFiles) -> None:
    """So that people know which certificate is stored, and when to replace it."""
    row = Cluster(
        tls_source=TLSSource.UPLOADED,
        tls_secrets=seal({"authority": pem.authority, "certificate": pem.certificate, "key": pem.key}),
    )
    text = describe_tls(row)
    assert text.startswith("CA certificate: uploaded, CN Refloat CA, expires 20")
    assert "Certificate of Refloat: uploaded, CN console, expires 20" in text
    assert text.endswith("Private key: uploaded")
    assert [facts.part for facts in read_upload_facts(row)] == ["authority", "certificate", "key"]
    assert "BEGIN" not in text + str(read_upload_facts(row))


def test_description_of_other_sources(settings: Settings) -> None:
    """Paths of files; and what to do when the secret key was changed."""
    row = Cluster(tls_source=TLSSource.UPLOADED, tls_secrets=seal({"authority": "x"}))
    settings.SECRET_KEY = "another"
    assert "Upload the files again" in describe_tls(row)
    assert describe_tls(Cluster(tls_source=TLSSource.NONE)) == "No TLS"
    row = Cluster(tls_source=TLSSource.FILES, tls_files={"authority": "/etc/refloat/ca.pem"})
    assert describe_tls(row) == "CA certificate: /etc/refloat/ca.pem"
