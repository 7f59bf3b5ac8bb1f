"""Which methods are streams, by descriptor sets as protoc and buf write them. docs/gateway.md"""

from __future__ import annotations

from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.message import DecodeError


class DescriptorsError(ValueError):
    """A file that is no descriptor set of services, with a sentence."""


def streams_of(path: Path) -> frozenset[str]:
    """The paths of the methods of which either side is a stream. Raises DescriptorsError."""
    try:
        files = FileDescriptorSet.FromString(path.read_bytes()).file
    except OSError as error:
        raise DescriptorsError(f"{path} cannot be read: {error.strerror or error}") from error
    except DecodeError as error:
        raise DescriptorsError(f"{path} is not a descriptor set") from error
    services = [(file.package, service) for file in files for service in file.service]
    if not services:
        raise DescriptorsError(f"{path} has no services: write it with `protoc --descriptor_set_out`")
    return frozenset(
        f"/{package}{'.' if package else ''}{service.name}/{method.name}"
        for package, service in services
        for method in service.method
        if method.client_streaming or method.server_streaming
    )
