//! Touch summaries: for a block of the file, its batches without their ops, and the marks between them.
//!
//! The file has summaries for the blocks of the first thread, up to the one in which a second thread starts. A summary
//! lists the first access of each kind to each page since the program last changed its address space, anywhere in the
//! recording. The rule for the list is part of the format: another rule needs another version.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pagewalk_input::FileError;
use pagewalk_stream::{BATCH_OPS, End, Event, Op, OpClass, TouchSummary};
use pagewalk_units::Access;

use super::block::{BlockHeader, Holds, load};
use super::codec::{get_varint, put_varint, unzigzag, zigzag};
use super::marks::{Mark, get_mark, put_mark};
use crate::x86::Registers;

/// Most bytes of a summary, apart from its last batch. A longer one is replaced by the number of its batches.
const MOST: usize = 1 << 20;

/// End of a batch: it is full or was ended early (`MORE`), or a mark follows.
const MORE: u64 = 0;
const MARK: u64 = 1;
/// The block ends here, and the batch continues in the next one.
const OPEN: u64 = 2;

/// A skippable batch, or its part in one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SkippableStretch<'a> {
    /// Ops skipped.
    pub ops: u64,
    /// Instructions of the ops.
    pub instructions: u64,
    /// Requests that end in it.
    pub requests: u64,
    /// First touches: one address in each page.
    pub touched: &'a [(u64, Access)],
    /// The mark after it. `None`: it continues in the next block.
    pub end: Option<&'a Mark>,
}

/// The batches that end in a block, then the start of the next one. Compact, because a second of a program has
/// thousands, and few of them have first touches or a mark.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stretches {
    all: Vec<Short>,
    touched: Vec<(u64, Access)>,
    marks: Vec<Mark>,
}

/// One batch or part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Short {
    instructions: u32,
    /// At most [`BATCH_OPS`].
    ops: u16,
    requests: u16,
    /// End of its range in `touched`.
    touched: u32,
    /// Index of its mark, or one of the constants below.
    end: u32,
}

/// In place of a mark: the batch is full, or continues in the next block.
const FULL: u32 = u32::MAX;
const GOES_ON: u32 = u32::MAX - 1;

impl Stretches {
    /// One batch or part.
    pub fn get(&self, number: usize) -> Option<SkippableStretch<'_>> {
        let short = self.all.get(number)?;
        let from = match number.checked_sub(1) {
            None => 0,
            Some(before) => self.all[before].touched,
        };
        Some(SkippableStretch {
            ops: u64::from(short.ops),
            instructions: u64::from(short.instructions),
            requests: u64::from(short.requests),
            touched: &self.touched[from as usize..short.touched as usize],
            end: match short.end {
                FULL => Some(&Mark::End(End::More)),
                GOES_ON => None,
                mark => Some(&self.marks[mark as usize]),
            },
        })
    }

    /// Sum of a number over all batches.
    fn sum(&self, of: impl Fn(&Short) -> u64) -> u64 {
        self.all.iter().map(of).sum()
    }

    /// Reads the next batch; `None` if it is invalid.
    fn read(&mut self, from: &mut &[u8], last: &mut [u64; 2]) -> Option<()> {
        let what = get_varint(from)?;
        let ops = get_varint(from).filter(|ops| *ops <= BATCH_OPS as u64)?;
        let (instructions, requests) = (get_varint(from)?, get_varint(from)?);
        if instructions > ops * 0xffff || requests > ops {
            return None;
        }
        // An op touches at most its code, and the first and last byte of its data.
        let touched = get_varint(from).filter(|n| *n <= 3 * ops)?;
        for _ in 0..touched {
            let value = get_varint(from)?;
            let access = access(value & 3)?;
            let last = &mut last[usize::from(access != Access::Fetch)];
            *last = last.wrapping_add(unzigzag(value >> 2)) & (u64::MAX >> 12);
            self.touched.push((*last << 12, access));
        }
        let end = match what {
            MORE => FULL,
            OPEN => GOES_ON,
            MARK => {
                self.marks.push(get_mark(from)?.1);
                self.marks.len() as u32 - 1
            }
            _ => return None,
        };
        self.all.push(Short {
            instructions: instructions as u32,
            ops: ops as u16,
            requests: requests as u16,
            touched: self.touched.len() as u32,
            end,
        });
        Some(())
    }
}

/// Touch summary of a block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Skip {
    /// Batches that end in the block.
    pub ends: u64,
    /// Ops of the batch that is open at the block's end, including those in earlier blocks.
    pub open: u64,
    /// Registers at the block's end; only for blocks of steps.
    pub registers: Vec<u8>,
    /// The batches that end in the block, and the start of the next one. `None`: the block must be decoded, because it
    /// holds a query or starts a thread, or the list is too long.
    pub stretches: Option<Stretches>,
}

/// Makes the touch summary of each block of the first thread.
#[derive(Default)]
pub struct SkipMaker {
    summary: TouchSummary,
    /// Ops of the open batch.
    open: u64,
    ends: u64,
    /// The block's batches in their encoded form.
    bytes: Vec<u8>,
    /// The block must be decoded, so `bytes` is not used.
    decoded: bool,
    /// A second thread has started.
    over: bool,
    /// Last page of code and of data in the list.
    last: [u64; 2],
}

impl SkipMaker {
    /// True if no further summary is needed.
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// Adds ops of the first thread.
    pub fn ops(&mut self, mut ops: &[Op]) {
        while !ops.is_empty() && !self.over {
            if self.open == BATCH_OPS as u64 {
                self.end(MORE);
            }
            let room = BATCH_OPS - self.open as usize;
            let (now, later) = ops.split_at(room.min(ops.len()));
            self.decoded |= self.summary.skip_all(now);
            self.open += now.len() as u64;
            // A query is in the batch of its mark.
            let is_query = now.last().is_some_and(|op| op.kind == OpClass::Query);
            if self.open == BATCH_OPS as u64 && !is_query {
                self.end(MORE);
            }
            ops = later;
        }
    }

    /// Adds the mark after them.
    pub fn mark(&mut self, mark: &Mark) {
        if self.over {
            return;
        }
        if let Mark::End(End::More) = mark {
            return self.end(MORE);
        }
        self.end(MARK);
        put_mark(&mut self.bytes, 0, mark);
        if let Mark::End(End::Event { event, .. }) = mark {
            self.summary.change(event);
            self.over = matches!(event, Event::Spawn { .. } | Event::Fork { .. });
            self.decoded |= self.over;
        }
    }

    fn end(&mut self, what: u64) {
        self.stretch(what);
        if what != OPEN {
            self.ends += 1;
            self.open = 0;
        }
    }

    fn stretch(&mut self, what: u64) {
        let skipped = &mut self.summary.skipped;
        self.decoded |= self.bytes.len() + skipped.touched.len() > MOST;
        if self.decoded {
            skipped.clear();
            return;
        }
        let out = &mut self.bytes;
        put_varint(out, what);
        put_varint(out, skipped.ops);
        put_varint(out, skipped.instructions);
        put_varint(out, skipped.requests);
        put_varint(out, skipped.touched.len() as u64);
        for (at, access) in &skipped.touched {
            let last = &mut self.last[usize::from(*access != Access::Fetch)];
            let page = at >> 12;
            // Page numbers leave twelve bits free.
            put_varint(out, zigzag(page.wrapping_sub(*last)) << 2 | code(*access));
            *last = page;
        }
        skipped.clear();
    }

    /// Ends the block, with these registers. Returns its summary.
    pub fn seal(&mut self, registers: &[u8]) -> Vec<u8> {
        self.end(OPEN);
        let mut bytes = Vec::with_capacity(self.bytes.len() + registers.len() + 16);
        put_varint(&mut bytes, self.ends);
        put_varint(&mut bytes, self.open);
        put_varint(&mut bytes, registers.len() as u64);
        bytes.extend_from_slice(registers);
        bytes.push(u8::from(!self.decoded));
        if !self.decoded {
            bytes.append(&mut self.bytes);
        }
        self.bytes.clear();
        (self.ends, self.decoded, self.last) = (0, false, [0; 2]);
        bytes
    }
}

fn code(access: Access) -> u64 {
    match access {
        Access::Read => 0,
        Access::Write => 1,
        Access::Fetch => 2,
    }
}

fn access(code: u64) -> Option<Access> {
    [Access::Read, Access::Write, Access::Fetch]
        .get(code as usize)
        .copied()
}

impl Skip {
    /// Reads the output of [`SkipMaker::seal`]; `None` if it is invalid.
    pub fn parse(mut from: &[u8]) -> Option<Skip> {
        let from = &mut from;
        let (ends, open) = (get_varint(from)?, get_varint(from)?);
        let registers = usize::try_from(get_varint(from)?).ok()?;
        let registers = from.split_off(..registers)?.to_vec();
        let whole = *from.split_off_first()?;
        let mut skip = Skip {
            ends,
            open,
            registers,
            stretches: None,
        };
        if open > BATCH_OPS as u64 || whole > 1 {
            return None;
        }
        if whole == 1 {
            let mut last = [0; 2];
            let mut stretches = Stretches::default();
            for _ in 0..=ends {
                stretches.read(from, &mut last)?;
            }
            let (tail, ended) = stretches.all.split_last()?;
            // The open batch began after the last end, if there is one.
            let begun = match ended {
                [] => open >= u64::from(tail.ops),
                _ => open == u64::from(tail.ops),
            };
            let right = tail.end == GOES_ON && ended.iter().all(|s| s.end != GOES_ON);
            if !begun || !right {
                return None;
            }
            skip.stretches = Some(stretches);
        }
        from.is_empty().then_some(skip)
    }

    /// Instructions and requests of the block, if it may be skipped.
    pub fn work(&self) -> Option<(u64, u64)> {
        let all = self.stretches.as_ref()?;
        let instructions = all.sum(|s| u64::from(s.instructions));
        Some((instructions, all.sum(|s| u64::from(s.requests))))
    }

    /// True if the summary is consistent with this block header.
    fn fits(&self, header: &BlockHeader) -> bool {
        let ops = |all: &Stretches| all.sum(|s| u64::from(s.ops));
        let holds = match header.holds {
            // Only marks and full batches end batches.
            Holds::Ops => {
                let most = u64::from(header.marks) + u64::from(header.ops) / BATCH_OPS as u64 + 1;
                let right = |n: u64| n == u64::from(header.ops);
                self.ends <= most && self.stretches.as_ref().map(ops).is_none_or(right)
            }
            Holds::Steps | Holds::Code | Holds::Skips | Holds::Memory => {
                Registers::parse(&self.registers).is_some()
            }
        };
        holds && self.work().is_none_or(|(n, _)| n == header.instructions)
    }
}

/// A block of the file that holds touch summaries.
struct Part {
    /// Number of the first block that it covers.
    first: u64,
    offset: u64,
    /// Each block's summary, and true once it has been checked against its block's header.
    skips: Vec<(Skip, bool)>,
}

/// The touch summaries of a file, read as needed.
pub struct SkipsInFile {
    path: Arc<PathBuf>,
    parts: Vec<(u64, BlockHeader)>,
    /// The last two parts read: accesses are near each other.
    read: [Option<Part>; 2],
}

impl SkipsInFile {
    /// Takes the parts in order, up to the first gap.
    pub fn new(path: Arc<PathBuf>, mut parts: Vec<(u64, BlockHeader)>) -> Self {
        let mut next = 0;
        let adjoins = |(_, header): &&(u64, BlockHeader)| {
            let fits = header.before == next;
            next += u64::from(header.ops);
            fits
        };
        let good = parts.iter().take_while(adjoins).count();
        parts.truncate(good);
        SkipsInFile {
            path,
            parts,
            read: [None, None],
        }
    }

    /// Touch summary of block `number` of the first thread, which has this `header`. `None`: the file has none for it.
    ///
    /// # Errors
    /// A fault of the summary.
    pub fn get(&mut self, number: usize, header: &BlockHeader) -> Result<Option<&Skip>, FileError> {
        let number = number as u64;
        let has = |p: &Part| (p.first..p.first + p.skips.len() as u64).contains(&number);
        if !self.read[0].as_ref().is_some_and(has) {
            self.read.swap(0, 1);
        }
        if !self.read[0].as_ref().is_some_and(has) {
            let after = self.parts.partition_point(|(_, h)| h.before <= number);
            let Some((offset, part)) = after.checked_sub(1).map(|n| self.parts[n]) else {
                return Ok(None);
            };
            if number - part.before >= u64::from(part.ops) {
                return Ok(None);
            }
            let mut file = File::open(&*self.path)
                .map_err(|e| FileError::io(&self.path, "open the trace", &e))?;
            let skips = raw_skips(&self.path, &mut file, offset, &part)?;
            let skips = skips.iter().map(|bytes| Some((Skip::parse(bytes)?, false)));
            let Some(skips) = skips.collect() else {
                return Err(self.defect(offset, "what skipping needs makes no sense"));
            };
            self.read[0] = Some(Part {
                first: part.before,
                offset,
                skips,
            });
        }
        let Some(part) = &mut self.read[0] else {
            return Ok(None);
        };
        let (skip, fits) = &mut part.skips[(number - part.first) as usize];
        // Checked once only: a block is looked up for each of its batches.
        *fits = *fits || skip.fits(header);
        if !*fits {
            let offset = part.offset;
            return Err(self.defect(offset, "what skipping needs does not fit its block"));
        }
        Ok(self.read[0]
            .as_ref()
            .map(|part| &part.skips[(number - part.first) as usize].0))
    }

    fn defect(&self, offset: u64, what: &str) -> FileError {
        let what = format!("{what} (in a block whose checksum is right: a defect of its writer)");
        FileError::at(&self.path, offset, what)
    }
}

/// The encoded summaries in a part of the file.
pub fn raw_skips(
    path: &Path,
    file: &mut File,
    offset: u64,
    header: &BlockHeader,
) -> Result<Vec<Vec<u8>>, FileError> {
    let raw = load(path, file, offset, header)?;
    let mut rest = &raw[..];
    let mut next = || {
        let bytes = usize::try_from(get_varint(&mut rest)?).ok()?;
        rest.split_off(..bytes).map(<[u8]>::to_vec)
    };
    let skips: Option<Vec<_>> = (0..header.ops).map(|_| next()).collect();
    skips.ok_or_else(|| {
        let what = "what skipping needs makes no sense (in a block whose checksum is right: a defect of its writer)";
        FileError::at(path, offset, what)
    })
}

#[cfg(test)]
mod tests {
    use pagewalk_stream::{BATCH_OPS, End, Event, Op, OpClass, Skipped, TouchSummary, flags};
    use pagewalk_units::{Access, VirtAddr};
    use proptest::prelude::*;

    use super::{Skip, SkipMaker, Stretches};
    use crate::pwt::block::BlockHeader;
    use crate::pwt::marks::Mark;

    /// A batch as made one op at a time.
    #[derive(Debug, PartialEq)]
    struct Stretch {
        skipped: Skipped,
        end: Option<Mark>,
    }

    fn every(stretches: &Stretches) -> Vec<Stretch> {
        let all = (0..).map_while(|n| stretches.get(n));
        all.map(|s| Stretch {
            skipped: Skipped {
                ops: s.ops,
                instructions: s.instructions,
                requests: s.requests,
                touched: s.touched.to_vec(),
            },
            end: s.end.cloned(),
        })
        .collect()
    }

    #[derive(Clone, Debug)]
    enum Part {
        Ops(Vec<Op>),
        Mark(Mark),
        /// The block ends.
        Seal,
    }

    fn any_op() -> impl Strategy<Value = Op> {
        let at = || {
            prop_oneof![
                (0..40u64).prop_map(|p| 0x7000_0ff0 + 4096 * p),
                any::<u64>()
            ]
        };
        (at(), at(), 0..4u16, 0..400u32, 1..65u8).prop_map(|(pc, va, insns, kind, size)| Op {
            pc,
            va,
            insns,
            size,
            kind: match kind {
                0 => OpClass::Query,
                1..100 => OpClass::Compute,
                100..200 => OpClass::Branch,
                200..300 => OpClass::Load,
                _ => OpClass::Store,
            },
            flags: if insns == 3 { flags::REQUEST } else { 0 },
            ..Op::default()
        })
    }

    fn any_part() -> impl Strategy<Value = Part> {
        let (at, bytes) = (VirtAddr(0x7000_0000), 8 << 12);
        let ops = prop::collection::vec(any_op(), 0..60);
        // Copies of one op, so that several batches stay small.
        let many = (any_op(), 0..3 * BATCH_OPS).prop_map(|(op, n)| vec![op; n]);
        let events = prop_oneof![
            Just(Event::Unmap { at, bytes }),
            Just(Event::Populate { at, bytes }),
            Just(Event::RoiBegin),
        ];
        prop_oneof![
            6 => ops.prop_map(Part::Ops),
            3 => many.prop_map(Part::Ops),
            2 => events.prop_map(|event| Part::Mark(Mark::End(End::Event { event, ticket: 3 }))),
            1 => Just(Part::Mark(Mark::End(End::More))),
            2 => Just(Part::Seal),
        ]
    }

    /// Expected summaries: the batches that end in each block, and the rest.
    fn expected(parts: &[Part]) -> Vec<(u64, Option<Vec<Stretch>>)> {
        let mut summary = TouchSummary::default();
        let (mut blocks, mut block, mut open, mut has_query) = (vec![], vec![], 0, false);
        let end = |summary: &mut TouchSummary, block: &mut Vec<Stretch>, end| {
            let mut skipped = std::mem::take(&mut summary.skipped);
            for (at, _) in &mut skipped.touched {
                *at &= !4095;
            }
            block.push(Stretch { skipped, end });
        };
        let more = || Some(Mark::End(End::More));
        for part in parts.iter().chain([&Part::Seal]) {
            match part {
                Part::Ops(ops) => {
                    for op in ops {
                        if open == BATCH_OPS {
                            end(&mut summary, &mut block, more());
                            open = 0;
                        }
                        has_query |= summary.skip_all(std::slice::from_ref(op));
                        open += 1;
                        if open == BATCH_OPS && op.kind != OpClass::Query {
                            end(&mut summary, &mut block, more());
                            open = 0;
                        }
                    }
                }
                Part::Mark(mark) => {
                    end(&mut summary, &mut block, Some(mark.clone()));
                    if let Mark::End(End::Event { event, .. }) = mark {
                        summary.change(event);
                    }
                    open = 0;
                }
                Part::Seal => {
                    end(&mut summary, &mut block, None);
                    let stretches = std::mem::take(&mut block);
                    blocks.push((open as u64, (!has_query).then_some(stretches)));
                    has_query = false;
                }
            }
        }
        blocks
    }

    proptest! {
        #[test]
        fn batches_come_back(parts in prop::collection::vec(any_part(), 0..40)) {
            let mut maker = SkipMaker::default();
            let mut blocks = Vec::new();
            for part in parts.iter().chain([&Part::Seal]) {
                match part {
                    Part::Ops(ops) => maker.ops(ops),
                    Part::Mark(mark) => maker.mark(mark),
                    Part::Seal => blocks.push(Skip::parse(&maker.seal(b"registers")).unwrap()),
                }
            }
            let expected = expected(&parts);
            prop_assert_eq!(blocks.len(), expected.len());
            for (skip, (open, stretches)) in blocks.into_iter().zip(expected) {
                prop_assert_eq!((skip.open, &skip.registers[..]), (open, &b"registers"[..]));
                if let Some(stretches) = &stretches {
                    prop_assert_eq!(skip.ends + 1, stretches.len() as u64);
                }
                prop_assert_eq!(skip.stretches.as_ref().map(every), stretches);
            }
        }

        #[test]
        fn any_bytes_are_answered(bytes: Vec<u8>) {
            let _ = Skip::parse(&bytes);
        }

        #[test]
        fn changed_bytes_are_answered(
            ops in prop::collection::vec(any_op(), 1..60), at: prop::sample::Index, byte: u8,
        ) {
            let mut maker = SkipMaker::default();
            maker.ops(&ops);
            let mut bytes = maker.seal(&[]);
            let at = at.index(bytes.len());
            bytes[at] = byte;
            let _ = Skip::parse(&bytes);
        }
    }

    /// Memory that is initialised in order takes little space, and none the second time.
    #[test]
    fn pages_are_listed_once_in_a_recording() {
        let store = |page: u64| Op {
            va: 0x1_0000_0000 + (page << 12),
            insns: 1,
            kind: OpClass::Store,
            size: 8,
            ..Op::default()
        };
        let ops: Vec<Op> = (0..20_000).map(store).collect();
        let mut maker = SkipMaker::default();
        maker.ops(&ops);
        let first = maker.seal(&[]);
        assert!(first.len() < 21_000);
        assert!(zstd::bulk::compress(&first, 3).unwrap().len() < 100);
        maker.ops(&ops);
        let second = Skip::parse(&maker.seal(&[])).unwrap();
        assert_eq!(second.stretches.unwrap().touched, []);
        // Unmapped pages are touched again.
        let (at, bytes) = (VirtAddr(0x1_0000_0000), 4096);
        let event = Event::Unmap { at, bytes };
        maker.mark(&Mark::End(End::Event { event, ticket: 1 }));
        maker.ops(&ops[..1]);
        let third = Skip::parse(&maker.seal(&[])).unwrap().stretches.unwrap();
        assert_eq!(third.touched, [(0, Access::Fetch), (at.0, Access::Write)]);
    }

    /// A reader finds its position in a block that it has not decoded.
    #[test]
    fn batches_and_open_ops_of_a_summary_fit_its_block() {
        let mut maker = SkipMaker::default();
        maker.ops(&[Op::default(); 9]);
        maker.mark(&Mark::End(End::More));
        maker.ops(&[Op::default(); 5]);
        let mut bytes = maker.seal(&[]);
        assert_eq!(bytes[..2], [1, 5]);
        assert!(Skip::parse(&bytes).is_some());
        bytes[1] = 6;
        assert!(Skip::parse(&bytes).is_none());
        // The batch may have begun in an earlier block, but holds these ops.
        maker.ops(&[Op::default(); 7]);
        let mut bytes = maker.seal(&[]);
        assert_eq!(bytes[..2], [0, 12]);
        assert!(Skip::parse(&bytes).is_some());
        bytes[1] = 6;
        assert!(Skip::parse(&bytes).is_none());

        let header = BlockHeader {
            ops: 2 * BATCH_OPS as u32,
            marks: 3,
            ..BlockHeader::default()
        };
        let skip = |ends| Skip {
            ends,
            ..Skip::default()
        };
        assert!(skip(6).fits(&header) && !skip(7).fits(&header));
    }

    #[test]
    fn an_op_touches_no_more_than_three_pages() {
        let mut maker = SkipMaker::default();
        maker.ops(&[Op {
            pc: 0x1000,
            va: 0x2fff,
            kind: OpClass::Load,
            size: 2,
            ..Op::default()
        }]);
        let mut bytes = maker.seal(&[]);
        let touched = bytes.iter().rposition(|b| *b == 3).unwrap();
        assert!(Skip::parse(&bytes).is_some());
        bytes[touched] = 4;
        bytes.push(0);
        assert!(Skip::parse(&bytes).is_none());
    }

    /// From then on the interleaving of the threads depends on the machine.
    #[test]
    fn a_second_thread_ends_it() {
        let mut maker = SkipMaker::default();
        maker.ops(&[Op::default()]);
        let event = Event::Spawn { thread: 1 };
        maker.mark(&Mark::End(End::Event { event, ticket: 0 }));
        assert!(maker.is_over());
        let skip = Skip::parse(&maker.seal(&[])).unwrap();
        assert_eq!((skip.ends, skip.stretches), (1, None));
    }
}
