"""RPC methods of a blocking channel with several connections: each call uses the one that is picked at its start."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import grpc

from fleet.transport.pick_healthy.blocking_connection import BlockingConnection


class _BlockingMethod:
    #: Name of the grpc.Channel method that creates this kind of RPC method.
    kind: ClassVar[str]

    def __init__(self, pick: Callable[[], BlockingConnection], *args: Any, **kwargs: Any) -> None:
        self._pick = pick
        self._method_args = args
        self._method_kwargs = kwargs

    def _call_and_wait(self, method_name: str, args: Any, kwargs: Any) -> Any:
        connection = self._pick()
        try:
            return getattr(self._method(connection), method_name)(*args, **kwargs)
        finally:
            connection.end_rpc()

    def _start_call(self, method_name: str, args: Any, kwargs: Any) -> Any:
        connection = self._pick()
        try:
            call = getattr(self._method(connection), method_name)(*args, **kwargs)
        except BaseException:
            connection.end_rpc()
            raise
        if not call.add_callback(connection.end_rpc):
            connection.end_rpc()
        return call

    def _method(self, connection: BlockingConnection) -> Any:
        return getattr(connection.channel, self.kind)(*self._method_args, **self._method_kwargs)


class _Unary(_BlockingMethod):
    """RPC method with a single response: wait for it, or get a future."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call_and_wait("__call__", args, kwargs)

    def with_call(self, *args: Any, **kwargs: Any) -> Any:
        return self._call_and_wait("with_call", args, kwargs)

    def future(self, *args: Any, **kwargs: Any) -> Any:
        return self._start_call("future", args, kwargs)


class _Stream(_BlockingMethod):
    """RPC method with a stream of responses."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._start_call("__call__", args, kwargs)


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
