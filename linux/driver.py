"""Builds, boots and measures the Linux kernel with tiered hash placement.

    python3 linux/driver.py test                KUnit and selftests in User Mode Linux
    python3 linux/driver.py kasan               the same tests in a kernel with KASAN
    python3 linux/driver.py compatibility       the kernel's own tests, with placement and without
    python3 linux/driver.py figures             measurements in QEMU, kept in linux/results
    python3 linux/driver.py smp                 selftests with two processors in QEMU
    python3 linux/driver.py churn               rounds of other activity for an hour
    python3 linux/driver.py reuse               pages of a program at addresses just freed
    python3 linux/driver.py export [OPTIONS] -o FILE -- PROGRAM [ARGUMENT...]
                                                dump the placement of a program
    python3 linux/driver.py apply               check that the patches apply to the pinned source

Everything is built in $PAGEWALK_LINUX (default ~/.cache/pagewalk/linux) and kept there under a
name that has the hash of the source, the patches and the configuration. A build has a temporary
name until it is complete.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import analysis
from guests import boot, check_log, tail_of
from kernels import (
    FIGURES_NEED,
    HERE,
    NEEDS,
    Failure,
    Variant,
    archive,
    cache,
    complete,
    digest,
    kernel,
    key,
    key_of,
    measurement,
    needed,
    occupation,
    patch_tree,
    patches,
    pinned,
    program,
    room,
    run,
    say,
    touched,
    variant,
)
from recording import Command, Guest, record

RESULTS = HERE / "results"


def closure(path: Path) -> dict[str, Path]:
    """A program and the shared libraries that it needs, by their names in the guest."""
    shown = subprocess.run(["ldd", path], capture_output=True, text=True, check=False).stdout
    libraries = re.findall(r"(/\S+) \(0x", shown)
    return {name.lstrip("/"): Path(name).resolve() for name in libraries}


def unpack_changed(folder: Path, series: Sequence[Path], log: Path, *more: str) -> None:
    """Unpacks the files that patches change, and `more`, and applies the patches."""
    files = {str(f.relative_to(folder)) for f in touched(folder, series)}
    new = re.compile(r"^--- /dev/null\n\+\+\+ b/(\S+)", re.MULTILINE)
    made = {name for patch in series for name in new.findall(patch.read_text())}
    top = Path(pinned()["archive"]).name.removesuffix(".tar.xz")
    names = [f"{top}/{name}" for name in sorted((files - made) | set(more))]
    run(["tar", "-xf", archive(), "--strip-components=1", "-C", folder, *names], log, "unpacking")
    for patch in series:
        patch_tree(folder, patch, log)


def selftest() -> Path:
    """The selftest of the series, compiled from the patched source."""
    series = patches()
    folder = Path("tools/testing/selftests")

    def build(partial: Path) -> None:
        with tempfile.TemporaryDirectory(prefix="selftest.") as at:
            log = cache() / "selftest.log"
            log.unlink(missing_ok=True)
            unpack_changed(Path(at), series, log, str(folder / "kselftest.h"))
            test = Path(at) / folder / "mm/hash_placement.c"
            made = partial / "hash_placement"
            command: list[str | Path] = ["gcc", "-O2", "-static", "-o", made, test]
            run(command, log, f"compiling {test.name}")

    name = f"selftest-{key_of(digest(archive()).encode(), *(p.read_bytes() for p in series))}"
    return complete(name, build, lock=False) / "hash_placement"


def provenance(kind: Variant) -> dict[str, str]:
    want = pinned()
    return {"source": f"{want['package']} {want['version']}", "kernel": f"{kind.name}-{key(kind)}"}


def keep(name: str, contents: dict[str, object]) -> None:
    """Writes a results file under a temporary name first."""
    RESULTS.mkdir(exist_ok=True)
    partial = RESULTS / f"{name}.json.new"
    text = json.dumps(contents, indent=1)
    # Lists of numbers on one line.
    text = re.sub(r"\[\s+([-\d.,\s]+?)\s+\]", lambda m: "[" + " ".join(m[1].split()) + "]", text)
    partial.write_text(text + "\n")
    partial.rename(RESULTS / f"{name}.json")
    say(f"wrote {RESULTS / name}.json")


def taps(text: str) -> list[tuple[bool, str]]:
    """Results of TAP and KTAP lines; skipped tests are left out."""
    found = re.findall(r"^ *(not ok|ok) \d+ (?!# SKIP)(.+)$", text, re.MULTILINE)
    return [(word == "ok", name) for word, name in found]


def passed(text: str, name: str, least: int) -> list[str]:
    """The tests that passed on a console. Fails if one did not, or if there are too few."""
    check_log(text, name)
    results = taps(text)
    failed = [test for good, test in results if not good]
    if failed or len(results) < least:
        why = ", ".join(failed) or f"{len(results)} tests ran, expected at least {least}"
        raise Failure(f"failed in {name}: {why} (see {cache() / name}.console)")
    return [test for _, test in results]


# The RAM disk takes all of its pages at once, so that swapping changes no count of free pages.
PREPARE = (
    "dd if=/dev/zero of=/dev/ram0 bs=1M count=32 2>/dev/null\n"
    "mkswap /dev/ram0 >/dev/null && swapon /dev/ram0\n"
)
STRESS = (
    "stress-ng --timeout {seconds} --temp-path /tmp --oomable --vm 2 --vm-bytes 60M --fork 1 "
    "--mmap 1 --mmap-bytes 20M --brk 1 --madvise 1 --mremap 1 --stack 1 --pageswap 1 || exit 1\n"
)
FREE = (
    "echo 3 > /proc/sys/vm/drop_caches; sleep 1\n"
    "echo FREE $(grep -E '^nr_free_pages' /proc/vmstat)\n"
)


def stress(image: Path, um: bool, name: str, seconds: int, cpus: int = 1) -> dict[str, object]:
    """Runs memory stressors with placement for all processes; fails on a warning or a leak."""
    at = shutil.which("stress-ng")
    assert at
    more = {"bin/stress-ng": Path(at)} | closure(Path(at))
    script = (
        "echo 2 > /proc/sys/vm/hash_placement; cd /tmp\n"
        + PREPARE
        + STRESS.format(seconds=5)
        + FREE
    )
    script += STRESS.format(seconds=seconds) + FREE + "grep hash_placement_ /proc/vmstat; dmesg\n"
    text = boot(
        image,
        um,
        script,
        more,
        name,
        memory=640,
        append="page_poison=1",
        # An emulated processor needs long to start and to end the stressors.
        seconds=(60 if um else 900) + 10 * seconds,
        cpus=cpus,
    )
    check_log(text, name)
    free = [int(n) for n in re.findall(r"^FREE nr_free_pages (\d+)", text, re.MULTILINE)]
    if not re.search(r"PAGEWALK-GUEST exit 0", text) or len(free) != 2:
        raise Failure(f"stress-ng failed in {name} (see {cache() / name}.console)")
    counters = {
        n: int(v) for n, v in re.findall(r"^hash_placement_(\w+) (\d+)", text, re.MULTILINE)
    }
    if free[0] - free[1] > 2048:
        raise Failure(
            f"{free[0] - free[1]} pages were not free again after the stressors in {name}"
        )
    return {
        "seconds": seconds,
        "free_pages_before": free[0],
        "free_pages_after": free[1],
        "counters": counters,
    }


def test(name: str = "um", result: str = "tests") -> None:
    needed(NEEDS, {"stress-ng": "stress-ng"})
    room(4000, "10 minutes of both processors")
    kind = variant(name)
    image = kernel(kind)
    tests = selftest()
    script = PREPARE + "hash_placement\n"
    text = boot(
        image, True, script, {"bin/hash_placement": tests}, f"{name}-test", append="page_poison=1"
    )
    for good, test_name in taps(text):
        say(f"{'ok' if good else 'NOT OK'}  {test_name}")
    names = passed(text, f"{name}-test", 17)
    pressed = stress(image, True, f"{name}-stress", 15)
    say("ok  memory stressors: no warning in the log, no lost page")
    keep(result, {**provenance(kind), "tests": names, "stress": pressed})
    say(f"{len(names)} passed, 0 failed")


def kasan() -> None:
    """The tests of test(), in a kernel that checks every access to memory."""
    test("um-kasan", "tests-kasan")


# The kernel's own tests of memory management, with arguments. Others need huge memory, several
# NUMA nodes, libraries, or options that the small configuration does not have.
KERNEL_TESTS = (
    # First in its guest: a later run may get no huge page, with placement and without.
    "khugepaged all:anon",
    "cow",
    "droppable",
    "madv_populate",
    "map_fixed_noreplace",
    "map_populate",
    "mdwe_test",
    "mkdirty",
    "mlock2-tests",
    "mrelease_test",
    "mremap_dontunmap",
    "mremap_test",
    "mseal_test",
    "pagemap_ioctl",
    "soft-dirty",
)


def kernel_tests() -> Path:
    """The folder of the kernel's own tests, compiled from the pinned source."""
    names = [test.split()[0] for test in KERNEL_TESTS]

    def build(partial: Path) -> None:
        with tempfile.TemporaryDirectory(prefix="kernel-tests.") as at:
            log = cache() / "kernel-tests.log"
            log.unlink(missing_ok=True)
            top = Path(pinned()["archive"]).name.removesuffix(".tar.xz")
            folders = ("tools/testing/selftests", "tools/include", "tools/arch/x86/include")
            parts = [f"{top}/{name}" for name in (*folders, "mm/gup_test.h")]
            run(
                ["tar", "-xf", archive(), "--strip-components=1", "-C", at, *parts],
                log,
                "unpacking",
            )
            tests = Path(at) / "tools/testing/selftests"
            # Written by a check for liburing, which is not used.
            (tests / "mm/local_config.h").touch()
            include: list[str | Path] = [
                "-I",
                tests,
                "-I",
                f"{at}/tools/include/uapi",
                "-I",
                f"{at}/tools/include",
            ]
            also: list[str | Path] = ["-include", tests / "kselftest.h", tests / "mm/vm_util.c"]
            also.append(tests / "mm/thp_settings.c")
            for name in names:
                made = ["-o", partial / name, tests / f"mm/{name}.c", *also, "-lpthread", "-lrt"]
                command: list[str | Path] = ["gcc", "-O2", "-static", "-w", "-D_GNU_SOURCE="]
                run([*command, *include, *made], log, f"compiling {name}")

    return complete(
        f"kernel-tests-{key_of(digest(archive()).encode(), *(n.encode() for n in names))}",
        build,
        lock=False,
    )


def compatibility() -> None:
    """The kernel's own tests give the same results with placement on and off."""
    needed(NEEDS, FIGURES_NEED)
    room(4000, "10 minutes of both processors")
    kind = variant("x86")
    image = kernel(kind)
    folder = kernel_tests()
    more = {f"bin/{test.split()[0]}": folder / test.split()[0] for test in KERNEL_TESTS}
    rows: dict[str, dict[str, object]] = {}
    for mode, word in ((0, "off"), (2, "on")):
        name = f"x86-compatibility-{word}"
        script = f"cd /tmp\necho {mode} > /proc/sys/vm/hash_placement\n"
        for test in KERNEL_TESTS:
            script += f"echo 'TEST {test}'; timeout 300 {test} 2>&1; echo \"STATUS $?\"\n"
        script += "grep hash_placement_page_1 /proc/vmstat\n"
        text = boot(image, False, script, more, name, memory=1024, seconds=3600)
        check_log(text, name)
        placed = re.search(r"^hash_placement_page_1 (\d+)", text, re.MULTILINE)
        if placed is None or (int(placed[1]) > 0) != (mode == 2):
            raise Failure(f"placement is not {word} in {name} (see {cache() / name}.console)")
        shown = re.findall(r"^TEST (.+)\n((?:.*\n)*?)STATUS (\d+)$", text, re.MULTILINE)
        for test, output, status in shown:
            results = taps(output)
            rows.setdefault(test, {})[word] = {
                "status": int(status),
                "passed": sum(good for good, _ in results),
                "failed": sum(not good for good, _ in results),
            }
    for test, row in rows.items():
        say(f"{'same' if row.get('on') == row.get('off') else 'DIFFERENT'}  {test}: {row}")
    differ = [test for test, row in rows.items() if row.get("on") != row.get("off")]
    if differ or len(rows) != len(KERNEL_TESTS):
        raise Failure(
            f"{', '.join(differ) or 'tests are missing'}: other results with placement "
            f"(see {cache()}/x86-compatibility-on.console)"
        )
    keep("compatibility", {**provenance(kind), "accelerator": "tcg", "tests": rows})


def kvm_works(image: Path) -> bool:
    """True if a guest shows its banner under KVM within ten seconds."""
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return False
    try:
        boot(image, False, "true\n", {}, "kvm-probe", kvm=True, seconds=10)
    except Failure:
        return False
    return True


def measured(what: str, kind: Variant, image: Path, seconds: float) -> list[analysis.Record]:
    """Results of one measurement, in User Mode Linux or with counted instructions in QEMU."""
    um = kind.arch == "um"
    name = f"{kind.name}-{what.replace(' ', '-')}"
    say(f"measuring {what} in {kind.name}")
    text = boot(
        image,
        um,
        (PREPARE if um else "") + f"measure {what}\n",
        {"bin/measure": program(HERE / "guest/measure.c")},
        name,
        memory=512,
        append="hash_placement_seed=1",
        seconds=seconds,
        icount=not um,
    )
    check_log(text, name)
    if "PAGEWALK-GUEST exit 0" not in text:
        raise Failure(f"measure {what} failed: {tail_of(text.partition('PAGEWALK-GUEST exit')[0])}")
    return analysis.results(text)


def placements() -> None:
    """Where pages lie does not depend on time: User Mode Linux shows it fastest."""
    kind = variant("um")
    image = kernel(kind)
    how = {**provenance(kind), "memory_mb": 512}
    rows = measured("figure10 1500", kind, image, 3600)
    keep("figure10", {**how, "rows": analysis.figure10(rows)})
    rows = measured("overlap", kind, image, 600)
    keep("overlap", {**how, "rows": analysis.of_kind(rows, "overlap")})


def churn(seconds: int) -> None:
    """Where pages lie after as many rounds of other activity as the time allows."""
    needed(NEEDS)
    room(4000, f"{seconds // 60 + 10} minutes of both processors")
    kind = variant("um")
    rows = measured(f"churn 4000 {seconds}", kind, kernel(kind), 600 + 2 * seconds)
    keep("churn", {**provenance(kind), "memory_mb": 512, **analysis.churn(rows)})


def instruction_counts() -> None:
    """Costs in instructions, which QEMU counts. KVM does not count them for the guest."""
    patched, measuring, unpatched = (variant(n) for n in ("x86", "x86-measure", "x86-unpatched"))
    how = {"accelerator": "tcg -icount shift=0", "memory_mb": 512}
    image = kernel(measuring)
    rows = measured("lists 1500", measuring, image, 3600)
    keep("lists", {**provenance(measuring), **how, **analysis.lists(rows)})
    rows = measured("costs causes", measuring, image, 3600)
    keep("causes", {**provenance(measuring), **how, "rows": analysis.causes(rows)})
    rows = measured("costs patched", patched, kernel(patched), 3600)
    rows += measured("costs unpatched", unpatched, kernel(unpatched), 3600)
    keep("costs", {**provenance(patched), **how, **analysis.costs(rows)})


def selftests_in_qemu() -> None:
    """The selftests on x86-64, with huge pages. KVM runs them if a guest comes up under it."""
    kind = variant("x86")
    image = kernel(kind)
    kvm = kvm_works(image)
    say(f"selftests run under {'KVM' if kvm else 'TCG: KVM does not open, or its guest fails'}")
    more = {"bin/hash_placement": selftest()}
    text = boot(image, False, "hash_placement\n", more, "x86-test", memory=1024, kvm=kvm)
    how = {"accelerator": "kvm" if kvm else "tcg"}
    keep("tests-x86", {**provenance(kind), **how, "tests": passed(text, "x86-test", 11)})


CPUS = 2


def smp() -> None:
    """The selftests and the stressors with several processors and the kernel's own checks."""
    needed(NEEDS, FIGURES_NEED, {"stress-ng": "stress-ng"})
    room(4000, "25 minutes of both processors")
    kind = variant("x86-smp")
    image = kernel(kind)
    more = {"bin/hash_placement": selftest()}
    script = PREPARE + "echo PROCESSORS $(nproc)\nhash_placement\n"
    name = "x86-smp-test"
    text = boot(image, False, script, more, name, memory=1024, seconds=1800, cpus=CPUS)
    names = passed(text, name, 12)
    if not re.search(rf"^PROCESSORS {CPUS}$", text, re.MULTILINE):
        raise Failure(f"the guest has not {CPUS} processors (see {cache() / name}.console)")
    pressed = stress(image, False, "x86-smp-stress", 30, CPUS)
    how = {"accelerator": "tcg, a thread for each processor", "processors": CPUS}
    keep("tests-smp", {**provenance(kind), **how, "tests": names, "stress": pressed})


def figures() -> None:
    needed(NEEDS, FIGURES_NEED)
    room(6000, "45 minutes of both processors")
    placements()
    selftests_in_qemu()
    instruction_counts()


# Pages that each program touches, and their numbers of the address space, in turn.
REUSE_PAGES = 8000
REUSE_ASIDS = (1, 1, 2, 3, 3)


def reuse() -> None:
    """Hashed pages of programs that run one after the other and touch the same addresses."""
    needed(NEEDS, FIGURES_NEED)
    room(4000, "a minute of one processor")
    kind = variant("x86-occupied")
    tool = program(HERE / "guest/touch_pages.c", "-static-pie")
    first = 1 << 32
    with tempfile.TemporaryDirectory() as at:
        pages = Path(at) / "pages"
        pages.write_text(f"{first} {REUSE_PAGES}\n")
        files = {"bin/touch_pages": tool, "root/pages": pages}
        commands = [
            Command(["touch_pages", "-l", "-a", str(asid), "pages"], files) for asid in REUSE_ASIDS
        ]
        # Compaction does not move locked pages here.
        guest = Guest("x86", 1024, 0.85, seed=7, moves_locked=False)
        found = record(guest, commands, "reuse", seconds=600)
    rows: list[dict[str, object]] = []
    freed: set[int] = set()
    for asid, one in zip(REUSE_ASIDS, found, strict=True):
        records = [line.split() for line in one.lines[1:] if line[0].isdigit()]
        tiers = {
            int(frame): int(tier)
            for _, vpn, frame, tier in records
            if first <= int(vpn) < first + REUSE_PAGES
        }
        if one.status or len(tiers) != REUSE_PAGES:
            raise Failure(f"{len(tiers)} of {REUSE_PAGES} pages were recorded in reuse")
        fallbacks = {frame for frame, tier in tiers.items() if not tier}
        rows.append(
            {
                "asid": asid,
                "occupied": round(one.occupied, 4),
                "hashed_percent": round(100 - 100 * len(fallbacks) / REUSE_PAGES, 2),
                "fallbacks_in_freed_frames_percent": round(
                    100 * len(fallbacks & freed) / len(fallbacks), 2
                ),
            }
        )
        freed = set(tiers)
    how = {"memory_mb": guest.memory_mb, "pages": REUSE_PAGES}
    keep("reuse", {**provenance(kind), **how, "rows": rows})


def export(output: Path, command: Sequence[str], guest: Guest) -> None:
    needed(NEEDS, *([FIGURES_NEED] if guest.kernel == "x86" else []))
    room(4000, "10 minutes of both processors")
    at = shutil.which(command[0])
    if not at:
        raise Failure(f"there is no program {command[0]}")
    name = Path(at).name
    files = {f"root/{name}": Path(at).resolve()} | closure(Path(at))
    # Files that the command names go along.
    for word in command[1:]:
        if Path(word).is_file():
            files[word.lstrip("/") if word.startswith("/") else f"root/{word}"] = Path(word)
    asked = Command([f"/root/{name}", *command[1:]], files=files)
    [found] = record(guest, [asked], "export", seconds=3600)
    partial = output.with_name(output.name + ".new")
    partial.write_text("\n".join(found.lines) + "\n")
    partial.rename(output)
    say(
        f"wrote {len(found.lines) - 1} records to {output}; {100 * found.occupied:.2f} % of the "
        f"frames were in use before, and the program's status is {found.status}"
    )


def check_patches() -> None:
    """The patches apply to the installed source."""
    every = (*patches(), *measurement(), *occupation())
    with tempfile.TemporaryDirectory(prefix="apply.") as at:
        folder = Path(at)
        unpack_changed(folder, every, folder / "log")
    say(f"{len(every)} patches apply to {pinned()['package']} {pinned()['version']}")


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="linux/driver.py", description="Linux with tiered hash placement"
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("test", help="KUnit tests, selftests and stressors in User Mode Linux")
    commands.add_parser("kasan", help="the same tests with checks of every access to memory")
    commands.add_parser("compatibility", help="the kernel's own tests, with placement and without")
    commands.add_parser("figures", help="measurements in QEMU")
    long = commands.add_parser("churn", help="placements after long activity")
    long.add_argument("--seconds", type=int, default=3600, help="of the guest (default: 3600)")
    commands.add_parser("smp", help="selftests and stressors with two processors in QEMU")
    commands.add_parser("reuse", help="placements at addresses that a program has just freed")
    commands.add_parser("apply", help="check that the patches apply")
    exporting = commands.add_parser("export", help="dump the placement of a program")
    exporting.add_argument("-o", "--output", type=Path, required=True, help="file to write")
    exporting.add_argument(
        "--kernel", choices=("um", "x86"), default="um", help="User Mode Linux, or x86-64 in QEMU"
    )
    exporting.add_argument("--memory", type=int, default=512, metavar="MB", help="of the guest")
    exporting.add_argument(
        "--occupied",
        type=float,
        default=0.0,
        metavar="SHARE",
        help="of random frames in use, 0 to 1",
    )
    exporting.add_argument("--seed", type=int, help="of the hash (default: random)")
    exporting.add_argument("program", nargs=argparse.REMAINDER, metavar="-- PROGRAM [ARGUMENT...]")
    chosen = parser.parse_args(arguments)
    try:
        if chosen.command == "export":
            words = chosen.program[1:] if chosen.program[:1] == ["--"] else chosen.program
            if not words:
                parser.error("name a program after --")
            if not 0 <= chosen.occupied < 1:
                parser.error(f"--occupied is {chosen.occupied}; expected 0 or more and below 1")
            if chosen.occupied and chosen.kernel == "um":
                parser.error("--occupied needs --kernel x86")
            guest = Guest(chosen.kernel, chosen.memory, chosen.occupied, chosen.seed)
            export(chosen.output, words, guest)
        elif chosen.command == "churn":
            churn(chosen.seconds)
        else:
            commands_without_options = {
                "test": test,
                "kasan": kasan,
                "compatibility": compatibility,
                "figures": figures,
                "smp": smp,
                "reuse": reuse,
                "apply": check_patches,
            }
            commands_without_options[chosen.command]()
    except Failure as failure:
        print(f"linux: {failure}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"linux: {error.strerror or error}: {error.filename or cache()}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("linux: interrupted", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
