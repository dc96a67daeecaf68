"""Builds, boots and measures the Linux kernel with tiered hash placement.

    python3 linux/driver.py test                KUnit and selftests in User Mode Linux
    python3 linux/driver.py figures             measurements in QEMU, kept in linux/results
    python3 linux/driver.py export -o FILE -- PROGRAM [ARGUMENT...]
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
from guests import BAD, EXIT, boot, tail_of
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


def check_log(text: str, name: str) -> None:
    bad = BAD.search(text)
    if bad:
        raise Failure(
            f"the kernel of {name} reported: {bad.group().strip()} (see {cache() / name}.console)"
        )


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


def stress(image: Path, um: bool, name: str, seconds: int) -> dict[str, object]:
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
        image, um, script, more, name, memory=640, append="page_poison=1", seconds=60 + 10 * seconds
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


def test() -> None:
    needed(NEEDS, {"stress-ng": "stress-ng"})
    room(4000, "10 minutes of both processors")
    kind = variant("um")
    image = kernel(kind)
    tests = selftest()
    script = PREPARE + "hash_placement\n"
    text = boot(
        image, True, script, {"bin/hash_placement": tests}, "um-test", append="page_poison=1"
    )
    check_log(text, "um-test")
    results = taps(text)
    for good, name in results:
        say(f"{'ok' if good else 'NOT OK'}  {name}")
    failed = [name for good, name in results if not good]
    if failed or len(results) < 17:
        raise Failure(
            f"{len(failed)} of {len(results)} tests failed (see {cache()}/um-test.console)"
        )
    pressed = stress(image, True, "um-stress", 15)
    say("ok  memory stressors: no warning in the log, no lost page")
    keep("tests", {**provenance(kind), "tests": [name for _, name in results], "stress": pressed})
    say(f"{len(results)} passed, 0 failed")


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
    data = "dd if=/dev/urandom of=/tmp/data bs=64k count=16 2>/dev/null\n"
    text = boot(
        image,
        um,
        (PREPARE if um else data) + f"measure {what}\n",
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
    rows = measured("churn 4000", kind, image, 600)
    keep("churn", {**how, "rows": analysis.of_kind(rows, "churn")})


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
    check_log(text, "x86-test")
    results = taps(text)
    failed = [name for good, name in results if not good]
    if failed or len(results) < 11:
        raise Failure(
            f"in QEMU failed: {', '.join(failed) or 'all'} (see {cache()}/x86-test.console)"
        )
    how = {"accelerator": "kvm" if kvm else "tcg"}
    keep("tests-x86", {**provenance(kind), **how, "tests": [name for _, name in results]})


def figures() -> None:
    needed(NEEDS, FIGURES_NEED)
    room(6000, "45 minutes of both processors")
    placements()
    selftests_in_qemu()
    instruction_counts()


def export(output: Path, command: Sequence[str]) -> None:
    needed(NEEDS)
    room(4000, "10 minutes of both processors")
    at = shutil.which(command[0])
    if not at:
        raise Failure(f"there is no program {command[0]}")
    image = kernel(variant("um"))
    more = {"bin/dump_frames": program(HERE / "guest/dump_frames.c")}
    name = Path(at).name
    more |= {f"root/{name}": Path(at).resolve()} | closure(Path(at))
    # Files that the command names go along.
    for word in command[1:]:
        if Path(word).is_file():
            more[word.lstrip("/") if word.startswith("/") else f"root/{word}"] = Path(word)
    quoted = " ".join("'" + word.replace("'", "'\\''") + "'" for word in command[1:])
    script = f"echo 1 > /proc/sys/vm/hash_placement; cd /root\ndump_frames /root/{name} {quoted}\n"
    text = boot(image, True, script, more, "export", memory=512)
    check_log(text, "export")
    lines = [line[7:] for line in text.splitlines() if line.startswith("FRAMES ")]
    ended = EXIT.search(text)
    if not lines or not ended:
        raise Failure(f"nothing was placed for {command[0]} (see {cache()}/export.console)")
    partial = output.with_name(output.name + ".new")
    partial.write_text("\n".join(lines) + "\n")
    partial.rename(output)
    say(f"wrote {len(lines) - 1} records to {output}; the program's status is {ended.group(1)}")


def check_patches() -> None:
    """The patches apply to the installed source."""
    every = (*patches(), *measurement())
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
    commands.add_parser("figures", help="measurements in QEMU")
    commands.add_parser("apply", help="check that the patches apply")
    exporting = commands.add_parser("export", help="dump the placement of a program")
    exporting.add_argument("-o", "--output", type=Path, required=True, help="file to write")
    exporting.add_argument("program", nargs=argparse.REMAINDER, metavar="-- PROGRAM [ARGUMENT...]")
    chosen = parser.parse_args(arguments)
    try:
        if chosen.command == "export":
            words = chosen.program[1:] if chosen.program[:1] == ["--"] else chosen.program
            if not words:
                parser.error("name a program after --")
            export(chosen.output, words)
        else:
            {"test": test, "figures": figures, "apply": check_patches}[chosen.command]()
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
