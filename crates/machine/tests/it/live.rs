//! Whole runs of real programs: QEMU, plugin, reader, operating system, machine. Skipped with a message
//! if QEMU or a C compiler is not installed.

use std::fs::File;
use std::io::{Read, Seek};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use pagewalk_live::LiveOptions;
use pagewalk_machine::{
    Design, DesignResult, Installation, NewShortcut, Options, RecordSpec, RunResult, RunSpec,
    SourceSpec, Status, Stream, WorkUnit,
};
use pagewalk_stream::{Backing, Batch, End, Error, Event, Facts, Op, Program, ThreadId};
use pagewalk_units::VirtAddr;
use serde_json::json;

use crate::common::rows::{self, Calls, all_rows, few_rows};
use crate::common::{metric, sum};
use crate::tools::{folder, present};

/// The shipped files and the plugin built from this source.
fn installation() -> &'static Installation {
    static INSTALLATION: OnceLock<Installation> = OnceLock::new();
    INSTALLATION.get_or_init(|| {
        let mut installation = crate::common::installation();
        installation.plugin = crate::tools::plugin();
        installation
    })
}

/// Compiles a C program without transforming its loops; returns its path.
fn compile(name: &str, source: &str) -> String {
    crate::tools::compile_with("-O1", &format!("whole-{name}"), source)
}

fn spec(designs: &[&str], set: &[&str], argv: &[&str]) -> RunSpec {
    serde_json::from_value(json!({
        "machine": "revelator-table1", "designs": designs, "set": set,
        "source": {"program": {"argv": argv}},
    }))
    .unwrap()
}

fn run(spec: &RunSpec) -> RunResult {
    // Building the plugin is not part of the run.
    let installation = installation();
    let began = Instant::now();
    let result = installation
        .run(spec, &mut |p| {
            assert!(began.elapsed() < Duration::from_secs(900), "no end: {p:?}");
            true
        })
        .unwrap_or_else(|e| panic!("{e}"));
    for d in &result.designs {
        assert_eq!(d.status, Status::Complete, "{}: {:?}", d.name, d.message);
        assert_eq!(os(d, "inferred_mappings"), 0, "{}", d.name);
    }
    assert!(
        !result.warnings.iter().any(|w| w.contains("left out")),
        "{:?}",
        result.warnings
    );
    result
}

fn os(d: &DesignResult, name: &str) -> u64 {
    sum(d, name, |p| p == "os")
}

/// Every counter of every design.
fn counters(result: &RunResult) -> Vec<(String, &'static str, u64)> {
    let stats = result.designs.iter().flat_map(|d| &d.stats);
    stats.map(|s| (s.path.clone(), s.name, s.value)).collect()
}

const SINGLE: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include "pagewalk.h"
int main(int argc, char **argv) {
    unsigned long n = 8ul << 20, x = 88172645463325252ul, sum = 0;
    unsigned long *t = malloc(n * 8);
    for (unsigned long i = 0; i < n; i += 512) t[i] = i;
    pagewalk_roi_begin();
    for (int i = 0; i < 200000; i++) {
        x ^= x << 13; x ^= x >> 7; x ^= x << 17;
        sum += t[x % n] ^= x;
    }
    pagewalk_roi_end();
    FILE *f = fopen(argv[1], "w");
    fprintf(f, "%lx\n", sum);
    fclose(f);
    return 3;
}
"#;

#[test]
fn designs_share_one_run_of_a_program_and_leave_it_as_it_is() {
    if !present() {
        return;
    }
    let program = compile("single", SINGLE);
    let (native, simulated) = (folder().join("native"), folder().join("simulated"));
    let status = Command::new(&program).arg(&native).status().unwrap();
    // Without the set-up, in which thp has fewer page faults than even perfect-tlb.
    let mut spec = spec(
        &["radix", "l2tlb-128k", "thp", "perfect-tlb"],
        &[],
        &[&program, &simulated.to_string_lossy()],
    );
    spec.options.limits.roi = true;
    let result = run(&spec);
    assert_eq!(result.source.exit_status, status.code());
    assert_eq!(
        std::fs::read(native).unwrap(),
        std::fs::read(simulated).unwrap()
    );
    let value = |name| -> Vec<f64> { result.designs.iter().map(|d| metric(d, name)).collect() };
    let instructions = value("instructions");
    assert!(instructions.iter().all(|&n| n == instructions[0]));
    // Xorshift, remainder and update take some dozen instructions.
    assert!(instructions[0] > 2.4e6 && instructions[0] < 6e6);
    let ipc = value("ipc");
    let [radix, larger, huge, perfect] = ipc[..] else {
        unreachable!()
    };
    assert!(perfect >= larger && larger > radix, "{ipc:?}");
    assert!(huge > radix && perfect >= huge, "{ipc:?}");
    let walks = value("walks");
    // The table has 16,384 pages, and the TLB has a tenth as many entries.
    assert!(
        walks[0] > 150_000.0 && walks[1] < walks[0] / 2.0,
        "{walks:?}"
    );
    assert!(walks[2] < walks[0] / 2.0 && walks[3] == 0.0, "{walks:?}");
}

const THREADS: &str = r#"
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t change = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t barrier;
static int done;
static void *work(void *me) {
    for (int round = 0; round < 10; round++) {
        char *p = mmap(0, 1 << 18, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        for (int i = 0; i < 1 << 18; i += 64) p[i] = i;
        munmap(p, 1 << 18);
        pthread_mutex_lock(&lock);
        done++;
        pthread_cond_broadcast(&change);
        pthread_mutex_unlock(&lock);
        pthread_barrier_wait(&barrier);
    }
    return me;
}
int main(void) {
    pthread_t t[4];
    pthread_barrier_init(&barrier, 0, 4);
    for (long i = 0; i < 4; i++) pthread_create(&t[i], 0, work, 0);
    pthread_mutex_lock(&lock);
    while (done < 40) pthread_cond_wait(&change, &lock);
    pthread_mutex_unlock(&lock);
    for (int i = 0; i < 4; i++) pthread_join(t[i], 0);
    return done + 2;
}
"#;

#[test]
fn threads_wait_for_each_other_on_any_number_of_cores() {
    if !present() {
        return;
    }
    let program = compile("threads", THREADS);
    for cores in ["cores=1", "cores=4"] {
        let result = run(&spec(&["radix", "perfect-tlb"], &[cores], &[&program]));
        assert_eq!(result.source.exit_status, Some(42), "{cores}");
        for d in &result.designs {
            // 40 times 64 new pages, and those of program and library.
            let faults = os(d, "faults_4kb");
            assert!(
                (2560..3200).contains(&faults),
                "{cores} {}: {faults}",
                d.name
            );
        }
        let [radix, perfect] = &result.designs[..] else {
            unreachable!()
        };
        assert_eq!(
            metric(radix, "instructions"),
            metric(perfect, "instructions")
        );
        // Time that passes while all threads wait for the emulator is not the program's.
        let cycles = metric(perfect, "cycles");
        let kernel = os(perfect, "fault_cycles") as f64;
        let busy = kernel + 20.0 * metric(perfect, "instructions");
        assert!(cycles < 4.0 * busy, "{cores}: {cycles} cycles, {busy} busy");
    }
}

/// Each part allocates 32 untouched pages, has the kernel fill them, and then touches one byte of each.
/// `where` selects what is in the region of interest.
const FILLED: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>
#include "pagewalk.h"
enum { PAGE = 4096, PAGES = 32, BYTES = PAGES * PAGE, PARTS = 10 };
static char *fresh(int flags) {
    return mmap(0, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
}
/* Every other page backwards, so that no two ranges are neighbours. */
static void vectors(struct iovec *v, char *p) {
    for (int i = 0; i < PAGES; i++) {
        int page = i % 2 ? i : PAGES - 2 - i;
        v[i] = (struct iovec){p + page * PAGE, PAGE};
    }
}
static int fill(char **p, int file) {
    int pair[2], good = 0;
    struct iovec v[PAGES];
    socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    int size = 4 * BYTES;
    setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    good += read(file, p[0], BYTES) == BYTES;
    good += pread(file, p[1], BYTES, 0) == BYTES;
    vectors(v, p[2]);
    lseek(file, 0, SEEK_SET);
    good += readv(file, v, PAGES) == BYTES;
    good += getrandom(p[3], BYTES, 0) == BYTES;
    good += write(pair[0], p[0], BYTES / 2) == BYTES / 2;
    good += recv(pair[1], p[4], BYTES / 2, MSG_WAITALL) == BYTES / 2;
    good += write(pair[0], p[0], BYTES / 2) == BYTES / 2;
    good += recv(pair[1], p[4] + BYTES / 2, BYTES / 2, MSG_WAITALL) == BYTES / 2;
    vectors(v, p[5]);
    struct msghdr m = {.msg_iov = v, .msg_iovlen = PAGES};
    good += write(pair[0], p[0], BYTES / 2) == BYTES / 2;
    good += write(pair[0], p[0], BYTES / 2) == BYTES / 2;
    good += recvmsg(pair[1], &m, MSG_WAITALL) == BYTES;
    for (int i = 0; i < PAGES; i++) good += stat("/", (struct stat *)(p[6] + i * PAGE)) == 0;
    /* Half of what a call may fill. */
    good += pread(file, p[7], 2 * BYTES, BYTES / 2) == BYTES / 2;
    /* What is written is read first: page by page, as any read of an untouched one. */
    good += pwrite(file, p[8], BYTES, 0) == BYTES;
    /* QEMU ignores it, Linux does not. */
    good += madvise(p[9], BYTES, 23 /* MADV_POPULATE_WRITE */) == 0;
    return good;
}
int main(int argc, char **argv) {
    char *p[PARTS], *name = argv[1];
    int inside = !strcmp(argv[2], "inside"), sum = 0;
    int file = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
    char *full = malloc(BYTES);
    memset(full, 1, BYTES);
    if (write(file, full, BYTES) != BYTES) return 99;
    lseek(file, 0, SEEK_SET);
    for (int i = 0; i < PARTS; i++) p[i] = fresh(0);
    /* Pages of libraries and the stack that the calls themselves need, on buffers of their own. */
    char *warm[PARTS];
    for (int i = 0; i < PARTS; i++) warm[i] = fresh(i == 7 ? 0 : MAP_POPULATE);
    int good = fill(warm, file);
    for (int k = 0; k < BYTES; k += PAGE) sum += warm[0][k];
    lseek(file, 0, SEEK_SET);
    if (inside) pagewalk_roi_begin();
    good += fill(p, file);
    if (!inside) pagewalk_roi_begin();
    for (int i = 0; i < PARTS; i++)
        for (int k = 0; k < BYTES / (i == 7 ? 2 : 1); k += PAGE) sum += p[i][k]++;
    pagewalk_roi_end();
    return good;
}
"#;

#[test]
fn memory_that_a_call_fills_is_mapped_by_the_call() {
    if !present() {
        return;
    }
    let program = compile("filled", FILLED);
    let file = folder().join("filled.data");
    let faults = |source: serde_json::Value| {
        let mut spec = spec(&["radix", "thp"], &[], &[]);
        spec.source = Some(serde_json::from_value(source).unwrap());
        spec.options.limits.roi = true;
        let result = run(&spec);
        // Fourteen calls and 32 times stat, twice; a recording has no exit status.
        assert!(matches!(result.source.exit_status, Some(92) | None));
        let d = &result.designs[0];
        let all = os(d, "faults_4kb") + os(d, "cow_faults");
        (all, os(d, "kernel_faults"), os(d, "fault_cycles"))
    };
    let live = |place: &str| {
        let argv = [program.clone(), file.to_string_lossy().into(), place.into()];
        json!({"program": {"argv": argv}})
    };
    // Nine ranges of 32 pages and half a range, all outside of the region. One range was only read there: its pages are
    // zero pages, which the first write replaces.
    let (all, kernel, _) = faults(live("outside"));
    assert_eq!((all, kernel), (32, 0));
    let (all, kernel, cycles) = faults(live("inside"));
    assert_eq!((all, kernel), (10 * 32 + 16, 9 * 32 + 16));
    assert!(cycles > 0, "they are faults like others");
    // The recording has the same.
    for place in ["outside", "inside"] {
        let path = folder().join(format!("filled-{place}.pwt"));
        let record: RecordSpec = serde_json::from_value(json!({"source": live(place)})).unwrap();
        installation()
            .record(&record, &path, &mut |_, _| true)
            .unwrap();
        let (all, kernel, _) = faults(json!({"trace": {"path": path}}));
        let pages = if place == "inside" { 9 * 32 + 16 } else { 0 };
        assert_eq!((all, kernel), (pages + 32, pages), "recorded, {place}");
    }
}

const HAND_OVER: &str = r#"
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
enum { ROUNDS = 200, BYTES = 32 * 4096 };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t change = PTHREAD_COND_INITIALIZER;
static char *given;
static void *user(void *x) {
    for (int round = 0; round < ROUNDS; round++) {
        pthread_mutex_lock(&lock);
        while (!given) pthread_cond_wait(&change, &lock);
        for (int i = 0; i < BYTES; i += 4096) given[i] = i;
        given = 0;
        pthread_cond_signal(&change);
        pthread_mutex_unlock(&lock);
    }
    return x;
}
int main(void) {
    pthread_t t;
    pthread_create(&t, 0, user, 0);
    for (int round = 0; round < ROUNDS; round++) {
        char *p = mmap(0, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        pthread_mutex_lock(&lock);
        given = p;
        pthread_cond_signal(&change);
        while (given) pthread_cond_wait(&change, &lock);
        pthread_mutex_unlock(&lock);
        munmap(p, BYTES);
    }
    pthread_join(t, 0);
    return 0;
}
"#;

/// The kernel returns the same address each round. An access before its map or after its unmap would find
/// the pages of another round, or none.
#[test]
fn accesses_of_other_threads_come_before_an_unmap() {
    if !present() {
        return;
    }
    let program = compile("hand-over", HAND_OVER);
    for cores in ["cores=1", "cores=2"] {
        let result = run(&spec(&["radix", "thp"], &[cores], &[&program]));
        assert_eq!(result.source.exit_status, Some(0));
        for d in &result.designs {
            let faults = os(d, "faults_4kb");
            assert!(
                (200 * 32..200 * 32 + 500).contains(&faults),
                "{cores} {}: {faults}",
                d.name
            );
        }
    }
}

const FORKS: &str = r#"
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
int main(void) {
    int n = 64 * 4096, sum = 0;
    char *shared = aligned_alloc(4096, n);
    for (int i = 0; i < n; i += 4096) shared[i] = 1;
    for (int child = 0; child < 3; child++) {
        if (fork() == 0) {
            for (int i = 0; i < n; i += 4096) shared[i] += child;
            _exit(shared[4096]);
        }
    }
    for (int child = 0, status; child < 3; child++) {
        wait(&status);
        sum += WEXITSTATUS(status);
    }
    if (fork() == 0) execl("/bin/sh", "sh", "-c", "echo a b | wc -w > /dev/null", (char *)0);
    int status;
    wait(&status);
    return sum * 10 + WEXITSTATUS(status);
}
"#;

#[test]
fn children_run_beside_their_parent_and_copy_what_they_write() {
    if !present() {
        return;
    }
    let program = compile("forks", FORKS);
    let designs = ["radix", "perfect-tlb", "ecpt", "mehpt-thp", "mehpt-virtual"];
    for cores in ["cores=1", "cores=8"] {
        let result = run(&spec(&designs, &[cores], &[&program]));
        assert_eq!(result.source.exit_status, Some(60), "{cores}");
        for d in &result.designs {
            let copies = os(d, "cow_faults");
            assert!(copies >= 3 * 64, "{cores} {}: {copies}", d.name);
        }
    }
}

#[test]
fn a_recording_gives_the_same_each_time() {
    if !present() {
        return;
    }
    let program = compile("recorded", THREADS);
    let path = folder().join("whole.pwt");
    let record: RecordSpec =
        serde_json::from_value(json!({"source": {"program": {"argv": [program]}}})).unwrap();
    let recorded = installation()
        .record(&record, &path, &mut |_, _| true)
        .unwrap();
    assert_eq!(recorded.exit_status, Some(42));
    let mut spec = spec(&["radix", "thp"], &["cores=4"], &[]);
    spec.source = Some(serde_json::from_value(json!({"trace": {"path": path}})).unwrap());
    let first = run(&spec);
    spec.options.host_threads = Some(1);
    let second = run(&spec);
    assert_eq!(counters(&first), counters(&second));
    for d in &first.designs {
        assert_eq!(metric(d, "instructions"), recorded.instructions as f64);
        let faults = os(d, "faults_4kb");
        assert!((2560..3200).contains(&faults), "{}: {faults}", d.name);
    }
}

/// A thread that waits for a change that no thread makes, then ends.
struct Cut(u32);

impl Program for Cut {
    fn facts(&self) -> Facts {
        Facts {
            deterministic: true,
            ..Facts::default()
        }
    }
    fn fill(&mut self, _: ThreadId, batch: &mut Batch) -> Result<End, Error> {
        batch.ops.clear();
        self.0 += 1;
        if self.0 > 1 {
            batch.ops.push(Op {
                pc: 0x40_0000,
                insns: 1,
                ..Op::default()
            });
        }
        Ok(match self.0 {
            1 => End::Event {
                event: Event::Map {
                    at: VirtAddr(0x40_0000),
                    bytes: 4096,
                    writable: false,
                    backing: Backing::File,
                },
                ticket: 1,
            },
            2 => End::Meet { ticket: 5 },
            _ => End::Exit,
        })
    }
}

#[test]
fn a_thread_that_waits_for_a_change_that_never_comes_goes_on_and_it_is_said() {
    let designs = crate::common::installation()
        .resolve(&spec(&["radix"], &[], &[]))
        .unwrap();
    let options = Options::default();
    let stream = Stream {
        program: Box::new(Cut(0)),
        designs: vec![0],
    };
    let result = pagewalk_machine::run(&designs, vec![stream], &options, &mut |_| true).unwrap();
    assert_eq!(result.designs[0].status, Status::Complete);
    assert_eq!(metric(&result.designs[0], "instructions"), 2.0);
    let said = |w: &&String| w.contains("1 times a thread waited");
    assert_eq!(
        result.warnings.iter().filter(said).count(),
        1,
        "{:?}",
        result.warnings
    );
}

const MARKED: &str = r#"
#include <stdlib.h>
#include "pagewalk.h"
int main(void) {
    volatile char *p = malloc(1 << 20);
    for (int i = 0; i < 1 << 20; i++) p[i] = i;
    pagewalk_roi_begin();
    for (int i = 0; i < 10000; i++) p[i] = i;
    pagewalk_roi_end();
    for (int i = 0; i < 1 << 20; i++) p[i] = i;
    return 5;
}
"#;

#[test]
fn only_the_region_of_interest_is_measured() {
    if !present() {
        return;
    }
    let program = compile("marked", MARKED);
    let mut spec = spec(&["radix", "perfect-tlb"], &[], &[&program]);
    spec.options.limits.roi = true;
    for d in &run(&spec).designs {
        let stores = metric(d, "memory_operands");
        assert!((10_000.0..10_100.0).contains(&stores), "{stores}");
        let faults = metric(d, "page_faults");
        assert!(faults < 5.0, "mapped while skipping: {faults}");
    }
}

/// A second thread works while the first one spins, before the region and in it.
const HANDED: &str = r#"
#include <pthread.h>
#include <stdlib.h>
#include "pagewalk.h"
enum { STORES = 300000, BYTES = 1 << 24 };
static volatile int turn, done;
static volatile char *memory;
static void *work(void *x) {
    for (int i = 1; i <= 2; i++) {
        while (turn < i) ;
        unsigned at = 0;
        for (int n = 0; n < STORES; n++) memory[at = (at * 1103515245u + 12345) % BYTES] = n;
        done = i;
    }
    while (turn < 3) ;
    return x;
}
int main(void) {
    pthread_t t;
    memory = malloc(BYTES);
    for (int i = 0; i < BYTES; i += 4096) memory[i] = 1;
    pthread_create(&t, 0, work, 0);
    turn = 1;
    while (done < 1) ;
    pagewalk_roi_begin();
    turn = 2;
    while (done < 2) ;
    pagewalk_roi_end();
    turn = 3;
    pthread_join(t, 0);
    return 0;
}
"#;

#[test]
fn the_region_has_all_that_other_threads_do_in_it() {
    if !present() {
        return;
    }
    let program = compile("handed", HANDED);
    let mut spec = spec(&["radix"], &["cores=2"], &[&program]);
    spec.options.limits.roi = true;
    let result = run(&spec);
    let stores = sum(&result.designs[0], "stores", |p| {
        matches!(p, "core.0" | "core.1")
    });
    assert!((300_000..300_100).contains(&stores), "{stores}");
}

#[test]
fn a_program_that_waits_for_ever_can_be_stopped() {
    if !present() {
        return;
    }
    let program = compile(
        "pauses",
        "#include <unistd.h>\nint main(void) { pause(); }\n",
    );
    let installation = installation();
    let began = Instant::now();
    let mut reached = false;
    let result = installation
        .run(&spec(&["radix", "thp"], &[], &[&program]), &mut |p| {
            reached = p.done >= 10_000;
            !reached && began.elapsed() < Duration::from_secs(600)
        })
        .unwrap();
    assert!(reached, "stopped by the time limit");
    assert!(result.partial);
    for d in &result.designs {
        assert_eq!(d.status, Status::Partial);
        assert!(metric(d, "instructions") >= 10_000.0);
    }
}

/// One design for each shortcut: all rows, few rows, or none. Each runs its own instance of the program.
/// Returns the printed output too.
fn run_with_shortcuts(
    shortcuts: &[Option<NewShortcut>],
    set: &[&str],
    argv: &[&str],
    limits: serde_json::Value,
) -> (RunResult, Vec<String>) {
    let radix = design("radix", set);
    let designs: Vec<Design> = shortcuts
        .iter()
        .enumerate()
        .map(|(n, shortcut)| Design {
            name: format!("design-{n}"),
            shortcut: *shortcut,
            beside: false,
            ..radix.clone()
        })
        .collect();
    run_each(&designs, argv, limits)
}

fn design(name: &str, set: &[&str]) -> Design {
    let designs = installation().resolve(&spec(&[name], set, &[]));
    designs.unwrap().remove(0)
}

/// Runs each design with its own instance of the program; returns the printed output too.
fn run_each(
    designs: &[Design],
    argv: &[&str],
    limits: serde_json::Value,
) -> (RunResult, Vec<String>) {
    let mut outputs: Vec<File> = Vec::new();
    let streams = (0..designs.len()).map(|design| {
        static OUTPUTS: AtomicU64 = AtomicU64::new(0);
        let number = OUTPUTS.fetch_add(1, Relaxed);
        let path = folder().join(format!("query-output-{number}"));
        let open = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(path);
        let output = open.unwrap();
        outputs.push(output.try_clone().unwrap());
        let options = LiveOptions {
            argv: argv.iter().map(Into::into).collect(),
            plugin: installation().plugin.clone(),
            stdio: [None, Some(output), None],
            ..LiveOptions::default()
        };
        Stream {
            program: pagewalk_live::launch(options).unwrap(),
            designs: vec![design],
        }
    });
    let streams = streams.collect();
    let options = Options {
        limits: serde_json::from_value(limits).unwrap(),
        ..Options::default()
    };
    let began = Instant::now();
    let result = pagewalk_machine::run(designs, streams, &options, &mut |p| {
        assert!(began.elapsed() < Duration::from_secs(900), "no end: {p:?}");
        true
    })
    .unwrap();
    for d in &result.designs {
        assert_eq!(d.status, Status::Complete, "{}: {:?}", d.name, d.message);
    }
    let text = |mut file: File| {
        let mut text = String::new();
        file.rewind().unwrap();
        file.read_to_string(&mut text).unwrap();
        text
    };
    (result, outputs.into_iter().map(text).collect())
}

/// Counts that [`crate::programs::QUERIES`] prints after its sum: hits, misses, insertions.
fn counts(output: &str) -> [u64; 3] {
    let line = output
        .lines()
        .nth(1)
        .unwrap_or_else(|| panic!("{output:?}"));
    let numbers: Vec<u64> = line.split(' ').map(|n| n.parse().unwrap()).collect();
    numbers.try_into().unwrap()
}

#[test]
fn a_live_program_branches_on_the_answers_of_its_own_design() {
    static CALLS: Calls = Calls::new();
    if !present() {
        return;
    }
    let program = crate::tools::compile("whole-queries", crate::programs::QUERIES);
    for (threads, cores) in [(1, "cores=1"), (3, "cores=2")] {
        let argv = [&program[..], "80", "6", &threads.to_string()];
        let (result, outputs) = run_with_shortcuts(
            &[
                Some(|_| rows::rows(usize::MAX, Some(&CALLS))),
                Some(few_rows),
                None,
            ],
            &[cores],
            &argv,
            json!({}),
        );
        assert_eq!(result.source.exit_status, Some(0));
        let (all, distinct) = (threads * 480, threads * 80);
        assert_eq!(counts(&outputs[0]), [all - distinct, distinct, distinct]);
        assert_eq!(CALLS.take(), (all, distinct));
        // The keys are sequential and more than it keeps.
        let [hits, misses, inserted] = counts(&outputs[1]);
        assert_eq!((hits + misses, inserted), (all, misses));
        assert!(misses > 2 * distinct, "{misses}");
        assert_eq!(counts(&outputs[2]), [0, all, 0]);
        let sums: Vec<_> = outputs.iter().map(|o| o.lines().next().unwrap()).collect();
        assert!(sums.iter().all(|s| *s == sums[0]), "{sums:?}");
        let instructions: Vec<f64> = result
            .designs
            .iter()
            .map(|d| metric(d, "instructions"))
            .collect();
        assert!(instructions[0] < instructions[1], "{instructions:?}");
    }
}

#[test]
fn a_live_program_gets_the_same_answers_skipped_warmed_sampled_and_measured() {
    static CALLS: Calls = Calls::new();
    if !present() {
        return;
    }
    let program = crate::tools::compile("whole-queries-phases", crate::programs::QUERIES);
    let argv = [&program[..], "80", "20", "1"];
    let mut whole = f64::MAX;
    for limits in [
        json!({}),
        json!({"skip": 150_000}),
        json!({"warmup": 150_000}),
        json!({"skip": 20_000, "warmup": 130_001}),
        json!({"sample": {"length": 500, "period": 4000}}),
        json!({"skip": 10_000, "warmup": 10_000, "sample": {"length": 1000, "period": 5000}}),
    ] {
        let shortcut: fn(u64) -> _ = |_| rows::rows(usize::MAX, Some(&CALLS));
        let (result, outputs) = run_with_shortcuts(&[Some(shortcut)], &[], &argv, limits.clone());
        assert_eq!(result.source.exit_status, Some(0), "{limits}");
        assert_eq!(counts(&outputs[0]), [1520, 80, 80], "{limits}");
        assert_eq!(CALLS.take(), (1600, 80), "{limits}");
        let instructions = metric(&result.designs[0], "instructions");
        assert!(instructions > 0.0 && instructions < whole, "{limits}");
        if whole == f64::MAX {
            whole = instructions;
        }
    }
}

#[test]
fn a_live_program_makes_resizes_and_frees_the_table_of_its_machine() {
    if !present() {
        return;
    }
    let program = crate::tools::compile("whole-tables", crate::programs::TABLES);
    let small = ["shortcut.stlt.rows=65536"];
    for (threads, cores) in [("1", "cores=1"), ("3", "cores=2")] {
        let designs = [
            design("radix", &[cores]),
            design("stlt", &[cores, small[0]]),
            design("stlt-va", &[cores, small[0]]),
        ];
        let (result, outputs) = run_each(&designs, &[&program, threads, "300"], json!({}));
        assert_eq!(result.source.exit_status, Some(0));
        let lines = |n: usize| -> Vec<&str> { outputs[n].lines().collect() };
        let software = lines(0);
        let counts = |n: usize| -> Vec<u64> {
            let line = lines(n)[1];
            line.split(' ').filter_map(|w| w.parse().ok()).collect()
        };
        let [0, most, made, freed] = counts(0)[..] else {
            panic!("{software:?}");
        };
        for n in [1, 2] {
            let [0, hits, ..] = counts(n)[..] else {
                panic!("{}", outputs[n]);
            };
            assert_eq!(counts(n)[2..], [made, freed]);
            // With translations, rows of changed pages give no result for a while.
            assert!(hits > most / 4 && hits <= most, "{hits} of {most}");
            assert!(n == 1 || hits == most);
            assert_eq!([lines(n)[0], lines(n)[2]], [software[0], software[2]]);
            let rest = [
                "child 0 1",
                "parent 1 free 1 0 there 0 insert 0 alloc 1 1",
                "exec 0 alloc 0 1",
            ];
            // The same holds for rows of pages that the fork had copied.
            let printed = lines(n)[3..].join("|");
            let printed = match n {
                1 => printed.replace("parent 0", "parent 1"),
                _ => printed,
            };
            assert_eq!(printed, rest.join("|"));
            let d = &result.designs[n];
            let table = |name| sum(d, name, |p| p == "stlt");
            let unit = |name| sum(d, name, |p| p.ends_with(".mmu.stlt"));
            assert_eq!((table("calls"), table("refused_calls")), (10, 5));
            // Alloc, resize, alloc; the child's, and that of the new image.
            assert_eq!(table("tables"), 6);
            assert_eq!(unit("loads"), table("loads"));
            assert_eq!(unit("inserts"), table("inserts"));
            assert!(table("loads") > hits && table("hits") >= hits);
        }
        assert_eq!(software[3], "child 1 1");
    }
}

/// Queries in regions of interest, each of which is a request.
const REGIONS: &str = r#"
#include <stdlib.h>
#include "pagewalk.h"
int main(int c, char **v) {
    unsigned long keys = 50, hits = 0, regions = atol(v[1]);
    volatile unsigned long *records = calloc(keys, 4096), sum = 0;
    for (unsigned long i = 0; i < regions; i++) {
        unsigned long key = i % keys;
        pagewalk_roi_begin();
        volatile unsigned long *r = pagewalk_load_va(key);
        if (r == records + key * 512) hits++;
        else {
            r = records + key * 512;
            pagewalk_insert_va(key, (void *)r);
        }
        sum += *r;
        pagewalk_roi_end();
        for (int j = 0; j < 500; j++) sum += j;
    }
    return c > 2 ? 0 : hits * 100 / regions;
}
"#;

#[test]
fn a_region_that_a_live_program_enters_again_and_again_is_a_request_each_time() {
    static CALLS: Calls = Calls::new();
    if !present() {
        return;
    }
    let program = compile("regions", REGIONS);
    let shortcuts: [Option<fn(u64) -> _>; 2] =
        [Some(|_| rows::rows(usize::MAX, Some(&CALLS))), None];
    let (result, _) = run_with_shortcuts(&shortcuts, &[], &[&program, "500"], json!({}));
    // Each key is queried ten times and found nine times.
    assert_eq!(result.source.exit_status, Some(90));
    assert_eq!(CALLS.take(), (500, 50));
    for d in &result.designs {
        assert_eq!(metric(d, "requests"), 500.0, "{}", d.name);
        assert_eq!(d.speedup_by, WorkUnit::Request);
    }
    let (result, _) = run_with_shortcuts(
        &shortcuts,
        &[],
        &[&program, "1000000"],
        json!({"roi": true, "skip_requests": 100, "warmup_requests": 50, "requests": 200}),
    );
    for d in &result.designs {
        assert_eq!(metric(d, "requests"), 200.0, "{}", d.name);
        // Work between the regions is not measured.
        let each = metric(d, "instructions_per_request");
        assert!(each > 5.0 && each < 80.0, "{}: {each}", d.name);
    }
    let (loads, inserts) = CALLS.take();
    // The program may have made one query beyond the measured part.
    assert!((350..=351).contains(&loads), "{loads}");
    assert_eq!(inserts, 50);
    let (result, _) = run_with_shortcuts(
        &[Some(all_rows)],
        &[],
        &[&program, "1000000"],
        json!({"requests": 200}),
    );
    assert_eq!(metric(&result.designs[0], "requests"), 200.0);
    let each = metric(&result.designs[0], "instructions_per_request");
    assert!(each > 500.0, "all is measured: {each}");
}

#[test]
fn a_recording_of_a_program_that_asks_is_refused_by_a_design_that_answers() {
    if !present() {
        return;
    }
    let program = crate::tools::compile("whole-queries-recorded", crate::programs::QUERIES);
    let path = folder().join("queries.pwt");
    let record: RecordSpec =
        serde_json::from_value(json!({"source": {"program": {"argv": [program, "20", "5", "1"]}}}))
            .unwrap();
    let recorded = installation()
        .record(&record, &path, &mut |_, _| true)
        .unwrap();
    let mut designs = installation()
        .resolve(&spec(&["radix", "thp"], &[], &[]))
        .unwrap();
    let replay = |designs: &[Design]| {
        let program =
            pagewalk_trace::open_trace(&path, &pagewalk_trace::OpenOptions::default()).unwrap();
        let stream = Stream {
            program,
            designs: (0..designs.len()).collect(),
        };
        let options = Options::default();
        pagewalk_machine::run(designs, vec![stream], &options, &mut |_| true).unwrap()
    };
    for d in &replay(&designs).designs {
        assert_eq!(d.status, Status::Complete);
        assert_eq!(metric(d, "instructions"), recorded.instructions as f64);
    }
    designs.truncate(1);
    designs[0].shortcut = Some(all_rows);
    let refused = replay(&designs).designs.remove(0);
    assert_eq!(refused.status, Status::ProgramError);
    let message = refused.message.unwrap();
    assert!(
        message.contains("queries.pwt") && message.contains("without a shortcut"),
        "{message}"
    );
}

#[test]
fn a_recording_with_memory_gives_the_wrong_paths_of_the_live_run() {
    if !present() {
        return;
    }
    let program = compile("tree", include_str!("../../../../tests/tree.c"));
    let of_region = |set: &[&str], source: Option<SourceSpec>| {
        let mut spec = spec(&["radix", "thp"], set, &[&program]);
        spec.source = source.or(spec.source);
        spec.options.limits.roi = true;
        run(&spec)
    };
    let enabled = ["core.wrong_path.enabled=true"];
    let recorded = |memory: bool| {
        let path = folder().join(format!("tree-{memory}.pwt"));
        let source = json!({"program": {"argv": [program]}});
        let recording: RecordSpec =
            serde_json::from_value(json!({"source": source, "memory": memory})).unwrap();
        let made = installation().record(&recording, &path, &mut |_, _| true);
        assert_eq!(made.unwrap().exit_status, Some(0));
        SourceSpec::Trace { path }
    };
    let pointers = |counters: &[(String, &str, u64)]| -> u64 {
        let all = counters.iter().filter(|c| c.1 == "pointer_loads");
        all.map(|c| c.2).sum()
    };
    let counted = |source| counters(&of_region(&enabled, source));
    let [with, without] = [true, false].map(recorded);
    let live = counted(None);
    assert!(pointers(&live) > 2000, "{}", pointers(&live));
    assert_eq!(live, counted(Some(with.clone())));
    assert_eq!(pointers(&counted(Some(without.clone()))), 0);
    // Mispredictions decide where memory can be read, after one window.
    let counted = |set: &[&str], source: &SourceSpec| {
        let found = counters(&of_region(set, Some(source.clone())));
        let wrong = found.iter().filter(|c| c.0.ends_with(".wrong_path"));
        wrong
            .clone()
            .next()
            .map(|_| wrong.map(|c| c.2).sum::<u64>() > 0)
    };
    let disabled = ["core.wrong_path.enabled=false"];
    assert_eq!(counted(&[], &with), Some(true));
    assert_eq!(counted(&[], &without), None);
    assert_eq!(counted(&disabled, &with), None);
}
