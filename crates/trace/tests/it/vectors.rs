//! Vectors of recorded programs.

use pagewalk_trace::{OpenOptions, block_vectors, trace_info};

use crate::{program, recorded};

#[test]
fn stretches_of_a_recording_are_all_of_it() {
    let dir = tempfile::tempdir().unwrap();
    for threads in [1, 3] {
        let path = recorded(dir.path(), program("gups", threads, &[]), Some(200_000));
        let options = OpenOptions::default();
        let info = trace_info(&path, &options).unwrap();
        let mut progress = (0, None);
        let vectors = || block_vectors(&path, &options, 7000, 1, &mut |_, _| true).unwrap();
        let found = block_vectors(&path, &options, 7000, 1, &mut |done, total| {
            progress = (done, total);
            true
        });
        let found = found.unwrap().unwrap();
        assert_eq!(found.instructions, info.instructions);
        assert_eq!(progress, (info.instructions, Some(info.instructions)));
        let each = found.stretches.iter().map(|s| s.instructions);
        assert_eq!(each.sum::<u64>(), info.instructions);
        assert_eq!(found.request.as_deref(), Some("update"));
        assert!(found.stretches.iter().any(|s| s.requests > 0));
        assert_eq!(vectors(), Some(found));
        // A callback that returns false ends the pass without a result.
        let stopped = block_vectors(&path, &options, 7000, 1, &mut |_, _| false);
        assert_eq!(stopped, Ok(None));
    }
}
