"""The turns of the tasks that use one file."""

from __future__ import annotations

import asyncio
from collections import deque


class Turn:
    """A lock for tasks.

    It is asyncio.Lock without its cost: a caller that finds `busy` false may set it, and call
    release() later.
    """

    __slots__ = ("_waiting", "busy")

    def __init__(self) -> None:
        self.busy = False
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def take(self) -> None:
        """Waits for a turn, which release() ends."""
        if not self.busy:
            self.busy = True
            return
        future = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        try:
            # release() leaves it busy for the first that waits.
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self.release()
            raise

    async def __aenter__(self) -> None:
        await self.take()

    async def __aexit__(self, *exception: object) -> None:
        self.release()

    def release(self) -> None:
        """Ends a turn. The next one is that of the task that has waited longest."""
        while self._waiting:
            future = self._waiting.popleft()
            loop = future.get_loop()
            if loop is asyncio.get_running_loop():
                if not future.done():
                    future.set_result(None)
                    return
            elif not loop.is_closed():
                # A task of another thread.
                loop.call_soon_threadsafe(self._pass_to, future)
                return
        self.busy = False

    def _pass_to(self, future: asyncio.Future[None]) -> None:
        if future.done():
            self.release()
        else:
            future.set_result(None)
