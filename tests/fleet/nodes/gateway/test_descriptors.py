"""Descriptor sets tell which methods are streams."""

from __future__ import annotations

from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from grpc_health.v1 import health_pb2

from fleet.nodes.gateway.descriptors import DescriptorsError, streams_of


def test_streaming_methods_of_all_files_are_listed(tmp_path: Path) -> None:
    """Methods with a stream in either direction are listed; a file without a package has paths without one."""
    health_file = FileDescriptorProto()
    health_pb2.DESCRIPTOR.CopyToProto(health_file)
    upload_file = FileDescriptorProto(name="other.proto")
    service = upload_file.service.add(name="Upload")
    service.method.add(name="Put", client_streaming=True)
    service.method.add(name="Get")
    path = tmp_path / "set.binpb"
    path.write_bytes(FileDescriptorSet(file=[health_file, upload_file]).SerializeToString())

    assert streams_of(path) == {"/grpc.health.v1.Health/Watch", "/Upload/Put"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "No such file"),
        (b"\xff", "is not a descriptor set"),
        (b"", "contains no services"),
    ],
)
def test_invalid_descriptor_file_is_named(content: bytes | None, message: str, tmp_path: Path) -> None:
    """The error has the path and the reason."""
    path = tmp_path / "set.binpb"
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(DescriptorsError, match=f"{path}.* {message}"):
        streams_of(path)
