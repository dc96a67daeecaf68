//! How fast the front end is with nothing behind it:
//! `cargo bench -p pagewalk-workload --bench front_door -- PLUGIN PROGRAM ARGUMENTS`

#[path = "../tests/live/driver.rs"]
#[allow(dead_code)]
mod driver;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Instant;

use pagewalk_workload::live::{Live, LiveOptions};

fn main() {
    let mut arguments = std::env::args_os().skip(1).filter(|a| a != "--bench");
    let Some(plugin) = arguments.next().map(PathBuf::from) else {
        eprintln!("front_door: nothing to measure: expected -- PLUGIN PROGRAM ARGUMENTS");
        return;
    };
    let argv: Vec<OsString> = arguments.collect();
    let start = Instant::now();
    let run = Live::launch(LiveOptions {
        argv,
        plugin,
        count: std::env::var_os("COUNT").is_some(),
        ..LiveOptions::default()
    })
    .and_then(|mut live| {
        let outcome = driver::run(&mut live, |_, _, _| (), |_, _, _| ())?;
        Ok((outcome, live.counted()))
    });
    let cpu = |who| {
        // SAFETY: an all-zero rusage is valid, and getrusage only fills it.
        unsafe {
            let mut r: libc::rusage = std::mem::zeroed();
            libc::getrusage(who, &mut r);
            r.ru_utime.tv_sec as f64 + r.ru_utime.tv_usec as f64 * 1e-6
        }
    };
    eprintln!(
        "CPU seconds: reader {:.3}, emulator {:.3}",
        cpu(libc::RUSAGE_SELF),
        cpu(libc::RUSAGE_CHILDREN)
    );
    match run {
        Ok((o, counted)) => {
            let seconds = start.elapsed().as_secs_f64();
            eprintln!(
                "{} instructions (QEMU {counted:?}), {} ops, {} loads, {} stores, {} threads, {} processes, {} events, status {:?}: {seconds:.3} s, {:.1} million instructions/s",
                o.instructions,
                o.ops,
                o.loads,
                o.stores,
                o.threads,
                o.processes,
                o.events.len(),
                o.status,
                o.instructions as f64 / seconds / 1e6,
            );
        }
        Err(e) => eprintln!("front_door: {e}"),
    }
}
