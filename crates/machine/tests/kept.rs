//! Ended processes leave no state behind. Live bytes of the heap are counted. With one design, its own
//! thread makes the batches, so the count is exact.

mod common;

use std::sync::{Arc, Mutex};

use common::forks::Forks;
use common::installation;
use pagewalk_machine::Status;

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

/// Ended processes before the first count.
const FIRST: u32 = 100;
/// Ended processes between the first and the second count.
const ENDED: u32 = 400;
/// Bytes that each process may leave: a pointer for itself and one for each of its two threads, doubled
/// for the growth of vectors.
const EACH: usize = 2 * (1 + 2) * size_of::<usize>();

/// Live blocks and bytes after [`FIRST`] ended processes, and [`ENDED`] later.
fn counts(design: &str) -> [(usize, usize); 2] {
    let counts = Arc::new(Mutex::new(Vec::with_capacity(2)));
    let counted = Arc::clone(&counts);
    let (program, seen) = Forks::new(FIRST + ENDED, true, move |children| {
        if [FIRST, FIRST + ENDED].contains(&children) {
            let now = dhat::HeapStats::get();
            let mut counted = counted.lock().unwrap();
            counted.push((now.curr_blocks, now.curr_bytes));
        }
    });
    let spec = serde_json::from_value(serde_json::json!({
        "machine": "revelator-table1", "designs": [design],
    }))
    .unwrap();
    let result = installation()
        .run_program(&spec, Box::new(program), &mut |_| true)
        .unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(result.designs[0].status, Status::Complete, "{design}");
    assert_eq!(seen.lock().unwrap().gone.len() as u32, 2 * (FIRST + ENDED));
    let counts = counts.lock().unwrap();
    counts[..].try_into().unwrap()
}

#[test]
fn of_ended_processes_nothing_is_kept() {
    let _profiler = dhat::Profiler::builder().testing().build();
    for design in ["radix", "mehpt", "revelator-thp", "thp-virtual", "stlt"] {
        let [(blocks, bytes), (then, more)] = counts(design);
        assert_eq!(then, blocks, "{design}: blocks");
        let most = bytes + EACH * ENDED as usize;
        assert!(more <= most, "{design}: {bytes} bytes became {more}");
    }
}
