"""Calls in the threads of an executor."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any


def run_in_executor(
    loop: asyncio.AbstractEventLoop, executor: Executor | None, function: Callable[[], Any]
) -> asyncio.Future[Any]:
    """Calls a function in a thread of the executor. In a function of `atexit` no executor accepts calls: the function is called
    at once."""
    try:
        return loop.run_in_executor(executor, function)
    except RuntimeError:
        if threading.main_thread().is_alive():
            raise
    future = loop.create_future()
    try:
        future.set_result(function())
    except Exception as error:
        future.set_exception(error)
    return future
