"""Where evidence comes from: one module per source, listed in `registry`. docs/howto/add-an-evidence-source.md."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import aiohttp
import grpc
import grpc.aio

#: Codes by which gRPC says that nobody answered.
_UNREACHABLE_CODES = frozenset(
    {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED}
)
_MAX_DETAILS_LENGTH = 200


class SourceError(Exception):
    """A question without an answer. `answered`: somebody was there, and refused or did not know the question."""

    def __init__(self, reason: str, *, has_response: bool) -> None:
        super().__init__(reason)
        self.has_response = has_response


def source_error_of(error: grpc.aio.AioRpcError) -> SourceError:
    """What gRPC's error means, with one line for a person."""
    code = error.code()
    name = code.name.lower().replace("_", " ")
    details = " ".join((error.details() or "").split())[:_MAX_DETAILS_LENGTH]
    # gRPC's own "Deadline Exceeded" says nothing that the code did not.
    has_details = details.lower() not in {"", name}
    return SourceError(f"{name}: {details}" if has_details else name, has_response=code not in _UNREACHABLE_CODES)


@contextmanager
def map_source_errors() -> Iterator[None]:
    """Turn the errors of gRPC and of HTTP into SourceError."""
    try:
        yield
    except grpc.aio.AioRpcError as error:
        raise source_error_of(error) from error
    except TimeoutError as error:
        raise SourceError("no answer in time", has_response=False) from error
    except (aiohttp.ClientError, OSError, UnicodeError) as error:  # the last of a name that is no host name
        raise SourceError(str(error) or type(error).__name__, has_response=False) from error
