"""Runs commands of Debian's packages natively and under Pagewalk, and compares their output.

    python scripts/real_programs.py [WORD...]      all, or those that contain a word

Each command runs in a shell in a fresh folder with the same files. It runs once by itself, and
once under `pagewalk record`, which records the whole tree of its processes. Output, exit
status and the files that it leaves behind have to be the same. Commands that are not installed are
listed and left out. Prints a table in Markdown; the exit status is 1 if any command differs.
"""

from __future__ import annotations

import hashlib
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

# A package of Debian's, and commands of its programs.
COMMANDS = {
    "coreutils": """
        ls -l --time-style=+ | cut -c1-10
        sort words | uniq -c | sort -rn | head -20
        sort --parallel=4 -S 1M -k2 numbers | md5sum
        wc words numbers
        cat words numbers | sha256sum
        sha1sum words; sha512sum words; b2sum words; cksum words
        tac words | tail -5
        cut -d' ' -f2 numbers | paste -sd+ | head -c 200
        tr a-z A-Z < words | head -3
        od -A x -t x1z binary | head
        base64 binary | base64 -d | cmp - binary
        split -l 500 words part. && cat part.* | cmp - words
        join <(sort words | head -50) <(sort words | head -20)
        comm -12 <(sort -u words) <(sort -u words | head -9)
        seq 1 20000 | shuf --random-source=binary | sort -n | tail -1
        factor 1000000007 600851475143 18446744073709551557
        expr 12345 '*' 6789; echo $((2 ** 40)); printf '%08.3f\\n' 3.14159
        nl words | tail -2; fold -w 20 words | head -3; fmt -w 40 words | head -3
        date -u -d @1000000000 +%F; env -i A=1 env; basename /a/b.c .c; dirname /a/b
        cp -r tree copy && rm -r tree/a && ls -R copy tree
        dd if=binary bs=1k count=3 status=none | md5sum
        ln -s words link && readlink link && stat -c %s link
        touch x && chmod 640 x && stat -c %a x && mv x y && test -e y
        truncate -s 1M sparse && du --apparent-size sparse
        tee a b < words > c && cmp a b && cmp b c
        numfmt --to=iec 1234567890; pr -h x words | sed -n 5,9p
        timeout 5 sh -c 'exit 7'
        tsort <<< 'a b b c c d'
        false
        yes | head -100000 | uniq -c; csplit -s words 100 200 && wc -l xx*
        install -D -m 755 words a/b && chmod -R go-rwx a && stat -c %a a/b; mktemp -u x.XXX | wc -c
    """,
    "findutils": """
        find . -type f -name '*.c' | sort
        find tree -type f -print0 | xargs -0 -n 2 md5sum | sort
        seq 200 | xargs -P 3 -n 10 echo | tr ' ' '\\n' | sort -n | md5sum
    """,
    "grep": """
        grep -c e words
        grep -E '^(a|b).*[aeiou]{2}' words | head
        grep -P '(?<=a)b+' words | head
        grep -rn int . | sort
        grep nothing-like-this words
    """,
    "sed": """
        sed -n '/^a/,/^c/p' words | md5sum
        sed -E 's/([a-z])([a-z])/\\2\\1/g' words | md5sum
        sed -i 's/a/X/g' words && md5sum words
    """,
    "mawk": """
        mawk '{s += $1; n[$2 % 7]++} END {printf "%d", s; for (i = 0; i < 7; i++) print n[i]}' numbers
        mawk '{c[substr($0, 1, 1)]++} END {for (k in c) print k, c[k]}' words | sort
    """,
    "gawk": """
        gawk '{a[$1 % 1000] += $2} END {n = asorti(a, b); print n, a[b[1]]}' numbers
        gawk 'BEGIN {for (i = 0; i < 20000; i++) s += sin(i); printf "%.9f\\n", s}'
    """,
    "bash": """
        i=0; while read -r w; do i=$((i + ${#w})); done < words; echo $i
        a=(); for n in {1..2000}; do a+=($((n * n % 97))); done; echo ${a[@]: -5}
        f() { ((n = $1)); ((n < 2)) && echo $n && return; echo $(($(f $((n - 1))) + $(f $((n - 2))))); }; f 6
        trap 'echo caught' USR1; kill -USR1 $$; trap 'echo bye' EXIT; (exit 3); echo $?
        for i in 1 2 3; do (exec 2> /dev/null; echo $i > o$i) & done; wait; cat o?
        coproc cat; echo hi >&${COPROC[1]}; read -ru ${COPROC[0]} x; echo $x; kill $COPROC_PID
        mkfifo p; (cat p | wc -l) & cat words > p; wait
        cat <<< "${BASH_VERSION%%.*}" | read -r x; shopt -s lastpipe; echo 7 | read -r x; echo "$x" "${PIPESTATUS[@]}"
        ulimit -v unlimited; ulimit -n 64; for i in {1..50}; do : <(:); done; echo ok; wait
        exec 3<> words; read -ru 3 a; echo $a; kill -9 $$
    """,
    "dash": """
        dash -c 'for i in 1 2 3; do echo $i | cat; done; exit 4'
    """,
    "perl-base": """
        perl -ne '$h{length $_}++; END {print "$_ $h{$_}\\n" for sort {$a <=> $b} keys %h}' words
        perl -e 'my @a = map {($_ * 7919) % 10007} 1..20000; @a = sort {$a <=> $b} @a; print "@a[0..9]\\n"'
        perl -e 'if (my $p = fork) {waitpid $p, 0; print $? >> 8, "\\n"} else {exit 5}'
        perl -e '$SIG{ALRM} = sub {print "alarm\\n"; exit 2}; alarm 1; sleep 9'
    """,
    "python3": """
        python3 -S -c 'print(sum(i * i for i in range(50000)))'
        python3 -c 'import json; print(len(json.dumps({str(i): [i] * 3 for i in range(5000)})))'
        python3 -c 'import re; print(len(re.findall(r"[aeiou]{2}", open("words").read())))'
        python3 -c 'import threading as t; a = []; x = [t.Thread(target=a.append, args=(i,)) for i in range(20)]; [i.start() for i in x]; [i.join() for i in x]; print(sorted(a))'
        python3 -c 'import subprocess as s; print(s.run(["wc", "-l", "words"], capture_output=True, text=True).stdout)'
        python3 -c 'import multiprocessing as m; p = m.get_context("fork").Pool(2); print(p.map(abs, range(-9, 0))); p.close(); p.join()'
        python3 -c 'import asyncio; print(asyncio.run(asyncio.wait_for(asyncio.sleep(0.01, 7), 9)))'
        python3 -c 'import hashlib, zlib, bz2, lzma; d = open("binary", "rb").read(); print(hashlib.sha3_256(d).hexdigest(), *(len(f(d)) for f in (zlib.compress, bz2.compress, lzma.compress)))'
        python3 -c 'import sqlite3; c = sqlite3.connect(":memory:"); c.execute("create table t(a)"); c.executemany("insert into t values(?)", ((i,) for i in range(3000))); print(c.execute("select sum(a) from t").fetchone())'
        python3 -c 'import os, signal; os.kill(os.getpid(), signal.SIGTERM)'
        python3 -c 'import ctypes; print(ctypes.CDLL(None).abs(-5))'
        python3 -c 'import decimal; decimal.getcontext().prec = 200; print(decimal.Decimal(2).sqrt())'
        python3 -c 'raise SystemExit(42)'
    """,
    "git": """
        git init -q r && cd r && cp ../words . && git add . && git -c user.name=a -c user.email=b commit -qm x --date=@0 && git show --stat --format=%T
        git diff --no-index --stat words numbers
        git hash-object words binary
        git init -q --bare b && git -C b count-objects
    """,
    "sqlite3": """
        sqlite3 :memory: 'with recursive n(i) as (select 1 union all select i + 1 from n where i < 20000) select sum(i), count(*) from n'
        sqlite3 d 'create table t(a, b); insert into t values(1, 2), (3, 4); create index i on t(b)' && sqlite3 d 'select * from t order by b desc' .dump
    """,
    "gcc": """
        gcc -O2 program.c -o program && ./program
        gcc -S -O1 -o - program.c | md5sum
        gcc -E program.c | wc -l
        gcc -g -c program.c && nm program.o && objdump -d program.o | md5sum && strip program.o && size program.o
        gcc broken.c
        printf 'int main(void){int s=0;\n_Pragma("omp parallel for reduction(+:s)")\nfor(int i=0;i<1000;i++)s+=i;return s!=499500;}' > omp.c; gcc -fopenmp omp.c -o program && OMP_NUM_THREADS=4 ./program; echo $?
        gcc -O2 -static program.c -o program && ./program; gcc -O2 -flto -m64 -march=haswell program.c -o program && ./program
    """,
    "g++": """
        g++ -O1 program.cc -o program && ./program
    """,
    "make": """
        make -s -j3 -f makefile && cat all
    """,
    "binutils": """
        readelf -h /bin/true | head -8; strings binary | head -3; ar rc a.a words && ar t a.a
    """,
    "xz-utils": """
        xz -k -T1 words && xz -dc words.xz | cmp - words && xz -l words.xz | tail -1
        xz -k -T2 --block-size=16KiB words && xz -t words.xz
    """,
    "gzip": """
        gzip -k -9 words && gunzip -c words.gz | cmp - words; gzip -dc binary
    """,
    "bzip2": """
        bzip2 -k words && bzcat words.bz2 | cmp - words && wc -c words.bz2
    """,
    "zstd": """
        zstd -q -T2 words && zstd -dcq words.zst | cmp - words
    """,
    "tar": """
        tar cf t.tar --mtime=@0 --sort=name --owner=0 --group=0 tree && tar tvf t.tar && md5sum t.tar
        tar czf t.tgz tree && mkdir out && tar xzf t.tgz -C out && diff -r tree out/tree && echo same
    """,
    "diffutils": """
        diff -u --label a --label b <(head -50 words) <(head -60 words | tail -50) | md5sum
        cmp words numbers; diff3 words words words
    """,
    "patch": """
        sed 's/a/b/' words > new; diff -u --label words --label new words new > d; patch -s words d && cmp words new && echo patched
    """,
    "openssl": """
        openssl dgst -sha256 -sha256 binary; openssl dgst -md5 words
        openssl enc -aes-256-cbc -K 00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff -iv 00112233445566778899aabbccddeeff -in words | md5sum
        openssl prime -generate -bits 64 | wc -l; openssl version -v
        openssl genrsa 1024 2>/dev/null | openssl rsa -noout -check 2>/dev/null
    """,
    "bc": """
        echo 'scale=60; 4*a(1)' | bc -l
        echo '2^500' | bc
    """,
    "file": """
        file words binary program.c /bin/true | sed 's/,.*//'
    """,
    "jq": """
        jq -c '[.[] | select(.n % 7 == 0) | .n] | add' data.json
    """,
    "util-linux": """
        hexdump -C binary | head -5; rev words | head -3; column -t numbers | head -3
        setsid -w echo alone; flock words echo locked; getopt -o ab: -- -a -b 3
        nice -n 3 ionice -c 3 taskset 1 prlimit --nofile=100 sh -c 'ulimit -n; nice'
    """,
    "procps": """
        sleep 5 & kill %1; wait %1; echo $?; sysctl -n kernel.ostype
    """,
    "m4": """
        echo 'define(f, `ifelse($1, 0, 1, `eval($1 * f(decr($1)))')')f(10)' | m4
    """,
    "bison": """
        bison --version | head -1
    """,
    "vim": """
        vim -es -u NONE -c '%s/a/b/g' -c wq words; md5sum words
    """,
    "curl": """
        curl -s file://$PWD/words | md5sum; curl -s http://127.0.0.1:1/; echo $?
    """,
    "nodejs": """
        node -e 'let s = 0; for (let i = 0; i < 100000; i++) s += i % 7; console.log(s)'
    """,
    "lua5.4": """
        lua5.4 -e 't = {} for i = 1, 20000 do t[i] = i * 7 % 1009 end table.sort(t) print(t[5000])'
    """,
    "tcl": """
        echo 'set s 0; for {set i 0} {$i < 20000} {incr i} {incr s $i}; puts $s' | tclsh
    """,
    "redis-server": """
        redis-server --port 0 --unixsocket $PWD/s --save '' --daemonize no > /dev/null & for i in $(seq 200); do [ -S s ] && break; sleep 0.1; done; redis-cli -s s set a 5; redis-cli -s s incr a; redis-cli -s s shutdown nosave; wait
    """,
    "rsync": """
        rsync -a tree/ copy/ && diff -r tree copy && echo same
    """,
    "unzip": """
        python3 -m zipfile -c z.zip words && unzip -p z.zip words | cmp - words && unzip -tq z.zip
    """,
    "xxhash": """
        xxhsum -H64 words
    """,
    "ncurses-bin": """
        TERM=xterm infocmp | md5sum; TERM=xterm tput cols < /dev/null
    """,
    "libc-bin": """
        getconf PAGE_SIZE; iconv -f utf-8 -t utf-16le words | md5sum; locale -a | head -1
    """,
}
# A program for a command's first word, where that is not its name.
PROGRAMS = {"perl-base": "perl", "python3": "python3", "tcl": "tclsh", "nodejs": "node"}


@dataclass(frozen=True)
class Command:
    """One command of a package."""

    package: str
    text: str


def commands() -> list[Command]:
    """All commands, in the order of the list."""
    return [
        Command(package, line.strip())
        for package, lines in COMMANDS.items()
        for line in lines.strip().splitlines()
    ]


def is_there(package: str) -> bool:
    """True if the package's programs are installed."""
    first = {"coreutils": "sort", "findutils": "find", "binutils": "readelf", "xz-utils": "xz"}
    first |= {"diffutils": "diff", "util-linux": "rev", "procps": "sysctl", "libc-bin": "iconv"}
    first |= {"ncurses-bin": "infocmp", "xxhash": "xxhsum", **PROGRAMS}
    return shutil.which(first.get(package, package)) is not None


def prepare(folder: Path) -> None:
    """The files that commands work on, the same each time."""
    chance = random.Random(1)
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["".join(chance.choices(letters, k=chance.randint(2, 9))) for _ in range(4000)]
    (folder / "words").write_text("\n".join(words) + "\n")
    lines = (f"{chance.randrange(10**6)} {chance.randrange(10**9)}\n" for _ in range(4000))
    (folder / "numbers").write_text("".join(lines))
    (folder / "binary").write_bytes(chance.randbytes(65536))
    (folder / "data.json").write_text(str([{"n": i} for i in range(2000)]).replace("'", '"'))
    (folder / "program.c").write_text(
        "#include <math.h>\n#include <stdio.h>\nint main(void) {\n    long double s = 0;\n"
        "    for (int i = 1; i < 5000; i++) s += 1.0L / i;\n"
        '    printf("%.15Lf\\n", s);\n    return 0;\n}\n'
    )
    (folder / "program.cc").write_text(
        "#include <iostream>\n#include <map>\n#include <string>\nint main() {\n"
        "    std::map<std::string, int> m;\n"
        "    for (int i = 0; i < 3000; i++) m[std::to_string(i * 7919 % 1009)]++;\n"
        "    try { throw m.size(); } catch (unsigned long n) { std::cout << n << '\\n'; }\n}\n"
    )
    (folder / "broken.c").write_text("int main(void) { return x }\n")
    (folder / "makefile").write_text("all: a b c\n\tcat a b c > all\na b c:\n\techo $@ > $@\n")
    for name in ("a", "b", "b/c"):
        (folder / "tree" / name).mkdir(parents=True)
        (folder / "tree" / name / "file.c").write_text(f"int {name[-1]};\n" * 20)


def left_behind(folder: Path) -> str:
    """The files of a folder by name and contents, but for what says when it was made."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink() and ".git" not in str(path):
            # An archive or a data base may hold the time.
            same = path.suffix not in {".tgz", ".zip", ".gz", ".o"} and path.name != "program"
            digest.update(str(path.relative_to(folder)).encode())
            digest.update(path.read_bytes() if same else b"")
    return digest.hexdigest()


def run(command: Command, before: list[str]) -> tuple[int, str, str, str]:
    """Exit status, output, messages and what was left behind."""
    with tempfile.TemporaryDirectory(prefix="real-") as name:
        # The same name for each run, since some programs print it.
        folder = Path(name) / "here"
        folder.mkdir()
        prepare(folder)
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "LC_ALL": "C.UTF-8",
            "PWD": str(folder),
            **{k: v for k, v in os.environ.items() if k.startswith(("PAGEWALK_", "PYTHONPATH"))},
        }
        done = subprocess.run(
            [*before, "bash", "-c", command.text],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=600,
            check=False,
        )
        left = left_behind(folder)
    output, messages = (
        re.sub(rb"real-\w+", b"", raw).decode(errors="replace")
        for raw in (done.stdout, done.stderr)
    )
    # As a shell shows it.
    status = done.returncode if done.returncode >= 0 else 128 - done.returncode
    return status, output, messages, left


def compared(command: Command, trace: Path, say: Callable[[str], None]) -> bool:
    """True if the command does the same recorded as by itself."""
    recorder = [sys.executable, "-m", "pagewalk", "record", "--out", str(trace), "--"]
    alone, recorded = run(command, []), run(command, recorder)
    names = ("status", "output", "messages", "files")
    # The recorder writes its own messages to standard error.
    differ = [n for n, a, b in zip(names, alone, recorded, strict=True) if a != b]
    if alone[2] in recorded[2]:
        differ = [n for n in differ if n != "messages"]
    for name in differ:
        n = names.index(name)
        say(
            f"{command.package}: {command.text}\n  {name}: {alone[n]!r}\n  recorded: {recorded[n]!r}"
        )
    return not differ


def table(results: dict[str, list[bool]], missing: list[str]) -> Iterator[str]:
    """The outcome in Markdown."""
    yield "| package | commands | the same |"
    yield "|---|--:|--:|"
    for package, same in results.items():
        yield f"| {package} | {len(same)} | {sum(same)} |"
    all_ = [s for same in results.values() for s in same]
    yield f"| all | {len(all_)} | {sum(all_)} |"
    if missing:
        yield f"\nNot installed: {', '.join(missing)}."


def main(words: list[str]) -> int:
    """Runs those that contain one of `words`, or all."""
    chosen = [
        c for c in commands() if not words or any(w in f"{c.package}: {c.text}" for w in words)
    ]
    missing = sorted({c.package for c in chosen if not is_there(c.package)})
    results: dict[str, list[bool]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for command in chosen:
            if command.package not in missing:
                same = compared(
                    command, Path(folder) / "t.pwt", lambda s: print(s, file=sys.stderr)
                )
                results.setdefault(command.package, []).append(same)
    print("\n".join(table(results, missing)))
    return int(not all(s for same in results.values() for s in same))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
