//! Two processes of a machine with one page table for both.

use pagewalk_machine::{DesignResult, Status};
use serde_json::json;

use crate::common::{ONE_CHANNEL, metric, run_spec, sum};

fn mix(designs: &[&str], set: &[&str]) -> Vec<DesignResult> {
    let program = |name: &str| json!({"workload": {"name": name, "size": "64MB", "threads": 1, "params": {}}});
    let set = [&ONE_CHANNEL[..], set].concat();
    let spec = json!({
        "machine": "revelator-table1", "designs": designs, "set": set,
        "source": {"mix": {"programs": [program("gups"), program("sysbench")]}},
        "limits": {"instructions": 60_000, "warmup": 20_000},
    });
    let result = run_spec(&serde_json::from_value(spec).unwrap()).unwrap();
    for d in &result.designs {
        assert_eq!(d.status, Status::Complete, "{}: {:?}", d.name, d.message);
    }
    result.designs
}

#[test]
fn processes_share_a_table_and_have_their_own_pages() {
    // The programs take turns on one core.
    let found = mix(&["radix", "global-hashed"], &["cores=1"]);
    let [radix, shared] = &found[..] else {
        panic!("two designs");
    };
    let os = |d: &DesignResult, name: &str| sum(d, name, |path| path == "os");
    for name in ["mapped_4kb_bytes", "processes", "faults_4kb"] {
        assert_eq!(os(radix, name), os(shared, name), "{name}");
    }
    for (a, b) in radix.programs.iter().zip(&shared.programs) {
        assert_eq!(
            (a.instructions, a.mapped_4kb),
            (b.instructions, b.mapped_4kb)
        );
        assert!(a.page_table_bytes > 0);
        assert_eq!(b.page_table_bytes, 0, "the memory is no process's");
    }
    assert!(os(radix, "process_switches") > 0);
    assert!(os(shared, "process_switches") > 0);
    assert_eq!(os(shared, "registers_saved"), 0);
    let table = |name: &str| sum(shared, name, |path| path.starts_with("page_table.global."));
    assert_eq!(table("bytes"), os(shared, "page_table_bytes"));
    assert_eq!(table("entries") * 4096, os(shared, "mapped_4kb_bytes"));
    assert!(metric(shared, "walks") > 1000.0);
    // So few entries that chains are long: walks read more and map the same.
    let crowded = "page_table.global_hashed.entries_per_frame=0.01";
    let small = "os.memory_gb=2";
    let crowded = &mix(&["global-hashed"], &["cores=1", small, crowded])[0];
    assert_eq!(
        os(crowded, "mapped_4kb_bytes"),
        os(shared, "mapped_4kb_bytes")
    );
    let reads = |d| metric(d, "walk_reads_per_walk");
    assert!((1.0..1.05).contains(&reads(shared)), "{}", reads(shared));
    assert!(reads(crowded) > 1.05, "{}", reads(crowded));
}
