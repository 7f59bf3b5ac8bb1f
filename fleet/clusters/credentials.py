"""The CA, certificate and key that Refloat uses for a cluster: of the settings, in files, or uploaded.

For processes that connect to instances. Uploaded files are decrypted here, into memory.
"""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from fleet.models.clusters import Cluster, read_tls_settings
from fleet.models.sealed_secrets import UnsealError, unseal
from fleet.source_plugins.registry import find_source
from fleet.transport.tls import TLSError, TLSFiles, check_files
from fleet.vocabulary.clusters import TLSSource

#: Names in `Cluster.tls_files` and `Cluster.tls_secrets`.
TLS_PARTS = ("authority", "certificate", "key")
#: The same for an identity file of Teleport, which is all of them.
_IDENTITY_PART = "identity"


def tls_files_of(cluster: Cluster) -> TLSFiles | None:
    """Return the TLS files of a cluster; None without TLS.

    Files that cannot be used raise TLSError when a connection is opened, so that the cluster is never connected to
    without TLS, and other clusters are not affected. Uploaded files exist as long as the result does.
    """
    match TLSSource(cluster.tls_source):
        case TLSSource.NONE:
            return None
        case TLSSource.SETTINGS:
            settings_paths, server_name = read_tls_settings()
            if not settings_paths:
                return None
            return _combine(_to_paths(settings_paths), _server_name_of(cluster, server_name))
        case TLSSource.FILES | TLSSource.IDENTITY:
            return _combine(_to_paths(cluster.tls_files), _server_name_of(cluster))
        case TLSSource.UPLOADED | TLSSource.IDENTITY_UPLOADED:
            return _uploaded_files_of(cluster)


def _server_name_of(cluster: Cluster, settings_name: str = "") -> str:
    """Return the expected name of the cluster, of the settings, or of the product; empty: that of the role."""
    source = find_source(cluster.source)
    default_name = "" if source is None else source.form.default_server_name
    return cluster.tls_server_name or settings_name or default_name


def _to_paths(paths: Mapping[str, str]) -> dict[str, Path]:
    return {part: Path(path) for part, path in paths.items() if path}


def _combine(paths: Mapping[str, Path], server_name: str, problem: str = "") -> TLSFiles:
    if identity := paths.get(_IDENTITY_PART):
        paths = dict.fromkeys(TLS_PARTS, identity)
    authority, certificate, key = (paths.get(part) for part in TLS_PARTS)
    if not paths:
        problem = problem or "this cluster has no TLS files: set its CA, or turn TLS off for it"
    elif (certificate is None) != (key is None):
        problem = "this cluster has only one of certificate and key: set both, or neither"
    return TLSFiles(certificate, key, authority, server_name, problem=problem)


def _uploaded_files_of(cluster: Cluster) -> TLSFiles:
    files = _uploads.get(cluster.tls_secrets)
    if files is None:
        try:
            files = _UploadedFiles(unseal(cluster.tls_secrets))
        except UnsealError:
            return TLSFiles(
                problem="the uploaded TLS files were encrypted with another REFLOAT_SECRET_KEY: upload them again"
            )
        _uploads[cluster.tls_secrets] = files
    return replace(_combine(files.paths, _server_name_of(cluster), files.problem), content=files)


class _UploadedFiles:
    """Files that only this process can open by their paths; they end with this object."""

    def __init__(self, contents: Mapping[str, str]) -> None:
        """Create a file for each part with content."""
        self._folder: Path | None = None
        self.paths = {
            part: self._create_file(part, contents[part])
            for part in (*TLS_PARTS, _IDENTITY_PART)
            if contents.get(part)
        }
        self.problem = self._find_problem()

    def _create_file(self, part: str, content: str) -> Path:
        if hasattr(os, "memfd_create"):
            descriptor = os.memfd_create(f"refloat-{part}")
            weakref.finalize(self, os.close, descriptor)
            os.write(descriptor, content.encode())
            return Path(f"/proc/self/fd/{descriptor}")
        # Only Linux has files in memory.
        if self._folder is None:
            folder = tempfile.TemporaryDirectory(prefix="refloat-tls-")
            weakref.finalize(self, folder.cleanup)
            self._folder = Path(folder.name)
        path = self._folder / part
        path.write_text(content)
        return path

    def _find_problem(self) -> str:
        """Return why the files cannot be used, without the paths, which tell people nothing."""
        try:
            check_files(_combine(self.paths, ""))
        except TLSError as error:
            text = str(error)
            for path in sorted(map(str, self.paths.values()), key=len, reverse=True):
                text = text.replace(path, "(uploaded)")
            return text
        return ""


#: Uploaded files in use in this process, by their sealed content.
_uploads: weakref.WeakValueDictionary[str, _UploadedFiles] = weakref.WeakValueDictionary()
