"""Streaming methods, read from descriptor sets as protoc and buf write them. docs/reference/gateway.md"""

from __future__ import annotations

from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.message import DecodeError


class DescriptorsError(ValueError):
    """The file is not a descriptor set with services."""


def streams_of(path: Path) -> frozenset[str]:
    """Return the paths of the methods with a streaming request or response. Raises DescriptorsError."""
    try:
        files = FileDescriptorSet.FromString(path.read_bytes()).file
    except OSError as error:
        raise DescriptorsError(f"cannot read {path}: {error.strerror or error}") from error
    except DecodeError as error:
        raise DescriptorsError(f"{path} is not a descriptor set") from error
    services = [(file.package, service) for file in files for service in file.service]
    if not services:
        raise DescriptorsError(f"{path} contains no services: write it with `protoc --descriptor_set_out`")
    return frozenset(
        f"/{package}{'.' if package else ''}{service.name}/{method.name}"
        for package, service in services
        for method in service.method
        if method.client_streaming or method.server_streaming
    )
