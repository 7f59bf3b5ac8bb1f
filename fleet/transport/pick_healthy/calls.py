"""RPC methods of a channel with several connections: each call uses the one that is picked at its start."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import grpc.aio
from typing_extensions import override

from fleet.transport.pick_healthy.connection import AioConnection


class _AioMethod:
    #: Name of the grpc.aio.Channel method that creates this kind of RPC method.
    kind: ClassVar[str]

    def __init__(self, pick: Callable[[], AioConnection], *args: Any, **kwargs: Any) -> None:
        self._pick = pick
        self._method_args = args
        self._method_kwargs = kwargs
        # Method of the last picked connection: stubs are created once, since moves are rare.
        self._connection: AioConnection | None = None
        self._method: Callable[..., Any] | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        connection = self._pick()
        if self._method is None or connection is not self._connection:
            self._connection = connection
            self._method = getattr(connection.channel, self.kind)(*self._method_args, **self._method_kwargs)
        call = self._method(*args, **kwargs)
        connection.calls.add(call)
        return call


class UnaryUnary(_AioMethod, grpc.aio.UnaryUnaryMultiCallable[Any, Any]):
    """Single request, single response."""

    kind = "unary_unary"

    @override
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return super().__call__(*args, **kwargs)


class UnaryStream(_AioMethod, grpc.aio.UnaryStreamMultiCallable[Any, Any]):
    """Single request, stream of responses."""

    kind = "unary_stream"

    @override
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return super().__call__(*args, **kwargs)


class StreamUnary(_AioMethod, grpc.aio.StreamUnaryMultiCallable[Any, Any]):
    """Stream of requests, single response."""

    kind = "stream_unary"

    @override
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return super().__call__(*args, **kwargs)


class StreamStream(_AioMethod, grpc.aio.StreamStreamMultiCallable[Any, Any]):
    """Streams in both directions."""

    kind = "stream_stream"

    @override
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return super().__call__(*args, **kwargs)
