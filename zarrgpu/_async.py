"""Between event loops and threads: errors get across as they are.

A future hands on a new `TimeoutError` for the one that was raised, without its notes. So here none is raised inside.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Executor
from typing import Any, NamedTuple, cast


class Outcome[T](NamedTuple):
    """A result, or the error in its place."""

    result: T | None
    error: Exception | None = None

    def get(self) -> T:
        """Return the result, or raise the error."""
        error = self.error
        try:
            if error is not None:
                raise error
        finally:
            del error  # whose traceback holds this frame
        return cast("T", self.result)


async def together[T](work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """The results of `work`, done at once; after a failure, which surfaces as it is, nothing is left running."""
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def awaited[T](work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> T:
    """The result of `work` on a loop that is not the calling thread's."""

    async def run() -> Outcome[T]:
        try:
            return Outcome(await work)
        except Exception as error:
            return Outcome(None, error)

    return asyncio.run_coroutine_threadsafe(run(), loop).result().get()


async def on_thread[T](executor: Executor, work: Callable[..., T], *arguments: Any) -> T:
    """The result of ``work(*arguments)`` on a thread of `executor`."""

    def run() -> Outcome[T]:
        try:
            return Outcome(work(*arguments))
        except Exception as error:
            return Outcome(None, error)

    return (await asyncio.get_running_loop().run_in_executor(executor, run)).get()
