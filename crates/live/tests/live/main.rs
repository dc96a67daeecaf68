//! Real programs in the emulator. Needs qemu-user and a C compiler; without one of them, the tests print so and pass.

mod corrupt;
mod driver;
mod limits;
mod programs;
mod recording;
mod shortcut_query;
mod tools;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Read, Seek};
use std::os::unix::ffi::OsStrExt;

use driver::Outcome;
use pagewalk_live::{Live, LiveOptions, find_qemu, launch};
use pagewalk_stream::{
    BATCH_OPS, Cause, Death, Error, Event, MappingSource, MemoryObject, Op, OpClass, Program, flags,
};
use tools::{compile, plugin, present};

/// A run with everything that the program wrote.
struct Run {
    outcome: Outcome,
    output: String,
    counted: Option<u64>,
}

fn options(argv: &[&str]) -> LiveOptions {
    LiveOptions {
        argv: argv.iter().map(OsString::from).collect(),
        plugin: plugin(),
        count: true,
        ..LiveOptions::default()
    }
}

fn run_with(mut options: LiveOptions, see: impl FnMut(u32, u32, &[Op])) -> Result<Run, Error> {
    let mut file = tempfile::tempfile().unwrap();
    options.stdio[0] = Some(File::open("/dev/null").unwrap());
    options.stdio[1] = Some(file.try_clone().unwrap());
    let mut live = Live::launch(options)?;
    let outcome = driver::run(&mut live, see, |_, _, _| ())?;
    let counted = live.counted();
    drop(live);
    let mut output = String::new();
    file.rewind().unwrap();
    file.read_to_string(&mut output).unwrap();
    Ok(Run {
        outcome,
        output,
        counted,
    })
}

fn run(argv: &[&str]) -> Run {
    run_with(options(argv), |_, _, _| ()).unwrap()
}

#[test]
fn every_instruction_is_counted_once() {
    if !present() {
        return;
    }
    let program = compile("loop", programs::GUPS);
    let r = run(&[&program, "200000"]);
    assert_eq!(r.outcome.status, Some(0));
    assert_eq!(Some(r.outcome.instructions), r.counted);
    assert!(r.outcome.instructions > 200_000 * 8);
}

#[test]
fn accesses_of_a_known_loop_have_its_addresses_and_dependences() {
    if !present() {
        return;
    }
    let program = compile("gups", programs::GUPS);
    let (mut inside, mut loads, mut stores, mut dependent) = (false, vec![], vec![], 0);
    let mut table = 0;
    let mut live = Live::launch(options(&[&program, "5000"])).unwrap();
    let region = std::cell::Cell::new(false);
    let outcome = driver::run(
        &mut live,
        |_, _, ops| {
            inside = region.get();
            for op in ops.iter().filter(|_| inside) {
                match op.kind {
                    OpClass::Load => loads.push(op.va),
                    OpClass::Store => {
                        dependent += u64::from(op.dep[1] > 0);
                        stores.push(op.va);
                    }
                    _ => (),
                }
            }
        },
        |_, _, event| match event {
            Event::RoiBegin => region.set(true),
            Event::RoiEnd => region.set(false),
            Event::Mmap { at, bytes, .. } if *bytes == 1 << 20 => table = at.0,
            _ => (),
        },
    )
    .unwrap();
    assert_eq!(outcome.status, Some(0));
    assert_ne!(table, 0);
    // The program's own random generator.
    let mut x = 88_172_645_463_325_252u64;
    let expected: Vec<u64> = (0..5000)
        .map(|_| {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            table + (x & ((1 << 17) - 1)) * 8
        })
        .collect();
    let in_table = |all: &[u64]| -> Vec<u64> {
        all.iter()
            .copied()
            .filter(|a| (table..table + (1 << 20)).contains(a))
            .collect()
    };
    assert_eq!(in_table(&loads), expected);
    assert_eq!(in_table(&stores), expected);
    assert!(
        dependent >= 5000,
        "a store's data comes from its load: {dependent}"
    );
}

#[test]
fn exit_status_and_output_pass_through() {
    if !present() {
        return;
    }
    let r = run(&["sh", "-c", "echo out; exit 7"]);
    assert_eq!((r.outcome.status, r.output.as_str()), (Some(7), "out\n"));
    let exits = |o: &Outcome| {
        o.events
            .iter()
            .filter(|(p, _, e)| *p == 0 && *e == Event::ProcessExit { status: 7 })
            .count()
    };
    assert_eq!(exits(&r.outcome), 1);
}

#[test]
fn a_program_that_dies_of_a_signal_keeps_its_stream() {
    if !present() {
        return;
    }
    let program = compile("crash", programs::CRASH);
    let r = run(&[&program]);
    assert_eq!(r.outcome.status, Some(128 + libc::SIGSEGV));
    assert!(
        r.outcome.instructions > 100_000,
        "{}",
        r.outcome.instructions
    );
    let died = Death {
        child: false,
        cause: Cause::Signal(libc::SIGSEGV as u8),
        instruction: String::new(),
    };
    let last: Vec<&Event> = r.outcome.events.iter().map(|(_, _, e)| e).collect();
    assert_eq!(
        last[last.len() - 2..],
        [
            &Event::Died(Box::new(died)),
            &Event::ProcessExit { status: 139 }
        ]
    );
}

#[test]
fn a_killed_emulator_ends_the_stream() {
    if !present() {
        return;
    }
    let program = compile("kill", programs::KILL);
    let r = run(&[&program]);
    assert_eq!(r.outcome.status, Some(128 + libc::SIGKILL));
    // Nothing was published after the last system call, yet nothing is lost.
    assert!(
        r.outcome.instructions > 100_000,
        "{}",
        r.outcome.instructions
    );
}

#[test]
fn threads_that_wait_for_each_other_do_not_stop_the_engine() {
    if !present() {
        return;
    }
    let program = compile("pingpong", programs::PING_PONG);
    let r = run(&[&program, "2000"]);
    assert_eq!(r.outcome.status, Some(0));
    assert_eq!(r.output, "4000\n");
    assert_eq!(r.outcome.threads, 2);
}

#[test]
fn a_tiny_ring_is_enough_for_threads_that_spin() {
    if !present() {
        return;
    }
    let program = compile("pingpong-tiny", programs::PING_PONG);
    let r = run_with(
        LiveOptions {
            ring_bytes: 4096,
            ..options(&[&program, "300"])
        },
        |_, _, _| (),
    )
    .unwrap();
    assert_eq!(r.output, "600\n");
}

#[test]
fn batches_of_a_running_thread_are_full_whenever_they_are_read() {
    if !present() {
        return;
    }
    let program = compile("stopped", programs::STOPPED);
    let mut program = launch(options(&[&program])).unwrap();
    let (mut run, mut longest) = (0, 0);
    let see = |_, thread, ops: &[Op]| {
        if thread == 0 && !ops.is_empty() {
            run = if ops.len() == BATCH_OPS { run + 1 } else { 0 };
            longest = longest.max(run);
        }
    };
    let outcome = driver::run(program.as_mut(), see, |_, _, _| ()).unwrap();
    assert_eq!(outcome.status, Some(0));
    // The loop makes more ops than these.
    assert!(longest > 900, "{longest}");
}

#[test]
fn no_access_of_another_thread_comes_after_an_unmap() {
    if !present() {
        return;
    }
    let program = compile("unmap", programs::UNMAP);
    // Mapped ranges, tracked as a machine would.
    let mapped = std::cell::RefCell::new(std::collections::BTreeMap::<u64, u64>::new());
    let mut live = Live::launch(options(&[&program])).unwrap();
    let mut seen = 0;
    let outcome = driver::run(
        &mut live,
        |_, _, ops| {
            let mapped = mapped.borrow();
            for op in ops
                .iter()
                .filter(|o| matches!(o.kind, OpClass::Load | OpClass::Store))
            {
                // Only the program's own areas lie in this range.
                if (programs::AREAS..programs::AREAS + (1 << 32)).contains(&op.va) {
                    seen += 1;
                    let below = mapped.range(..=op.va).next_back();
                    assert!(
                        below.is_some_and(|(at, bytes)| op.va < at + bytes),
                        "{:#x} is accessed while it is not mapped",
                        op.va
                    );
                }
            }
        },
        |_, _, event| match event {
            Event::Mmap { at, bytes, .. } => drop(mapped.borrow_mut().insert(at.0, *bytes)),
            Event::Unmap { at, .. } => drop(mapped.borrow_mut().remove(&at.0)),
            _ => (),
        },
    )
    .unwrap();
    assert_eq!(outcome.status, Some(0));
    assert!(seen > 50_000, "{seen}");
    let unmaps = outcome
        .events
        .iter()
        .filter(|(_, _, e)| matches!(e, Event::Unmap { at, .. } if at.0 >= programs::AREAS && at.0 < programs::AREAS + (1 << 32)))
        .count();
    assert_eq!(unmaps, 200);
}

#[test]
fn children_and_the_images_they_execute_are_traced() {
    if !present() {
        return;
    }
    let r = run(&[
        "sh",
        "-c",
        "(exit 3); echo $?; /bin/echo more; /nonexistent/program 2>/dev/null; echo $?",
    ]);
    assert_eq!(r.output, "3\nmore\n127\n");
    assert!(r.outcome.processes >= 3);
    let count = |f: fn(&Event) -> bool| r.outcome.events.iter().filter(|(_, _, e)| f(e)).count();
    assert_eq!(count(|e| matches!(e, Event::Exec)), 1);
    assert_eq!(
        count(|e| matches!(e, Event::ProcessExit { .. })),
        r.outcome.processes
    );
    assert_eq!(count(|e| matches!(e, Event::ProcessExit { status: 3 })), 1);
}

#[test]
fn processes_that_are_over_hold_neither_memory_nor_descriptors() {
    if !present() {
        return;
    }
    const CHILDREN: usize = 150;
    let script = format!("i=0; while [ $i -lt {CHILDREN} ]; do (exit 0); i=$((i+1)); done");
    let mut live = launch(options(&["sh", "-c", &script])).unwrap();
    let outcome = driver::run(live.as_mut(), |_, _, _| (), |_, _, _| ()).unwrap();
    assert_eq!(outcome.processes, CHILDREN + 1);
    // Other tests run at the same time, each with a few processes.
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let rings = maps.lines().filter(|l| l.contains("memfd:pagewalk "));
    let links = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let links = links.filter_map(|d| std::fs::read_link(d.path()).ok());
    let handles = links.filter(|to| to.to_string_lossy().contains("[pidfd]"));
    let (rings, handles) = (rings.count(), handles.count());
    assert!(
        rings < CHILDREN / 2 && handles < CHILDREN,
        "{rings}, {handles}"
    );
}

#[test]
fn scripts_run_under_their_interpreter() {
    if !present() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let script = directory.path().join("script,with comma");
    std::fs::write(
        &script,
        "#!/bin/sh -e\necho \"$1 ${0##*/}\"\nfalse\necho no\n",
    )
    .unwrap();
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let r = run(&[script.to_str().unwrap(), "one"]);
    assert_eq!(r.output, "one script,with comma\n");
    assert_eq!(r.outcome.status, Some(1));
}

#[test]
fn memory_is_mapped_as_what_it_is() {
    if !present() {
        return;
    }
    let program = compile("maps", programs::MAPS);
    let r = run(&[&program]);
    assert_eq!(r.outcome.status, Some(0), "{}", r.output);
    let has = |f: &dyn Fn(&Event) -> bool| r.outcome.events.iter().any(|(_, _, e)| f(e));
    let mapped = |wanted: &dyn Fn(MappingSource) -> bool| {
        has(&|e| matches!(e, Event::Mmap { source, .. } if wanted(*source)))
    };
    assert!(mapped(&|s| s
        == MappingSource::Zeros {
            stack: false,
            reserves: true,
        }));
    assert!(mapped(&|s| s
        == MappingSource::Zeros {
            stack: true,
            reserves: true,
        }));
    let object = |wanted: &dyn Fn(MemoryObject, bool) -> bool| {
        mapped(
            &|s| matches!(s, MappingSource::Object { object, private } if wanted(object, private)),
        )
    };
    // Libraries, and the shared memory of this program.
    assert!(object(&|o, private| private
        && o.file
        && o.key.is_some()
        && o.page > 0));
    assert!(object(&|o, private| !private && !o.file));
    assert!(has(&|e| matches!(
        e,
        Event::Remap {
            old_bytes: 0x3000,
            new_bytes: 0x40000,
            ..
        }
    )));
    assert!(has(&|e| matches!(
        e,
        Event::Protect {
            bytes: 0x1000,
            writable: false,
            ..
        }
    )));
    assert!(has(&|e| matches!(
        e,
        Event::Advise {
            bytes: 0x200000,
            advice: pagewalk_stream::Advice::HugePage,
            ..
        }
    )));
    assert!(has(&|e| matches!(
        e,
        Event::Mmap {
            bytes: 0x100000,
            writable: true,
            source: MappingSource::Zeros {
                stack: false,
                reserves: true,
            },
            ..
        }
    )));
}

#[test]
fn every_access_lies_in_a_mapping() {
    if !present() {
        return;
    }
    assert_eq!(unmapped(&["ls", "-l", "/"]), []);
}

#[test]
fn names_of_files_may_be_anything() {
    if !present() {
        return;
    }
    // Neither UTF-8 nor free of commas, at which QEMU would split its options.
    let folder = tools::folder().join(OsStr::from_bytes(b"odd \xff, folder"));
    std::fs::create_dir_all(&folder).unwrap();
    let program = folder.join("program");
    std::fs::copy(compile("names", programs::GUPS), &program).unwrap();
    let emulator = folder.join("qemu");
    drop(std::fs::remove_file(&emulator));
    std::os::unix::fs::symlink(find_qemu(None).unwrap().path, &emulator).unwrap();
    let library = folder.join("plugin.so");
    std::fs::copy(plugin(), &library).unwrap();
    let options = || {
        let mut options = options(&["sh", "-c", "exec \"$@\"", "sh"]);
        options.argv.push(program.clone().into());
        options.argv.push("5000".into());
        options.plugin = library.clone();
        options.qemu = Some(emulator.clone());
        options
    };
    assert_eq!(unmapped_with(options()), []);
    let odd = run_with(options(), |_, _, _| ()).unwrap().outcome;
    assert_eq!(odd.status, Some(0));
    let execs = odd.events.iter().filter(|(_, _, e)| *e == Event::Exec);
    assert_eq!(execs.count(), 1);
}

#[test]
fn a_thread_uses_what_another_mapped_while_it_was_made() {
    if !present() {
        return;
    }
    let program = compile("starts", programs::STARTS);
    assert_eq!(unmapped(&[&program]), []);
}

#[test]
fn threads_grow_the_heap_in_turn() {
    if !present() {
        return;
    }
    let program = compile("heap", programs::HEAP);
    assert_eq!(unmapped(&[&program]), []);
}

/// Accesses of the program to unmapped addresses: instruction and address.
fn unmapped(argv: &[&str]) -> Vec<(u64, u64)> {
    unmapped_with(options(argv))
}

fn unmapped_with(options: LiveOptions) -> Vec<(u64, u64)> {
    let mut mapped = std::collections::BTreeMap::<u64, u64>::new();
    let misses = std::cell::RefCell::new(Vec::new());
    let maps = std::cell::RefCell::new(&mut mapped);
    let mut live = Live::launch(LiveOptions {
        stdio: [None, Some(tempfile::tempfile().unwrap()), None],
        ..options
    })
    .unwrap();
    let outcome = driver::run(
        &mut live,
        |_, _, ops| {
            let maps = maps.borrow();
            for op in ops
                .iter()
                .filter(|o| matches!(o.kind, OpClass::Load | OpClass::Store))
            {
                let last = op.va + u64::from(op.size) - 1;
                if !maps.contains_key(&(op.va >> 12)) || !maps.contains_key(&(last >> 12)) {
                    misses.borrow_mut().push((op.pc, op.va));
                }
            }
        },
        |_, _, event| match event {
            Event::Mmap { at, bytes, .. } => {
                for page in at.0 >> 12..(at.0 + bytes) >> 12 {
                    maps.borrow_mut().insert(page, 1);
                }
            }
            Event::Unmap { at, bytes } => {
                for page in at.0 >> 12..(at.0 + bytes) >> 12 {
                    maps.borrow_mut().remove(&page);
                }
            }
            _ => (),
        },
    )
    .unwrap();
    assert_eq!(outcome.status, Some(0));
    misses.into_inner()
}

#[test]
fn branches_go_where_the_next_block_is() {
    if !present() {
        return;
    }
    let program = compile("branches", programs::GUPS);
    let mut previous: Option<Op> = None;
    let (mut taken, mut wrong) = (0u64, 0u64);
    run_with(options(&[&program, "1000"]), |_, _, ops| {
        for op in ops {
            if let Some(b) =
                previous.filter(|b| b.kind == OpClass::Branch && b.flags & flags::TAKEN != 0)
            {
                taken += 1;
                // The first op there also stands for the simple instructions before it.
                wrong += u64::from(!(b.va..b.va + 256).contains(&op.pc));
            }
            previous = Some(*op);
        }
    })
    .unwrap();
    assert!(taken > 1000);
    assert!(wrong * 1000 < taken, "{wrong} of {taken}");
}

#[test]
fn each_unfit_program_is_refused_in_one_sentence() {
    if !present() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let foreign = directory.path().join("foreign");
    let mut elf = vec![0; 64];
    elf[..6].copy_from_slice(b"\x7fELF\x02\x01");
    elf[18] = 183;
    std::fs::write(&foreign, &elf).unwrap();
    std::fs::set_permissions(
        &foreign,
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .unwrap();
    let plain = directory.path().join("plain");
    std::fs::write(&plain, "text").unwrap();
    let says = |o: LiveOptions, what: &str| {
        let message = Live::launch(o).err().expect("must fail").to_string();
        assert!(message.contains(what), "{message}");
    };
    says(options(&["/no/such/program"]), "/no/such/program");
    says(options(&["no-such-program-anywhere"]), "no such program");
    says(options(&[]), "no program");
    says(options(&[foreign.to_str().unwrap()]), "machine 183");
    says(options(&[plain.to_str().unwrap()]), "not executable");
    says(options(&[directory.path().to_str().unwrap()]), "not a file");
    says(
        LiveOptions {
            plugin: "/no/plugin.so".into(),
            ..options(&["true"])
        },
        "cargo build --release -p pagewalk-qemu-plugin",
    );
    says(
        LiveOptions {
            qemu: Some("/no/qemu".into()),
            ..options(&["true"])
        },
        "/no/qemu",
    );
    // A program that starts but is no emulator.
    says(
        LiveOptions {
            qemu: Some("/bin/false".into()),
            ..options(&["true"])
        },
        "before the program started",
    );
}

#[test]
fn dropping_the_stream_ends_all_its_processes() {
    if !present() {
        return;
    }
    let shell = format!("sleep {0} & sleep {0}", a_long_time());
    let mut live = Live::launch(options(&["sh", "-c", &shell])).unwrap();
    let mut batch = pagewalk_stream::Batch::new();
    for _ in 0..200 {
        live.fill(0, &mut batch).unwrap();
        live.wait();
        if sleepers() >= 2 {
            break;
        }
    }
    assert!(sleepers() >= 2);
    let start = std::time::Instant::now();
    drop(live);
    while sleepers() > 0 {
        assert!(start.elapsed().as_secs() < 60);
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

/// A sleeping time that only this test's processes have.
fn a_long_time() -> String {
    format!("1000.{}", std::process::id())
}

/// This test's processes that sleep for that time.
fn sleepers() -> usize {
    let mine = format!("sleep\0{}\0", a_long_time());
    std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|d| std::fs::read(d.path().join("cmdline")).ok())
        .filter(|c| {
            let text = String::from_utf8_lossy(c);
            text.contains("socket=pagewalk-") && text.ends_with(&mine)
        })
        .count()
}

#[test]
fn python_runs() {
    if !present() || !tools::has("python3") {
        return;
    }
    let r = run(&[
        "python3",
        "-c",
        "import threading as t\nx=t.Thread(target=print,args=('in',));x.start();x.join();print(6*7)",
    ]);
    assert_eq!(r.output, "in\n42\n");
    assert_eq!(r.outcome.status, Some(0));
    assert!(r.outcome.threads >= 2);
}
