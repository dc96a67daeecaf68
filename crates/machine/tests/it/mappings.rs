//! Mapping of every page at the end of a run.

use std::collections::HashSet;

use crate::common::{metric, run_spec, spec};
use pagewalk_machine::DesignResult;
use serde_json::json;

fn with_mappings(design: &str, program: &str, set: &[&str]) -> DesignResult {
    let mut s = spec("revelator-table1", &[design], program, 20_000, set);
    s.options.mappings = true;
    run_spec(&s).unwrap().designs.remove(0)
}

#[test]
fn pages_lie_in_frames_of_their_own() {
    for (design, sizes) in [("radix", vec![4096]), ("thp", vec![4096, 2 << 20])] {
        let d = with_mappings(design, "gups 8MiB", &[]);
        let pages = d.mappings.as_ref().expect("requested");
        let mut frames = HashSet::new();
        let mut above = 0;
        for page in pages {
            assert!(sizes.contains(&page.bytes), "{page:?}");
            assert!(page.address % page.bytes == 0 && page.at % page.bytes == 0);
            assert!(page.address >= above, "ascending");
            above = page.address + page.bytes;
            for frame in page.at >> 12..(page.at + page.bytes) >> 12 {
                assert!(frames.insert(frame), "{page:?}");
            }
        }
        let bytes: u64 = pages.iter().map(|p| p.bytes).sum();
        let mapped = metric(&d, "mapped_4kb") + metric(&d, "mapped_2mb");
        assert_eq!(bytes as f64, mapped);
    }
}

#[test]
fn mappings_are_reported_only_on_request() {
    let s = spec("revelator-table1", &["radix"], "gups 1MiB", 1_000, &[]);
    assert_eq!(run_spec(&s).unwrap().designs[0].mappings, None);
}

#[test]
fn frames_of_pages_depend_on_occupied_memory() {
    let place = |set: &[&str]| {
        with_mappings("radix", "gups 1MiB", set)
            .mappings
            .expect("requested")
    };
    let fresh = place(&[]);
    assert_eq!(fresh, place(&[]), "the same seed, the same frames");
    let used = place(&["os.occupied=0.5"]);
    assert_eq!(fresh.len(), used.len());
    let same = fresh.iter().zip(&used).filter(|(a, b)| a == b).count();
    assert!(same < fresh.len() / 10, "{same} of {}", fresh.len());
}

#[test]
fn a_mix_need_not_be_compared_with_its_programs_alone() {
    let one = json!({"workload": {"name": "gups", "size": "1MB", "threads": 1, "params": {}}});
    let spec = |alone: bool| {
        json!({
            "machine": "revelator-table1", "designs": ["radix"], "set": ["cores=2"],
            "source": {"mix": {"programs": [one, one]}}, "limits": {"instructions": 10_000},
            "alone": alone,
        })
    };
    let run = |alone| {
        let spec = serde_json::from_value(spec(alone)).unwrap();
        run_spec(&spec).unwrap().designs.remove(0)
    };
    let (with, without) = (run(true), run(false));
    assert!(with.weighted_speedup.is_some());
    assert_eq!(without.weighted_speedup, None);
    for (a, b) in with.programs.iter().zip(&without.programs) {
        assert_eq!((a.ipc, a.cycles), (b.ipc, b.cycles));
        assert!(a.ipc_alone.is_some() && b.ipc_alone.is_none());
    }
}
