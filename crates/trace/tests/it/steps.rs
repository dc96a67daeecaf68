//! A recording of a live program by an earlier build (`data/steps.c`): it is still read, and damage is found.

use pagewalk_stream::{End, Event, OpClass};
use pagewalk_trace::{OpenOptions, check_trace, trace_info};

use crate::{drain, instructions, opened, refused, try_drain};

/// The recording.
pub const STEPS: &[u8] = include_bytes!("../data/steps.pwt");

#[test]
fn an_earlier_recording_of_a_live_program_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("steps.pwt");
    std::fs::write(&path, STEPS).unwrap();
    let info = trace_info(&path, &OpenOptions::default()).unwrap();
    assert_eq!(info.exit_status, Some(7));
    assert_eq!((info.threads, info.instructions), (1, 66_155));
    // 3000 updates of the table, of which 1504 are followed by another; and a copy of a hundred bytes.
    assert_eq!((info.loads, info.stores), (4604, 4605));
    assert_eq!((info.ops, info.mapping_events), (24_867, 5));
    let all = drain(opened(&path).as_mut());
    let (ops, marks) = &all[&0];
    assert_eq!(instructions(&all), info.instructions);
    let at = |wanted: Event| {
        let is = |m: &&(usize, End)| matches!(&m.1, End::Event { event, .. } if *event == wanted);
        marks.iter().find(is).unwrap().0
    };
    let within = &ops[at(Event::RoiBegin)..at(Event::RoiEnd)];
    let loads = within.iter().filter(|o| o.kind == OpClass::Load);
    let mut x = 88_172_645_463_325_252u64;
    let mut expected = Vec::new();
    for i in 0..3000 {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        expected.push((x & 8191) * 8);
        if x & 64 != 0 {
            expected.push((i & 255) * 8);
        }
    }
    let map = marks.iter().rev().find_map(|(_, end)| match end {
        End::Event {
            event: Event::Unmap { at, .. },
            ..
        } => Some(at.0),
        _ => None,
    });
    let table = map.unwrap();
    assert!(loads.map(|o| o.va - table).eq(expected));
}

#[test]
fn a_flipped_bit_of_a_live_recording_is_found_where_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let (good, bad) = (dir.path().join("good.pwt"), dir.path().join("bad.pwt"));
    std::fs::write(&good, STEPS).unwrap();
    let whole = drain(opened(&good).as_mut());
    for at in (0..STEPS.len()).step_by(97) {
        let mut bytes = STEPS.to_vec();
        bytes[at] ^= 4;
        std::fs::write(&bad, &bytes).unwrap();
        let message = refused(&bad, &OpenOptions::default());
        assert!(message.contains("bad.pwt, byte "), "{at}: {message}");
        if let Ok(mut program) = pagewalk_trace::open_trace(&bad, &OpenOptions::default()) {
            let (part, error) = try_drain(program.as_mut());
            assert!(error.is_some());
            let before = part.get(&0).map_or(0, |(ops, _)| ops.len());
            assert!(before <= whole[&0].0.len());
            let check = check_trace(&bad, None).unwrap();
            assert!(
                !check.whole && check.fault_offset.unwrap() <= at as u64,
                "{check:?}"
            );
        }
    }
}
