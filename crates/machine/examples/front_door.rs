//! Runs JSON specifications, as the command line makes them, and prints the results: for work on the
//! engine without Python.
//!
//!     front_door FOLDER run|record|stats SPEC-AS-JSON [FILE]
//!
//! FOLDER holds `machines/`, `designs/` and `libpagewalk_qemu.so`.

use std::path::Path;

use pagewalk_machine::{Installation, RecordSpec, RunSpec};

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let installation = Installation::at(Path::new(&args[1]));
    if args[2] == "record" {
        let spec: RecordSpec = serde_json::from_str(&args[3]).expect("a record specification");
        let r = installation
            .record(&spec, Path::new(&args[4]), &mut |_, _| true)
            .unwrap_or_else(|e| panic!("{e}"));
        eprintln!("{}", serde_json::to_string(&r).expect("plain data"));
        return;
    }
    let spec: RunSpec = serde_json::from_str(&args[3]).expect("a run specification");
    let result = installation
        .run(&spec, &mut |_| true)
        .unwrap_or_else(|e| panic!("{e}"));
    for w in &result.warnings {
        eprintln!("warning: {w}");
    }
    eprintln!(
        "exit status {:?}, {:.2} s",
        result.source.exit_status, result.host.seconds
    );
    for d in &result.designs {
        eprintln!("{} {:?} {:?}", d.name, d.status, d.message);
        for m in &d.summary {
            eprintln!("    {:<34} {:?}", m.name, m.value);
        }
        if args[2] == "stats" {
            for s in &d.stats {
                eprintln!("        {}.{} {}", s.path, s.name, s.value);
            }
        }
    }
}
