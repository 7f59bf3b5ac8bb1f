"""Where the console finds the auths of a cluster, and where the TLS files for it come from. No I/O."""

from __future__ import annotations

from fleet.vocabulary.enum_types import LabelledEnum

#: Name in the certificates of all auths of Teleport, whatever address is dialled (api/constants, `APIDomain`).
TELEPORT_SERVER_NAME = "teleport.cluster.local"


class AddressKind(LabelledEnum):
    """How the addresses of the first auths are found; `Cluster.auths` has the entries."""

    STATIC = "static", "Addresses"
    DNS = "dns", "DNS name with several addresses (A, AAAA)"
    SRV = "srv", "DNS SRV record"
    FILE_SD = "file_sd", "Prometheus file_sd file"


class TLSSource(LabelledEnum):
    """Where the CA, the certificate and the key for a cluster come from."""

    SETTINGS = "settings", "The settings of this console (REFLOAT_TLS_…)"
    NONE = "none", "No TLS"
    FILES = "files", "Files on the machines of the workers"
    UPLOADED = "uploaded", "Uploaded files, encrypted in the database"
    #: One file of Teleport that has CA, certificate and key.
    IDENTITY = "identity", "Identity file on the machines of the workers"
    IDENTITY_UPLOADED = "identity_upload", "Uploaded identity file, encrypted in the database"


#: Sources whose files are in the database, and sources whose files are at paths.
UPLOAD_SOURCES = frozenset({TLSSource.UPLOADED, TLSSource.IDENTITY_UPLOADED})
PATH_SOURCES = frozenset({TLSSource.FILES, TLSSource.IDENTITY})
#: Sources of products without identity files.
COMMON_TLS_SOURCES = (TLSSource.SETTINGS, TLSSource.NONE, TLSSource.FILES, TLSSource.UPLOADED)
