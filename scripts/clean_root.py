"""Installs the wheel in new systems, and uses it there as an ordinary user.

debootstrap makes each system in a temporary folder. The wheel is installed by root, so that the
user can write nothing of it. Each step is a command with the status and the text that it has to
have. `image` builds the Dockerfile with buildah, from a system of the same name as its base, and
runs it. `apptainer` does the same with pagewalk.def, in a Debian unstable that has Apptainer.

Needs root, debootstrap, a C compiler, and for `image` buildah. A system takes some minutes.

    make wheel
    .venv/bin/python scripts/clean_root.py bookworm image
    .venv/bin/python scripts/clean_root.py --all
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DEBIAN, UBUNTU = "http://deb.debian.org/debian", "http://archive.ubuntu.com/ubuntu"
UBUNTU_KEYS = Path("/usr/share/keyrings/ubuntu-archive-keyring.gpg")
BASE = "python3,python3-venv,ca-certificates"
USER = 1000
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
# Writes 64 MB in an order that misses the TLB, and says so.
PROGRAM = r"""
#include <stdio.h>
#include <stdlib.h>
int main(void) {
    size_t n = 1 << 23, at = 1, sum = 0;
    size_t *a = calloc(n, sizeof *a);
    for (size_t i = 0; i < 3000000; i++) {
        at = (at * 6364136223846793005u + 1442695040888963407u);
        sum += a[(at >> 30) % n] += i;
    }
    printf("sum %zu\n", sum);
    return 0;
}
"""


class TrialError(Exception):
    """A reason why a trial cannot be made, or its first step that failed."""


@dataclass(frozen=True)
class System:
    """A system that debootstrap makes."""

    name: str
    archive: str
    # A part of the message of `pagewalk run -- PROGRAM` after `apt-get install qemu-user`; empty if
    # programs run.
    refused: str = ""
    # True: the system's source of QEMU is of a version that Pagewalk can use.
    builds: bool = False
    # A part of pip's message, if the system's Python is too old.
    python: str = ""


SYSTEMS = {
    "bookworm": System("Debian 12", DEBIAN),
    "trixie": System("Debian 13", DEBIAN, refused="built without plugins", builds=True),
    "bullseye": System("Debian 11", DEBIAN, python="is not a supported wheel"),
    "jammy": System("Ubuntu 22.04", UBUNTU, refused="is QEMU 6.2"),
    "noble": System("Ubuntu 24.04", UBUNTU, refused="built without plugins", builds=True),
}
CONTAINERS = ("image", "apptainer")


@dataclass(frozen=True)
class Step:
    """A command in a system, and the answer that it has to give."""

    what: str
    command: str
    # Texts that the output has, standard error included.
    has: tuple[str, ...] = ()
    status: int = 0
    root: bool = False
    env: tuple[tuple[str, str], ...] = ()
    # Variables of the environment that are missing.
    without: tuple[str, ...] = ()
    # True: every file system is read-only but /proc and /dev.
    read_only: bool = False
    # True: the step may use the network.
    network: bool = False


SMALL = "--workload gups --size 64MiB --instructions 200K"
VERDICT = "of the cycles"


def before_qemu(system: System) -> list[Step]:
    """Steps on a system that has Python, and nothing else of what Pagewalk can use."""
    remedy = "install.md" if system.refused else "to have it: sudo apt-get install qemu-user"
    return [
        Step("doctor", "pagewalk doctor", ("✓  engine", "✓  plugin", "✓  docs", remedy)),
        Step("no qemu", "pagewalk run -- /bin/ls", ("install the package qemu-user",), status=2),
        Step("run", f"pagewalk run {SMALL}", (VERDICT, "Cycle stack")),
        Step(
            "compare, page, figure",
            f"pagewalk compare --designs radix,thp,perfect-tlb {SMALL} --html p.html"
            " --figure f.pdf --json r.json && test -s p.html -a -s f.pdf -a -s r.json",
            ("perfect-tlb",),
        ),
        Step("explain", "pagewalk explain page walk", ("walk",)),
        Step(
            "sweep",
            f"pagewalk sweep --designs radix,thp {SMALL} --vary mmu.walkers=1,2 -o study"
            " && test -s study/manifest.json",
            ("walkers", "4 of 4 runs"),
        ),
        Step("papers", "pagewalk reproduce", ("mehpt", "revelator", "stlt")),
        Step("lists", "pagewalk designs && pagewalk machines && pagewalk workloads", ("thp",)),
        Step("reproduce", "pagewalk reproduce mehpt table2 --scale smoke -o paper", ("paper",)),
        Step(
            "python",
            "/opt/pagewalk/bin/python -c 'import pagewalk;"
            ' print(pagewalk.compare(["radix", "thp"], workload="gups", size="64MiB",'
            ' instructions="200K").verdict)\'',
            (VERDICT,),
        ),
        Step(
            "record",
            f"pagewalk record {SMALL} -o t.pwt && pagewalk trace info t.pwt"
            " && pagewalk compare --trace t.pwt",
            (VERDICT,),
        ),
        Step("LANG=C", f"pagewalk run {SMALL}", (VERDICT,), env=(("LANG", "C"),)),
        Step(
            "ASCII only",
            f"pagewalk run {SMALL} && pagewalk doctor",
            (VERDICT,),
            env=(("LC_ALL", "POSIX"), ("PYTHONUTF8", "0"), ("PYTHONCOERCECLOCALE", "0")),
        ),
        Step("no HOME", f"pagewalk run {SMALL}", (VERDICT,), without=("HOME", "USER", "TERM")),
        Step("nothing in env", f"pagewalk run {SMALL}", (VERDICT,), without=("HOME", "LANG")),
        Step("read-only", f"pagewalk run {SMALL}", (VERDICT,), read_only=True),
        Step(
            "read-only output",
            f"pagewalk run {SMALL} --json r2.json",
            ("--json", "not writable"),
            status=2,
            read_only=True,
        ),
        Step(
            "attach",
            "python3 -c 'import time; b = bytearray(64 << 20); time.sleep(30)' & sleep 2;"
            " pagewalk attach $!",
            ("estimate",),
        ),
        Step(
            "attach to root's",
            'sleep 30 & su reader -c "/opt/pagewalk/bin/pagewalk attach $!"',
            ("may not be read",),
            status=1,
            root=True,
        ),
    ]


def with_qemu(suite: str) -> list[Step]:
    """Steps after the one system package is installed, or QEMU is built."""
    system = SYSTEMS[suite]
    install = Step(
        "apt-get install qemu-user",
        "apt-get install -y -qq --no-install-recommends qemu-user >/dev/null",
        root=True,
        network=True,
    )
    if not system.refused:
        return [install, *live()]
    steps = [
        install,
        Step("this QEMU", "pagewalk run -- /bin/ls", (system.refused,), status=2),
        Step("doctor", "pagewalk doctor", (system.refused, "install.md")),
    ]
    if system.builds:
        steps += [*emulator(suite), *live(PAGEWALK_QEMU="/home/reader/emulator")]
    return steps


def emulator(suite: str) -> list[Step]:
    """Steps that build QEMU by the page's commands, from the system's own source.

    Debian takes Meson out of that source, so that it comes from PyPI.
    """
    page = (ROOT / "docs/how-to/install.md").read_text()
    commands = re.search(
        r"^sudo (apt-get install .*?)  +#.*?^(\./configure .*?)^ninja", page, re.M | re.S
    )
    if not commands:
        raise TrialError("docs/how-to/install.md: no commands that build QEMU")
    packages, configure = commands.groups()
    source = f"deb-src {SYSTEMS[suite].archive} {suite} main universe"
    if SYSTEMS[suite].archive == DEBIAN:
        source = source.removesuffix(" universe")
    fetch = f"""{packages.replace("install", "install -y -qq")} >/dev/null
        && echo '{source}' > /etc/apt/sources.list.d/source.list && apt-get update -qq
        && cd /home/reader && apt-get source -qq --download-only qemu && chown reader qemu_*"""
    build = f"""mkdir qemu && tar xf qemu_*.orig.tar.xz -C qemu --strip-components=1 && cd qemu
        && python3 -m venv tools && tools/bin/pip install -q meson pycotap
        && {configure.replace(chr(92), "")} --python=$PWD/tools/bin/python >log 2>&1
        && ninja -C build qemu-x86_64 >>log 2>&1 && cp build/qemu-x86_64 ../emulator
        || (tail log; false)"""
    return [
        Step("packages", " ".join(fetch.split()), root=True, network=True),
        Step("build QEMU", " ".join(build.split()), network=True),
    ]


def live(**env: str) -> list[Step]:
    """Steps with programs of the user's."""
    steps = [
        Step("doctor", "pagewalk doctor", ("✓  qemu-user",)),
        Step("ls", "pagewalk run -- /bin/ls /usr/bin", (VERDICT, "apt-get")),
        Step("own program", "pagewalk compare --designs radix,thp -- ./program", ("sum ", VERDICT)),
        Step(
            "python",
            "pagewalk run --skip 10M --instructions 5M -- python3 -c 'print(sum(range(10**7)))'",
            (VERDICT,),
        ),
        Step("record", "pagewalk record -o l.pwt -- ./program && pagewalk trace info l.pwt"),
        Step("read-only", "pagewalk run -- ./program", (VERDICT,), read_only=True),
        Step("no HOME", "pagewalk run -- ./program", (VERDICT,), without=("HOME", "LANG")),
    ]
    return [replace(step, env=tuple(env.items())) for step in steps]


def say(text: str) -> None:
    print(f"clean root: {text}", flush=True)


def host(*command: str | Path, env: Mapping[str, str] | None = None) -> str:
    """Output of a command of this system."""
    done = subprocess.run(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode:
        shown = " ".join(map(str, command))
        raise TrialError(f"`{shown}` failed with status {done.returncode}:\n{done.stdout[-3000:]}")
    return done.stdout


def bootstrap(suite: str, archive: str, into: Path, packages: str = BASE) -> None:
    """Makes a system, with the certificates of this one for its downloads."""
    options = ["--variant=minbase", f"--include={packages}"]
    if archive == UBUNTU:
        options.append("--components=main,universe")
        if not UBUNTU_KEYS.exists():
            raise TrialError(
                f"no {UBUNTU_KEYS}, to verify Ubuntu's packages with: install the package"
                " ubuntu-keyring (Debian 13 has it)"
            )
    # An older debootstrap does not know a newer name. All of an archive have one script.
    same = "/usr/share/debootstrap/scripts/" + ("gutsy" if archive == UBUNTU else "sid")
    host("debootstrap", *options, suite, into, archive, same)
    shutil.copy("/etc/resolv.conf", into / "etc/resolv.conf")
    shutil.copy(CERTIFICATES, into / str(CERTIFICATES).lstrip("/"))


def enter(root: Path, step: Step) -> subprocess.CompletedProcess[str]:
    """Runs a step in a system, with name spaces of its own for mounts and processes."""
    mounts = [
        f"mount --bind {root} {root}",
        f"mount -t proc proc {root}/proc",
        f"mount --rbind /sys {root}/sys",
        f"mount -t tmpfs tmpfs {root}/dev/shm",
        f"mount -t devpts devpts {root}/dev/pts",
    ]
    if step.read_only:
        mounts.append(f"mount -o remount,bind,ro {root}")
    env = {"PATH": "/opt/pagewalk/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"}
    env |= {"HOME": "/root" if step.root else "/home/reader", "LANG": "C.UTF-8", "TERM": "dumb"}
    env |= {"COLUMNS": "200"} | dict(step.env)
    if step.network:
        env |= settings() | {"DEBIAN_FRONTEND": "noninteractive"}
    for name in step.without:
        env.pop(name, None)
    # Apptainer refuses to run in a mere chroot.
    mounts += [f"cd {root}", "pivot_root . .", "umount -l ."]
    who = [] if step.root else [f"--userspec={USER}:{USER}"]
    where = "/root" if step.root else "/home/reader"
    inside = ["chroot", *who, "/", "/usr/bin/env", "-i"]
    inside += [f"{name}={value}" for name, value in env.items()]
    inside += ["/bin/sh", "-c", f"cd {where} && {{ {step.command}\n}}"]
    script = " && ".join([*mounts, 'exec "$@"'])
    command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", script, "sh"]
    return subprocess.run(
        [*command, *inside],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
        timeout=3600,
    )


def take(root: Path, steps: list[Step]) -> int:
    """Takes the steps, and prints each; the number of those that failed."""
    failed = 0
    for step in steps:
        start = time.monotonic()
        done = enter(root, step)
        missing = [text for text in step.has if text not in done.stdout]
        good = done.returncode == step.status and not missing
        good = good and "Traceback" not in done.stdout
        failed += not good
        spent = time.monotonic() - start
        say(f"{'ok    ' if good else 'FAILED'} {step.what} ({spent:.1f} s)")
        if not good:
            say(f"status {done.returncode}, expected {step.status}; missing: {missing}")
            print(f"$ {step.command}\n{done.stdout[-4000:]}", flush=True)
    return failed


def installed(root: Path) -> list[tuple[str, int, int]]:
    """Every file of the installation, with its size and time."""
    files = (root / "opt/pagewalk").rglob("*")
    found = [(str(f), f.lstat().st_size, f.lstat().st_mtime_ns) for f in files if not f.is_dir()]
    return sorted(found)


def install(root: Path, wheel: Path) -> subprocess.CompletedProcess[str]:
    """Installs the wheel and makes the user."""
    shutil.copy(wheel, root / "opt")
    command = f"""useradd --uid {USER} --create-home reader && python3 -m venv /opt/pagewalk
        && /opt/pagewalk/bin/pip install --quiet /opt/{wheel.name}"""
    command = " ".join(command.split())
    return enter(root, Step("install", command, root=True, network=True))


def try_system(suite: str, wheel: Path, scratch: Path) -> int:
    """Makes a system and uses the wheel there; the number of steps that failed."""
    system = SYSTEMS[suite]
    root = scratch / suite
    say(f"{system.name} ({suite})")
    bootstrap(suite, system.archive, root)
    (scratch / "program.c").write_text(PROGRAM)
    host("cc", "-O1", "-static", "-o", root / "opt/program", scratch / "program.c")
    done = install(root, wheel)
    if system.python:
        good = done.returncode != 0 and system.python in done.stdout
        say(f"{'ok    ' if good else 'FAILED'} pip refuses a Python that is too old")
        if not good:
            print(done.stdout[-4000:])
        return not good
    if done.returncode:
        raise TrialError(f"pip failed on {system.name}:\n{done.stdout[-4000:]}")
    shutil.copy(root / "opt/program", root / "home/reader/program")
    before = installed(root)
    failed = take(root, before_qemu(system)) + take(root, with_qemu(suite))
    if installed(root) != before:
        say("FAILED the installation was changed by its use")
        failed += 1
    return failed


def settings() -> dict[str, str]:
    """Settings of pip on this system, without folders that only it has."""
    names = [n for n in os.environ if n.startswith("PIP_") and n != "PIP_FIND_LINKS"]
    return {name: os.environ[name] for name in names}


def try_image(wheel: Path, scratch: Path) -> int:
    """Builds the Dockerfile, whose base is a system from debootstrap, and runs the image."""
    say("Dockerfile (buildah)")
    base = re.findall(r"^FROM (\S+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    if base != ["docker.io/library/debian:12-slim"]:
        raise TrialError(f"Dockerfile: {base} is not the base that this trial makes")
    root, context = scratch / "base", scratch / "context"
    bootstrap("bookworm", DEBIAN, root, "ca-certificates")
    (context / "dist").mkdir(parents=True)
    shutil.copy(wheel, context / "dist")
    shutil.copy(ROOT / "Dockerfile", context)
    env = {**os.environ, "BUILDAH_ISOLATION": "chroot", "STORAGE_DRIVER": "vfs"}
    store = ("--root", str(scratch / "store"), "--runroot", str(scratch / "store-run"))

    def buildah(*words: str | Path) -> str:
        return host("buildah", *store, *words, env=env)

    made = buildah("from", "--quiet", "scratch").split()[-1]
    buildah("add", "--quiet", made, root, "/")
    for name, value in settings().items():
        buildah("config", "--env", f"{name}={value}", made)
    buildah("commit", "--quiet", made, base[0])
    buildah("build", "--pull-never", "-t", "pagewalk", context)
    ran = buildah("from", "--quiet", "--pull-never", "pagewalk").split()[-1]
    shown = buildah(
        "inspect", "--format", "{{.OCIv1.Config.Entrypoint}} {{.OCIv1.Config.User}}", ran
    )
    if shown.split() != ["[pagewalk]", "pagewalk"]:
        raise TrialError(f"the image's entry point and user are {shown}")
    buildah("copy", ran, _program(scratch), "/home/pagewalk/program")
    for command in (
        ["pagewalk", *f"compare {SMALL}".split()],
        ["pagewalk", "run", "--", "/home/pagewalk/program"],
    ):
        if VERDICT not in buildah("run", ran, "--", *command):
            raise TrialError(f"{command} in the image prints no verdict")
        say(f"ok     {' '.join(command)}")
    return 0


def try_apptainer(wheel: Path, scratch: Path) -> int:
    """Builds pagewalk.def in a Debian unstable, and runs the image as an ordinary user.

    Only the head differs: a system from debootstrap takes the place of the base's.
    """
    say("pagewalk.def (Apptainer)")
    definition = (ROOT / "pagewalk.def").read_text()
    head = "Bootstrap: docker\nFrom: debian:12-slim\n"
    if not definition.startswith(head):
        raise TrialError("pagewalk.def: its head is not the one that this trial replaces")
    root = scratch / "sid"
    bootstrap("sid", DEBIAN, root, "ca-certificates")
    home = root / "home/reader"
    bootstrap("bookworm", DEBIAN, home / "base", "ca-certificates")
    (home / "dist").mkdir()
    shutil.copy(wheel, home / "dist")
    local = definition.replace(head, "Bootstrap: localimage\nFrom: base\n")
    local = local.replace("%post\n", "".join(["%post\n", *exports()]))
    (home / "pagewalk.def").write_text(local)
    shutil.copy(_program(scratch), home)
    # The user builds, as on a cluster: the base has to be the user's, and without devices.
    prepare = f"""apt-get install -y -qq --no-install-recommends apptainer uidmap fakeroot
        >/dev/null && useradd --uid {USER} reader && rm -rf /home/reader/base/dev/*
        && chown -R reader: /home/reader"""
    return take(
        root,
        [
            Step("apt-get install apptainer", " ".join(prepare.split()), root=True, network=True),
            Step(
                "build",
                "apptainer build --fakeroot pagewalk.sif pagewalk.def",
                ("Build complete",),
                network=True,
            ),
            Step("doctor", "./pagewalk.sif doctor", ("✓  qemu-user",)),
            Step("compare", f"./pagewalk.sif compare {SMALL}", (VERDICT,)),
            Step("own program", "./pagewalk.sif run -- ./program", ("sum ", VERDICT)),
        ],
    )


def exports() -> list[str]:
    """Lines of a shell that repeat the settings of pip."""
    return [f"    export {name}={shlex.quote(value)}\n" for name, value in settings().items()]


def _program(scratch: Path) -> Path:
    (scratch / "program.c").write_text(PROGRAM)
    host("cc", "-O1", "-static", "-o", scratch / "program", scratch / "program.c")
    return scratch / "program"


def check_tools(names: list[str]) -> None:
    """Refuses a trial that this system cannot make."""
    tools = ["debootstrap", "unshare", "cc", *(["buildah"] if "image" in names else [])]
    missing = [tool for tool in tools if not shutil.which(tool)]
    if missing:
        raise TrialError(f"not installed: {' '.join(missing)} (Debian: apt-get install them)")
    if os.getuid() != 0:
        raise TrialError("this trial makes systems: run it as root")


def newest(folder: Path) -> Path:
    """The wheel that was built last."""
    wheels = sorted(folder.glob("pagewalk-*manylinux*.whl"), key=lambda p: p.stat().st_mtime)
    if not wheels:
        raise TrialError("dist has no wheel: run `make wheel` first, or name one with --wheel")
    return wheels[-1]


@contextmanager
def folder(keep: Path | None) -> Iterator[Path]:
    """The folder of the systems: a temporary one, or one that stays."""
    if keep:
        keep.mkdir(parents=True)
        yield keep
    else:
        with tempfile.TemporaryDirectory(prefix="pagewalk-roots-") as name:
            yield Path(name)


def main() -> int:
    parser = argparse.ArgumentParser(description="Uses the wheel in new systems.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join([*SYSTEMS, *CONTAINERS]))
    parser.add_argument("--all", action="store_true", help="all of them")
    parser.add_argument("--wheel", type=Path, help="the wheel (default: the newest one in dist)")
    parser.add_argument("--keep", type=Path, help="a new folder that keeps the systems")
    arguments = parser.parse_args()
    names = [*SYSTEMS, *CONTAINERS] if arguments.all else arguments.names
    unknown = [name for name in names if name not in (*SYSTEMS, *CONTAINERS)]
    if unknown or not names:
        parser.error(f"unknown: {unknown}" if unknown else "name a system, or give --all")
    try:
        check_tools(names)
        wheel = arguments.wheel or newest(ROOT / "dist")
        failed = 0
        with folder(arguments.keep) as scratch:
            for name in names:
                if name == "image":
                    failed += try_image(wheel, scratch)
                elif name == "apptainer":
                    failed += try_apptainer(wheel, scratch)
                else:
                    failed += try_system(name, wheel, scratch)
    except TrialError as error:
        print(f"clean root: {error}", file=sys.stderr)
        return 1
    say(f"{failed} steps failed" if failed else "every step passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
