"""Both assemble kernels put every element where the reference does, whatever the layout, and never write elsewhere."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field, replace
from types import ModuleType

import numcodecs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import kit
from tests.kernels.box_kit import GATHER_FAULTS, by_index, left_by_fault, lines_of, windowed
from tests.kit import Array
from zarrgpu._cuda import host
from zarrgpu.kernels import assemble, assemble_words
from zarrgpu.kernels.boxes import merge_axes
from zarrgpu.kernels.tables import (
    B_DEST,
    B_FIRST,
    B_LAYOUT,
    BITS,
    BYTES,
    FILL,
    L_ARENA,
    L_BASE,
    L_BLOCK,
    L_MODE,
    L_SIZE,
    L_TYPE,
    PLAIN,
    SCRATCH,
    SOURCE,
    Status,
)


def shuffled(chunk: Array, block: int, kind: int, mode: int) -> Array:
    """`chunk` as c-blosc leaves it: the inverse of the layout in the kernel's contract."""
    parts = []
    for part in (chunk[k : k + block] for k in range(0, chunk.size, block)):
        n = part.size // kind
        head, rest = part[: n * kind], part[n * kind :]
        if mode == BYTES:
            head = head.reshape(n, kind).T.ravel()
        elif mode == BITS and n % 8 == 0:
            bits = np.unpackbits(head.reshape(n, kind), axis=1, bitorder="little")
            head = np.packbits(bits.T, axis=1, bitorder="little").ravel()
        parts += [head, rest]
    return np.concatenate(parts) if parts else chunk


@dataclass
class Case:
    """Chunks of one shape, read by boxes into an output with guards around it."""

    itemsize: int
    swap: int = 0
    shape: tuple[int, ...] = (4, 6, 10)
    mode: int = BYTES
    kind: int | None = None  # typesize of the shuffle; the item size by default
    block: int | None = None  # the chunk by default
    window: tuple[slice | int, ...] = ()  # what is read of each chunk
    order: str = "C"  # of elements in a chunk
    missing: tuple[int, ...] = ()
    chunks: int = 3
    lead: int = 16  # bytes before the output in its arena, which is what its alignment is about
    gap: int = 0  # elements between two rows of the output
    index: str = ""  # read by arrays of indices rather than a window: "axes" or "points"
    seed: int = 0
    fill: Array = field(init=False)

    def __post_init__(self) -> None:
        g = np.random.default_rng(self.seed)
        size = int(np.prod(self.shape)) * self.itemsize
        block, kind = self.block or max(size, 1), self.kind or self.itemsize
        self.fill = g.integers(0, 256, self.itemsize, np.uint8)
        decoded = g.integers(0, 256, (self.chunks, size), np.uint8)
        arenas = [np.zeros(0, np.uint8), np.zeros(0, np.uint8)]
        self.layouts = np.zeros((self.chunks, 6), np.int64)
        for i, chunk in enumerate(decoded):
            arena = FILL if i in self.missing else SOURCE if i % 2 else SCRATCH
            self.layouts[i] = [arena, 0, size, block, kind, self.mode]
            if arena != FILL:
                # Chunks in scratch are 16-byte aligned, those in the source lie anywhere.
                self.layouts[i, 1] = arenas[arena].size + (g.integers(0, 8) if arena == SOURCE else 0)
                padded = np.zeros((size + int(self.layouts[i, 1]) + 15) // 16 * 16, np.uint8)
                padded[: arenas[arena].size] = arenas[arena]
                padded[self.layouts[i, 1] :][:size] = shuffled(chunk, block, kind, self.mode)
                arenas[arena] = padded
        self.source, self.scratch = arenas
        at = self.chunks, self.shape, self.order, self.itemsize, self.lead
        made = by_index(*at, self.index, self.seed) if self.index else windowed(*at, self.window, self.gap)
        self.boxes, self.src_strides, self.dst_strides, self.gather, self.out, places = made
        # The independent answer, from the decoded chunks.
        self.want = self.out.copy()
        for i, chunk in enumerate(decoded):
            elements = chunk.reshape(-1, self.itemsize)
            if self.swap > 1:
                elements = elements.reshape(-1, self.itemsize // self.swap, self.swap)[:, :, ::-1]
                elements = elements.reshape(-1, self.itemsize)
            for element, byte in places[i].tolist():
                self.want[byte : byte + self.itemsize] = self.fill if i in self.missing else elements[element]

    def run(self, module: ModuleType, lane: str) -> Array:
        """Assemble; the statuses."""
        boxes, src_strides, dst_strides = self.boxes, self.src_strides, self.dst_strides
        status = np.zeros(len(boxes), np.int32)
        indexed, gather = ((), ()) if self.gather is None else ((True,), (self.gather,))
        groups = module.groups(boxes, self.itemsize, *indexed)
        kernel, n = module.kernel(self.itemsize, self.swap, *indexed), len(boxes) * groups
        args = (
            groups, self.source, kit.words(self.source), self.scratch, kit.words(self.scratch), self.layouts,
            boxes, src_strides, dst_strides, *gather, self.fill, self.out, kit.words(self.out), status,
        )  # fmt: skip
        if lane == "python":
            body = kernel.make(replace(host(), device=lambda f: f), 1)
            for item in range(n):
                body(0, item, *args)
        else:
            kit.run(kernel, lane, n, *args)
        return status

    def check(self, module: ModuleType, lane: str, *, merge: bool = False) -> None:
        """Assemble and compare with the independent answer."""
        tables = self.boxes, self.src_strides, self.dst_strides
        if merge:
            tables = self.boxes, self.src_strides, self.dst_strides = merge_axes(*tables)
        if module is assemble_words and not assemble_words.eligible(self.layouts, *tables, self.itemsize).all():
            strides = self.src_strides[-1], self.dst_strides[-1]
            assert strides != (1, self.itemsize), "what was a last axis of one column is dropped"
            return
        assert not self.run(module, lane).any()
        np.testing.assert_array_equal(self.out, self.want)


MODES = {"plain": PLAIN, "bytes": BYTES, "bits": BITS}
TYPES = [(1, 0), (2, 0), (2, 2), (3, 0), (4, 0), (4, 4), (5, 0), (8, 0), (8, 8), (8, 4), (16, 0), (16, 8), (24, 8)]
# Few, since each is compiled for seconds.
HOST = {assemble: [(3, 0), (4, 4)], assemble_words: [(8, 4), (4, 0)]}


def targets(*modules: ModuleType) -> pytest.MarkDecorator:
    """Parametrise over kernels: module, lane, itemsize, swap. Loops that the host does not compile run as they are."""
    values = []
    for module in modules:
        fast, compiled = module is assemble_words, HOST[module]
        types = [t for t in TYPES if not fast or t[0] in (1, 2, 4, 8)]
        lanes = {"host": compiled, kit.LANES[1]: types, "python": [t for t in types if fast and t not in compiled]}
        for lane, chosen in lanes.items():
            name = f"{module.__name__.rpartition('.')[2]}-{lane}"
            values += [pytest.param(module, lane, *t, id=f"{name}-{t[0]}-{t[1]}") for t in chosen]
    return pytest.mark.parametrize(("module", "lane", "itemsize", "swap"), values)


@targets(assemble, assemble_words)
@pytest.mark.parametrize("mode", MODES)
def test_whole_chunks(module: ModuleType, lane: str, itemsize: int, swap: int, mode: str) -> None:
    for shape in ((8, 9), (5, 7), (1, 1)):
        for lead in (0, 16 - itemsize % 16):
            Case(itemsize, swap, shape, MODES[mode], lead=lead).check(module, lane, merge=True)


@targets(assemble, assemble_words)
@pytest.mark.parametrize("mode", MODES)
def test_blocks_with_a_shorter_last_one(module: ModuleType, lane: str, itemsize: int, swap: int, mode: str) -> None:
    """17 elements in the last block are no multiple of eight: bit-shuffled data leave them as they are."""
    for last in (17, 24):
        Case(itemsize, swap, (64 + last,), MODES[mode], block=32 * itemsize).check(module, lane)


@targets(assemble, assemble_words)
def test_clipped_chunks_and_missing_ones(module: ModuleType, lane: str, itemsize: int, swap: int) -> None:
    for mode in MODES.values():
        window = (slice(1, 3), slice(0, 5), slice(3, 22))
        Case(itemsize, swap, (3, 6, 24), mode, window=window, missing=(1,), gap=3).check(module, lane)


@targets(assemble)
def test_steps_transposes_and_dropped_axes(module: ModuleType, lane: str, itemsize: int, swap: int) -> None:
    Case(itemsize, swap, (3, 4, 5), order="F").check(module, lane)
    Case(itemsize, swap, (3, 4, 5), BITS, window=(slice(None, None, -2), 1, slice(4, None, -3))).check(module, lane)
    Case(itemsize, swap, (6, 4), PLAIN, window=(slice(1, None, 2), 3), missing=(0, 2)).check(module, lane)


@targets(assemble)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("index", ["axes", "points"])
def test_arrays_of_indices(module: ModuleType, lane: str, itemsize: int, swap: int, index: str, mode: str) -> None:
    """Unsorted and repeated, beside strided axes, of missing chunks too, to places in any order."""
    for seed, shape in enumerate([(40,), (5, 9), (3, 4, 5), (2, 1, 3, 4), (6, 1)]):
        order, missing = "CF"[seed % 2], (1,) if seed > 2 else ()
        Case(itemsize, swap, shape, MODES[mode], index=index, seed=seed, order=order, missing=missing, lead=seed).check(
            module, lane
        )


@pytest.mark.parametrize("lane", kit.LANES)
@settings(max_examples=40)
@given(st.integers(0, 1 << 32), st.lists(st.integers(1, 6), min_size=1, max_size=4))
def test_any_arrays_of_indices(lane: str, seed: int, shape: list[int]) -> None:
    for index in ("axes", "points"):
        Case(*HOST[assemble][1], tuple(shape), index=index, seed=seed, chunks=4).check(assemble, lane)


@targets(assemble)
def test_shuffles_of_another_typesize(module: ModuleType, lane: str, itemsize: int, swap: int) -> None:
    """A chunk's header says its typesize: it may differ from the array's, and blocks may cut elements in two."""
    for kind, block in ((1, 40), (2, 37), (3, 64), (7, 100), (255, 600)):
        for mode in (BYTES, BITS):
            Case(itemsize, swap, (9, 11), mode, kind=kind, block=block).check(module, lane)


@pytest.mark.parametrize("lane", kit.LANES)
@pytest.mark.parametrize("module", [assemble, assemble_words], ids=["assemble", "words"])
@pytest.mark.parametrize("mode", MODES)
@settings(max_examples=15)
@given(data=st.data())
def test_any_window_of_any_chunk(module: ModuleType, lane: str, mode: str, data: st.DataObject) -> None:
    """Rows that start anywhere in planes, bit planes, blocks and 16-byte windows."""
    itemsize, swap = HOST[module][1]
    shape = data.draw(st.tuples(st.integers(1, 45)) | st.tuples(st.integers(1, 4), st.integers(1, 45)), "shape")
    if data.draw(st.booleans(), "outer"):
        shape = (2, *shape)
    ends = [sorted(data.draw(st.tuples(st.integers(0, n), st.integers(0, n)), "window")) for n in shape]
    Case(
        itemsize,
        swap,
        shape,
        MODES[mode],
        block=itemsize * data.draw(st.integers(1, 300), "block"),
        window=tuple(slice(*pair) for pair in ends),
        lead=itemsize * data.draw(st.integers(0, 4), "lead"),
        gap=data.draw(st.integers(0, 2), "gap"),
    ).check(module, lane, merge=data.draw(st.booleans(), "merge"))


def test_the_reference_and_numcodecs_agree_on_the_layout() -> None:
    g = np.random.default_rng(0)
    for kind in (2, 4, 8, 16):
        chunk = g.integers(0, 256, 40 * kind, np.uint8)
        stored = np.frombuffer(numcodecs.Shuffle(kind).encode(chunk), np.uint8)
        np.testing.assert_array_equal(stored, shuffled(chunk, chunk.size, kind, BYTES))
        np.testing.assert_array_equal(assemble.unshuffled(stored, kind, BYTES), chunk)


@pytest.mark.parametrize("mode", [BYTES, BITS], ids=["bytes", "bits"])
@pytest.mark.parametrize("kind", [1, 2, 3, 4, 8, 17, 255])
def test_the_reference_and_blosc_agree_on_the_layout(kind: int, mode: int) -> None:
    """Frames made by hand of stored blocks, which Blosc unshuffles all the same; whole blocks, short ones and rests."""
    for n, elements, rest in ((16, 16, 0), (16, 40, 0), (24, 37, 0), (8, 17, 1)):
        block, size = n * kind, elements * kind + rest
        stored = np.random.default_rng(kind).integers(0, 256, size, np.uint8)
        parts = [stored[k : k + block] for k in range(0, size, block)]
        starts = 16 + 4 * len(parts) + (block + 4) * np.arange(len(parts))
        body = struct.pack(f"<{len(parts)}i", *starts)
        body += b"".join(struct.pack("<i", part.size) + part.tobytes() for part in parts)
        flags = (1 if mode == BYTES else 4) | 0x10 | 1 << 5  # the shuffle, blocks of one stream, LZ4
        frame = struct.pack("<4B3i", 2, 1, flags, kind, size, block, 16 + len(body)) + body
        want = np.frombuffer(numcodecs.Blosc().decode(frame), np.uint8)
        np.testing.assert_array_equal(np.concatenate([assemble.unshuffled(p, kind, mode) for p in parts]), want)
        np.testing.assert_array_equal(shuffled(want, block, kind, mode), stored)


@pytest.mark.parametrize("lane", kit.LANES)
@pytest.mark.parametrize("module", [assemble, assemble_words], ids=["assemble", "words"])
def test_the_plain_reference_agrees(module: ModuleType, lane: str) -> None:
    case = Case(*HOST[module][1], (3, 20), BITS, window=(slice(0, 2), slice(1, 18)), missing=(2,))
    out = case.out.copy()
    arenas = case.source, case.scratch
    assemble.reference(arenas, case.layouts, case.boxes, case.src_strides, case.dst_strides, case.fill, case.swap, out)
    np.testing.assert_array_equal(out, case.want)
    case.check(module, lane)


BAD_TABLES = {
    "layout_line_beyond_the_table": ("boxes", (1, B_LAYOUT), 3),
    "layout_line_before_the_table": ("boxes", (1, B_LAYOUT), -1),
    "elements_beyond_the_chunk": ("boxes", (1, B_FIRST), 20),
    "elements_before_the_chunk": ("boxes", (1, B_FIRST), -9),
    "output_beyond_its_end": ("boxes", (1, B_DEST), 1 << 20),
    "output_before_its_start": ("boxes", (1, B_DEST), -1024),
    "no_such_arena": ("layouts", (1, L_ARENA), 3),
    "negative_arena": ("layouts", (1, L_ARENA), -1),
    "chunk_before_its_arena": ("layouts", (1, L_BASE), -4),
    "chunk_beyond_its_arena": ("layouts", (1, L_BASE), 1 << 16),
    "negative_size": ("layouts", (1, L_SIZE), -1),
    "size_beyond_the_arena": ("layouts", (1, L_SIZE), 1 << 40),
    "no_block": ("layouts", (1, L_BLOCK), 0),
    "no_typesize": ("layouts", (1, L_TYPE), 0),
    "no_such_mode": ("layouts", (1, L_MODE), 3),
}


@pytest.mark.parametrize("lane", kit.LANES)
@pytest.mark.parametrize("module", [assemble, assemble_words], ids=["assemble", "words"])
@pytest.mark.parametrize("fault", BAD_TABLES)
def test_hostile_tables_are_reported_and_harm_nothing(module: ModuleType, lane: str, fault: str) -> None:
    table, at, value = BAD_TABLES[fault]
    case = Case(*HOST[module][1], (40,), BITS if "typesize" in fault else BYTES, lead=0)
    getattr(case, table)[at] = value
    assert case.run(module, lane).tolist() == [0, Status.BAD_TABLE, 0]
    own = slice(int(case.boxes[2, B_DEST]) - 40 * case.itemsize, int(case.boxes[2, B_DEST]))
    case.out[own] = case.want[own] = 0
    np.testing.assert_array_equal(case.out, case.want)


@pytest.mark.parametrize("lane", kit.LANES)
@pytest.mark.parametrize("fault", BAD_TABLES)
def test_hostile_tables_of_indexed_boxes(lane: str, fault: str) -> None:
    table, at, value = BAD_TABLES[fault]
    case = Case(*HOST[assemble][1], (40,), BITS if "typesize" in fault else BYTES, lead=0)
    case.boxes, case.gather = lines_of(case.boxes, case.src_strides, case.dst_strides)
    getattr(case, table)[at] = value
    assert case.run(assemble, lane).tolist() == [0, Status.BAD_TABLE, 0]
    own = slice(int(case.boxes[2, B_DEST]) - 40 * case.itemsize, int(case.boxes[2, B_DEST]))
    case.out[own] = case.want[own] = 0
    np.testing.assert_array_equal(case.out, case.want)


@pytest.mark.parametrize("lane", kit.LANES)
@pytest.mark.parametrize("fault", GATHER_FAULTS)
def test_hostile_lines_are_reported_and_copy_nothing(lane: str, fault: str) -> None:
    table, at, value = GATHER_FAULTS[fault]
    case = Case(*HOST[assemble][1], (40,), lead=0)
    case.boxes, case.gather = lines_of(case.boxes, case.src_strides, case.dst_strides)
    getattr(case, table)[at] = value
    assert case.run(assemble, lane).tolist() == [0, Status.BAD_TABLE, 0]
    left = left_by_fault(case.boxes, case.gather, case.want, case.itemsize)
    np.testing.assert_array_equal(case.out, left)


@pytest.mark.parametrize("lane", kit.LANES)
def test_the_plain_reference_agrees_on_indexed_boxes(lane: str) -> None:
    for index in ("axes", "points"):
        case = Case(*HOST[assemble][1], (3, 20), BITS, missing=(2,), index=index, seed=5)
        out, arenas = case.out.copy(), (case.source, case.scratch)
        tables = case.layouts, case.boxes, case.src_strides, case.dst_strides
        assemble.reference(arenas, *tables, case.fill, case.swap, out, case.gather)
        np.testing.assert_array_equal(out, case.want)
        case.check(assemble, lane)


def test_eligible_boxes() -> None:
    def ok(itemsize: int = 4, step: int = 1, **changes: int) -> bool:
        layout = {"arena": SCRATCH, "base": 0, "size": 4000, "block": 400, "kind": itemsize, "mode": BYTES} | changes
        layouts = np.array([list(layout.values())[:6]])
        box = np.array([[0, 0, changes.get("dest", 0), 10, 20]])
        strides = np.array([changes.get("row", 80), itemsize])
        return bool(assemble_words.eligible(layouts, box, np.array([20, step]), strides, itemsize)[0])

    assert ok()
    assert ok(mode=BITS)
    assert ok(kind=2, mode=PLAIN, size=4001, block=0)
    assert ok(arena=FILL, kind=2, size=1 << 40)
    assert not ok(kind=2)
    assert not ok(block=401)
    assert not ok(size=4001)
    assert not ok(size=1 << 31)
    assert not ok(step=2)
    assert not ok(dest=2)
    assert not ok(row=81)
    assert not ok(itemsize=16)
