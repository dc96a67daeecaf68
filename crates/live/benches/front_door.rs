//! Speed of the front end with nothing behind it:
//! `cargo bench -p pagewalk-live --bench front_door -- PLUGIN PROGRAM ARGUMENTS`

#[path = "../tests/live/driver.rs"]
#[allow(dead_code)]
mod driver;

use std::path::{Path, PathBuf};
use std::time::Instant;

use pagewalk_live::{Live, LiveOptions, LiveRecording};
use pagewalk_stream::Error;
use pagewalk_trace::{Header, TraceWriter};

/// Measures the front end. `PAGEWALK_BEHIND` selects its consumer: `ops` (ops are made and discarded), `nothing`
/// (records are read and discarded) or a trace to write.
fn run(options: LiveOptions, behind: &str) -> Result<(), Error> {
    let start = Instant::now();
    let print_rate = |instructions: u64, what: &str| {
        let seconds = start.elapsed().as_secs_f64();
        eprintln!(
            "{instructions} instructions{what}: {seconds:.3} s, {:.1} million instructions/s",
            instructions as f64 / seconds / 1e6,
        );
    };
    match behind {
        "ops" => {
            let mut live = Live::launch(options)?;
            let o = driver::run(&mut live, |_, _, _| (), |_, _, _| ())?;
            let counted = live.counted();
            let what = format!(
                " (QEMU {counted:?}), {} ops, {} loads, {} stores, {} threads, {} processes, {} events, status {:?}",
                o.ops,
                o.loads,
                o.stores,
                o.threads,
                o.processes,
                o.events.len(),
                o.status
            );
            print_rate(o.instructions, &what);
        }
        "nothing" => {
            let mut live = Live::launch(options)?;
            let mut instructions = 0;
            while let Some(more) = live.discard()? {
                instructions += more;
            }
            print_rate(instructions, "");
        }
        file => {
            let mut recording = LiveRecording::launch(options, false, |facts| {
                TraceWriter::create(Path::new(file), &Header::of(facts, 0, ""))
            })?;
            recording.run(None, &mut |_| true)?;
            let written = recording.finish()?;
            let each = written.bytes as f64 / written.instructions as f64;
            print_rate(written.instructions, &format!(", {each:.4} bytes each"));
        }
    }
    Ok(())
}

fn main() {
    let mut arguments = std::env::args_os().skip(1).filter(|a| a != "--bench");
    let Some(plugin) = arguments.next().map(PathBuf::from) else {
        eprintln!("front_door: nothing to measure: expected -- PLUGIN PROGRAM ARGUMENTS");
        return;
    };
    let options = LiveOptions {
        argv: arguments.collect(),
        plugin,
        count: std::env::var_os("COUNT").is_some(),
        ..LiveOptions::default()
    };
    let behind = std::env::var("PAGEWALK_BEHIND").unwrap_or_else(|_| "ops".into());
    if let Err(e) = run(options, &behind) {
        eprintln!("front_door: {e}");
    }
    let cpu = |who| {
        // SAFETY: an all-zero rusage is valid, and getrusage only fills it.
        unsafe {
            let mut r: libc::rusage = std::mem::zeroed();
            libc::getrusage(who, &mut r);
            [r.ru_utime, r.ru_stime]
                .iter()
                .map(|t| t.tv_sec as f64 + t.tv_usec as f64 * 1e-6)
                .sum::<f64>()
        }
    };
    eprintln!(
        "CPU seconds: reader {:.3}, emulator {:.3}",
        cpu(libc::RUSAGE_SELF),
        cpu(libc::RUSAGE_CHILDREN)
    );
}
