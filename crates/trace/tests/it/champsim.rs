//! ChampSim's records: registers become distances, and branches are classified.

use std::path::Path;

use pagewalk_stream::{Op, OpClass, flags};

use crate::{drain, opened, try_drain};

/// A record of ChampSim's format, with one store and one load.
pub fn champsim_record(ip: u64, dest: [u8; 2], src: [u8; 4], store: u64, load: u64) -> [u8; 64] {
    let mut r = [0; 64];
    r[..8].copy_from_slice(&ip.to_le_bytes());
    r[10..12].copy_from_slice(&dest);
    r[12..16].copy_from_slice(&src);
    r[16..24].copy_from_slice(&store.to_le_bytes());
    r[32..40].copy_from_slice(&load.to_le_bytes());
    r
}

/// A record of a branch.
pub fn branch_record(ip: u64, taken: bool, dest: [u8; 2], src: [u8; 4], load: u64) -> [u8; 64] {
    let mut r = champsim_record(ip, dest, src, 0, load);
    (r[8], r[9]) = (1, u8::from(taken));
    r
}

const IP: u8 = 26;
const FLAGS: u8 = 25;
const SP: u8 = 6;

/// The ops that a trace of these records gives.
pub fn champsim_ops(dir: &Path, records: &[[u8; 64]]) -> Vec<Op> {
    let path = dir.join("t.champsim");
    std::fs::write(&path, records.concat()).unwrap();
    let ops = drain(opened(&path).as_mut()).remove(&0).unwrap().0;
    let counted: u64 = ops.iter().map(|o| u64::from(o.insns)).sum();
    assert_eq!(
        counted,
        records.len() as u64,
        "instruction counts are exact"
    );
    ops
}

#[test]
fn champsim_registers_become_distances() {
    let dir = tempfile::tempdir().unwrap();
    let chase = champsim_record(0x10, [3, 0], [3, 0, 0, 0], 0, 0x1000);
    let ops = champsim_ops(dir.path(), &[chase; 10]);
    assert_eq!(ops.len(), 10);
    assert!(
        ops[1..]
            .iter()
            .all(|o| o.kind == OpClass::Load && o.dep == [1, 0])
    );
    let independent = champsim_record(0x10, [3, 0], [4, 0, 0, 0], 0, 0x1000);
    let ops = champsim_ops(dir.path(), &[independent; 10]);
    assert!(ops.iter().all(|o| o.dep == [0, 0]));

    // A load, two simple instructions on its value, and a store of the result.
    let ops = champsim_ops(
        dir.path(),
        &[
            champsim_record(0x10, [3, 0], [0; 4], 0, 0x1000),
            champsim_record(0x14, [3, FLAGS], [3, 0, 0, 0], 0, 0),
            champsim_record(0x18, [4, 0], [3, 0, 0, 0], 0, 0),
            champsim_record(0x1c, [0, 0], [4, 0, 0, 0], 0x2000, 0),
        ],
    );
    assert_eq!(ops.len(), 2);
    let store = &ops[1];
    assert_eq!((store.kind, store.insns), (OpClass::Store, 3));
    assert_eq!((store.dep, store.dep_latency), ([1, 0], [2, 0]));

    // An addition has two loads as producers, and its sum is an address.
    let ops = champsim_ops(
        dir.path(),
        &[
            champsim_record(0x10, [3, 0], [0; 4], 0, 0x1000),
            champsim_record(0x14, [4, 0], [0; 4], 0, 0x1100),
            champsim_record(0x18, [5, FLAGS], [3, 4, 0, 0], 0, 0),
            champsim_record(0x1c, [7, 0], [5, 0, 0, 0], 0, 0x2000),
        ],
    );
    let kinds: Vec<_> = ops.iter().map(|o| o.kind).collect();
    assert_eq!(
        kinds,
        [
            OpClass::Load,
            OpClass::Load,
            OpClass::Compute,
            OpClass::Load
        ]
    );
    assert_eq!((ops[2].dep, ops[2].latency), ([2, 1], 1));
    assert_eq!(ops[3].dep, [1, 0]);
}

#[test]
fn champsim_chains_of_arithmetic_keep_their_length() {
    let dir = tempfile::tempdir().unwrap();
    let add = champsim_record(0x10, [3, FLAGS], [3, 0, 0, 0], 0, 0);
    let ops = champsim_ops(dir.path(), &[add; 800]);
    // Each op depends on the one before: the chain is 800 cycles.
    let chain: u64 = ops.iter().map(|o| u64::from(o.latency)).sum();
    assert_eq!(chain, 800);
    assert!(
        ops[1..]
            .iter()
            .all(|o| o.dep == [1, 0] && o.dep_latency == [0, 0])
    );
}

#[test]
fn champsim_branches_have_their_classes() {
    let dir = tempfile::tempdir().unwrap();
    let (t, c) = (flags::TAKEN, flags::CONDITIONAL);
    let cases = [
        ([IP, 0], [IP, 0, 0, 0], true, t),
        ([IP, 0], [IP, FLAGS, 0, 0], true, c | t),
        ([IP, 0], [IP, FLAGS, 0, 0], false, c),
        ([IP, 0], [3, 0, 0, 0], true, t | flags::INDIRECT),
        ([IP, SP], [IP, SP, 0, 0], true, t | flags::CALL),
        (
            [IP, SP],
            [IP, SP, 3, 0],
            true,
            t | flags::CALL | flags::INDIRECT,
        ),
        ([IP, SP], [SP, 0, 0, 0], true, t | flags::RETURN),
    ];
    for (dest, src, taken, expected) in cases {
        let load = if expected & flags::RETURN != 0 {
            0x7000
        } else {
            0
        };
        let branch = branch_record(0x10, taken, dest, src, load);
        let after = champsim_record(0x90, [3, 0], [0; 4], 0, 0x1000);
        let ops = champsim_ops(dir.path(), &[branch, after]);
        let op = ops.iter().find(|o| o.kind == OpClass::Branch).unwrap();
        assert_eq!(op.flags, expected);
        assert_eq!(op.va, if taken { 0x90 } else { 0 });
        if load != 0 {
            assert_eq!((op.dep, op.insns), ([1, 0], 0));
        }
    }
}

/// Random records with few registers and addresses, so that all cases of the reader occur.
fn any_records(count: usize) -> Vec<[u8; 64]> {
    let mut state = 7u64;
    let mut random = move |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) % below
    };
    let registers = [0, 0, 0, SP, FLAGS, IP, 3, 4, 5, 70];
    let mut ip = 0x40_0000;
    let record = |_| {
        ip = if random(9) == 0 {
            0x40_0000 + random(1 << 12)
        } else {
            ip + 1 + random(7)
        };
        let mut register = || registers[random(10) as usize];
        let dest = [register(), register()];
        let src = [register(), register(), register(), register()];
        let mut r = champsim_record(ip, dest, src, 0, 0);
        if random(2) == 0 {
            // Half are simple; the others have up to all six operands.
            for slot in 2..8 {
                if random(3) == 0 {
                    r[8 * slot..8 * slot + 8].copy_from_slice(&(random(1 << 40)).to_le_bytes());
                }
            }
        }
        (r[8], r[9]) = (u8::from(random(5) == 0), u8::from(random(2) == 0));
        r
    };
    (0..count).map(record).collect()
}

fn checksum(ops: &[Op]) -> u32 {
    let mut hash = crc32fast::Hasher::new();
    for op in ops {
        hash.update(&op.pc.to_le_bytes());
        hash.update(&op.va.to_le_bytes());
        hash.update(&op.insns.to_le_bytes());
        hash.update(&op.dep.map(u16::to_le_bytes).concat());
        hash.update(&op.dep_latency);
        hash.update(&[op.latency, op.kind as u8, op.size, op.flags]);
    }
    hash.finalize()
}

/// The ops on which published results rest.
#[test]
fn champsim_ops_stay_what_they_were() {
    let dir = tempfile::tempdir().unwrap();
    let ops = champsim_ops(dir.path(), &any_records(50_000));
    assert_eq!((ops.len(), checksum(&ops)), (102_507, 0x449e_ded5));
    // Long runs of simple instructions, of which one op includes only a limited number.
    let mut plain = vec![champsim_record(0x10, [0; 2], [0; 4], 0, 0); 140_000];
    plain.push(champsim_record(0x10, [3, 0], [0; 4], 0, 0x1000));
    let ops = champsim_ops(dir.path(), &plain);
    assert_eq!((ops.len(), checksum(&ops)), (3, 0xedc6_ceb3));
}

/// An invalid record, at the start of a buffer and elsewhere: all records before it are valid.
#[test]
fn champsim_records_before_a_damaged_one_are_all_good() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.champsim");
    let records = any_records(9000);
    for bad in [100, 4095, 4096, 4097, 8192] {
        let mut damaged = records.clone();
        damaged[bad][8] = 7;
        std::fs::write(&path, damaged.concat()).unwrap();
        let (streams, why) = try_drain(opened(&path).as_mut());
        let counted: u64 = streams[&0].0.iter().map(|o| u64::from(o.insns)).sum();
        assert_eq!(counted, bad as u64);
        let why = why.expect("a fault");
        assert!(why.contains(&format!("byte {}", 64 * bad)), "{why}");
    }
}
