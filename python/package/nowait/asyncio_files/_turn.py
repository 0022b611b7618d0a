"""The turns of the tasks that use one file.

A turn is that of a task. If the task is cancelled, or its event loop ends, while it waits for a call in a
thread, then the turn lasts until the call has returned. An error of such a call is raised by the next turn.
"""

from __future__ import annotations

import asyncio
import io
import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from threading import Lock
from typing import Any, Self

from .._executor import run_in_executor


class Turns:
    """A lock for tasks, of any event loop and any thread."""

    __slots__ = ("_error", "_lock", "_waiting", "holder", "is_whole")

    def __init__(self, *, is_whole: bool) -> None:
        self.holder: Turn | None = None
        # It is locked while there is a holder. No thread waits for it.
        self._lock = Lock()
        self._waiting: deque[tuple[Turn, asyncio.Future[None]]] = deque()
        # True if the state of the file is whole at each await, so that a task whose loop has stopped can
        # be passed over.
        self.is_whole = is_whole
        self._error: OSError | None = None

    def report(self) -> None:
        """Raises the error that no task has got."""
        error, self._error = self._error, None
        if error is not None:
            raise error

    def keep(self, error: BaseException | None) -> None:
        """Keeps an error for the next call. That of a call with wrong arguments is dropped."""
        if isinstance(error, OSError) and not isinstance(error, io.UnsupportedOperation):
            self._error = error

    @property
    def in_thread(self) -> bool:
        """True while a call is made in a thread."""
        return self.holder is not None and self.holder.in_thread

    @property
    def is_taken(self) -> bool:
        """True while a task or a thread uses the file."""
        return self.holder is not None and not (self.holder.is_lost and not self.in_thread)

    def take(self, turn: Turn) -> bool:
        if not self._lock.acquire(blocking=False):
            return False
        turn.is_held.append(True)
        self.holder = turn
        return True

    def wait(self, turn: Turn, future: asyncio.Future[None]) -> None:
        self._waiting.append((turn, future))
        # The holder may have left before.
        self._next()

    def wait_no_more(self, turn: Turn, future: asyncio.Future[None]) -> None:
        try:
            self._waiting.remove((turn, future))
        except ValueError:
            # It is the holder now.
            turn.leave()

    def end(self, turn: Turn) -> None:
        try:
            turn.is_held.pop()
        except IndexError:
            return
        self.holder = None
        self._lock.release()
        self._next()

    def _next(self) -> None:
        """The next turn is that of the task that has waited longest."""
        while self._waiting and self._lock.acquire(blocking=False):
            try:
                turn, future = self._waiting.popleft()
            except IndexError:
                self._lock.release()
                continue
            if not turn.is_lost:
                turn.is_held.append(True)
                self.holder = turn
                if turn.wakes(future):
                    return
                self.holder = None
                turn.is_held.clear()
            self._lock.release()


class Turn:
    """One turn: `async with`. It is asyncio.Lock without its cost."""

    __slots__ = ("_call", "_forks", "_has_left", "_loop", "_turns", "is_held")

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._loop = asyncio.get_running_loop()
        self._forks = _forks
        self._call: Call | None = None
        self._has_left = False
        # It has one item during the turn.
        self.is_held: list[bool] = []

    async def __aenter__(self) -> Self:
        turns = self._turns
        holder = turns.holder
        if holder is not None and self._passes_over(holder):
            holder.leave()
        if not turns.take(self):
            future = self._loop.create_future()
            turns.wait(self, future)
            try:
                await future
            except BaseException:
                turns.wait_no_more(self, future)
                raise
        return self

    async def __aexit__(self, *exception: object) -> None:
        self.leave()

    @property
    def in_thread(self) -> bool:
        return self._call is not None and not self._call.is_done and self._forks == _forks

    @property
    def is_lost(self) -> bool:
        """True if the task will not continue."""
        return self._loop.is_closed() or self._forks != _forks

    def _passes_over(self, holder: Turn) -> bool:
        if holder.is_lost:
            return True
        if holder._has_left or holder._loop is self._loop or holder._loop.is_running():
            return False
        if not self._turns.is_whole:
            raise RuntimeError("a task of an event loop that has stopped uses the file")
        return True

    def wakes(self, future: asyncio.Future[None]) -> bool:
        """Wakes the task. False if its loop is closed."""
        try:
            if self._loop is asyncio._get_running_loop():
                _wake(future)
            else:
                self._loop.call_soon_threadsafe(_wake, future)
        except RuntimeError:
            return False
        return True

    async def call(
        self, executor: Executor | None, function: Callable[[], Any], *, takes_back: bool = True
    ) -> Any:
        """Calls a function in a thread of the executor. If the task is cancelled, a call that has not begun
        is taken back."""
        call = self.begin(executor, function)
        try:
            await call.ended()
        except BaseException:
            if takes_back:
                call.take_back()
            raise
        self._call = None
        return call.result()

    def begin(self, executor: Executor | None, function: Callable[[], Any]) -> Call:
        """Begins a call. The turn lasts until it has returned."""
        call = Call(function)
        run_in_executor(self._loop, executor, call).add_done_callback(call.has_run)
        self._call = call
        return call

    def leave(self) -> None:
        """Ends the turn, or leaves it to the call that is under way."""
        if self._call is None or self._forks != _forks:
            self._turns.end(self)
        elif not self._has_left:
            self._has_left = True
            self._call.add_done_callback(self._has_returned)

    def _has_returned(self, error: BaseException | None) -> None:
        """Of a call whose task has left."""
        if self.is_held:
            self._turns.keep(error)
        self._turns.end(self)


class Call:
    """A call for a thread. A task of any event loop can wait for it."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function: Callable[[], Any] | None = function
        self._future: Future[Any] = Future()

    def __call__(self) -> None:
        function, self._function = self._function, None
        if function is None or not self._future.set_running_or_notify_cancel():
            return
        # The thread has no reference to the file any more when a task knows of the end.
        try:
            result = function()
        except BaseException as error:
            function = None
            self._future.set_exception(error)
        else:
            function = None
            self._future.set_result(result)

    @property
    def is_done(self) -> bool:
        return self._future.done()

    def take_back(self) -> bool:
        """True if the call will not be made."""
        return self._future.cancel()

    def has_run(self, run: asyncio.Future[None]) -> None:
        """Called by the event loop. An executor that has shut down does not make the call."""
        if run.cancelled():
            self.take_back()

    def add_done_callback(self, callback: Callable[[BaseException | None], None]) -> None:
        """Calls a function with the exception, in any thread."""

        def done(future: Future[Any]) -> None:
            callback(None if future.cancelled() else future.exception())

        self._future.add_done_callback(done)

    async def ended(self) -> None:
        """Waits until the call has returned."""
        loop = asyncio.get_running_loop()
        waits = loop.create_future()

        def wake(_: BaseException | None) -> None:
            try:
                loop.call_soon_threadsafe(_wake, waits)
            except RuntimeError:
                # The loop is closed.
                pass

        self.add_done_callback(wake)
        await waits

    def result(self) -> Any:
        if self._future.cancelled():
            raise asyncio.CancelledError
        return self._future.result()


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


#: The number of forks: the tasks and threads of the parent do not continue in a child.
_forks = 0


def _has_forked() -> None:
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_has_forked)
