//! Conversion between formats.

use std::path::Path;

use pagewalk_stream::{OpClass, flags};
use pagewalk_trace::{OpenOptions, check_trace, convert_trace};

use crate::champsim::champsim_record;
use crate::{Streams, drain, instructions, opened, program, recorded};

#[test]
fn conversion_keeps_what_the_target_can_hold() {
    let dir = tempfile::tempdir().unwrap();
    let path = recorded(dir.path(), program("gups", 1, &[("updates", "5000")]), None);
    let all = drain(opened(&path).as_mut());
    let memory = |s: &Streams| -> Vec<(OpClass, u64)> {
        let ops = s[&0].0.iter();
        let memory = ops.filter(|o| matches!(o.kind, OpClass::Load | OpClass::Store));
        memory.map(|o| (o.kind, o.va)).collect()
    };
    // A record cannot mark the end of a request.
    let taken = |s: &Streams| -> Vec<(u64, u8)> {
        let branches = s[&0].0.iter().filter(|o| o.kind == OpClass::Branch);
        branches
            .map(|o| (o.pc, o.flags & !flags::REQUEST))
            .collect()
    };
    for name in [
        "t.champsim",
        "t.champsimtrace.xz",
        "t.trace.gz",
        "t.champsim.zst",
    ] {
        let to = dir.path().join(name);
        let done = convert_trace(&path, &OpenOptions::default(), &to, false).unwrap();
        assert_eq!(done.instructions, instructions(&all));
        assert!(done.lost.iter().any(|l| l.contains("events")));
        assert!(done.lost.iter().any(|l| l == "where 5000 requests end"));
        let back = drain(opened(&to).as_mut());
        assert_eq!(instructions(&back), instructions(&all));
        assert_eq!(memory(&back), memory(&all));
        assert_eq!(taken(&back), taken(&all));
        // The table's load still depends on the random number that indexes it.
        let ops = &back[&0].0;
        let table = ops
            .windows(2)
            .filter(|w| w[0].kind == OpClass::Load && w[1].kind == OpClass::Load);
        assert!(table.clone().count() >= 5000);
        for pair in table {
            assert_eq!(pair[1].dep[0], 1, "{pair:?}");
        }
        let again = dir.path().join("again.pwt");
        convert_trace(&to, &OpenOptions::default(), &again, false).unwrap();
        assert!(drain(opened(&again).as_mut()) == back);
    }
    let threads = recorded(dir.path(), program("gups", 2, &[("updates", "500")]), None);
    let to = dir.path().join("two.champsim");
    let error = convert_trace(&threads, &OpenOptions::default(), &to, false).unwrap_err();
    assert!(error.to_string().contains("one thread"), "{error}");
    let mut names = std::fs::read_dir(dir.path()).unwrap().flatten();
    assert!(!names.any(|f| f.file_name().to_string_lossy().ends_with(".partial")));
    let error = convert_trace(&threads, &OpenOptions::default(), Path::new("x.foo"), false);
    assert!(error.unwrap_err().to_string().contains("expected .pwt"));
}

#[test]
fn conversion_can_keep_the_good_part_of_a_damaged_trace() {
    let dir = tempfile::tempdir().unwrap();
    let records: Vec<_> = (0..100)
        .map(|i| champsim_record(0x1000 + 4 * i, [3, 0], [0; 4], 0, 0x9000 + 64 * i))
        .collect();
    let path = dir.path().join("cut.champsim");
    std::fs::write(&path, &records.concat()[..64 * 40 + 17]).unwrap();
    let to = dir.path().join("good.pwt");
    let options = OpenOptions::default();
    assert!(convert_trace(&path, &options, &to, false).is_err());
    assert!(!to.exists());
    let done = convert_trace(&path, &options, &to, true).unwrap();
    assert_eq!(done.instructions, 40);
    assert!(done.fault.unwrap().contains("record 40"));
    assert!(check_trace(&to, None).unwrap().whole);
}
