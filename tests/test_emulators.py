"""The same programs under the installed emulator and a newer one, and the limits of both."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

import pagewalk
from invoking import Cli
from live import needs, needs_qemu, newer_emulator

Info = dict[str, int]

pytestmark = [pytest.mark.qemu, needs_qemu, needs("cc")]

# One instruction of each sort that emulators execute in their own way: repeated strings, wide and
# unaligned registers, masks and gathers, atomic ones. The contents of memory are known.
INSTRUCTIONS = """
.globl _start
.bss
.balign 4096
buf: .skip 131072
.text
_start:
 mov $3001,%ecx; lea buf(%rip),%rdi; mov $7,%eax; rep stosb
 mov $300,%ecx; lea buf(%rip),%rdi; rep stosq
 mov $1000,%ecx; lea buf(%rip),%rsi; lea buf+8192(%rip),%rdi; rep movsb
 xor %ecx,%ecx; rep movsq
 movb $1, buf+700(%rip)
 mov $1000,%ecx; lea buf(%rip),%rsi; lea buf+8192(%rip),%rdi; repe cmpsb
 movb $99, buf+100(%rip)
 mov $4000,%ecx; lea buf(%rip),%rdi; mov $99,%eax; repne scasb
 mov $5,%ecx; lea buf(%rip),%rsi; rep lodsl
 mov $66000,%ecx; lea buf(%rip),%rdi; xor %eax,%eax; rep stosb
 movups buf(%rip),%xmm0; movaps %xmm0,buf+16(%rip); movups buf+4089(%rip),%xmm1
 vmovdqu buf(%rip),%ymm0; vmovdqu %ymm0,buf+64(%rip)
 movq %xmm0,buf(%rip); movhps %xmm0,buf(%rip); movlps buf(%rip),%xmm1
 fildll buf(%rip); fistpl buf(%rip); flds buf(%rip); fstpl buf(%rip)
 xor %eax,%eax; mov $1,%ecx; mov $1,%ebx; xor %edx,%edx
 lock addl $1,buf(%rip); xchg %eax,buf(%rip); lock cmpxchg %ecx,buf(%rip)
 cmpxchg8b buf(%rip); lock cmpxchg16b buf(%rip); xadd %eax,buf(%rip); lock xadd %eax,buf(%rip)
 mov $5,%eax; lock btsl $3,buf(%rip); bts %eax,buf(%rip); notl buf(%rip); shll $2,buf(%rip)
 ldmxcsr mask(%rip); stmxcsr buf(%rip); fnstcw buf(%rip)
 lea buf(%rip),%rdi; pcmpeqd %xmm2,%xmm2; maskmovdqu %xmm2,%xmm1
 vpcmpeqd %ymm2,%ymm2,%ymm2; vmaskmovps buf(%rip),%ymm2,%ymm3; vmaskmovps %ymm3,%ymm2,buf(%rip)
 vpxor %ymm1,%ymm1,%ymm1; lea buf(%rip),%rax; vpgatherdd %ymm2,(%rax,%ymm1,1),%ymm3
 push %rax; pop %rcx; enter $16,$0; leave; pushq buf(%rip); popq buf(%rip)
 movnti %eax,buf(%rip); movntdq %xmm0,buf(%rip); pinsrd $1,buf(%rip),%xmm0
 pextrd $1,%xmm0,buf(%rip); crc32l buf(%rip),%eax; movbe buf(%rip),%eax
 vbroadcastss buf(%rip),%ymm0; vinserti128 $1,buf(%rip),%ymm0,%ymm0
 vextracti128 $1,%ymm0,buf(%rip); vbroadcasti128 buf(%rip),%ymm0; aesenc buf(%rip),%xmm0
 pmovzxbw buf(%rip),%xmm0; lddqu buf(%rip),%xmm0; prefetcht0 buf(%rip)
 fxsave buf+4096(%rip); fxrstor buf+4096(%rip); fnsave buf(%rip); frstor buf(%rip)
 fldt buf(%rip); fstpt buf+32(%rip); fbld buf(%rip); fbstp buf(%rip)
 fnstenv buf(%rip); fldenv buf(%rip)
 mov $7,%eax; xor %edx,%edx; xsave buf+8192(%rip); xrstor buf+8192(%rip)
 lea buf(%rip),%r13; mov $16,%r14d; fldt (%r13,%r14,2); fldt -8(%r13,%r14,8)
 mov %r13,%rbp; fstpt 16(%rbp); fldt -64(%rsp); fldt buf(,%r14,4)
 mov $231,%eax; xor %edi,%edi; syscall
.balign 16
mask: .long 0x1f80
"""

# Threads, processes, signals, a change of the address space in each, and questions.
PROGRAM = """
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include "pagewalk.h"
static _Atomic long shared;
static long signals;
static void on_signal(int n) { signals += n; }
static void *add(void *of) {
    char *own = mmap(0, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (long i = 0; i < 200; i++) shared += own[i * 300] + i * (long)of;
    munmap(own, 65536);
    return of;
}
int main(int argc, char **argv) {
    if (argc > 1) { printf("executed %s\\n", argv[1]); return 3; }
    signal(SIGUSR1, on_signal);
    raise(SIGUSR1);
    for (int n = 0; n < 3; n++) {
        pthread_t threads[3];
        for (long i = 0; i < 3; i++) pthread_create(&threads[i], 0, add, (void *)(i + 1));
        for (int i = 0; i < 3; i++) pthread_join(threads[i], 0);
    }
    char *memory = mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memory[0] = 1;
    pagewalk_insert_va(17, memory);
    int status, known = pagewalk_load_va(17) == memory;
    if (fork() == 0) {
        pthread_t thread;
        pthread_create(&thread, 0, add, (void *)1L);
        pthread_join(thread, 0);
        memset(memory, 1, 1 << 20);
        munmap(memory, 1 << 20);
        execl("/proc/self/exe", argv[0], "again", (char *)0);
        _exit(9);
    }
    wait(&status);
    printf("%ld %ld %d %d\\n", shared, signals, WEXITSTATUS(status), known);
    return 0;
}
"""


def built(source: str, path: Path, *flags: str) -> Path:
    file = path.with_suffix(".S" if "_start" in source else ".c")
    file.write_text(source)
    include = ["-I", pagewalk.get_include()]
    subprocess.run(["cc", "-O1", *include, *flags, "-o", path, file], check=True)
    return path


def under(emulator: str | None) -> dict[str, str]:
    return {**os.environ, **({"PAGEWALK_QEMU": emulator} if emulator else {})}


def recorded(cli: Cli, emulator: str | None, trace: Path, *command: str | Path) -> tuple[str, Info]:
    answer = cli("record", "--out", trace, "--", *command, env=under(emulator))
    assert answer.returncode == 0, answer.stderr
    from pagewalk import native

    info: dict[str, Any] = {**native.trace_info(str(trace))}
    kept = ("instructions", "ops", "loads", "stores", "branches", "taken", "threads")
    return answer.stdout, {name: int(info[name]) for name in kept}


@pytest.mark.long
def test_each_instruction_gives_the_same_under_both(cli: Cli, tmp_path: Path) -> None:
    newer = newer_emulator()
    program = built(INSTRUCTIONS, tmp_path / "each", "-nostdlib", "-static")
    trace = tmp_path / "t.pwt"
    (_, old), (_, new) = (recorded(cli, q, trace, program) for q in (None, newer))
    assert old == new
    # Repeated strings access each line once: of 3001, 2400, 1000 and 66,000 bytes stored; of 1000,
    # twice 701, 101 and 20 bytes loaded.
    assert old["loads"] > 16 + 2 * 11 + 2 + 1
    assert old["stores"] > 47 + 38 + 16 + 1032


@pytest.mark.long
def test_threads_processes_and_signals_go_as_under_the_other(cli: Cli, tmp_path: Path) -> None:
    newer = newer_emulator()
    program = built(PROGRAM, tmp_path / "program", "-pthread")
    expected = "executed again\n358200 10 3 0\n"
    trace = tmp_path / "t.pwt"
    found = {}
    for emulator in (None, newer):
        output, found[emulator] = recorded(cli, emulator, trace, program)
        assert output == expected
        # A recording of it runs, twice the same.
        runs = [
            cli("run", "--trace", trace, "--json", tmp_path / f"{n}.json", "--set", "cores=2")
            for n in (1, 2)
        ]
        assert [r.returncode for r in runs] == [0, 0], runs[0].stderr
        first, second = (json.loads((tmp_path / f"{n}.json").read_text()) for n in (1, 2))
        assert first["designs"][0]["stats"] == second["designs"][0]["stats"]
    assert found[None]["threads"] == found[newer]["threads"] == 12
    # The linker's look-ups, and how long threads wait, differ.
    assert found[newer]["instructions"] == pytest.approx(found[None]["instructions"], rel=0.1)


@pytest.mark.long
def test_signals_have_the_programs_numbers_under_both(cli: Cli, tmp_path: Path) -> None:
    text = "#include <signal.h>\nint main(void) { return raise(60); }"
    program = built(text, tmp_path / "program")
    for emulator in (None, newer_emulator()):
        done = cli("run", "--", program, env=under(emulator))
        assert done.returncode == 128 + 60
        assert "partial: the program died of signal 60" in done.stderr


@pytest.mark.long
def test_a_machine_answers_programs_of_the_newer_one(cli: Cli, tmp_path: Path) -> None:
    program = built(PROGRAM, tmp_path / "program", "-pthread")
    answer = cli("run", "--design", "stlt", "--", program, env=under(newer_emulator()))
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.startswith("executed again\n358200 10 3 1\n"), answer.stdout


# Comes before the emulator's libraries, and hides a register or a function of its from plugins.
HIDES = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
struct description { void *handle; const char *name, *feature; };
struct array { struct description *data; unsigned length; };
static void *(*look)(void *, const char *);
static struct array *fewer(void) {
    struct array *(*all)(void) = look(RTLD_DEFAULT, "qemu_plugin_get_registers");
    struct array *found = all();
    for (unsigned n = 0; n < found->length; n++)
        if (!strcmp(found->data[n].name, getenv("HIDDEN"))) found->data[n].name = "other";
    return found;
}
void *dlsym(void *where, const char *name) {
    if (!look) look = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    if (!strcmp(name, getenv("HIDDEN"))) return 0;
    return strcmp(name, "qemu_plugin_get_registers") ? look(where, name) : (void *)fewer;
}
"""


@pytest.mark.long
@pytest.mark.parametrize(
    "hidden", ["fs_base", "r13", "qemu_plugin_get_registers", "qemu_plugin_read_register", ""]
)
def test_an_emulator_that_hides_registers_or_plugin_functions_is_refused(
    cli: Cli, tmp_path: Path, hidden: str
) -> None:
    newer = newer_emulator()
    library = built(HIDES, tmp_path / "hides.so", "-shared", "-fPIC")
    emulator = tmp_path / "emulator"
    emulator.write_text(f'#!/bin/sh\nLD_PRELOAD={library} exec {newer} -U LD_PRELOAD "$@"\n')
    emulator.chmod(0o755)
    program = built(INSTRUCTIONS, tmp_path / "each", "-nostdlib", "-static")
    command = ("run", "--json", tmp_path / "r.json", "--", program)
    answer = cli(*command, env={**under(str(emulator)), "HIDDEN": hidden})
    if not hidden:
        assert answer.returncode == 0, answer.stderr
        return
    assert answer.returncode == 125, answer.stderr
    what = "register" if "_plugin" not in hidden else "function"
    assert f"{emulator} is QEMU 1" in answer.stderr, answer.stderr
    assert f"does not give Pagewalk's plugin the {what} {hidden}," in answer.stderr
    assert "set PAGEWALK_QEMU to" in answer.stderr
    result = json.loads((tmp_path / "r.json").read_text())
    assert result["partial"]
    assert result["designs"][0]["summary"][0]["value"] == 0


LIMITS = Path(__file__).parent / "emulator_limits.c"
# Outcomes in docs/limits.md: natively, under QEMU 7.2, and from 9.0 on.
CASES = {
    "pthread_cancel": ("yes", None, "yes"),
    "ptrace": ("yes", "Function not implemented", "Function not implemented"),
    "map_fixed_noreplace": ("yes", "elsewhere", "yes"),
    "rlimit_as": ("yes", "not kept", "not kept"),
    "unshare": (None, "Invalid argument", "Invalid argument"),
    "io_uring": (None, "Function not implemented", "Function not implemented"),
    "clone3": (None, "Function not implemented", "Function not implemented"),
    "userfaultfd": (None, "Function not implemented", "Function not implemented"),
    "process_vm_readv": (None, "Function not implemented", "Function not implemented"),
    "perf_event_open": (None, "Function not implemented", "Function not implemented"),
    "vfork": ("yes", "as fork", "as fork"),
    "robust_mutex": ("yes", "Connection timed out", "Connection timed out"),
    "self_modifying_code": ("yes", "yes", "yes"),
}


@pytest.fixture(scope="module")
def limits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("limits") / "limits"
    subprocess.run(["cc", "-O1", "-pthread", "-o", path, LIMITS], check=True)
    return path


@pytest.mark.parametrize(
    "newer",
    [
        pytest.param(False, id="installed"),
        pytest.param(True, id="newer", marks=pytest.mark.long),
    ],
)
def test_pagewalk_has_the_limits_of_the_emulator(
    cli: Cli, tmp_path: Path, limits: Path, newer: bool
) -> None:
    from pagewalk import native

    emulator = newer_emulator() if newer else native.doctor()["qemu"]["Ok"]
    # A case that kills the program is left out: it would end the other cases' process, too.
    cases = [name for name in CASES if name != "pthread_cancel" or newer]
    command: list[str | Path] = [limits, *cases]
    natively = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    alone = subprocess.run([emulator, *command], capture_output=True, text=True, check=True).stdout
    trace = tmp_path / "t.pwt"
    answer = cli("record", "--out", trace, "--", *command, env=under(emulator))
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout == alone
    said = dict(line.split(": ", 1) for line in alone.splitlines())
    really = dict(line.split(": ", 1) for line in natively.splitlines())
    # The installed emulator may be of either version.
    version = subprocess.run([emulator, "--version"], capture_output=True, text=True, check=True)
    (major,) = re.findall(r" version (\d+)\.", version.stdout)
    which = 2 if int(major) >= 9 else 1
    for name in cases:
        expected = CASES[name]
        assert expected[0] in (None, really[name]), name
        assert expected[which] == said[name], name
