"""Work that a caller shares with a pool: all of it is done once, errors come in order, nothing runs afterwards."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from zarrgpu import _threads


@pytest.mark.parametrize("n", [0, 1, 2, 5, 1000])
@pytest.mark.parametrize("threads", [1, 3])
def test_share_does_all_of_it_once(n: int, threads: int) -> None:
    begun: list[int] = []

    def work(k: int) -> int:
        begun.append(k)
        return k * k

    with ThreadPoolExecutor(3) as pool:
        assert _threads.share(pool, threads, n, work) == [k * k for k in range(n)]
    assert sorted(begun) == list(range(n))


def test_the_caller_does_not_wait_for_a_pool_that_is_busy() -> None:
    """It does everything itself, and what no thread has begun by then is taken back."""
    over = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        busy = pool.submit(over.wait)
        try:
            where = _threads.share(pool, 4, 20, lambda k: threading.current_thread())
        finally:
            over.set()
        assert busy.result()
    assert set(where) == {threading.current_thread()}


def test_threads_of_the_pool_take_part() -> None:
    """Two pieces that wait for each other end only where two threads do them."""
    both = threading.Barrier(2)
    with ThreadPoolExecutor(1) as pool:
        assert sorted(_threads.share(pool, 2, 2, lambda k: both.wait(60))) == [0, 1]


def test_the_first_error_is_raised_when_all_is_done() -> None:
    done: list[int] = []

    def work(k: int) -> None:
        if k in (3, 7):
            raise ValueError(f"piece {k}")
        done.append(k)

    with ThreadPoolExecutor(2) as pool, pytest.raises(ValueError, match="piece 3"):
        _threads.share(pool, 3, 50, work)
    assert len(done) == 48


def test_what_ends_a_thread_of_the_pool_is_raised() -> None:
    """An exit is no error of a piece, and must not pass for a result."""
    both, caller = threading.Barrier(2), threading.current_thread()

    def work(k: int) -> None:
        both.wait(60)
        if threading.current_thread() is not caller:
            raise SystemExit("over")

    with ThreadPoolExecutor(1) as pool, pytest.raises(SystemExit, match="over"):
        _threads.share(pool, 2, 2, work)


def test_an_interrupt_leaves_nothing_running() -> None:
    """It comes to the caller, after what others had begun; the rest is not begun."""
    caller, interrupted, done = threading.current_thread(), threading.Event(), []

    def work(k: int) -> None:
        if threading.current_thread() is caller:
            interrupted.set()
            raise KeyboardInterrupt
        interrupted.wait()
        done.append(k)

    with ThreadPoolExecutor(2) as pool:
        with pytest.raises(KeyboardInterrupt):
            _threads.share(pool, 3, 1_000_000, work)
        before = len(done)
        pool.submit(int).result()
    assert len(done) == before < 999_999


@pytest.mark.parametrize("n", [0, 1, 7, 100])
def test_parts_cover_everything(n: int) -> None:
    """`spread` and `split` cut into parts that follow each other; lines of `on_all_cores` come back in order."""
    items: list[Any] = list(range(n))
    assert [x for part in _threads.spread(lambda part: part, items) for x in part] == items
    parts: list[tuple[int, int]] = []
    _threads.split(n, lambda begin, end: parts.append((begin, end)), least=3)
    assert [k for begin, end in sorted(parts) for k in range(begin, end)] == items
    assert all(end - begin >= min(n, 3) for begin, end in parts)
    assert _threads.on_all_cores(lambda a, b: (a, b), items, items) == [(k, k) for k in items]
