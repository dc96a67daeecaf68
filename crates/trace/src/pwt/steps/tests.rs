//! Encoded executions decode to the ops that the live reader makes of them.

use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;

use pagewalk_ring::record;
use pagewalk_stream::{Batch, End, Event, Op, OpClass, ShortcutQuery};
use pagewalk_units::VirtAddr;
use proptest::prelude::*;

use super::{Shape, StepDecoder, StepEncoder, StepPart};
use crate::pump::Stop;
use crate::pwt::block::Columns;
use crate::pwt::code::{Code, CodePart, Decoded, Known};
use crate::pwt::codec::put_varint;
use crate::pwt::marks::{Give, Mark};
use crate::pwt::{Header, TraceWriter};
use crate::x86::{Piece, Registers};
use crate::{OpenOptions, check_trace, open_trace};

/// Blocks of code: simple ones, loads and stores, conditional and indirect branches, wide accesses in pieces, a
/// repeated string instruction, markers, a system call.
const CODE: [&[&[u8]]; 9] = [
    &[&[0x48, 0x01, 0xd8], &[0x90]],
    &[&[0x48, 0x8b, 0x00], &[0x48, 0x8b, 0x18], &[0x75, 0xf8]],
    &[&[0x48, 0x01, 0x18], &[0x53], &[0xc3]],
    &[&[0x48, 0x89, 0x18], &[0xff, 0x20]],
    &[
        &[0xc5, 0xfe, 0x6f, 0x00],
        &[0x0f, 0x28, 0x08],
        &[0xeb, 0x10],
    ],
    &[&[0xf3, 0x48, 0xa5]],
    &[
        &[0x48, 0x8b, 0x00],
        &[0x0f, 0x1f, 0x80, 0x01, 0x4d, 0x49, 0x53],
        &[0x48, 0x8b, 0x18],
        &[0x0f, 0x1f, 0x80, 0x02, 0x4d, 0x49, 0x53],
        &[0x48, 0x89, 0x18],
    ],
    &[&[0x48, 0x83, 0xc0, 0x01], &[0x0f, 0x05]],
    &[IMUL; 40],
];

const IMUL: &[u8] = &[0x48, 0x0f, 0xaf, 0xc0];

fn raw(number: usize) -> Vec<u8> {
    let code = CODE[number];
    let mut raw = (0x40_0000 + 0x1000 * number as u64).to_le_bytes().to_vec();
    raw.extend((code.len() as u32).to_le_bytes());
    raw.extend(code.iter().map(|i| i.len() as u8));
    raw.extend(code.concat());
    raw
}

fn known() -> Vec<Known> {
    let mut decoded = Decoded::default();
    (0..CODE.len())
        .map(|n| decoded.learn(raw(n)).unwrap())
        .collect()
}

/// One execution of a block.
#[derive(Clone, Debug)]
struct Ran {
    block: usize,
    addresses: Vec<u64>,
    /// Number of records kept if it was cut short, then further records.
    kept: Option<usize>,
    more: Vec<u64>,
    met: Vec<(u16, u64)>,
    /// The next block is unknown.
    broken: bool,
    /// It ends with a query; then the next block is unknown, too.
    query: Option<ShortcutQuery>,
    /// The end before it.
    end: Option<End>,
    /// A block of the file ends before it.
    sealed: bool,
}

fn any_end() -> impl Strategy<Value = End> {
    let ticket = 0..5u64;
    prop_oneof![
        Just(End::Event {
            event: Event::Exec,
            ticket: 7
        }),
        Just(End::Event {
            event: Event::RoiBegin,
            ticket: 0
        }),
        ticket.prop_map(|ticket| End::Meet { ticket }),
        Just(End::Barrier { number: 3 }),
    ]
}

fn any_query() -> impl Strategy<Value = ShortcutQuery> {
    prop_oneof![
        any::<u64>().prop_map(|integer| ShortcutQuery::LoadVa { integer }),
        (any::<u64>(), any::<u64>()).prop_map(|(integer, va)| ShortcutQuery::InsertVa {
            integer,
            va: VirtAddr(va),
        }),
        any::<u64>().prop_map(|rows| ShortcutQuery::Alloc { rows }),
        any::<u64>().prop_map(|rows| ShortcutQuery::Resize { rows }),
        Just(ShortcutQuery::Free),
    ]
}

fn rarely<T: Strategy>(what: T) -> impl Strategy<Value = Option<T::Value>> {
    prop::option::weighted(0.05, what)
}

fn any_run() -> impl Strategy<Value = Ran> {
    let address = prop_oneof![
        (0..64u64).prop_map(|a| 0x7000_0000 + a * 8),
        0..1u64 << 48,
        Just(0)
    ];
    let addresses = prop::collection::vec(address, 70);
    // Any record of an access.
    let more = rarely(prop::collection::vec(0..1u64 << 58, 0..6));
    let met = rarely(prop::collection::vec((0..6u16, any::<u64>()), 1..3));
    let query = prop::option::weighted(0.1, any_query());
    let rare = (rarely(0..6usize), more, met, rarely(Just(())), query);
    let between = (rarely(any_end()), rarely(Just(())));
    (0..CODE.len(), addresses, rare, between).prop_map(
        |(block, addresses, (kept, more, met, broken, query), (end, sealed))| Ran {
            block,
            addresses,
            kept,
            more: more.unwrap_or_default(),
            met: met.unwrap_or_default(),
            broken: broken.is_some() || query.is_some(),
            query,
            end,
            sealed: sealed.is_some(),
        },
    )
}

fn records(known: &Known, ran: &Ran) -> Vec<u64> {
    let mut records: Vec<u64> = known
        .block
        .expected()
        .iter()
        .zip(ran.addresses.iter().cycle())
        .map(|(upper, address)| u64::from(*upper) << 48 | address)
        .collect();
    records.truncate(ran.kept.unwrap_or(usize::MAX));
    records.extend(&ran.more);
    records
}

#[derive(Debug, PartialEq)]
enum Part {
    Op(Op),
    End(End),
}

/// The expected result, made as the live reader does.
fn expected(known: &[Known], runs: &[Ran]) -> (Vec<Part>, u64) {
    let (mut parts, mut registers) = (Vec::new(), Registers::default());
    for (n, ran) in runs.iter().enumerate() {
        if let Some(end) = &ran.end {
            if matches!(
                end,
                End::Event {
                    event: Event::Exec,
                    ..
                }
            ) {
                registers = Registers::default();
            }
            parts.push(Part::End(end.clone()));
        }
        let next = runs.get(n + 1).filter(|_| !ran.broken);
        let next = next.map(|r| known[r.block].block.address);
        let block = &known[ran.block].block;
        let mut ops = Vec::new();
        block.expand(
            &records(&known[ran.block], ran),
            next,
            &mut registers,
            &mut ops,
        );
        let met = &mut ran.met.clone();
        let pieces = match ran.query {
            None => block.cut(ops, met),
            Some(query) => block.cut_query(query, ops, met, &mut registers),
        };
        for piece in pieces {
            match piece {
                Piece::Ops(ops) => parts.extend(ops.into_iter().map(Part::Op)),
                Piece::End(end) => parts.push(Part::End(end)),
            }
        }
        if let Some(query) = ran.query {
            let [.., Part::Op(last), Part::End(end)] = &parts[..] else {
                panic!("an op and its end");
            };
            assert_eq!((last.kind, end), (OpClass::Query, &End::Query(query)));
        }
    }
    let instructions = |p: &Part| match p {
        Part::Op(op) => u64::from(op.insns),
        Part::End(_) => 0,
    };
    let instructions = parts.iter().map(instructions).sum();
    (parts, instructions)
}

/// Encodes step by step, or as many at once as possible.
fn encoded(known: &[Known], runs: &[Ran], at_once: bool) -> Vec<StepPart> {
    let (mut encoder, mut done) = (StepEncoder::default(), Vec::new());
    let mut n = 0;
    while n < runs.len() {
        let ran = &runs[n];
        if ran.sealed && !encoder.is_empty() {
            done.push(encoder.take());
        }
        if let Some(end) = &ran.end {
            encoder.mark(&Mark::End(end.clone()));
        }
        if at_once && ran.met.is_empty() && !ran.broken {
            let mut words = Vec::new();
            for (m, r) in runs[n..].iter().enumerate() {
                words.push(record::word(record::BLOCK, r.block as u64));
                if m > 0 && (r.end.is_some() || r.sealed || r.broken || !r.met.is_empty()) {
                    break;
                }
                words.extend(records(&known[r.block], r));
            }
            let (_, taken) = encoder.run(&words, known, u32::MAX, u64::MAX);
            n += taken.steps as usize;
            if taken.steps > 0 {
                continue;
            }
        }
        for (instruction, ticket) in &ran.met {
            encoder.met_within(*instruction, *ticket);
        }
        if let Some(query) = ran.query {
            encoder.query(query);
        }
        let next = runs.get(n + 1).filter(|_| !ran.broken);
        let next = next.map(|r| known[r.block].shape.number);
        let Known { block, shape } = &known[ran.block];
        encoder.step(block, shape, &records(&known[ran.block], ran), next);
        n += 1;
    }
    done.push(encoder.take());
    done
}

fn columns(part: &StepPart) -> Columns<'_> {
    let [misses, ids, tags, bytes, marks] = &part.columns;
    Columns {
        misses,
        ids,
        tags,
        bytes,
        marks,
    }
}

fn fault(what: &str) -> Stop {
    Stop::Fault(pagewalk_stream::Error::refused(what))
}

/// Decodes `part`, and each block of code at its first use, as a reader does that begins anywhere. Operands are
/// numbered in that order.
fn decode(
    decoder: &mut StepDecoder,
    (known, mine): (&[Known], &mut Vec<Option<Known>>),
    part: &StepPart,
    give: Give<'_>,
) -> Result<u64, Stop> {
    mine.resize(known.len(), None);
    let slots = mine.iter().flatten().map(|k| k.shape.end() as u32).max();
    let slots = Cell::new(slots.unwrap_or(0));
    let code = Code {
        known: mine,
        decode: &|number| {
            let block = Arc::clone(&known[number as usize].block);
            let shape = Shape::of(&block, number, slots.get()).unwrap();
            slots.set(shape.end() as u32);
            Ok(Known { block, shape })
        },
    };
    let counts = (part.steps, part.mark_count);
    decoder.decode(columns(part), counts, code, &fault, give)
}

fn decoded(known: &[Known], parts: &[StepPart]) -> Result<(Vec<Part>, u64), String> {
    let (mut decoder, mut got, mut instructions) = (StepDecoder::default(), Vec::new(), 0);
    let mut mine = Vec::new();
    for part in parts {
        let result = decode(&mut decoder, (known, &mut mine), part, &mut |ops, mark| {
            got.extend(ops.iter().map(|o| Part::Op(*o)));
            if let Some(Mark::End(end)) = mark {
                got.push(Part::End(end));
            }
            Ok(())
        });
        match result {
            Ok(n) => {
                assert_eq!(n, part.instructions);
                instructions += n;
            }
            Err(Stop::Fault(e)) => return Err(e.to_string()),
            Err(Stop::Gone) => unreachable!("nothing is sent"),
        }
    }
    Ok((got, instructions))
}

proptest! {
    #[test]
    fn any_executions_come_back(
        runs in prop::collection::vec(any_run(), 1..200),
        at_once: bool,
    ) {
        let known = known();
        let parts = encoded(&known, &runs, at_once);
        let (got, instructions) = decoded(&known, &parts).unwrap();
        let (wanted, counted) = expected(&known, &runs);
        prop_assert_eq!(instructions, counted);
        prop_assert_eq!(got.len(), wanted.len());
        for (n, (a, b)) in got.iter().zip(&wanted).enumerate() {
            prop_assert!(a == b, "{n}: {a:?} instead of {b:?}");
        }
    }

    #[test]
    fn any_columns_are_answered(
        columns in prop::array::uniform5(prop::collection::vec(any::<u8>(), 0..80)),
        steps in 0..500u32, mark_count in 0..20u32,
    ) {
        let part = StepPart {
            columns, steps, mark_count, records: 0, instructions: 0, ops: 0,
        };
        let mut decoder = StepDecoder::default();
        let mut given = 0;
        let _ = decode(&mut decoder, (&known(), &mut Vec::new()), &part, &mut |ops, _| {
            given += ops.len();
            Ok(())
        });
        prop_assert!(given < 1 << 20);
    }

    /// Valid columns with one byte changed.
    #[test]
    fn changed_columns_are_answered(
        runs in prop::collection::vec(any_run(), 1..60),
        column in 0..5usize, at: prop::sample::Index, byte: u8,
    ) {
        let known = known();
        let mut part = encoded(&known, &runs, true).remove(0);
        if part.columns[column].is_empty() {
            return Ok(());
        }
        let at = at.index(part.columns[column].len());
        part.columns[column][at] = byte;
        let mut decoder = StepDecoder::default();
        let _ = decode(&mut decoder, (&known, &mut Vec::new()), &part, &mut |_, _| Ok(()));
    }
}

#[test]
fn a_loop_costs_next_to_nothing() {
    let known = known();
    let runs: Vec<Ran> = (0..10_000)
        .map(|n| Ran {
            block: [1, 2, 3][n % 3],
            addresses: vec![0x1000, 0x7000 + 64 * n as u64],
            kept: None,
            more: vec![],
            met: vec![],
            broken: false,
            query: None,
            end: None,
            sealed: false,
        })
        .collect();
    let part = encoded(&known, &runs, true).remove(0);
    let [misses, ids, tags, bytes, marks] = part.columns.each_ref().map(Vec::len);
    assert_eq!(misses, 10_001usize.div_ceil(8));
    assert!(ids <= 4 * 12, "the numbers of the first round: {ids}");
    assert_eq!(tags, (part.records as usize).div_ceil(2));
    assert!(bytes < 27_000, "two bytes for what moves on: {bytes}");
    // Only the last step has no next block.
    assert!(marks <= 5, "{marks}");
    let all = zstd::bulk::compress(&part.columns.concat(), 1).unwrap();
    assert!(all.len() < 600, "{}", all.len());
}

/// Writes a recording of `runs`, whose code is `part`.
fn recorded(path: &Path, part: CodePart, runs: &[Ran]) {
    let mut writer = TraceWriter::create(path, &Header::default()).unwrap();
    writer.code(part).unwrap();
    let mut before = 0;
    for steps in encoded(&known(), runs, true) {
        let instructions = steps.instructions;
        writer.steps(0, before, steps).unwrap();
        before += instructions;
    }
    writer.finish().unwrap();
}

/// The ops of the recording at `path`, and the error that ends it.
fn replayed(path: &Path) -> (Vec<Op>, Option<String>) {
    let mut program = open_trace(path, &OpenOptions::default()).unwrap();
    let (mut batch, mut ops) = (Batch::new(), Vec::new());
    loop {
        match program.fill(0, &mut batch) {
            Ok(End::Exit) => return (ops, None),
            Ok(_) => ops.extend_from_slice(&batch.ops),
            Err(e) => return (ops, Some(e.to_string())),
        }
    }
}

/// Code that is never executed is not decoded, even if it is invalid. A check decodes it all the same.
#[test]
fn code_is_decoded_when_it_is_executed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.pwt");
    let runs: Vec<Ran> = (0..300)
        .map(|n| Ran {
            block: [1, 2, 3][n % 3],
            addresses: vec![0x1000, 0x7000 + 64 * n as u64],
            kept: None,
            more: vec![],
            met: vec![],
            broken: false,
            query: None,
            end: None,
            sealed: false,
        })
        .collect();
    let wanted = expected(&known(), &runs).0.into_iter();
    let wanted: Vec<Op> = wanted
        .filter_map(|part| match part {
            Part::Op(op) => Some(op),
            Part::End(_) => None,
        })
        .collect();
    for bad in 0..CODE.len() {
        let mut part = CodePart::default();
        for (number, known) in known().into_iter().enumerate() {
            let mut raw = raw(number);
            if number == bad {
                // More instructions than a block can have.
                raw[8..12].fill(0xff);
            }
            put_varint(&mut part.bytes, raw.len() as u64);
            part.bytes.extend(raw);
            part.count += 1;
            part.known.push(known);
        }
        recorded(&path, part, &runs);
        let check = check_trace(&path, None).unwrap();
        let place = format!("t.pwt, byte {}: ", check.fault_offset.unwrap());
        let is_it = |said: &str| said.contains(&place) && said.contains("code makes no sense");
        let said = check.fault.unwrap();
        assert!(is_it(&said), "{said}");
        let (ops, error) = replayed(&path);
        if (1..4).contains(&bad) {
            let error = error.unwrap();
            assert!(is_it(&error), "{bad}: {error}");
            assert!(ops.len() < 9, "{bad}: {}", ops.len());
        } else {
            assert_eq!((ops.len(), error), (wanted.len(), None), "{bad}");
            assert!(ops == wanted, "{bad}");
        }
    }
}

/// Lengths are checked first, because they locate the other blocks.
#[test]
fn code_that_is_longer_than_its_part_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.pwt");
    let mut part = CodePart::default();
    for (number, known) in known().into_iter().enumerate() {
        let raw = raw(number);
        let more = usize::from(number == CODE.len() - 1);
        put_varint(&mut part.bytes, (raw.len() + more) as u64);
        part.bytes.extend(raw);
        part.count += 1;
        part.known.push(known);
    }
    let runs = [Ran {
        block: 0,
        addresses: vec![0],
        kept: None,
        more: vec![],
        met: vec![],
        broken: false,
        query: None,
        end: None,
        sealed: false,
    }];
    recorded(&path, part, &runs);
    let (ops, error) = replayed(&path);
    let error = error.unwrap();
    assert!(
        ops.is_empty() && error.contains("code makes no sense"),
        "{error}"
    );
    assert!(!check_trace(&path, None).unwrap().whole);
}
