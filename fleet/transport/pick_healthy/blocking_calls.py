"""RPC methods of a blocking channel with several connections: each call uses the one that is picked at its start."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import grpc

from fleet.transport.pick_healthy.blocking_connection import BlockingConnection


class _BlockingMethod:
    #: Name of the grpc.Channel method that creates this kind of RPC method.
    kind: ClassVar[str]

    def __init__(self, begin: Callable[[], BlockingConnection], *args: Any, **kwargs: Any) -> None:
        self._begin = begin
        self._args = args
        self._kwargs = kwargs

    def _wait(self, method_name: str, args: Any, kwargs: Any) -> Any:
        connection = self._begin()
        try:
            return getattr(self._method(connection), method_name)(*args, **kwargs)
        finally:
            connection.end()

    def _start(self, method_name: str, args: Any, kwargs: Any) -> Any:
        connection = self._begin()
        try:
            call = getattr(self._method(connection), method_name)(*args, **kwargs)
        except BaseException:
            connection.end()
            raise
        if not call.add_callback(connection.end):
            connection.end()
        return call

    def _method(self, connection: BlockingConnection) -> Any:
        return getattr(connection.channel, self.kind)(*self._args, **self._kwargs)


class _Unary(_BlockingMethod):
    """RPC method with a single response: wait for it, or get a future."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._wait("__call__", args, kwargs)

    def with_call(self, *args: Any, **kwargs: Any) -> Any:
        return self._wait("with_call", args, kwargs)

    def future(self, *args: Any, **kwargs: Any) -> Any:
        return self._start("future", args, kwargs)


class _Stream(_BlockingMethod):
    """RPC method with a stream of responses."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._start("__call__", args, kwargs)


class BlockingUnaryUnary(_Unary, grpc.UnaryUnaryMultiCallable):  # type: ignore[type-arg]
    """Single request, single response."""

    kind = "unary_unary"


class BlockingUnaryStream(_Stream, grpc.UnaryStreamMultiCallable):  # type: ignore[type-arg]
    """Single request, stream of responses."""

    kind = "unary_stream"


class BlockingStreamUnary(_Unary, grpc.StreamUnaryMultiCallable):  # type: ignore[type-arg]
    """Stream of requests, single response."""

    kind = "stream_unary"


class BlockingStreamStream(_Stream, grpc.StreamStreamMultiCallable):  # type: ignore[type-arg]
    """Streams in both directions."""

    kind = "stream_stream"
