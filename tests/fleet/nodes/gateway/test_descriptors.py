"""Descriptor sets tell which methods are streams."""

from __future__ import annotations

from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from grpc_health.v1 import health_pb2

from fleet.nodes.gateway.descriptors import DescriptorsError, streams_of


def test_methods_with_a_stream_on_either_side(tmp_path: Path) -> None:
    """Of all services of all files; a file without a package has paths without one."""
    known = FileDescriptorProto()
    health_pb2.DESCRIPTOR.CopyToProto(known)
    other = FileDescriptorProto(name="other.proto")
    service = other.service.add(name="Upload")
    service.method.add(name="Put", client_streaming=True)
    service.method.add(name="Get")
    path = tmp_path / "set.binpb"
    path.write_bytes(FileDescriptorSet(file=[known, other]).SerializeToString())

    assert streams_of(path) == {"/grpc.health.v1.Health/Watch", "/Upload/Put"}


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "No such file"),
        (b"\xff", "is not a descriptor set"),
        (b"", "contains no services"),
    ],
)
def test_file_that_is_none(content: bytes | None, sentence: str, tmp_path: Path) -> None:
    """Said with its path."""
    path = tmp_path / "set.binpb"
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(DescriptorsError, match=f"{path}.* {sentence}"):
        streams_of(path)
