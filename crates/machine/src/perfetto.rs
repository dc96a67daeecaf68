//! Single walks over time, as a Chrome JSON trace for Perfetto.
//!
//! A design is a process, and a track is a lane: overlapping walks are in different lanes of their core.
//! The reads of a walk are nested in it. Speculative fetches have lanes of their own, since a fetch may
//! outlast the walk.

use std::io::{BufWriter, Write};
use std::path::Path;

use pagewalk_memory::Speculated;
use pagewalk_mmu::{GuessRecord, WalkRecord, What};
use pagewalk_trace::PartialFile;
use serde_json::{Value, json};

use crate::machine::Machine;

/// The walks of one design.
pub(crate) struct Recording {
    design: String,
    /// Microseconds in a cycle.
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

/// Tracks of one core, more than walks that a window can have in flight. Lanes of guesses begin half-way.
const LANES: usize = 1 << 16;

/// Lanes in which no two events overlap.
#[derive(Default)]
struct Lanes(Vec<u64>);

impl Lanes {
    /// Takes the first lane that is free at `start`, until `end`.
    fn place(&mut self, start: u64, end: u64) -> usize {
        let free = self.0.iter().position(|&taken| taken <= start);
        let lane = free.unwrap_or_else(|| {
            self.0.push(0);
            self.0.len() - 1
        });
        self.0[lane] = end;
        lane
    }
}

/// Time at which the guessed line was available, and the outcome in words.
fn outcome(guess: &GuessRecord) -> (u64, &'static str) {
    match guess.became {
        Speculated::Fetched(ready) => (ready, "fetched"),
        Speculated::UnderWay(ready) => (ready, "under way already"),
        Speculated::Present => (guess.requested, "in a cache already"),
        Speculated::Dropped => (guess.requested, "dropped: no miss register"),
    }
}

fn events(process: usize, recording: &Recording, out: &mut Vec<Value>) {
    out.push(json!({"ph": "M", "name": "process_name", "pid": process, "args": {"name": recording.design}}));
    let at = |cycle: u64| cycle as f64 * recording.scale;
    for (core, walks) in recording.cores.iter().enumerate() {
        let [mut walkers, mut guessed] = [Lanes::default(), Lanes::default()];
        let mut walks: Vec<&WalkRecord> = walks.iter().collect();
        walks.sort_by_key(|w| (w.start, w.end));
        for walk in walks {
            let tid = core * LANES + walkers.place(walk.start, walk.end);
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
            for guess in &walk.guesses {
                let (end, became) = outcome(guess);
                let tid = core * LANES + LANES / 2 + guessed.place(guess.requested, end);
                let what = match guess.what {
                    What::Data => "data",
                    What::Entry => "entry",
                    What::Step => "entry within the walk",
                };
                let right = if guess.right { "right" } else { "wrong" };
                out.push(json!({
                    "ph": "X", "cat": "guess", "name": format!("guess: {what}, {right}"),
                    "pid": process, "tid": tid,
                    "ts": at(guess.requested), "dur": at(end) - at(guess.requested),
                    "args": {
                        "address": format!("{}", guess.at), "for": format!("{}", walk.va),
                        "became": became, "start_cycle": guess.requested, "cycles": end - guess.requested,
                    },
                }));
            }
        }
        let named = [
            (walkers, 0, "walker lane"),
            (guessed, LANES / 2, "guess lane"),
        ];
        for (lanes, first, name) in named {
            for lane in 0..lanes.0.len() {
                out.push(json!({
                    "ph": "M", "name": "thread_name", "pid": process,
                    "tid": core * LANES + first + lane,
                    "args": {"name": format!("core {core}, {name} {lane}")},
                }));
            }
        }
    }
}

/// Writes a temporary file and renames it, so that no incomplete file remains. A device or a pipe is
/// written directly.
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
    let mut file = BufWriter::new(PartialFile::create(path)?);
    serde_json::to_writer(&mut file, &whole)?;
    let file = file
        .into_inner()
        .map_err(std::io::IntoInnerError::into_error)?;
    file.publish().map(drop)
}

#[cfg(test)]
mod tests {
    use pagewalk_memory::Speculated;
    use pagewalk_mmu::{GuessRecord, WalkRecord, What};
    use pagewalk_units::{Access, Asid, PhysAddr, VirtAddr};
    use serde_json::{Value, json};

    use super::{LANES, Recording, events};

    fn guess(frame: u64, what: What, became: Speculated, right: bool) -> GuessRecord {
        GuessRecord {
            at: PhysAddr(frame << 12),
            what,
            requested: 109,
            became,
            right,
        }
    }

    /// Guesses of Revelator's worked example (section 5.4) beside their walk: frame 0 for the entry, 2
    /// and 7 for the data.
    #[test]
    fn guesses_lie_beside_their_walk_in_lanes_of_their_own() {
        let fetched = Speculated::Fetched(309);
        let walk = WalkRecord {
            asid: Asid(1),
            va: VirtAddr(0x1234_56a8),
            pc: 0,
            access: Access::Read,
            start: 107,
            end: 309,
            merged: false,
            faulted: false,
            reads: Vec::new(),
            guesses: vec![
                guess(0, What::Entry, fetched, true),
                guess(2, What::Data, fetched, false),
                guess(7, What::Data, Speculated::Dropped, true),
            ],
        };
        let recording = Recording {
            design: "revelator".to_owned(),
            scale: 1e-3,
            cores: vec![Vec::new(), vec![walk]],
        };
        let mut out = Vec::new();
        events(1, &recording, &mut out);
        let of = |event: &Value| {
            let field = |name: &str| event["args"][name].clone();
            let (name, lane) = (event["name"].clone(), event["tid"].clone());
            [
                name,
                lane,
                field("address"),
                field("start_cycle"),
                field("cycles"),
                field("became"),
            ]
        };
        let guesses: Vec<[Value; 6]> = out.iter().filter(|e| e["cat"] == "guess").map(of).collect();
        let lane = |n: usize| json!(LANES + LANES / 2 + n);
        let fetched = |name: &str, n: usize, at: &str| {
            [
                json!(name),
                lane(n),
                json!(at),
                json!(109),
                json!(200),
                json!("fetched"),
            ]
        };
        assert_eq!(guesses[0], fetched("guess: entry, right", 0, "0x0"));
        assert_eq!(guesses[1], fetched("guess: data, wrong", 1, "0x2000"));
        let dropped = json!("dropped: no miss register");
        assert_eq!(guesses[2][0], json!("guess: data, right"));
        assert_eq!(guesses[2][4..], [json!(0), dropped]);
        let names: Vec<&Value> = out
            .iter()
            .filter(|e| e["ph"] == "M")
            .map(|e| &e["args"]["name"])
            .collect();
        for name in [
            "core 1, walker lane 0",
            "core 1, guess lane 0",
            "core 1, guess lane 2",
        ] {
            assert!(names.contains(&&json!(name)), "{name}");
        }
    }
}
