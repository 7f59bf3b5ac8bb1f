"""Atomic batches of writes with guards: compare-and-set in Lua."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from redis import Redis

from fleet.monitoring.state.connect import map_redis_errors

#: ARGV: number of guards, then (kind, key, field, expected) each; then (command, number of arguments, arguments...).
#: Returns 0 when applied, otherwise the number of the guard that failed.
#: `PAD key row count` appends `row` until there are `count`.
#: `GROW key bytes` and `PAD` append by setting the whole value: APPEND would allocate up to 1 MB more per key.
#: `ROWS key base size indices rows` writes rows in place; one call for thousands of SETRANGE is 10 times cheaper.
_SCRIPT = """
local at = 2
for guard = 1, tonumber(ARGV[1]) do
  local kind, key, field, expected = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
  local found
  if kind == 'GET' then found = redis.call('GET', key) or ''
  elseif kind == 'HGET' then found = redis.call('HGET', key, field) or ''
  else found = tostring(redis.call('STRLEN', key)) end
  if found ~= expected then return guard end
  at = at + 4
end
while at <= #ARGV do
  local command, count = ARGV[at], tonumber(ARGV[at + 1])
  if command == 'ROWS' then
    local key, base, size = ARGV[at + 2], tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4])
    local indices, rows = ARGV[at + 5], ARGV[at + 6]
    local width = #rows / (#indices / 4)
    for row = 0, #indices / 4 - 1 do
      local index = struct.unpack('<I4', indices, row * 4 + 1)
      redis.call('SETRANGE', key, base + index * size, string.sub(rows, row * width + 1, (row + 1) * width))
    end
  elseif command == 'PAD' then
    local key, row, count = ARGV[at + 2], ARGV[at + 3], tonumber(ARGV[at + 4])
    local missing = count - redis.call('STRLEN', key) / #row
    if missing > 0 then redis.call('SET', key, (redis.call('GET', key) or '') .. string.rep(row, missing)) end
  elseif command == 'GROW' then
    redis.call('SET', ARGV[at + 2], (redis.call('GET', ARGV[at + 2]) or '') .. ARGV[at + 3])
  else
    redis.call(command, unpack(ARGV, at + 2, at + 1 + count))
  end
  at = at + 2 + count
end
return 0
"""

Argument = str | bytes | int


class Batch:
    """Guards and writes that are applied together or not at all."""

    def __init__(self, redis: Redis) -> None:
        self.redis = redis
        self._guards: list[Argument] = []
        self._guard_count = 0
        self._writes: list[Argument] = []

    def guard_value(self, key: str, expected: str | bytes) -> None:
        """Add a guard: the string at `key` is `expected`; empty: the key does not exist."""
        self._guards += ["GET", key, "", expected]
        self._guard_count += 1

    def guard_field(self, key: str, field: str, expected: str | bytes) -> None:
        """Add a guard: the field of the hash is `expected`; empty: the field does not exist."""
        self._guards += ["HGET", key, field, expected]
        self._guard_count += 1

    def guard_length(self, key: str, expected: int) -> None:
        """Add a guard: the string at `key` has `expected` bytes."""
        self._guards += ["STRLEN", key, "", str(expected)]
        self._guard_count += 1

    def add_command(self, command: str, *arguments: Argument) -> None:
        """Add a write with any Redis command."""
        self._writes += [command, len(arguments), *arguments]

    def append(self, key: str, tail: bytes) -> None:
        """Add a write that appends `tail` to the string at `key`."""
        self.add_command("GROW", key, tail)

    def write_rows(
        self, key: str, base: int, size: int, indices: npt.NDArray[np.uint32], rows: bytes
    ) -> None:
        """Add a write of `rows` in place; each begins at `base` + its index * `size` bytes."""
        if len(indices):
            self.add_command("ROWS", key, base, size, indices.astype("<u4").tobytes(), rows)

    def pad(self, key: str, row: bytes, count: int) -> None:
        """Add a write that appends `row` until there are `count` rows: SETRANGE would fill the gap with zeros."""
        self.add_command("PAD", key, row, count)

    @property
    def is_empty(self) -> bool:
        """Return whether the batch has no write."""
        return not self._writes

    def run(self) -> int:
        """Apply the batch. Returns 0, or the number of the first guard that failed. Raises StateUnavailableError."""
        script = self.redis.register_script(_SCRIPT)
        with map_redis_errors():
            return int(script(keys=[], args=[self._guard_count, *self._guards, *self._writes]))
