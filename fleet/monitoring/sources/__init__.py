"""Sources of evidence: one module each, listed in `registry`. docs/how-to/add-an-evidence-source.md."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import aiohttp
import grpc
import grpc.aio

#: gRPC status codes of calls that no server answered.
_UNREACHABLE_CODES = frozenset(
    {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED}
)
_MAX_DETAILS_LENGTH = 300
ResponseT = TypeVar("ResponseT")


class SourceError(Exception):
    """A request failed. `has_response`: the server responded, but refused or did not know the request."""

    def __init__(self, reason: str, *, has_response: bool) -> None:
        super().__init__(reason)
        self.has_response = has_response


def source_error_of(error: grpc.aio.AioRpcError | grpc.Call) -> SourceError:
    """Return the SourceError of a gRPC error, with one line for people."""
    code = error.code()
    name = code.name.lower().replace("_", " ")
    details = " ".join((error.details() or "").split())[:_MAX_DETAILS_LENGTH]
    # gRPC's own text "Deadline Exceeded" only repeats the code.
    has_details = details.lower() not in {"", name}
    return SourceError(
        f"{name}: {details}" if has_details else name, has_response=code not in _UNREACHABLE_CODES
    )


def require_parsed(response: ResponseT | None) -> ResponseT:
    """Return a response. Raises SourceError for None, which gRPC returns for bytes that are no such message."""
    if response is None:
        raise SourceError("the response cannot be parsed", has_response=True)
    return response


@contextmanager
def map_source_errors() -> Iterator[None]:
    """Convert errors of gRPC and HTTP to SourceError."""
    try:
        yield
    except grpc.aio.AioRpcError as error:
        raise source_error_of(error) from error
    except TimeoutError as error:
        raise SourceError("no response in time", has_response=False) from error
    except (aiohttp.ClientError, OSError, UnicodeError) as error:  # the last of a name that is no host name
        raise SourceError(str(error) or type(error).__name__, has_response=False) from error
