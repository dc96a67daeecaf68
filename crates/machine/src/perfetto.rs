//! Single walks in time, as a Chrome JSON trace that Perfetto opens.
//!
//! One process a design, one track a lane: walks that overlap lie in different
//! lanes of their core. A walk's reads lie inside it.

use std::io::{BufWriter, Write};
use std::path::Path;

use pagewalk_mmu::WalkRecord;
use serde_json::{Value, json};

use crate::machine::Machine;

/// The walks of one design.
pub(crate) struct Recording {
    design: String,
    /// Microseconds a cycle.
    scale: f64,
    cores: Vec<Vec<WalkRecord>>,
}

pub(crate) fn take(design: &str, frequency_ghz: f64, machine: &mut Machine) -> Recording {
    Recording {
        design: design.to_owned(),
        scale: 1e-3 / frequency_ghz,
        cores: std::mem::take(&mut machine.walks),
    }
}

/// Tracks of one core: more than accesses of a window that can wait for walks at once.
const LANES: usize = 1 << 16;

fn events(process: usize, recording: &Recording, out: &mut Vec<Value>) {
    out.push(json!({"ph": "M", "name": "process_name", "pid": process, "args": {"name": recording.design}}));
    let at = |cycle: u64| cycle as f64 * recording.scale;
    for (core, walks) in recording.cores.iter().enumerate() {
        let mut lanes: Vec<u64> = Vec::new();
        let mut walks: Vec<&WalkRecord> = walks.iter().collect();
        walks.sort_by_key(|w| (w.start, w.end));
        for walk in walks {
            let lane = lanes
                .iter()
                .position(|&end| end <= walk.start)
                .unwrap_or_else(|| {
                    lanes.push(0);
                    lanes.len() - 1
                });
            lanes[lane] = walk.end;
            let tid = core * LANES + lane;
            let name = match (walk.merged, walk.faulted) {
                (true, _) => "waits for a walk",
                (false, true) => "walk, fault",
                (false, false) => "walk",
            };
            out.push(json!({
                "ph": "X", "cat": "walk", "name": name, "pid": process, "tid": tid,
                "ts": at(walk.start), "dur": at(walk.end) - at(walk.start),
                "args": {
                    "address": format!("{}", walk.va), "asid": walk.asid.0,
                    "access": format!("{:?}", walk.access).to_lowercase(),
                    "start_cycle": walk.start, "cycles": walk.end - walk.start,
                },
            }));
            for read in &walk.reads {
                out.push(json!({
                    "ph": "X", "cat": "read", "name": format!("level {} from {:?}", read.level, read.served),
                    "pid": process, "tid": tid,
                    "ts": at(read.start), "dur": at(read.end) - at(read.start),
                    "args": {"entry": format!("{}", read.at), "cycles": read.end - read.start},
                }));
            }
        }
        for lane in 0..lanes.len() {
            out.push(json!({
                "ph": "M", "name": "thread_name", "pid": process, "tid": core * LANES + lane,
                "args": {"name": format!("core {core}, walker lane {lane}")},
            }));
        }
    }
}

/// Writes the file beside its place and renames it, so that no half file stays;
/// a device or a pipe is written, not replaced.
pub(crate) fn write(path: &Path, recordings: &[Recording]) -> std::io::Result<()> {
    let mut list = Vec::new();
    for (i, r) in recordings.iter().enumerate() {
        events(i + 1, r, &mut list);
    }
    let whole = json!({"displayTimeUnit": "ns", "traceEvents": list});
    if path.exists() && !path.is_file() {
        let mut out = BufWriter::new(std::fs::OpenOptions::new().write(true).open(path)?);
        serde_json::to_writer(&mut out, &whole)?;
        return out.flush();
    }
    // A link keeps pointing where it points.
    let path = &path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".partial");
    let temporary = path.with_file_name(name);
    let result = (|| {
        let mut file = BufWriter::new(std::fs::File::create(&temporary)?);
        serde_json::to_writer(&mut file, &whole)?;
        file.flush()?;
        file.into_inner()
            .map_err(std::io::IntoInnerError::into_error)?
            .sync_all()?;
        std::fs::rename(&temporary, path)
    })();
    if result.is_err() {
        drop(std::fs::remove_file(&temporary));
    }
    result
}
