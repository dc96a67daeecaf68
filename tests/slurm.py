"""A SLURM cluster of two nodes on this host, with all of its state in one folder."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from getpass import getuser
from pathlib import Path

import pytest

DAEMONS = ("munged", "slurmctld", "slurmd")
MOST_SECONDS = 240
NODES = ("one", "two")
# Debian keeps daemons where a user's PATH does not lead.
PATH = f"{os.environ.get('PATH', '')}:/usr/local/sbin:/usr/sbin:/sbin"


def needed() -> None:
    """Skips the test that runs without SLURM's daemons."""
    missing = [name for name in (*DAEMONS, "sbatch") if not shutil.which(name, path=PATH)]
    if missing:
        pytest.skip(f"SKIPPED LOUDLY: no {', '.join(missing)} here (scripts/setup.sh slurm)")


def until(holds: Callable[[], bool], what: str) -> None:
    """Waits until it holds."""
    deadline = time.monotonic() + MOST_SECONDS
    while not holds():
        assert time.monotonic() < deadline, f"{what} has not come about"
        time.sleep(0.2)


def _ports(number: int) -> list[int]:
    """Free ports, all different."""
    with ExitStack() as open_:
        taken = [open_.enter_context(socket.socket()) for _ in range(number)]
        for one in taken:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in taken]


class Slurm:
    """Daemons of one controller and two nodes with one processor each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.conf = folder / "slurm.conf"
        self.env = {**os.environ, "PATH": PATH, "SLURM_CONF": str(self.conf)}
        host, user = socket.gethostname(), getuser()
        controller, *nodes = _ports(1 + len(NODES))
        key = folder / "munge.key"
        key.touch(0o600)
        key.write_bytes(os.urandom(1024))
        (folder / "state").mkdir()
        self.conf.write_text(
            f"ClusterName=pagewalk\nSlurmctldHost={host}(127.0.0.1)\nSlurmctldPort={controller}\n"
            f"SlurmUser={user}\nSlurmdUser={user}\nAuthType=auth/munge\n"
            f"AuthInfo=socket={folder}/munge.socket\nCredType=cred/munge\n"
            f"StateSaveLocation={folder}/state\nSlurmdSpoolDir={folder}/%n\n"
            f"SlurmctldPidFile={folder}/slurmctld.pid\nSlurmdPidFile={folder}/%n.pid\n"
            # Without control groups: a container may have none to write to.
            "ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nSwitchType=switch/none\n"
            "MpiDefault=none\nSelectType=select/cons_tres\nSelectTypeParameters=CR_CPU_Memory\n"
            "AccountingStorageType=accounting_storage/none\nJobAcctGatherType=jobacct_gather/none\n"
            # Two nodes here have one processor each, however many the host has.
            "SlurmdParameters=config_overrides\nReturnToService=2\nKillWait=2\n"
            "SchedulerParameters=sched_interval=1,bf_interval=1\n"
            + "".join(
                f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=1 "
                "RealMemory=2000\n"
                for name, port in zip(NODES, nodes, strict=True)
            )
            + f"PartitionName=all Nodes={','.join(NODES)} Default=YES MaxTime=INFINITE State=UP\n"
        )
        self._processes: list[subprocess.Popen[bytes]] = []
        try:
            self._start(
                *("munged", "--foreground", "--force", f"--key-file={key}"),
                *(f"--{what}={folder}/munge.{what[:-5]}" for what in ("pid-file", "seed-file")),
                f"--socket={folder}/munge.socket",
            )
            until((folder / "munge.socket").exists, "munge")
            self._start("slurmctld", "-D", "-f", str(self.conf))
            for name in NODES:
                self._start("slurmd", "-D", "-N", name, "-f", str(self.conf))
            until(lambda: self.states() == ["idle", "idle"], "a cluster of idle nodes")
        except BaseException:
            self.close()
            raise

    def _start(self, name: str, *words: str) -> None:
        with (self.folder / f"{name}-{len(self._processes)}.log").open("wb") as log:
            self._processes.append(
                subprocess.Popen([name, *words], env=self.env, stdout=log, stderr=log)
            )

    def said(self, *command: str) -> str:
        """The output of one of SLURM's commands."""
        done = subprocess.run(command, env=self.env, capture_output=True, text=True, check=False)
        return done.stdout

    def states(self) -> list[str]:
        """The state of each node."""
        return self.said("sinfo", "--noheader", "--Node", "--format=%T").split()

    def jobs(self, *more: str) -> list[str]:
        """Identifiers of jobs that run."""
        return self.said("squeue", "--noheader", "--states=R", "--format=%A", *more).split()

    def close(self) -> None:
        """Ends the jobs, then the daemons, then whatever of both is left."""
        with suppress(AssertionError, OSError):
            self.said("scancel", "--me")
            until(lambda: not self.said("squeue", "--noheader").strip(), "an empty queue")
        for process in reversed(self._processes):
            process.terminate()
        for process in reversed(self._processes):
            with suppress(subprocess.TimeoutExpired):
                process.wait(10)
        for number in self.processes():
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        for process in self._processes:
            process.wait()

    def processes(self) -> list[int]:
        """Processes of this cluster: SLURM's daemons and all that they started."""
        mark = f"SLURM_CONF={self.conf}\0".encode()
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if mark in (folder / "environ").read_bytes() + b"\0":
                    found.append(int(folder.name))
        return found
