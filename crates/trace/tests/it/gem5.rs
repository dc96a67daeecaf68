//! gem5's elastic traces, which a writer of the tests makes.

use std::path::Path;

use pagewalk_stream::{Op, OpClass};
use pagewalk_trace::{Format, OpenOptions, check_trace, convert_trace, trace_info};
use proptest::prelude::*;

use crate::{drain, opened, refused, try_drain};

const LOAD: u64 = 1;
const STORE: u64 = 2;
const COMPUTE: u64 = 3;

fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

fn message(fields: &[(u64, u64)]) -> Vec<u8> {
    let field = |(number, value): &(u64, u64)| [varint(number << 3), varint(*value)].concat();
    let body: Vec<u8> = fields.iter().flat_map(field).collect();
    [varint(body.len() as u64), body].concat()
}

/// A record of gem5, with the fields that a test needs.
#[derive(Clone, Debug, Default)]
struct Record {
    sequence: u64,
    kind: u64,
    va: Option<u64>,
    size: u64,
    flags: u64,
    producers: Vec<u64>,
    weight: u64,
    pc: u64,
}

impl Record {
    fn bytes(&self) -> Vec<u8> {
        let mut fields = vec![(1, self.sequence), (2, self.kind)];
        if self.kind != COMPUTE {
            // A physical address, which nobody reads.
            fields.extend([(3, 0xdead_beef), (4, self.size), (5, self.flags)]);
            fields.extend(self.va.map(|va| (11, va)));
        }
        fields.extend([(6, 1), (7, 500), (10, self.pc)]);
        fields.extend(self.producers.iter().map(|p| (8, *p)));
        if self.weight > 0 {
            fields.push((9, self.weight));
        }
        message(&fields)
    }
}

/// A load of 8 bytes.
fn load(sequence: u64, va: u64, producers: &[u64]) -> Record {
    Record {
        sequence,
        kind: LOAD,
        va: Some(va),
        size: 8,
        producers: producers.to_vec(),
        pc: 0x1000 + 4 * sequence,
        ..Record::default()
    }
}

/// The header: the name, the ticks a second, and the window, without a version.
fn header() -> Vec<u8> {
    let mut body = vec![0x0a, 3];
    body.extend(b"cpu");
    body.extend(
        [
            varint(3 << 3),
            varint(1_000_000_000_000),
            varint(4 << 3),
            varint(120),
        ]
        .concat(),
    );
    [varint(body.len() as u64), body].concat()
}

fn file(records: &[Record]) -> Vec<u8> {
    let mut bytes = [&b"gem5"[..], &header()].concat();
    bytes.extend(records.iter().flat_map(Record::bytes));
    bytes
}

/// A small trace, to be damaged.
pub fn seed() -> Vec<u8> {
    let mut records: Vec<Record> = (1..20)
        .map(|n| load(n, 0x9000 + 64 * n, &[n - 1]))
        .collect();
    records[4].kind = STORE;
    records[7].kind = COMPUTE;
    records[9].weight = 5;
    file(&records)
}

fn ops_of(path: &Path, records: &[Record]) -> Vec<Op> {
    std::fs::write(path, file(records)).unwrap();
    drain(opened(path).as_mut()).remove(&0).unwrap().0
}

#[test]
fn records_become_operations_with_their_producers() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("system.cpu.deptrace.proto");
    let mut add = load(3, 0, &[1]);
    add.kind = COMPUTE;
    let mut store = load(9, 0x3000, &[3]);
    (store.kind, store.size, store.weight) = (STORE, 160, 4);
    let mut prefetch = load(10, 0x5000, &[]);
    prefetch.flags = 0x300_0000;
    let mut device = load(11, 0x6000, &[]);
    device.flags = 0x800;
    let mut kernel = load(12, 0x7000, &[]);
    kernel.pc = 0xffff_8000_0000_0000;
    let records = [
        load(1, 0x2000, &[]),
        add,
        store,
        prefetch,
        device,
        kernel,
        load(14, 0x8000, &[9, 1]),
    ];
    let ops = ops_of(&path, &records);
    let found: Vec<_> = ops
        .iter()
        .map(|o| (o.kind, o.va, o.size, o.insns))
        .collect();
    use OpClass::{Load, Prefetch, Store};
    assert_eq!(
        found,
        [
            (Load, 0x2000, 8, 1),
            // The addition, four micro-operations that the trace leaves out, and the store.
            (Store, 0x3000, 64, 6),
            (Store, 0x3040, 64, 0),
            (Store, 0x3080, 32, 0),
            (Prefetch, 0x5000, 5, 1),
            // The access to a device counts as an instruction only; the kernel's does not.
            (Load, 0x8000, 8, 2),
        ]
    );
    // The store waits for the load, and the addition's cycle.
    assert_eq!((ops[1].dep, ops[1].dep_latency), ([1, 0], [1, 0]));
    // Nothing waits for a store.
    assert_eq!(ops[5].dep, [5, 0]);
    let info = trace_info(&path, &OpenOptions::default()).unwrap();
    assert_eq!(
        (info.format, info.loads, info.stores),
        (Format::Elastic, 2, 3)
    );
    assert!(!info.no_dependences && info.mappings_inferred);
    let notes = opened(&path).facts().notes;
    assert!(notes[0].contains("micro-operations"), "{notes:?}");
}

#[test]
fn compressed_and_converted_traces_have_the_same_operations() {
    let dir = tempfile::tempdir().unwrap();
    let (path, pwt) = (dir.path().join("t"), dir.path().join("t.pwt"));
    let records: Vec<Record> = (1..9000)
        .map(|n| load(n, 0x10_0000 + 4096 * (n % 77), &[n - 1]))
        .collect();
    let expected = ops_of(&path, &records);
    assert_eq!(expected.len(), records.len());
    convert_trace(&path, &OpenOptions::default(), &pwt, false).unwrap();
    assert!(drain(opened(&pwt).as_mut()).remove(&0).unwrap().0 == expected);
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut gz, &file(&records)).unwrap();
    std::fs::write(&path, gz.finish().unwrap()).unwrap();
    assert!(drain(opened(&path).as_mut()).remove(&0).unwrap().0 == expected);
}

#[test]
fn traces_without_virtual_addresses_and_other_files_of_gem5_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t");
    let mut physical = load(1, 0, &[]);
    physical.va = None;
    let packets = [
        &b"gem5"[..],
        &message(&[(3, 1_000)]),
        &message(&[(1, 1), (2, 1), (3, 64), (4, 8)]),
    ]
    .concat();
    let instructions = [&b"gem5"[..], &message(&[(2, 0), (3, 1_000), (4, 1)])].concat();
    for (bytes, said) in [
        (file(&[physical.clone()]), "physical addresses only"),
        (packets, "a packet trace"),
        (instructions, "an instruction trace"),
        (b"gem5\x08\x01".to_vec(), "header"),
    ] {
        std::fs::write(&path, bytes).unwrap();
        let message = refused(&path, &OpenOptions::default());
        assert!(
            message.contains(said) && message.contains("traceVirtAddr=True"),
            "{message}"
        );
    }
    for (change, said) in [
        (|r: &mut Record| r.va = None, "no virtual address"),
        (|r: &mut Record| r.kind = 0, "the record is damaged"),
        (|r: &mut Record| r.size = 0, "the record is damaged"),
        (|r: &mut Record| r.weight = 70_000, "the record is damaged"),
    ] as [(fn(&mut Record), &str); 4]
    {
        let good: Vec<Record> = (1..100).map(|n| load(n, 4096 * n, &[])).collect();
        let mut bad = load(100, 4096, &[]);
        change(&mut bad);
        let at = file(&good).len();
        std::fs::write(&path, file(&[&good[..], &[bad]].concat())).unwrap();
        let (streams, error) = try_drain(opened(&path).as_mut());
        let error = error.unwrap();
        assert!(
            error.contains(said) && error.contains(&format!("byte {at}")),
            "{error}"
        );
        assert_eq!(streams[&0].0.len(), good.len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A trace that is cut off anywhere gives what comes before, and a fault unless a record ends there.
    #[test]
    fn a_cut_gives_the_records_before_it(
        sequence in prop::collection::vec((1u64..1 << 40, 1u64..1 << 47, 1u64..=64), 1..40),
        cut in any::<prop::sample::Index>(),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t");
        let records: Vec<Record> = sequence
            .iter()
            .map(|(sequence, va, size)| Record { size: *size, ..load(*sequence, *va, &[]) })
            .collect();
        let bytes = file(&records);
        let begin = file(&[]).len();
        let end = begin + cut.index(bytes.len() - begin + 1);
        std::fs::write(&path, &bytes[..end]).unwrap();
        let mut whole = 0;
        while whole < records.len() && file(&records[..=whole]).len() <= end {
            whole += 1;
        }
        let check = check_trace(&path, None).unwrap();
        prop_assert_eq!(check.whole, file(&records[..whole]).len() == end);
        let (streams, _) = try_drain(opened(&path).as_mut());
        let found: Vec<u64> = streams.get(&0).map_or(&[][..], |s| &s.0).iter().map(|o| o.va).collect();
        let expected: Vec<u64> = records[..whole].iter().map(|r| r.va.unwrap()).collect();
        prop_assert_eq!(found, expected);
    }
}
