"""Where evidence comes from: one module per source, listed in `registry`. docs/howto/add-an-evidence-source.md."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import aiohttp
import grpc
import grpc.aio

#: Codes by which gRPC says that nobody answered.
_UNANSWERED = frozenset(
    {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED}
)
_LONGEST = 200


class SourceFailed(Exception):
    """A question without an answer. `answered`: somebody was there, and refused or did not know the question."""

    def __init__(self, reason: str, *, answered: bool) -> None:
        super().__init__(reason)
        self.answered = answered


def failure(error: grpc.aio.AioRpcError) -> SourceFailed:
    """What gRPC's error means, with one line for a person."""
    code = error.code()
    name = code.name.lower().replace("_", " ")
    details = " ".join((error.details() or "").split())[:_LONGEST]
    # gRPC's own "Deadline Exceeded" says nothing that the code did not.
    says_more = details.lower() not in {"", name}
    return SourceFailed(f"{name}: {details}" if says_more else name, answered=code not in _UNANSWERED)


@contextmanager
def asking() -> Iterator[None]:
    """Turn the errors of gRPC and of HTTP into SourceFailed."""
    try:
        yield
    except grpc.aio.AioRpcError as error:
        raise failure(error) from error
    except TimeoutError as error:
        raise SourceFailed("no answer in time", answered=False) from error
    except (aiohttp.ClientError, OSError, UnicodeError) as error:  # the last of a name that is no host name
        raise SourceFailed(str(error) or type(error).__name__, answered=False) from error
