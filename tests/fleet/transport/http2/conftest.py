"""Both ends of a connection, after the SETTINGS of their peers."""

from __future__ import annotations

import pytest

from tests.fakes.http2_ends import End


@pytest.fixture
async def server() -> End:
    end = End(server=True)
    end.settle()
    return end


@pytest.fixture
async def client() -> End:
    end = End(server=False)
    end.settle()
    return end
