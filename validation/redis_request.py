"""A GET of a real Redis: what its parts cost, and the listing that `kv-redis` executes.

    python validation/redis_request.py [SERVER ...] [--write]
    python validation/redis_request.py SERVER --record

Without `--record`, each server runs under Valgrind's Callgrind (by default Debian's
`redis-server`). A client loads 100,000 keys of 24 bytes and sends pipelined GETs of random ones,
100 at a time, over a Unix socket. Callgrind counts instructions, loads and stores. Its cache model
has lines of 4 KB, so that it counts TLB misses: 64 entries for data, 1536 shared ones behind.
Counts go to validation/redis_request.json, and with `--write` into docs/validation.md.

`--record` single-steps GETs of a server with a symbol table through ptrace, and writes
crates/programs/src/kv/redis/get.txt: the instructions that access memory or branch, from the
creation of the argument objects to their release. Redis 5.0.7, the paper's version, is built from
its tag with `make MALLOC=jemalloc CFLAGS=-fcommon OPTIMIZATION=-O2`. `--record` needs the package
capstone of PyPI.
"""

from __future__ import annotations

import argparse
import bisect
import contextlib
import ctypes
import importlib
import json
import os
import random
import re
import signal
import struct
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import marked
from marked import row
from redis_socket import connected

ROOT = Path(__file__).parent.parent
KEPT = ROOT / "validation" / "redis_request.json"
LISTING = ROOT / "crates" / "programs" / "src" / "kv" / "redis" / "get.txt"
VALUES = (64, 128, 256)
KEYS, GETS, BATCH = 100_000, 10_000, 100
OPTIONS = ("--port", "0", "--save", "", "--hz", "1", "--activerehashing", "no",
           "--slowlog-log-slower-than", "1000000000")  # fmt: skip
"""Single steps make each command slow: none may enter the slow log."""
EVENTS = ("instructions", "loads", "stores", "l1_dtlb_misses", "l2_tlb_misses")
TLB = ("--cache-sim=yes", "--I1=262144,4,4096", "--D1=262144,4,4096", "--LL=6291456,12,4096")


def command(*words: bytes) -> bytes:
    """A request in Redis's protocol."""
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words)


def key(n: int) -> bytes:
    """A key as YCSB's: `user` and 20 digits."""
    return b"user%020d" % (n * 0x9E3779B97F4A7C15 % 10**19)


class Client:
    """A client at a server's socket."""

    def __init__(self, path: Path, server: subprocess.Popen[bytes]) -> None:
        """Waits until the server answers."""
        self.socket = connected(path, server)
        self.file = self.socket.makefile("rb")

    def read(self, count: int) -> None:
        """Reads replies of OK or a string."""
        for _ in range(count):
            line = self.file.readline()
            if line[:1] == b"$" and line[1:2] != b"-":
                self.file.read(int(line[1:]) + 2)
            elif line[:1] not in (b"+", b"$"):
                raise SystemExit(f"the server replied {line!r}; expected a string or OK")

    def all(self, commands: Sequence[bytes]) -> None:
        """Sends commands in batches."""
        for at in range(0, len(commands), BATCH):
            some = commands[at : at + BATCH]
            self.socket.sendall(b"".join(some))
            self.read(len(some))


@contextlib.contextmanager
def serving(prefix: Sequence[str], server: str) -> Iterator[tuple[Client, int, Path]]:
    """A server in a fresh folder, its client, and its process; it is shut down in the end."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "socket"
        whole = [*prefix, server, *OPTIONS, "--unixsocket", str(path), "--dir", name]
        whole = [word.replace("FOLDER", name) for word in whole]
        process = subprocess.Popen(whole, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            client = Client(path, process)
            yield client, process.pid, Path(name)
        except BaseException:
            process.kill()
            raise
        client.socket.sendall(command(b"SHUTDOWN", b"NOSAVE"))
        process.wait()


# Callgrind.

Function = str
Costs = list[int]


def profile(path: Path) -> tuple[Costs, dict[tuple[Function, Function], Costs]]:
    """The costs in a file of Callgrind: all of them, and those of calls between functions."""
    names: dict[tuple[str, str], str] = {}
    total = [0] * len(EVENTS)
    calls: dict[tuple[Function, Function], Costs] = defaultdict(lambda: [0] * len(EVENTS))
    order: list[str] = []
    function = callee = ""
    is_call = False

    def name(kind: str, text: str) -> str:
        found = re.match(r"\((\d+)\)(?: (.*))?$", text)
        if not found:
            return text
        if found[2] is not None:
            names[kind, found[1]] = found[2]
        return names[kind, found[1]]

    for line in path.read_text().splitlines():
        if line.startswith("events:"):
            order = line.split()[1:]
        elif line.startswith("fn="):
            function = name("fn", line[3:])
        elif line.startswith("cfn="):
            callee = name("fn", line[4:])
        elif line.startswith("calls="):
            is_call = True
        elif line[:1].isdigit() or line[:1] in ("+", "-", "*"):
            counts = dict(zip(order, map(int, line.split()[1:]), strict=False))
            of = [counts.get(n, 0) for n in ("Ir", "Dr", "Dw")]
            of += [counts.get(f"{n}mr", 0) + counts.get(f"{n}mw", 0) for n in ("D1", "DL")]
            to = calls[function, callee] if is_call else total
            for i, count in enumerate(of):
                to[i] += count
            is_call = False
    return total, calls


def parts(path: Path) -> dict[str, dict[str, float]]:
    """Counts a GET by part, of a profile of `GETS` of them."""
    total, calls = profile(path)

    def to(callee: str, *callers: str) -> Costs:
        found = [c for (a, b), c in calls.items() if b == callee and (not callers or a in callers)]
        return [sum(column) for column in zip([0] * len(EVENTS), *found, strict=True)]

    def less(whole: Costs, *some: Costs) -> Costs:
        return [whole[i] - sum(s[i] for s in some) for i in range(len(whole))]

    def plus(*some: Costs) -> Costs:
        return [sum(column) for column in zip(*some, strict=True)]

    parser = "processMultibulkBuffer"
    search = to("dictFind", "lookupKey")
    objects = plus(*(to(f, parser) for f in ("createStringObject", "zmalloc", "zfree")))
    ends = "commandProcessed" if any(total for total in to("commandProcessed")) else "resetClient"
    frees = plus(to("decrRefCount", "resetClient"), to("zfree", "resetClient"))
    table = plus(to("dictFetchValue", "processCommand"), to("lookupCommandLogic", "processCommand"))
    executed = to("call", "processCommand")
    found, reply = to("lookupKeyReadOrReply"), to("addReplyBulk", "getGenericCommand")
    whole = {
        "search": search,
        "argument objects": plus(objects, frees),
        "command table": table,
        "checks": less(to("processCommand"), executed, table),
        "call": less(executed, found, reply),
        "key": less(found, search),
        "reply": reply,
        "reset": less(to(ends, "processInputBuffer"), frees),
    }
    whole["parsing"] = less(to(parser), objects)
    whole["loop"] = less(total, *whole.values())
    return {
        part: {e: n / GETS for e, n in zip(EVENTS, costs, strict=True)}
        for part, costs in whole.items()
    }


OUTSIDE = ("parsing", "loop")
"""Parts that `kv-redis` leaves out: protocol, and the event loop with the system calls."""
MEANING = {
    "search": "`dictFind` of the main dictionary, with hash and comparison",
    "argument objects": "`createStringObject`, the array of arguments, and their release",
    "command table": "search for the command",
    "checks": "the rest of `processCommand`",
    "call": "`call` and `getGenericCommand` with clock and statistics",
    "key": "`lookupKeyReadOrReply` without the search: expiry, LRU clock, hit count",
    "reply": "`addReplyBulk` into the client's buffer",
    "reset": "`resetClient` without the release",
    "parsing": "`processMultibulkBuffer` without the objects",
    "loop": "`processInputBuffer`, event loop, timers; no kernel",
}


def measure(server: str) -> None:
    """Counts a GET of a server by size of the values, and keeps them."""
    version = measured_version(server)
    for value in VALUES:
        tool = ["valgrind", "--tool=callgrind", "--instr-atstart=no", *TLB]
        tool += ["--callgrind-out-file=FOLDER/counts"]
        with serving(tool, server) as (client, pid, folder):
            text = b"x" * value
            client.all([command(b"SET", key(n), text) for n in range(KEYS)])
            draw = random.Random(1)
            gets = [command(b"GET", key(draw.randrange(KEYS))) for _ in range(2 * GETS)]
            control = ["callgrind_control", "-i"]
            # The first half warms the TLBs.
            subprocess.run([*control, "on", str(pid)], check=True, capture_output=True)
            client.all(gets[:GETS])
            subprocess.run(["callgrind_control", "-z", str(pid)], check=True, capture_output=True)
            client.all(gets[GETS:])
            subprocess.run(["callgrind_control", "-d", str(pid)], check=True, capture_output=True)
            counts = parts(folder / "counts.1")
        kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
        kept.setdefault(version, {})[str(value)] = counts
        KEPT.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")
        print(server, value, flush=True)


# Single steps.

ATTACH, DETACH, CONTINUE, STEP, GET_REGISTERS, SET_REGISTERS = 16, 17, 7, 9, 12, 13
REGISTERS = (
    "r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi orig_rax rip cs eflags rsp ss "
    "fs_base gs_base ds es fs gs"
).split()
RIP, RSP, RDI, RAX, FS = (REGISTERS.index(n) for n in ("rip", "rsp", "rdi", "rax", "fs_base"))
Registers = tuple[int, ...]


class Memory:
    """The memory of a process."""

    def __init__(self, pid: int) -> None:
        """Opens it."""
        self.memory = Path(f"/proc/{pid}/mem").open("r+b", buffering=0)  # noqa: SIM115 (kept open)

    def peek(self, at: int, size: int) -> bytes:
        """Reads bytes."""
        self.memory.seek(at)
        return self.memory.read(size)

    def poke(self, at: int, data: bytes) -> None:
        """Writes bytes."""
        self.memory.seek(at)
        self.memory.write(data)


class Tracee(Memory):
    """A process under ptrace."""

    def __init__(self, pid: int) -> None:
        """Stops its main thread."""
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.libc.ptrace.restype = ctypes.c_long
        self.libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
        self.pid = pid
        self.call(ATTACH)
        os.waitpid(pid, 0)
        super().__init__(pid)
        self.buffer = ctypes.create_string_buffer(8 * len(REGISTERS))

    def call(self, request: int, data: Any = None) -> None:
        """A call of ptrace."""
        if self.libc.ptrace(request, self.pid, None, data) == -1:
            raise OSError(ctypes.get_errno(), f"ptrace({request}) of process {self.pid}")

    def registers(self) -> Registers:
        """All registers."""
        self.call(GET_REGISTERS, self.buffer)
        return struct.unpack(f"{len(REGISTERS)}Q", self.buffer.raw)

    def step(self) -> None:
        """Executes one instruction."""
        self.call(STEP)
        os.waitpid(self.pid, 0)

    def reach(self, at: int) -> None:
        """Continues to the instruction at an address."""
        old = self.peek(at, 1)
        self.poke(at, b"\xcc")
        while True:
            self.call(CONTINUE)
            _, status = os.waitpid(self.pid, 0)
            if os.WSTOPSIG(status) == signal.SIGTRAP:
                break
        self.poke(at, old)
        registers = list(self.registers())
        registers[RIP] = at
        self.buffer.raw = struct.pack(f"{len(REGISTERS)}Q", *registers)
        self.call(SET_REGISTERS, self.buffer)

    def __enter__(self) -> Tracee:
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Lets it go on."""
        self.call(DETACH)
        self.memory.close()


@dataclass
class Steps:
    """The instructions of a GET: registers before each, and what they refer to."""

    steps: list[Registers]
    code: dict[int, bytes]
    client: int
    reply: int
    """Address of its reply in the client's buffer."""


def stepped(pid: int, client: Client, gets: Sequence[bytes], start: int, skip: int) -> Steps:
    """Single-steps one of the GETs: the commonest of nine, by its number of instructions."""
    client.all(gets)
    found: list[Steps] = []
    with Tracee(pid) as process:
        client.socket.sendall(b"".join(gets))
        for _ in range(skip):
            process.reach(start)
            process.step()
        process.reach(start)
        for _ in range(9):
            one = Steps([], {}, 0, 0)
            client_at = process.registers()[RDI]
            used = struct.unpack("I", process.peek(client_at + BUFPOS, 4))[0]
            reply = client_at + BUFFER + used
            while not one.steps or process.registers()[RIP] != start:
                registers = process.registers()
                one.steps.append(registers)
                if registers[RIP] not in one.code:
                    one.code[registers[RIP]] = process.peek(registers[RIP], 15)
                process.step()
            one.client = one.steps[0][RDI]
            one.reply = reply
            found.append(one)
    client.read(len(gets))
    counts = Counter(len(one.steps) for one in found)
    commonest = min(counts, key=lambda count: (-counts[count], count))
    print("instructions of the GETs", dict(counts), flush=True)
    return next(one for one in found if len(one.steps) == commonest)


Bases = dict[str, tuple[int, int, int]]
BUFPOS, BUFFER = 528, 532
"""In Redis 5.0.7's `client`."""


@dataclass
class Op:
    """An operation of the listing."""

    kind: str
    pc: int
    insns: int
    at: int = 0
    size: int = 0
    inputs: list[tuple[int, int]] = field(default_factory=list)
    """Producers: numbers in the section, and cycles after them. -1 is the entry's address."""
    target: int = 0
    part: str = ""


class Recorder:
    """Turns steps into sections of the listing."""

    def __init__(self, symbols: dict[str, int]) -> None:
        """`symbols` are addresses of functions."""
        try:
            capstone: Any = importlib.import_module("capstone")
        except ImportError:
            raise SystemExit(
                "pip install capstone: --record decodes instructions with it"
            ) from None
        self.machine = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
        self.machine.detail = True
        self.cs = capstone
        self.symbols = symbols
        self.addresses = sorted((at, name) for name, at in symbols.items())
        self.decoded: dict[int, Any] = {}
        self.pages: dict[int, int] = {}
        self.lines: set[int] = set()

    def function(self, pc: int) -> str:
        """The function of the server at an address; the last one also stands for libraries."""
        at = bisect.bisect_right(self.addresses, (pc, "~")) - 1
        return self.addresses[at][1]

    def instruction(self, pc: int, steps: Steps) -> Any:
        """The decoded instruction."""
        if pc not in self.decoded:
            self.decoded[pc] = next(self.machine.disasm(steps.code[pc], pc))
        return self.decoded[pc]

    def spans(self, steps: Steps) -> tuple[list[bool], int, int]:
        """The steps that belong to the listing; the first of the search, and the one after it."""
        included, inside, search = [False] * len(steps.steps), 0, [0, 0]
        for i, registers in enumerate(steps.steps):
            pc, sp = registers[RIP], registers[RSP]
            caller = self.function(steps.steps[i - 1][RIP]) if i else ""
            if inside and sp > inside:
                inside = 0
            if not inside and caller in OUTER and pc in (self.symbols[n] for n in INNER):
                inside, included[i - 1] = sp, True
            included[i] = inside > 0
            if pc == self.symbols["dictFind"] and caller == "lookupKey":
                search[0] = i - 1
                search[1] = next(j for j in range(i, len(steps.steps)) if steps.steps[j][RSP] > sp)
        if not search[0]:
            raise SystemExit("no call of dictFind by lookupKey among the steps")
        return included, search[0], search[1]

    def parts(self, steps: Steps) -> list[str]:
        """The part of each step. A call belongs to the part that it enters, as its return does."""
        found: list[str] = []
        inside: list[tuple[str, int]] = [("", 1 << 64)]
        for i, registers in enumerate(steps.steps):
            pc, sp = registers[RIP], registers[RSP]
            while sp > inside[-1][1]:
                inside.pop()
            caller = self.function(steps.steps[i - 1][RIP]) if i else ""
            function = self.function(pc)
            if pc == self.symbols.get(function) and (part := PARTS.get((caller, function))):
                inside.append((part, sp))
                found[-1] = part
            found.append(inside[-1][0])
        return found

    def place(self, address: int, bases: Bases) -> int:
        """The address as the listing has it: a letter in the upper bits, an offset in the lower."""
        for letter, (first, size, base) in bases.items():
            if first <= address < first + size:
                return PLACES.index(letter) << 32 | (address - base) & 0xFFFFFFFF
        page = self.pages.setdefault(address >> 12, len(self.pages))
        return PLACES.index("D") << 32 | page << 12 | address & 0xFFF

    def bases(self, steps: Steps, after: int, process: Memory) -> Bases:
        """Ranges that are not at fixed addresses: first, size, and where offset 0 is."""
        caller = "processMultibulkBuffer"
        returned: dict[str, list[int]] = {}
        given: dict[str, list[int]] = {}
        for i, registers in enumerate(steps.steps[1:], 1):
            pc, before = registers[RIP], steps.steps[i - 1]
            if self.function(before[RIP]) == caller and self.function(pc) != caller:
                name = self.function(pc)
                given.setdefault(name, []).append(registers[RDI])
            elif self.function(pc) == caller and self.function(before[RIP]) != caller:
                returned.setdefault(name, []).append(registers[RAX])
        stack, entry = steps.steps[0][RSP], steps.steps[after][RAX]
        command, key = returned["createStringObject"]
        found = {
            "S": (stack - 8192, 8192, stack), "A": (returned["zmalloc"][0], 16),
            "N": (command, 32), "K": (key, 48), "R": (steps.reply, 512),
        }  # fmt: skip
        text = given["createStringObject"][1]
        found["Q"] = (text - 64, 160, text)
        if entry:
            (record,) = struct.unpack("Q", process.peek(entry + 8, 8))
            (value,) = struct.unpack("Q", process.peek(record + 8, 8))
            found |= {"E": (entry, 24), "O": (record, 16), "V": (value - 8, 320, value)}
        return {letter: (f[0], f[1], f[-1] if len(f) > 2 else f[0]) for letter, f in found.items()}

    def listing(
        self, steps: Steps, bases: Bases, span: range, included: Sequence[bool]
    ) -> list[Op]:
        """The operations of some steps."""
        lister = Lister(self, bases)
        parts = self.parts(steps)
        if included[span.start]:
            lister.ready["rax"] = ENTRY
        for i in span:
            if not included[i]:
                lister.ready.clear()
                continue
            after = (j for j in range(i + 1, len(included)) if included[j])
            registers, lister.part = steps.steps[i], parts[i]
            target = steps.steps[next(after, i)][RIP]
            next_pc = steps.steps[min(i + 1, len(included) - 1)][RIP]
            lister.execute(registers, self.instruction(registers[RIP], steps), target, next_pc)
        if lister.waiting:
            lister.ops.append(Op("x", lister.ops[-1].pc, lister.waiting, part=lister.part))
        return lister.ops


Producer = tuple[int, int]
NOTHING: Producer = (-2, 0)
ENTRY: Producer = (-1, 0)


class Lister:
    """Lists instructions one by one, and follows the registers to what produced their values."""

    def __init__(self, recorder: Recorder, bases: Bases) -> None:
        """No register has a producer in the section yet."""
        self.recorder, self.cs, self.bases = recorder, recorder.cs, bases
        self.ops: list[Op] = []
        self.ready: dict[str, Producer] = {}
        self.waiting = 0
        self.pc = 0
        self.part = ""

    def emit(self, kind: str, **fields: Any) -> Producer:
        """Adds an operation."""
        self.ops.append(Op(kind, self.pc, self.waiting, part=self.part, **fields))
        self.waiting = 0
        return len(self.ops) - 1, 0

    def producers(self, names: Iterable[str]) -> list[Producer]:
        """The two latest producers of registers."""
        return sorted({self.ready[n] for n in names if n in self.ready}, reverse=True)[:2]

    def address(self, insn: Any, operand: Any, registers: Registers) -> tuple[int, list[Producer]]:
        """The address of a memory operand, and what produced it."""
        values = dict(zip(REGISTERS, registers, strict=True)) | {"rip": self.pc + insn.size}
        mem, names = operand.mem, []
        at = mem.disp
        for register, scale in ((mem.base, 1), (mem.index, mem.scale)):
            if register:
                names.append(whole(insn.reg_name(register)))
                at += values[names[-1]] * scale
        if mem.segment == self.cs.x86.X86_REG_FS:
            at += values["fs_base"]
        return self.recorder.place(at & (1 << 64) - 1, self.bases), self.producers(names)

    def access(self, insn: Any, registers: Registers, is_transfer: bool) -> Producer | None:
        """The accesses to memory; the load's result."""
        given = [o for o in insn.operands if o.type == self.cs.x86.X86_OP_REG]
        stored = self.producers(whole(insn.reg_name(o.reg)) for o in given)[:1]
        result: Producer | None = None
        for operand in insn.operands:
            if operand.type != self.cs.x86.X86_OP_MEM or insn.mnemonic in ("lea", "nop"):
                continue
            at, of = self.address(insn, operand, registers)
            size = min(operand.size, 64)
            if operand.access & self.cs.CS_AC_READ or is_transfer:
                result = self.emit("l", at=at, size=size, inputs=of)
            if operand.access & self.cs.CS_AC_WRITE:
                data = [result] if result else stored
                self.emit("s", at=at, size=size, inputs=[*(of[:1] or [NOTHING]), *data])
        sp = registers[RSP]
        if insn.mnemonic == "push" or insn.group(self.cs.CS_GRP_CALL):
            data = stored if insn.mnemonic == "push" else []
            at = self.recorder.place(sp - 8, self.bases)
            self.emit("s", at=at, size=8, inputs=[NOTHING, *data])
        if insn.mnemonic == "pop" or insn.group(self.cs.CS_GRP_RET):
            result = self.emit("l", at=self.recorder.place(sp, self.bases), size=8)
        return result

    def execute(self, registers: Registers, insn: Any, target: int, next_pc: int) -> None:
        """Lists an instruction. `target` is the next one listed, `next_pc` the next executed."""
        self.pc = registers[RIP]
        self.recorder.lines.update(at >> 6 for at in (self.pc, self.pc + insn.size - 1))
        self.waiting += 1
        reads, writes = insn.regs_access()
        names = [whole(insn.reg_name(r)) for r in reads]
        latest = self.producers(names)
        kinds = {self.cs.CS_GRP_CALL: "c", self.cs.CS_GRP_RET: "r", self.cs.CS_GRP_JUMP: "n"}
        kind = next((k for group, k in kinds.items() if insn.group(group)), "")
        loaded = self.access(insn, registers, bool(kind))
        if kind == "n" and next_pc != self.pc + insn.size:
            kind = "j" if insn.mnemonic == "jmp" else "b"
        if kind:
            direct = kind == "r" or insn.operands[0].type == self.cs.x86.X86_OP_IMM
            inputs = [loaded] if loaded else latest
            self.emit(kind if direct else kind.upper(), inputs=inputs, target=target)
        cycles = 0 if insn.mnemonic in ("mov", "movzx", "lea", "push", "pop") else 1
        result = loaded
        if loaded is None and latest:
            slow = insn.mnemonic in ("imul", "mul", "tzcnt", "bsf", "vpmovmskb")
            result = (latest[0][0], latest[0][1] + (3 if slow else cycles))
        elif loaded is not None:
            result = (loaded[0], cycles)
        if insn.mnemonic in ("xor", "pxor", "vpxor") and len(set(names)) == 1:
            result = None
        for name in {whole(insn.reg_name(r)) for r in writes} - {"rsp", "rip"}:
            self.ready.pop(name, None)
            if result is not None:
                self.ready[name] = result


INNER = ("createStringObject", "zmalloc", "zfree", "processCommand", "resetClient")
OUTER = ("processMultibulkBuffer", "processInputBuffer")
"""Functions whose calls of the former are listed."""
PARTS = {
    **{("processMultibulkBuffer", name): "arguments" for name in INNER[:3]},
    **{("resetClient", name): "arguments" for name in ("decrRefCount", "zfree")},
    **{("processCommand", name): "table" for name in ("dictFetchValue", "lookupCommandLogic")},
    ("processInputBuffer", "processCommand"): "checks",
    ("processCommand", "call"): "call",
    ("getGenericCommand", "lookupKeyReadOrReply"): "key",
    ("getGenericCommand", "addReplyBulk"): "reply",
    ("processInputBuffer", "resetClient"): "reset",
}
"""Part of a GET by caller and callee."""
PLACES = "DSANKEOVQR"
"""Data at fixed addresses, stack, array of arguments, command's name, key, entry, object, value,
the key in the query buffer, reply."""


def whole(name: str) -> str:
    """The 64-bit or vector register that a register is part of."""
    if found := re.match(r"[xyz](mm\d+)$", name):
        return f"z{found[1]}"
    if found := re.match(r"(r\d+)[dwb]?$", name):
        return found[1]
    if found := re.match(r"[re]?(ax|bx|cx|dx|si|di|bp|sp|ip)$", name):
        return f"r{found[1]}"
    if found := re.match(r"([abcd])[lh]$", name):
        return f"r{found[1]}x"
    if found := re.match(r"(si|di|bp|sp)l$", name):
        return f"r{found[1]}"
    return "rflags" if "flags" in name else name


def recorded(server: str) -> None:
    """Writes the listing of a server's GETs, and keeps the lines and pages that one touches."""
    output = subprocess.run(["nm", server], capture_output=True, text=True, check=True).stdout
    symbols = [line.split() for line in output.splitlines()]
    sections: dict[str, list[Op]] = {}
    touched: dict[str, Any] = {}
    with serving([], server) as (client, pid, _):
        base = int(Path(f"/proc/{pid}/maps").read_text().split("-")[0], 16)
        functions = {s[2]: base + int(s[0], 16) for s in symbols if len(s) == 3 and s[1] in "tT"}
        recorder = Recorder(functions)
        keys = [key(n) for n in range(30_000)]
        length = {k: VALUES[n % 3] for n, k in enumerate(keys)}
        client.all([command(b"SET", k, b"x" * length[k]) for k in keys])
        random.Random(1).shuffle(keys)
        for name in (*map(str, VALUES), "missing"):
            of_size = [k for k in keys if str(length[k]) == name]
            some = of_size[:BATCH] or [b"none%020d" % n for n in range(BATCH)]
            gets = [command(b"GET", k) for k in some]
            steps = stepped(pid, client, gets, functions["processMultibulkBuffer"], 20)
            included, first, after = recorder.spans(steps)
            bases = recorder.bases(steps, after, Memory(pid))
            spans = {
                "search": (range(first, after), [True] * len(included)),
                "before": (range(first), included),
                name: (range(after, len(included)), included),
            }
            listed = {part: recorder.listing(steps, bases, *of) for part, of in spans.items()}
            outside = [*listed["before"], *listed[name]]
            touched[name] = {
                part: {"lines": len({op.at >> 6 for op in ops if op.size}),
                       "pages": len({op.at >> 12 for op in ops if op.size})}
                for part, ops in (("search", listed.pop("search")), ("outside", outside))
            }  # fmt: skip
            sections |= {part: sections.get(part, ops) for part, ops in listed.items()}
            depth = steps.steps[0][RSP] - steps.steps[first][RSP]
    lines = {line: n for n, line in enumerate(sorted(recorder.lines))}
    version = measured_version(server)
    text = [
        f"# Redis {version}, without the search for the key: validation/redis_request.py --record.",
        "# kind, address of the last instruction, instructions, place, size, producers, target",
        f"depth {depth}", f"pages {len(recorder.pages)}",
    ]  # fmt: skip
    for part, ops in sections.items():
        text.append(f"section {part}")
        inside = ""
        for n, op in enumerate(ops):
            text += [f"part {op.part}"] if op.part != inside else []
            text.append(words(op, n, lines))
            inside = op.part
    LISTING.write_text("\n".join(text) + "\n")
    print(len(lines), "lines of code,", len(recorder.pages), "pages of data,", json.dumps(touched))
    for part, ops in sections.items():
        count = Counter(op.kind for op in ops)
        print(part, sum(op.insns for op in ops), "instructions", dict(count))
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    kept["touched"] = touched
    KEPT.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")


def words(op: Op, number: int, lines: dict[int, int]) -> str:
    """An operation as a line of the listing."""

    def code(pc: int) -> str:
        return f"{lines[pc >> 6] << 6 | pc & 63:x}"

    found = [op.kind, code(op.pc), str(op.insns)]
    if op.size:
        offset = (op.at & 0xFFFFFFFF ^ 1 << 31) - (1 << 31)
        found += [f"{PLACES[op.at >> 32]}{offset:+x}", str(op.size)]
    for producer, cycles in op.inputs[:2]:
        back = number - producer
        found.append({-1: "e", -2: "-"}.get(producer, str(back)) + f":{min(cycles, 255)}")
    if op.target:
        found.append(f">{code(op.target)}")
    return " ".join(found)


def measured_version(server: str) -> str:
    """The version that a server prints."""
    output = subprocess.run([server, "--version"], capture_output=True, text=True, check=True)
    found = re.search(r"v=(\S+)", output.stdout)
    return found[1] if found else ""


def tables(kept: dict[str, Any]) -> str:
    """The tables of all kept counts: parts with values of 64 bytes, and sums with each value."""
    servers = [name for name in kept if name != "touched"]
    text = [
        f"`python validation/redis_request.py`: {KEYS} keys, {GETS} GETs after as many as warm-up. "
        "L1 and L2 are misses of TLBs of 64 and 1536 entries a GET. Values have 64 bytes.", "",
    ]  # fmt: skip
    for server in servers:
        text += [
            row(f"Redis {server}", "instructions", "loads", "stores", "L1", "L2"),
            row("---", *["--:"] * len(EVENTS)),
        ]
        for part, meaning in MEANING.items():
            counts = [marked.number(kept[server]["64"][part][event]) for event in EVENTS]
            text.append(row(f"{part}: {meaning}", *counts))
        for value in map(str, VALUES):
            inside = [p for p in MEANING if p not in OUTSIDE]
            counts = [
                marked.number(sum(kept[server][value][part][event] for part in inside))
                for event in EVENTS
            ]
            text.append(row(f"without {' and '.join(OUTSIDE)}, values of {value} bytes", *counts))
        text.append("")
    of = kept["touched"]["64"]
    text.append(
        f"A recorded GET of a value of 64 bytes touches {of['search']['lines']} lines on "
        f"{of['search']['pages']} pages in the search, and {of['outside']['lines']} lines on "
        f"{of['outside']['pages']} pages outside of it."
    )
    return "\n".join(text)


def main() -> int:
    """Measures or records."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("servers", nargs="*", default=["redis-server"], metavar="SERVER")
    parser.add_argument("--write", action="store_true", help="Write docs/validation.md")
    parser.add_argument("--tables", action="store_true", help="Write it from kept counts")
    parser.add_argument("--record", action="store_true", help="Write the listing")
    arguments = parser.parse_args()
    if arguments.record:
        recorded(arguments.servers[0])
        return 0
    for server in [] if arguments.tables else arguments.servers:
        measure(server)
    if arguments.write or arguments.tables:
        marked.write("redis-request", tables(json.loads(KEPT.read_text())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
