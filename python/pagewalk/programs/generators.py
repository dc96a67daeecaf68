"""The user's own programs: generators of blocks of memory operations.

A block is a NumPy array of addresses, a structured array, or a `Block`. The engine gets it as
bytes in the layout of its own operations. So a block costs a few NumPy operations.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from pagewalk.config.options import whole
from pagewalk.errors import Failure, RunOption, UserError
from pagewalk.view.escape import shown

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike

    from pagewalk.result import Result

ADDRESSES = 1 << 56
"""End of the addresses that a program may use: the lower half of a 57-bit address space."""
GATHERED = 4096
"""Addresses that are put together to a block when a generator yields single ones."""
CODE = 0x40_1000
"""Instruction address of operations that name none: a loop of one memory instruction.

64 KB from here are always mapped."""
LOAD, STORE, PREFETCH, FLUSH, NON_TEMPORAL_STORE = 1, 2, 5, 6, 7
"""The engine's numbers for kinds of operations."""
KINDS = {LOAD: "a load", STORE: "a store", PREFETCH: "a prefetch", FLUSH: "a flush"}


@dataclass(repr=False)
class Block:
    """Memory operations in program order: arrays of equal length, or one value for all.

    `address` is a virtual address below 2^56. `store` marks stores. `distance` is
    the number of operations back to the one whose result is this one's address (0: none; at most
    65535). `pc` is the address of the instruction, in mapped memory; with `mappings` given, 64 KB
    from 0x401000 are always mapped. `gap` is the number of plain instructions before
    it (at most 65534). `size` is the bytes read or written (1 to 64). `request` marks
    operations that end a request; if any block of a program has it, the first one has it.
    `prefetch` marks software prefetches into all caches (`prefetcht0`), `flush` flushes of the
    line from all caches (`clflush`), and `non_temporal` stores past the caches (`movnti`), each
    under the same rule.
    """

    address: ArrayLike
    store: ArrayLike = False
    distance: ArrayLike | None = None
    pc: ArrayLike = CODE
    gap: ArrayLike = 0
    size: ArrayLike = 8
    request: ArrayLike | None = None
    prefetch: ArrayLike | None = None
    flush: ArrayLike | None = None
    non_temporal: ArrayLike | None = None

    def __repr__(self) -> str:
        said = [f.name for f in fields(self) if getattr(self, f.name) is not f.default]
        try:
            return f"<Block of {len(self.address):,} operations: {', '.join(said)}>"  # type: ignore[arg-type]
        except TypeError:  # one value, or no array
            return f"<Block: {', '.join(said)}>"


@dataclass(frozen=True)
class Mapping:
    """Memory that a program has mapped before it starts.

    `at` and `bytes` are multiples of 4096. With `populate` every page is touched once, in
    ascending order and without simulated time, before the run.
    """

    at: int
    bytes: int
    populate: bool = False
    writable: bool = True


class WorkloadError(UserError):
    """A program of the user's own went wrong; `result` is what was measured until then."""

    result: Result | None = None


class Streams:
    """The threads of a user's program; the engine reads its fields by their names."""

    def __init__(
        self, workload: object, mappings: Sequence[Mapping | tuple[int, int]] | None
    ) -> None:
        try:
            import numpy
        except ImportError:
            raise Failure(
                "a program of your own needs NumPy; install it with 'pip install numpy'",
                about=RunOption("workload"),
            ) from None
        self.name = _name(workload)
        self.threads = [_Thread(numpy, self.name, one, i) for i, one in enumerate(_split(workload))]
        self.mappings = _mappings(mappings)
        self.dependences = any(thread.dependences for thread in self.threads)
        self.requests = any(thread.requests for thread in self.threads)
        self.prefetches = any(thread.prefetches for thread in self.threads)
        self.flushes = any(thread.flushes or thread.non_temporal for thread in self.threads)

    def error(self) -> WorkloadError | None:
        """The first error of a generator, chained to its exception."""
        return next((t.error for t in self.threads if t.error is not None), None)

    @property
    def pulls(self) -> list[Callable[[], bytes | None]]:
        """A function for each thread: it gives the next block, or None at the end."""
        return [thread.pull for thread in self.threads]


def _name(workload: object) -> str:
    if isinstance(workload, (list, tuple)) and workload:
        workload = workload[0]
    return str(getattr(workload, "__name__", type(workload).__name__))


def _split(workload: object) -> list[Iterable[Any]]:
    """One iterable a thread."""
    if isinstance(workload, (list, tuple)):
        if not workload:
            raise UserError(
                "an empty list; expected a generator, or one a thread", about=RunOption("workload")
            )
        if any(isinstance(one, str) for one in workload):
            raise UserError(
                f"{shown(workload)} lists built-in programs; expected the name of one, "
                "or mix=[…] for several side by side",
                about=RunOption("workload"),
            )
        if all(isinstance(one, Iterator) or callable(one) for one in workload):
            return [_iterable(one) for one in workload]
        return [workload]
    return [_iterable(workload)]


def _iterable(workload: object) -> Iterable[Any]:
    if callable(workload) and not isinstance(workload, Iterable):
        workload = workload()
    if hasattr(workload, "dtype") or isinstance(workload, Block):
        return [workload]
    if not isinstance(workload, Iterable):
        raise UserError(
            f"{shown(workload)} is no program; expected the name of a "
            "built-in one, or a generator of NumPy arrays of addresses",
            about=RunOption("workload"),
        )
    return workload


def _mappings(given: Any) -> list[tuple[int, int, bool, bool]]:
    if given is None:
        return []
    if isinstance(given, (str, Mapping)) or not isinstance(given, Iterable):
        raise UserError(
            f"{shown(given)} is no list; expected one of pagewalk.Mapping(at=…, bytes=…) "
            "or of pairs of address and bytes",
            about=RunOption("mappings"),
        )
    return [_mapping(one) for one in given]


def _mapping(given: Any) -> tuple[int, int, bool, bool]:
    if not isinstance(given, Mapping):
        try:
            given = Mapping(*given) if 2 <= len(given) <= 4 else None
        except TypeError:
            given = None
    if given is None:
        raise UserError(
            "expected each to be a pagewalk.Mapping(at=…, bytes=…), or a pair of address and bytes",
            about=RunOption("mappings"),
        )
    at, size = (
        whole(getattr(given, name), f"mappings: {name}", "a number of bytes")
        for name in ("at", "bytes")
    )
    for name, value in (("at", at), ("bytes", size)):
        if value % 4096:
            raise UserError(
                f"{name}={value:#x} is no multiple of 4096", about=RunOption("mappings")
            )
    if at < 0 or size <= 0 or at + size > ADDRESSES:
        raise UserError(
            f"{size:#x} bytes at {at:#x} do not lie in 0 to 2^56", about=RunOption("mappings")
        )
    return at, size, bool(given.writable), bool(given.populate)


class _Thread:
    """One thread: its blocks in the engine's layout, the first of them checked at once."""

    def __init__(self, numpy: Any, name: str, blocks: Iterable[Any], number: int) -> None:
        self._np = numpy
        # The layout of the engine's operations in memory.
        self._layout = numpy.dtype(
            {
                "names": ["pc", "va", "insns", "dep", "kind", "size", "request"],
                "formats": ["<u8", "<u8", "<u2", "<u2", "u1", "u1", "u1"],
                "offsets": [0, 8, 16, 18, 25, 26, 27],
                "itemsize": 32,
            }
        )
        self._where = f"workload {name}, thread {number}"
        self._blocks = iter(blocks)
        self._given = 0
        self.error: WorkloadError | None = None
        self.dependences = False
        self.requests = False
        self.prefetches = False
        self.flushes = False
        self.non_temporal = False
        self._first: bytes | None = self._next()
        self._has_first = True

    def pull(self) -> bytes | None:
        """The next block; `error` keeps an exception for the caller of the run."""
        if self._has_first:
            self._has_first = False
            first, self._first = self._first, None
            return first
        try:
            return self._next()
        except WorkloadError as error:
            self.error = error
            raise

    def _next(self) -> bytes | None:
        where = f"{self._where}, block after {self._given} operations"
        try:
            item = next(self._blocks, None)
            if item is not None and not hasattr(item, "dtype") and not isinstance(item, Block):
                item = self._gather(item)
        except Exception as error:
            raise WorkloadError(f"{where}: {type(error).__name__}: {error}") from error
        if item is None:
            return None
        try:
            return self._pack(item)
        except (UserError, TypeError, ValueError, OverflowError) as error:
            raise WorkloadError(f"{where}: {error}") from error

    def _gather(self, first: object) -> Any:
        """Single addresses, put together; or a list of them."""
        if isinstance(first, (list, tuple)):
            return self._np.asarray(first)
        rest = itertools.islice(self._blocks, GATHERED - 1)
        return self._np.asarray(list(itertools.chain([first], rest)))

    def _pack(self, item: Any) -> bytes:
        np = self._np
        if isinstance(item, Block):
            columns = {f.name: getattr(item, f.name) for f in fields(Block)}
            columns = {k: np.asarray(v) for k, v in columns.items() if v is not None}
        elif item.dtype.names:
            known = {f.name for f in fields(Block)}
            unknown = [n for n in item.dtype.names if n not in known]
            if unknown or "address" not in item.dtype.names:
                raise UserError(
                    f"fields {', '.join(item.dtype.names)}; expected address and any of "
                    f"{', '.join(sorted(known - {'address'}))}"
                )
            columns = {n: item[n] for n in item.dtype.names}
        else:
            columns = {"address": item}
        address = self._column("address", columns["address"], 0, ADDRESSES - 1)
        if address.ndim != 1:
            raise UserError(f"addresses of shape {address.shape}; expected one dimension")
        ops = np.zeros(len(address), self._layout)
        size = self._column("size", columns.get("size", np.asarray(8)), 1, 64)
        if np.any(address + size.astype(np.uint64) > ADDRESSES):
            raise UserError("an access goes beyond 2^56, the end of a program's addresses")
        ops["va"] = address
        ops["size"] = size
        ops["pc"] = self._column("pc", columns.get("pc", np.asarray(CODE)), 0, ADDRESSES - 1)
        ops["insns"] = self._column("gap", columns.get("gap", np.asarray(0)), 0, 65534) + 1
        ops["kind"] = self._kinds(columns, len(address))
        if "request" in columns:
            self.requests = True
            ops["request"] = self._flag("request", columns["request"])
        if "distance" in columns:
            self.dependences = True
            distance = self._column("distance", columns["distance"], 0, 65535)
            before = self._given + np.arange(len(address), dtype=np.int64)
            # A producer before the first operation is always ready.
            ops["dep"] = np.where(distance > before, 0, distance)
        self._given += len(address)
        packed: bytes = ops.tobytes()
        return packed

    def _kinds(self, columns: dict[str, Any], count: int) -> np.ndarray[Any, Any]:
        """The engine's numbers of the operations' kinds."""
        numpy = self._np
        for name, before in (
            ("request", self.requests),
            ("prefetch", self.prefetches),
            ("flush", self.flushes),
            ("non_temporal", self.non_temporal),
        ):
            if name in columns and self._given and not before:
                raise UserError(f"{name}: no block before has it; expected it from the first on")
        self.prefetches = self.prefetches or "prefetch" in columns
        self.flushes = self.flushes or "flush" in columns
        self.non_temporal = self.non_temporal or "non_temporal" in columns
        kinds = numpy.broadcast_to(1 + self._flag("store", columns.get("store", False)), count)
        for name, number, of in (
            ("prefetch", PREFETCH, LOAD),
            ("flush", FLUSH, LOAD),
            ("non_temporal", NON_TEMPORAL_STORE, STORE),
        ):
            if name not in columns:
                continue
            marked = self._flag(name, columns[name]) == 1
            other = kinds[numpy.broadcast_to(marked, count) & (kinds != of)]
            if len(other):
                raise UserError(
                    f"{name}: an operation is {KINDS[int(other[0])]}, too; "
                    f"expected it of {KINDS[of]} only"
                )
            kinds = numpy.where(marked, number, kinds)
        found: np.ndarray[Any, Any] = kinds
        return found

    def _flag(self, name: str, values: Any) -> np.ndarray[Any, Any]:
        """0 or 1, from those or from booleans."""
        values = self._np.asarray(values)
        if values.dtype.kind != "b":
            values = self._column(name, values, 0, 1)
        flag: np.ndarray[Any, Any] = values.astype(self._np.uint8)
        return flag

    def _column(self, name: str, values: Any, least: int, most: int) -> np.ndarray[Any, Any]:
        values = self._np.asarray(values)
        if values.dtype.kind not in "ui":
            raise UserError(f"{name}: {values.dtype} values; expected whole numbers, as uint64")
        if values.size and (int(values.min()) < least or int(values.max()) > most):
            out = int(values.min()) if int(values.min()) < least else int(values.max())
            raise UserError(f"{name}: {out:#x} is out of range; expected {least} to {most:#x}")
        unsigned: np.ndarray[Any, Any] = values.astype(self._np.uint64, copy=False)
        return unsigned
