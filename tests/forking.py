"""What `test_fork.py` runs in a process of its own: ``python -m tests.forking device``, or ``host``, ``first``.

A fork in a process with threads is what this is about, and a test runner's own threads need not be part of it.
"""

from __future__ import annotations

import faulthandler
import importlib.abc
import multiprocessing
import os
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

import zarrgpu
from tests.engines import ENGINES, device, make, same, smooth

SECONDS = 120.0
"""After which a child counts as hanging; it may have to compile."""


def in_child(work: Callable[[], None]) -> None:
    """Do `work` in a forked process; raise unless it returns, and soon."""
    faulthandler.cancel_dump_traceback_later()  # of a child that forks; its own child would wait for that thread
    with warnings.catch_warnings():  # that forking with threads is dangerous, which is the point
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        faulthandler.dump_traceback_later(SECONDS - 5)
        try:
            work()
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
        os._exit(0)
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            assert status == 0, f"the child ended with status {status}"
            return
        time.sleep(0.005)
    os.kill(child, 9)
    os.waitpid(child, 0)
    raise AssertionError("the child hangs")


def used_device() -> None:
    """CUDA was used before the fork: every way to it is refused in the child, at once; the host's ways are open."""
    values = smooth((6, 5), "i4")
    with device(ENGINES[-1]) as name:
        z = make(values, (4, 4))
        assert same(zarrgpu.read(z, device=name), values)
        with zarrgpu.enable(name):
            opened = zarr.open_array(z.store, mode="r")

        def refused(work: Callable[[], Any]) -> None:
            begin = time.monotonic()
            with pytest.raises(zarrgpu.DeviceUnavailableError, match="'spawn' or 'forkserver'"):
                work()
            assert time.monotonic() - begin < 1

        def child() -> None:
            for where in ("cuda", "cuda:0", name):
                refused(partial(zarrgpu.read, z, device=where))
                refused(partial(zarrgpu.enable, where))
            assert zarrgpu.engine.available() == ["host"]
            for where in ("auto", "host"):
                got = zarrgpu.read(z, device=where)
                assert isinstance(got, np.ndarray)
                assert same(got, values)
            with zarrgpu.enable("host"):
                assert same(zarr.open_array(z.store, mode="r")[...], values)

        def child_of_enabled() -> None:
            refused(lambda: opened[...])
            refused(lambda: opened[1:3, 4])
            child()

        in_child(child)
        with zarrgpu.enable(name):
            in_child(child_of_enabled)
            in_child(partial(in_child, child_of_enabled))
            assert same(opened[...], values)  # the parent goes on as before


def host() -> None:
    """Reads of many threads are under way at each fork, in all their stages; every child reads on its own."""
    values = smooth((400, 60), "f4")
    folder = os.environ["ZARRGPU_TEST_FOLDER"]
    arrays = [
        make(values, (7, 9), shuffle=1),
        make(values, (7, 9), store=folder + "/a", compressors=zarr.codecs.GzipCodec()),
    ]
    with zarrgpu.enable("host"):
        opened = [zarr.open_array(z.store, mode="r") for z in arrays]
    zarrgpu.engine.resolve("host").by_library = False  # kernels too
    over = threading.Event()
    failures: list[BaseException] = []

    def reads(z: Any, again: Any) -> None:
        assert same(zarrgpu.read(z, device="host"), values)
        assert same(again[::3], values[::3])

    def reader(k: int) -> None:
        try:
            while not over.is_set():
                reads(arrays[k % 2], opened[k % 2])
        except BaseException as error:
            failures.append(error)

    def child() -> None:
        for z, again in zip(arrays, opened, strict=True):
            reads(z, again)

    threads = [threading.Thread(target=reader, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(15):
            in_child(child)
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert not failures, failures


def first() -> None:
    """The fork comes while another thread imports and compiles for the very first read, and waits for that."""
    values = smooth((40, 6), "f4")
    z = make(values, (7, 9), shuffle=None)
    thread = threading.Thread(target=lambda: zarrgpu.read(z, device="host"))

    def read() -> None:
        assert same(zarrgpu.read(z, device="host"), values)

    thread.start()
    for pause in (0.02, 0.3):
        time.sleep(pause)
        in_child(read)
    thread.join()


def importing() -> None:
    """The fork comes while another thread imports what only some codecs need: deflate's kernels, slowly here."""
    values = smooth((400, 60), "f4")  # enough chunks for kernels
    z = make(values, (7, 9), compressors=zarr.codecs.GzipCodec())
    zarrgpu.engine.resolve("host").by_library = False
    begun = threading.Event()

    class Slow(importlib.abc.MetaPathFinder):
        def find_spec(self, name: str, path: Any, target: Any = None) -> None:
            if name == "zarrgpu.kernels.deflate":
                begun.set()
                time.sleep(0.5)

    def read() -> None:
        assert same(zarrgpu.read(z, device="host"), values)

    sys.meta_path.insert(0, Slow())
    thread = threading.Thread(target=read)
    thread.start()
    assert begun.wait(SECONDS)
    in_child(read)
    thread.join()


def locked() -> None:
    """Another thread holds the locks of the counters, of zarr's configuration, and of the start of zarr's loop."""
    from zarr.core import sync

    from zarrgpu import _counters

    values = smooth((6, 5), "i4")
    z = make(values, (4, 4))
    held, over = threading.Event(), threading.Event()

    def hold() -> None:
        with _counters._lock, zarr.config.config_lock, sync._get_lock():
            held.set()
            over.wait()

    def read() -> None:
        with zarrgpu.enable("host"):
            assert same(zarr.open_array(z.store, mode="r")[...], values)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    try:
        in_child(read)
    finally:
        over.set()
        thread.join()


def workers() -> None:
    """Processes of `multiprocessing`, as a data loader has them, read by arrays that their parent opened and used."""
    values = smooth((60, 9), "f4")
    folder = os.environ["ZARRGPU_TEST_FOLDER"]
    kept = Path(folder, "z")
    make(values, (7, 9), store=kept)
    opened = zarrgpu.open_array(kept, mode="r", device="host", strict=True)
    assert same(opened[...], values)
    with warnings.catch_warnings(), device(ENGINES[-1]) as name:
        warnings.simplefilter("ignore", DeprecationWarning)  # as above
        there = zarrgpu.open_array(kept, mode="r", device=name)
        assert same(there[...], values)
        _shared.update(host=opened, device=there)
        with multiprocessing.get_context("fork").Pool(3) as pool:
            lines = pool.map_async(_line, range(60), chunksize=4).get(SECONDS)
            assert same(np.stack(lines), values)
            said = pool.map_async(_refusal, range(4)).get(SECONDS)
            assert all("'spawn' or 'forkserver'" in words and seconds < 1 for words, seconds in said), said


_shared: dict[str, Any] = {}


def _line(i: int) -> Any:
    return _shared["host"][i]


def _refusal(i: int) -> tuple[str, float]:
    begin = time.monotonic()
    with pytest.raises(zarrgpu.DeviceUnavailableError) as refused:
        _shared["device"][i]
    return str(refused.value), time.monotonic() - begin


if __name__ == "__main__":
    {
        "device": used_device,
        "host": host,
        "first": first,
        "importing": importing,
        "locked": locked,
        "workers": workers,
    }[sys.argv[1]]()
