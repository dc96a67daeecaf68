//! Few descriptors, many processes and threads.

use std::path::Path;
use std::process::Command;

use pagewalk_live::{Live, find_qemu};
use pagewalk_stream::Event;

use crate::tools::{compile, present};
use crate::{driver, options, run, run_with};

/// Forks as often as its argument says; all children live until the last one has started.
const KIDS: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int c, char **v) {
    int ended = 0, s, p[2];
    if (c < 2 || pipe(p)) return 9;
    for (int i = atoi(v[1]); i--;) {
        int child = fork();
        if (child < 0) return 8;
        if (!child) {
            char byte;
            close(p[1]);
            if (read(p[0], &byte, 1)) return 6;
            return 7;
        }
    }
    close(p[1]);
    while (wait(&s) > 0) ended += WIFEXITED(s) && WEXITSTATUS(s) == 7;
    printf("%d\n", ended);
}"#;

/// Sets its own soft and hard limit, takes all but a few descriptors, and forks. Parent and child print the number of
/// their next descriptor.
const FULL: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int c, char **v) {
    if (c < 4) return 9;
    struct rlimit limit = {atoi(v[1]), atoi(v[2])};
    if (setrlimit(RLIMIT_NOFILE, &limit)) return 8;
    int last = 2, fd, s = 0;
    while ((fd = dup(0)) >= 0) last = fd;
    for (int keep = atoi(v[3]); keep--;) close(last--);
    int child = fork();
    if (!child) _exit((fd = dup(0)) < 0 ? 99 : fd);
    waitpid(child, &s, 0);
    fd = dup(0);
    getrlimit(RLIMIT_NOFILE, &limit);
    printf("%d %d %d %d %d\n", last, child > 0, WEXITSTATUS(s), fd, (int)limit.rlim_cur);
}"#;

/// Threads, then processes, one after another.
const ONE_BY_ONE: &str = r#"
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
static void *body(void *p) { return p; }
int main(int c, char **v) {
    if (c < 3) return 9;
    for (int i = atoi(v[1]); i--;) {
        pthread_t t;
        if (pthread_create(&t, 0, body, 0)) return 8;
        pthread_join(t, 0);
    }
    for (int i = atoi(v[2]); i--;) {
        int child = fork();
        if (!child) _exit(0);
        waitpid(child, 0, 0);
    }
}"#;

/// Descriptors of this process that stand for a process, or for its memory. Other tests hold some for a moment.
fn of_processes() -> usize {
    let open = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    open.filter_map(|entry| std::fs::read_link(entry.path()).ok())
        .filter(|to| {
            let name = to.to_string_lossy();
            name.contains("pidfd")
                || name == Path::new("/memfd:pagewalk (deleted)").to_string_lossy()
        })
        .count()
}

#[test]
fn however_many_processes_there_are_the_engine_opens_no_more_files() {
    if !present() {
        return;
    }
    let kids = compile("kids", KIDS);
    let mut output = tempfile::tempfile().unwrap();
    let mut options = options(&[&kids, "30"]);
    options.stdio[1] = Some(output.try_clone().unwrap());
    let mut live = Live::launch(options).unwrap();
    let (mut forks, mut most) = (0, 0);
    let outcome = driver::run(
        &mut live,
        |_, _, _| (),
        |_, _, event| {
            forks += usize::from(matches!(event, Event::Fork { .. }));
            most = most.max(of_processes());
        },
    )
    .unwrap();
    assert_eq!((outcome.status, forks), (Some(0), 30));
    assert!(most < 15, "{most} descriptors for 30 processes");
    let mut said = String::new();
    std::io::Seek::rewind(&mut output).unwrap();
    std::io::Read::read_to_string(&mut output, &mut said).unwrap();
    assert_eq!(said, "30\n");
}

#[test]
fn a_program_has_all_the_descriptors_that_it_has_under_the_emulator_alone() {
    if !present() {
        return;
    }
    let full = compile("full", FULL);
    let qemu = find_qemu(None).unwrap();
    for keep in ["0", "1", "2"] {
        let arguments = [&full[..], "20", "40", keep];
        let alone = Command::new(&qemu.path)
            .args(arguments)
            .stdin(std::process::Stdio::null())
            .output()
            .unwrap();
        assert_eq!(run(&arguments).output.as_bytes(), alone.stdout, "{keep}");
    }
}

#[test]
fn a_child_that_lacks_descriptors_to_be_traced_ends_the_run() {
    if !present() {
        return;
    }
    let full = compile("full-hard", FULL);
    let error = run_with(options(&[&full, "20", "20", "0"]), |_, _, _| ())
        .err()
        .unwrap();
    assert!(
        error.to_string().contains("which the program forked")
            && error.to_string().contains("ulimit -n"),
        "{error}"
    );
    let shell = "ulimit -n 6; exec 3</dev/null 4</dev/null 5</dev/null; /bin/true; exit 0";
    let error = run_with(options(&["sh", "-c", shell]), |_, _, _| ())
        .err()
        .unwrap();
    assert!(error.to_string().contains("ulimit -n"), "{error}");
    // With two left, and with none left to open the program's file.
    for taken in ["3</dev/null", "3</dev/null 4</dev/null 5</dev/null"] {
        let shell = format!("ulimit -n 6; exec {taken}; exec /bin/true");
        let error = run_with(options(&["sh", "-c", &shell]), |_, _, _| ())
            .err()
            .unwrap();
        let why = &error.to_string();
        assert!(
            why.contains("to start the emulator") && why.contains("ulimit -n"),
            "{taken}: {error}"
        );
    }
}

#[test]
fn a_process_whose_files_may_not_be_as_large_as_what_it_shares_ends_the_run() {
    if !present() {
        return;
    }
    for (then, what) in [
        ("exec /bin/true", "to start the emulator"),
        ("(exit 3)", "forked"),
    ] {
        let shell = format!("ulimit -f 100; {then}; exit 0");
        let error = run_with(options(&["sh", "-c", &shell]), |_, _, _| ())
            .err()
            .unwrap();
        let why = &error.to_string();
        assert!(why.contains(what) && why.contains("ulimit -f"), "{error}");
    }
}

#[test]
fn ended_processes_and_threads_are_freed() {
    if !present() {
        return;
    }
    let program = compile("one-by-one", ONE_BY_ONE);
    let mut live = Live::launch(options(&[&program, "120", "40"])).unwrap();
    let mut most = (0, 0);
    // The test only waits for the program.
    while live.discard().unwrap().is_some() {
        let (processes, threads) = live.kept();
        most = (most.0.max(processes), most.1.max(threads));
    }
    assert_eq!(live.kept(), (0, 0));
    assert!(most.0 < 20 && most.1 < 60, "{most:?} of 41 and 161");
}
