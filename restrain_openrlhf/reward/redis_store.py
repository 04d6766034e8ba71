"""The store shared by several replicas: one key per prompt in Redis, changed by compare-and-set in Lua."""

import secrets
from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import redis.asyncio as redis
from redis.exceptions import RedisError

from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.reward.seats import Moment, PromptState
from restrain_openrlhf.reward.store import Change, StoreError

PREFIX = "restrain:v1:"
BEATS = PREFIX + "beats"
DONE = PREFIX + "done"
VERSION_LENGTH = 16
CONNECTIONS = 32
# What shows that this replica lives does not queue behind a burst of changes.
SIGN_CONNECTIONS = 4
# Redis answers in time, and its reply waits for the main loop's turn: under load that alone takes seconds.
SILENCE_SECONDS = 30.0
CONNECT_SECONDS = 10.0

# One clock for all replicas: the server's. Beats older than ten minutes are forgotten.
READ = """
local time = redis.call('TIME')
local beats = redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')
local values = {}
for index = 2, #KEYS do values[index - 1] = redis.call('GET', KEYS[index]) end
return {time, beats, values}
"""
# Set only if nobody changed the value since it was read; its first 16 characters are its version.
WRITE = """
local value = redis.call('GET', KEYS[1])
local version = value and string.sub(value, 1, 16) or ''
if version ~= ARGV[1] then return 0 end
if ARGV[2] == '' then redis.call('DEL', KEYS[1]) else redis.call('SET', KEYS[1], ARGV[2], 'EX', ARGV[3]) end
return 1
"""
BEAT = """
local time = redis.call('TIME')
local now = time[1] + time[2] / 1000000
redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - 600)
return 1
"""


@dataclass
class RedisStore:
    """A redis:// or rediss:// server. States expire `keep` seconds after their last change.

    `client` is for the states, `signs` for what replicas tell each other.
    """

    client: "redis.Redis"
    signs: "redis.Redis"
    keep: int
    _read: Any = field(init=False)
    _write: Any = field(init=False)
    _beat: Any = field(init=False)

    def __post_init__(self) -> None:
        self._read, self._write = map(self.client.register_script, (READ, WRITE))
        self._beat = self.signs.register_script(BEAT)

    @classmethod
    def at(cls, url: str, keep: float) -> "RedisStore":
        """Raises ConfigError for a URL that redis-py does not take; credentials in it are not repeated."""
        try:
            return cls(_client(url, CONNECTIONS), _client(url, SIGN_CONNECTIONS), keep=max(1, round(keep)))
        except ValueError:
            raise ConfigError("--store: is not a redis://, rediss:// or unix:// URL.") from None

    async def update(self, key: str, change: Change) -> PromptState:
        """As in Store; tried again until no other replica came between."""
        try:
            while True:
                moment, (value,) = await self._values([key])
                old = _state(value)
                new = change(old, moment)
                if new == old or await self._set(key, value, new):
                    return new
        except (RedisError, OSError) as error:
            raise _unreachable(error) from error

    async def _set(self, key: str, value: bytes | None, state: PromptState) -> bool:
        version = value[:VERSION_LENGTH] if value else b""
        text = secrets.token_hex(VERSION_LENGTH // 2) + state.model_dump_json() if state.groups else ""
        return bool(await self._write(keys=[PREFIX + key], args=[version, text, self.keep]))

    async def look(self, keys: Collection[str]) -> tuple[Mapping[str, PromptState], Moment]:
        """As in Store."""
        try:
            moment, values = await self._values(keys)
        except (RedisError, OSError) as error:
            raise _unreachable(error) from error
        return {key: _state(value) for key, value in zip(keys, values, strict=True)}, moment

    async def _values(self, keys: Collection[str]) -> tuple[Moment, list[bytes | None]]:
        (seconds, microseconds), beats, values = await self._read(keys=[BEATS, *(PREFIX + key for key in keys)])
        now = int(seconds) + int(microseconds) / 1e6
        pairs = zip(beats[::2], beats[1::2], strict=True)
        return Moment(now, {name.decode(): float(score) for name, score in pairs}), values

    async def kept(self) -> Collection[str]:
        """None: Redis lets them expire."""
        return ()

    async def announce(self, key: str) -> None:
        """As in Store."""
        await self._do(self.signs.publish(DONE, key))

    async def announcements(self) -> AsyncIterator[str]:
        """As in Store; ends with StoreError when the connection is lost."""
        try:
            async with self.signs.pubsub(ignore_subscribe_messages=True) as subscription:
                await subscription.subscribe(DONE)
                while True:
                    message = await subscription.get_message(timeout=5.0)
                    if message is not None:
                        yield message["data"].decode()
        except (RedisError, OSError) as error:
            raise _unreachable(error) from error

    async def beat(self, replica: str) -> None:
        """As in Store."""
        await self._do(self._beat(keys=[BEATS], args=[replica]))

    async def farewell(self, replica: str) -> None:
        """As in Store."""
        await self._do(self.signs.zrem(BEATS, replica))

    async def _do(self, command: Any) -> None:
        try:
            await command
        except (RedisError, OSError) as error:
            raise _unreachable(error) from error

    async def close(self) -> None:
        """As in Store."""
        await self.client.aclose()
        await self.signs.aclose()


def _client(url: str, connections: int) -> "redis.Redis":
    """With so many connections at most; who finds none free waits for one. Raises ValueError for a bad URL."""
    pool = redis.BlockingConnectionPool.from_url(
        url,
        max_connections=connections,
        timeout=None,
        socket_connect_timeout=CONNECT_SECONDS,
        socket_timeout=SILENCE_SECONDS,
    )
    return redis.Redis.from_pool(pool)


def _state(value: bytes | None) -> PromptState:
    return PromptState.model_validate_json(value[VERSION_LENGTH:]) if value else PromptState()


def _unreachable(error: Exception) -> StoreError:
    return StoreError(f"Redis does not answer ({type(error).__name__}). Check that it runs and that --store is right.")
