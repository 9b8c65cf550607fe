"""The gate: one array, every way to read it, and what the machine could do at best, side by side in one run.

The array is float32 (256, 721, 1440) in chunks of (1, 721, 1440), Blosc-LZ4 with byte shuffle, 2.2 times smaller, in a
temporary local store: 256 chunks of 8 blocks, 4 streams of 128 KiB in each whole block. Without a GPU it has 16 steps.

Targets on one H200, files in the page cache: 25 GB/s decoded from store to device, 8 times as fast as
``zarr.config.enable_gpu()``, assemble at 75 % of a device-to-device copy. Four runs of it there, with 16 cores, gave in
GB/s: zarrgpu 31-35 to the device, 9.3-12.1 to the host; zarr with enable_gpu 2.5-3.0, zarr and a copy 1.7-1.8
(batched), 4.1-4.5 (fused), zarr fused to the host 8.9-10.1; assemble 3980-4020 of the 4230-4250 of a copy; LZ4 237 by
groups and 36 by single sequences, of 5632 streams; files 32; uploads 54 from pinned memory and 6.4-7 from pageable.

What was learned on the way to 32 GB/s, one change at a time, waves of 128 MB:

* 15: numba's own dispatch, with thirteen arrays and beside sixteen reading threads of Python, costs a millisecond a
  launch, and the threads read at a third of their speed. The GPU waits for the host all the time.
* 24: cubins launched by cupy (0.1 ms), files read by compiled workers without the GIL.
* 32: two waves fetched ahead, streams located there too, and two cores left to the threads that feed the GPU. The waves
  are now fetched at 18 GB/s encoded, of the 32 that the same workers reach with nothing beside them.
* Assemble went from 74 % of a copy to 94 % when each lane had four units in flight instead of one.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from typing import Any

import zarr

from benchmarks.waves import Wave, seconds
from zarrgpu import engine
from zarrgpu._threads import cores
from zarrgpu.bench import Measurement, ceilings, compare, difference, on, systems, to_host
from zarrgpu.kernels import assemble, assemble_words, lz4, lz4_group, stored
from zarrgpu.sample import write_sample

READ, RATIO, COPY = 25.0, 8.0, 0.75


@dataclass
class Row:
    """A line of the table: what, GB/s, a remark, and whether it meets its target if it has one."""

    what: str
    rate: float
    remark: str = ""
    met: bool | None = None


def reads(measured: list[Measurement]) -> list[Row]:
    """From store to array, decoded GB/s."""
    peer = next((m for m in measured if m.system == "zarr enable_gpu" and m.times), None)
    rows = []
    for m in measured:
        row = Row(f"{m.system} -> {m.device}", m.rate, m.failure or m.note or f"spread {m.spread:.0%}")
        if m.ours and m.device != "host" and m.times:
            row.met = m.rate >= READ
            row.remark += f"; target {READ:.0f}"
            if peer is not None:
                ratio = peer.seconds / m.seconds
                row.met = row.met and ratio >= RATIO
                row.remark += f"; {ratio:.1f} times enable_gpu, target {RATIO:.0f}"
        rows.append(row)
    return rows


def kernels(array: zarr.Array[Any], device: str) -> list[Row]:
    """Each kernel of the read alone, its result compared with zarr's."""
    rows = []
    gpu = device != "host"
    here = engine.resolve(device)
    with here.lanes() as lanes:
        lane = lanes[0]
        wave = Wave(array, here, lane)
        for kernel in (lz4.KERNEL, lz4_group.KERNEL) if gpu else (lz4.KERNEL,):
            enqueue, nbytes = wave.decompress("lz4", kernel)
            streams = len(wave.located.work["lz4"])
            rate = nbytes / seconds(lane, enqueue) / 1e9
            rows.append(Row(f"{kernel.name} on {device}", rate, f"decoded, {streams} streams"))
        if "stored" in wave.located.work:
            enqueue, nbytes = wave.decompress("stored", stored.KERNEL)
            rows.append(Row(f"stored on {device}", 2 * nbytes / seconds(lane, enqueue) / 1e9, "read + written"))
        copy = ceilings.device_copy(array.nbytes) if gpu else 2 * ceilings.host_copy(array.nbytes, cores())
        truth = to_host(array[...])
        for module in (assemble_words, assemble) if gpu else (assemble_words,):
            enqueue, nbytes = wave.assemble(module)
            got = lane.download(wave.out)
            lane.wait()
            wrong = difference(got, truth)
            if wrong:
                raise AssertionError(f"{module.__name__} on {device}: {wrong}")
            rate = nbytes / seconds(lane, enqueue) / 1e9
            row = Row(
                f"{module.__name__.rpartition('.')[2]} on {device}",
                rate,
                f"read + written, {rate / copy:.0%} of a copy",
            )
            if gpu and module is assemble_words:
                row.met = rate >= COPY * copy
                row.remark += f", target {COPY:.0%}"
            rows.append(row)
        rows.append(Row(f"copy on {device}", copy, "read + written"))
        wave.fetch()
        fetched = ceilings.median(wave.fetch)
        rows.append(Row("files -> arena", wave.encoded / fetched / 1e9, "encoded bytes, page cache"))
    return rows


def run(steps: int, repeats: int) -> tuple[list[Row], list[Measurement]]:
    """Write the array, read it every way, run its kernels, and measure what the machine could do at best."""
    devices = engine.available()
    with tempfile.TemporaryDirectory(prefix="zarrgpu-") as folder:
        array = write_sample(f"{folder}/sample.zarr", (steps, 721, 1440))
        size = f"float32 {array.shape}, {array.nbytes / 1e6:.0f} MB, ratio {array.nbytes / array.nbytes_stored():.2f}"
        print(f"{size}; {engine.missing() or 'nothing missing'}", flush=True)
        measured = compare(array, systems=systems([*dict.fromkeys([devices[0], "host"])]), repeats=repeats)
        rows = reads(measured)
        with on(devices[0]):
            rows += kernels(array, devices[0])
            if devices[0] != "host":
                rows += [
                    Row(f"host -> {devices[0]}, {k}", ceilings.upload(1 << 28, k == "pinned"))
                    for k in ("pinned", "pageable")
                ]
    return rows, measured


def table(rows: list[Row]) -> str:
    """The rows, and which of them meet their targets."""
    width = max(len(row.what) for row in rows)
    lines = [f"{'':<{width}}      GB/s"]
    for row in rows:
        verdict = {None: "", True: ": met", False: ": MISSED"}[row.met]
        lines.append(f"{row.what:<{width}} {row.rate:9.2f}  {row.remark}{verdict}")
    return "\n".join(lines)
