//! Files of recorded placements. `linux/README.md` defines the format.

use std::fs;
use std::hash::Hash;
use std::ops::Range;

use pagewalk_structures::{MOST_TIERS, TieredHash};
use pagewalk_units::{Asid, Error};
use rustc_hash::FxHashMap;

use crate::hashed_frames::FrameContent;
use crate::memory::HUGE_ORDER;

/// Limit of virtual page numbers: 57-bit addresses.
const VPNS: u64 = 1 << 45;
/// 4 KB pages in a 2 MB page, and entries of a last-level page table.
const PAGES: u64 = 1 << HUGE_ORDER;
/// The only version of the format.
const VERSION: u64 = 1;

/// Address space and virtual page number.
type PageKey = (u16, u64);

/// A recorded frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordedFrame {
    /// The frame; the first one of a 2 MB page.
    pub frame: u64,
    /// The tier that selects it, from 1 on; 0 if none does.
    pub tier: u8,
}

/// The content of a file.
#[derive(Debug)]
pub struct RecordedFrames {
    /// The hash of pages and page tables.
    pub hash: TieredHash,
    /// The hash of 2 MB regions to 2 MB blocks; `None` if the range of the hash has no entire block.
    pub blocks: Option<TieredHash>,
    /// The address spaces, in the order of their first records.
    pub asids: Vec<u16>,
    /// 4 KB pages.
    pub pages: FxHashMap<PageKey, RecordedFrame>,
    /// Last-level page tables, by the first page of their region.
    pub tables: FxHashMap<PageKey, RecordedFrame>,
    /// 2 MB pages, by their first page.
    pub huge: FxHashMap<PageKey, RecordedFrame>,
}

/// The reason why a file cannot be used, as the end of a sentence that begins with its name.
type Reason = String;

/// Reads the file at `path` for a memory of `frames` frames.
///
/// # Errors
/// The file cannot be read or violates the format. The error begins with the key `file`.
pub fn read(path: &str, frames: u64) -> Result<RecordedFrames, Error> {
    let text = fs::read(path).map_err(|why| {
        let what = format!(
            "is '{path}', which cannot be read ({why}); expected a file that linux/export or pagewalk.export_frames has written"
        );
        Error::key("file", what)
    })?;
    parse(&text, frames).map_err(|reason| Error::key("file", format!("is '{path}', {reason}")))
}

/// Reads the text of a file for a memory of `frames` frames.
pub fn parse(text: &[u8], frames: u64) -> Result<RecordedFrames, Reason> {
    let mut lines = text
        .strip_suffix(b"\n")
        .unwrap_or(text)
        .split(|&c| c == b'\n');
    let first = lines.next().unwrap_or_default();
    let mut found = header(first, frames).map_err(|what| at(1, first, &what))?;
    // Sorted files name an address space many times in a row.
    let mut last_asid = 0;
    for (number, line) in (2..).zip(lines) {
        if line.first() == Some(&b'#') {
            continue;
        }
        let asid = found
            .add(line, frames)
            .map_err(|what| at(number, line, &what))?;
        if asid != last_asid && !found.asids.contains(&asid) {
            found.asids.push(asid);
        }
        last_asid = asid;
    }
    found.check_overlap()?;
    Ok(found)
}

/// The reason `what` with its line.
fn at(number: u64, line: &[u8], what: &str) -> Reason {
    let text = String::from_utf8_lossy(line);
    let text: String = text.chars().take(100).collect();
    format!("whose line {number} is '{}'; {what}", text.escape_debug())
}

/// The number in `word`, if it is one of decimal digits and below 2^64.
fn number(word: &[u8]) -> Option<u64> {
    if word.is_empty() {
        return None;
    }
    word.iter().try_fold(0u64, |value, digit| {
        let digit = digit.wrapping_sub(b'0');
        (digit < 10).then_some(())?;
        value.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

/// A file without records, with the hash of the header `line`.
fn header(line: &[u8], frames: u64) -> Result<RecordedFrames, String> {
    const NAMES: [&str; 6] = [
        "version",
        "first_frame",
        "frames",
        "page_size",
        "tiers",
        "seed",
    ];
    let expected =
        "expected 'pagewalk-frames version=1 first_frame=N frames=N page_size=4096 tiers=N seed=N'";
    let mut words = line.split(|&c| c == b' ');
    if words.next() != Some(b"pagewalk-frames") {
        return Err(expected.to_owned());
    }
    let mut values = [0; NAMES.len()];
    for (name, value) in NAMES.iter().zip(&mut values) {
        let word = words.next().unwrap_or_default();
        let given = word
            .strip_prefix(name.as_bytes())
            .and_then(|rest| rest.strip_prefix(b"="));
        *value = given.and_then(number).ok_or(expected)?;
        if *name == "version" && *value != VERSION {
            return Err(format!(
                "its version is {value}; expected version {VERSION}: record it again with the linux/export of this release"
            ));
        }
    }
    if words.next().is_some() {
        return Err(expected.to_owned());
    }
    let [_, first, count, page_size, tiers, seed] = values;
    if page_size != 4096 {
        return Err(format!("its pages have {page_size} bytes; expected 4096"));
    }
    if !(1..=MOST_TIERS as u64).contains(&tiers) {
        return Err(format!("it has {tiers} tiers; expected 1 to {MOST_TIERS}"));
    }
    let end = first.checked_add(count).filter(|_| count > 0);
    let Some(end) = end else {
        return Err(
            "its range of frames is empty or too large; expected frames of 1 or more".to_owned(),
        );
    };
    check_end(end, frames)?;
    let order: Vec<u8> = (1..=tiers as u8).collect();
    let of_blocks: Vec<u8> = order.iter().map(|n| n + MOST_TIERS as u8).collect();
    let blocks: Range<u64> = first >> HUGE_ORDER..end >> HUGE_ORDER;
    Ok(RecordedFrames {
        hash: TieredHash::new(seed, &order, first..end),
        blocks: (!blocks.is_empty()).then(|| TieredHash::new(seed, &of_blocks, blocks)),
        asids: Vec::new(),
        pages: FxHashMap::default(),
        tables: FxHashMap::default(),
        huge: FxHashMap::default(),
    })
}

/// Checks that a memory of `frames` frames contains the frames below `end`.
fn check_end(end: u64, frames: u64) -> Result<(), String> {
    if end <= frames {
        return Ok(());
    }
    Err(format!(
        "frame {} lies beyond the {} GB of os.memory_gb; expected os.memory_gb of at least {}",
        end - 1,
        frames >> 18,
        end.div_ceil(1 << 18)
    ))
}

/// Adds a record. A second one for the same key is an error.
fn insert<K: Hash + Eq>(
    into: &mut FxHashMap<K, RecordedFrame>,
    key: K,
    frame: RecordedFrame,
) -> Result<(), String> {
    match into.insert(key, frame) {
        None => Ok(()),
        Some(earlier) => Err(format!(
            "an earlier line has frame {} for the same page; expected each page once",
            earlier.frame
        )),
    }
}

impl RecordedFrames {
    /// Adds the record of `line` and returns its address space.
    fn add(&mut self, line: &[u8], frames: u64) -> Result<u16, String> {
        let (kind, fields) = if let Some(rest) = line.strip_prefix(b"table ") {
            (FrameContent::Table, rest)
        } else if let Some(rest) = line.strip_prefix(b"huge ") {
            (FrameContent::Huge, rest)
        } else {
            (FrameContent::Page, line)
        };
        let mut values = [0; 4];
        let mut words = fields.split(|&c| c == b' ');
        for value in &mut values {
            *value = words.next().and_then(number).ok_or_else(form)?;
        }
        if words.next().is_some() {
            return Err(form());
        }
        let [asid, vpn, frame, tier] = values;
        let Some(asid) = u16::try_from(asid).ok().filter(|&asid| asid > 0) else {
            return Err(format!(
                "its address space is {asid}; expected 1 to {}",
                u16::MAX
            ));
        };
        if vpn >= VPNS {
            return Err(format!("its page is {vpn}; expected one below {VPNS}"));
        }
        if kind != FrameContent::Page && !vpn.is_multiple_of(PAGES) {
            return Err(format!("its page is {vpn}; expected a multiple of {PAGES}"));
        }
        let count = if kind == FrameContent::Huge { PAGES } else { 1 };
        if !frame.is_multiple_of(count) {
            return Err(format!(
                "its frame is {frame}; expected a multiple of {PAGES}"
            ));
        }
        check_end(frame.saturating_add(count), frames)?;
        self.check_tier(kind, (asid, vpn), frame, tier)?;
        let into = match kind {
            FrameContent::Page => &mut self.pages,
            FrameContent::Table => &mut self.tables,
            FrameContent::Huge => &mut self.huge,
        };
        let tier = tier as u8;
        insert(into, (asid, vpn), RecordedFrame { frame, tier })?;
        Ok(asid)
    }

    /// Checks that `tier` selects `frame`, or that no tier does if it is 0.
    fn check_tier(
        &self,
        kind: FrameContent,
        (asid, vpn): PageKey,
        frame: u64,
        tier: u64,
    ) -> Result<(), String> {
        let (hash, frame_or_block) = match kind {
            FrameContent::Page | FrameContent::Table => (Some(&self.hash), frame),
            FrameContent::Huge => (self.blocks.as_ref(), frame >> HUGE_ORDER),
        };
        let key = kind.key(Asid(asid), vpn);
        let expected = hash.map_or(0, |hash| hash.tier_of(frame_or_block, key));
        let selects = |hash: &TieredHash| {
            tier <= hash.tiers() as u64 && hash.of(tier as usize - 1, key) == frame_or_block
        };
        // Several tiers may select one frame.
        let right = match tier {
            0 => expected == 0,
            _ => hash.is_some_and(selects),
        };
        if right {
            return Ok(());
        }
        Err(format!(
            "its tier is {tier}, but by the hash of the first line frame {frame} has tier {}; expected a file whose first line has the seed and the range of the kernel that recorded it",
            expected
        ))
    }

    /// Checks that no 4 KB page lies in a 2 MB page.
    fn check_overlap(&self) -> Result<(), Reason> {
        if self.huge.is_empty() {
            return Ok(());
        }
        let inside = self.pages.keys().filter(|(asid, vpn)| {
            let first = vpn & !(PAGES - 1);
            self.huge.contains_key(&(*asid, first))
        });
        match inside.min() {
            None => Ok(()),
            Some((asid, vpn)) => Err(format!(
                "which names page {vpn} of address space {asid} and also a 2 MB page around it; expected each page once"
            )),
        }
    }
}

/// The form of a record.
fn form() -> String {
    "expected 'ASID VPN FRAME TIER' in decimal digits, or that after 'table' or 'huge'".to_owned()
}

#[cfg(test)]
mod tests {
    use pagewalk_structures::TieredHash;
    use pagewalk_units::Asid;
    use proptest::prelude::*;

    use super::{RecordedFrame, RecordedFrames, parse, read};

    const HEADER: &str =
        "pagewalk-frames version=1 first_frame=0 frames=131072 page_size=4096 tiers=6 seed=12345\n";
    /// Frames of 1 GB.
    const GB: u64 = 1 << 18;

    fn hash() -> TieredHash {
        TieredHash::new(12345, &[1, 2, 3, 4, 5, 6], 0..131_072)
    }

    fn blocks() -> TieredHash {
        TieredHash::new(12345, &[7, 8, 9, 10, 11, 12], 0..256)
    }

    fn with(records: &str) -> Result<RecordedFrames, String> {
        parse(format!("{HEADER}{records}").as_bytes(), GB)
    }

    #[test]
    fn records_of_each_kind_are_read() {
        let page = hash().frame(1, Asid(3), 34_359_738);
        let table = hash().frame(0, Asid(3), 34_359_296 >> 9);
        let huge = blocks().frame(2, Asid(7), 34_359_808 >> 9) << 9;
        let text = format!(
            "3 34359738 {page} 2\n# a comment\ntable 3 34359296 {table} 1\nhuge 7 34359808 {huge} 3\n3 5 200000 0\n"
        );
        let found = with(&text).expect("right");
        let of = |frame, tier| Some(&RecordedFrame { frame, tier }).copied();
        assert_eq!(found.asids, [3, 7]);
        assert_eq!(found.pages.get(&(3, 34_359_738)).copied(), of(page, 2));
        assert_eq!(
            found.pages.get(&(3, 5)).copied(),
            of(200_000, 0),
            "beyond the range"
        );
        assert_eq!(found.tables.get(&(3, 34_359_296)).copied(), of(table, 1));
        assert_eq!(found.huge.get(&(7, 34_359_808)).copied(), of(huge, 3));
        assert_eq!(
            (found.pages.len(), found.tables.len(), found.huge.len()),
            (2, 1, 1)
        );
        assert_eq!((found.hash, found.blocks), (hash(), Some(blocks())));
    }

    #[test]
    fn a_frame_may_occur_twice_and_a_file_may_have_no_record() {
        let (a, b) = ("1 7 200000 0\n", "2 7 200000 0\n");
        assert_eq!(with(&format!("{a}{b}")).expect("shared").asids, [1, 2]);
        assert!(with("").expect("empty").asids.is_empty());
        let small = HEADER.replace("frames=131072", "frames=500");
        let small = parse(small.as_bytes(), GB).expect("below a block");
        assert_eq!(small.blocks, None);
    }

    #[test]
    fn each_error_names_its_line_and_what_is_expected() {
        let free = |vpn| {
            let hash = hash();
            (0..)
                .find(|&f| (0..6).all(|t| hash.frame(t, Asid(1), vpn) != f))
                .expect("one of seven")
        };
        let first = hash().frame(0, Asid(1), 7);
        for (records, line, words) in [
            ("1 7 8\n", 2, "expected 'ASID VPN FRAME TIER'"),
            ("1 7 8 0 0\n", 2, "expected 'ASID VPN FRAME TIER'"),
            ("1 7 200000 0\n\n", 3, "expected 'ASID VPN FRAME TIER'"),
            ("page 1 7 8 0\n", 2, "expected 'ASID VPN FRAME TIER'"),
            ("1 0x7 8 0\n", 2, "expected 'ASID VPN FRAME TIER'"),
            (
                "1 7 99999999999999999999 0\n",
                2,
                "expected 'ASID VPN FRAME TIER'",
            ),
            (
                "0 7 8 0\n",
                2,
                "its address space is 0; expected 1 to 65535",
            ),
            ("65536 7 8 0\n", 2, "its address space is 65536"),
            (
                "1 35184372088832 8 0\n",
                2,
                "expected one below 35184372088832",
            ),
            (
                "table 1 7 8 0\n",
                2,
                "its page is 7; expected a multiple of 512",
            ),
            (
                "huge 1 512 8 0\n",
                2,
                "its frame is 8; expected a multiple of 512",
            ),
            (
                "1 7 262144 0\n",
                2,
                "frame 262144 lies beyond the 1 GB of os.memory_gb; expected os.memory_gb of at least 2",
            ),
            ("1 7 18446744073709551615 0\n", 2, "lies beyond the 1 GB"),
            (
                "1 6 200000 0\n1 7 200000 0\n1 7 200001 0\n",
                4,
                "an earlier line has frame 200000",
            ),
            (
                "1 7 200000 1\n",
                2,
                "its tier is 1, but by the hash of the first line frame 200000 has tier 0",
            ),
            ("1 7 200000 7\n", 2, "its tier is 7, but"),
            (&format!("1 7 {first} 0\n"), 2, "has tier 1"),
            (&format!("1 7 {first} 2\n"), 2, "has tier 1"),
            (&format!("1 7 {} 256\n", free(7)), 2, "its tier is 256, but"),
        ] {
            let why = with(records).expect_err(records);
            assert!(why.starts_with(&format!("whose line {line} is '")), "{why}");
            assert!(why.contains(words), "{why}");
        }
        let why = with("huge 1 512 200192 0\n1 600 200000 0\n").expect_err("overlap");
        assert!(why.contains("page 600 of address space 1"), "{why}");
    }

    #[test]
    fn headers_are_checked() {
        for (from, to, words) in [
            (
                "pagewalk-frames",
                "frames",
                "expected 'pagewalk-frames version=1",
            ),
            (
                "version=1",
                "version=2",
                "its version is 2; expected version 1",
            ),
            (
                "first_frame=0 frames=131072",
                "frames=131072 first_frame=0",
                "expected 'pagewalk-frames",
            ),
            (
                "seed=12345",
                "seed=12345 more=1",
                "expected 'pagewalk-frames",
            ),
            ("seed=12345", "seed=-1", "expected 'pagewalk-frames"),
            (" seed=12345", "", "expected 'pagewalk-frames"),
            ("frames=131072", "frames=0", "expected frames of 1 or more"),
            (
                "frames=131072",
                "frames=262145",
                "os.memory_gb of at least 2",
            ),
            (
                "page_size=4096",
                "page_size=16384",
                "its pages have 16384 bytes; expected 4096",
            ),
            ("tiers=6", "tiers=7", "it has 7 tiers; expected 1 to 6"),
            ("tiers=6", "tiers=0", "it has 0 tiers"),
        ] {
            let text = HEADER.replacen(from, to, 1);
            let why = parse(text.as_bytes(), GB).expect_err(&text);
            assert!(why.starts_with("whose line 1 is '"), "{why}");
            assert!(why.contains(words), "{why}");
        }
        assert!(parse(b"", GB).is_err());
        let missing = read("there/is/none", GB).expect_err("no file").to_string();
        assert!(
            missing.starts_with("file is 'there/is/none', which cannot be read"),
            "{missing}"
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Pages, tables and 2 MB pages at tiers of the hash, or at none.
        #[test]
        fn written_records_are_read_back(
            records in prop::collection::btree_map((1u16.., 0u64..1 << 35, 0u8..3), (0u64..6, any::<bool>()), 0..60),
        ) {
            let (hash, blocks) = (hash(), blocks());
            let mut text = HEADER.to_owned();
            let mut written = Vec::new();
            for (&(asid, region, kind), &(tier, hashed)) in &records {
                let word = ["", "table ", "huge "][usize::from(kind)];
                // Pages lie below all 2 MB pages.
                let (vpn, number) = match kind {
                    0 => (region, region),
                    _ => (region << 9 | 1 << 44, region | 1 << 35),
                };
                let of = |tier: u64| match kind {
                    2 => blocks.frame(tier as usize, Asid(asid), number) << 9,
                    _ => hash.frame(tier as usize, Asid(asid), number),
                };
                let frame = if hashed { of(tier) } else { 131_072 + 512 * tier };
                let first = (0..6).find(|&t| of(t) == frame).map_or(0, |t| t + 1);
                written.push((kind, (asid, vpn), frame, first));
                text += &format!("{word}{asid} {vpn} {frame} {first}\n");
            }
            let found = parse(text.as_bytes(), GB);
            prop_assert!(found.is_ok(), "{:?}", found.err());
            let found = found.unwrap();
            let maps = [&found.pages, &found.tables, &found.huge];
            prop_assert_eq!(maps.iter().map(|m| m.len()).sum::<usize>(), written.len());
            for (kind, key, frame, tier) in written {
                let tier = tier as u8;
                prop_assert_eq!(maps[usize::from(kind)].get(&key).copied(), Some(RecordedFrame { frame, tier }));
            }
        }

        /// No text makes the parser panic.
        #[test]
        fn any_text_is_read_or_refused(text in "[a-z0-9 =\n#-]{0,200}", with_header in any::<bool>()) {
            let text = if with_header { format!("{HEADER}{text}") } else { text };
            let _ = parse(text.as_bytes(), GB);
        }

        /// A changed number in a record is noticed, or it is the frame of the same tier by chance.
        #[test]
        fn a_wrong_frame_is_noticed(vpn in 0u64..1 << 40, tier in 0usize..6, other in 0u64..131_072) {
            let frame = hash().frame(tier, Asid(1), vpn);
            let lowest = (0..6).find(|&t| hash().frame(t, Asid(1), vpn) == frame).expect("one does");
            let tier = lowest + 1;
            let line = format!("1 {} {} {}\n", vpn, frame, tier);
            prop_assert!(with(&line).is_ok());
            let line = format!("1 {} {} {}\n", vpn, other, tier);
            prop_assert_eq!(with(&line).is_ok(), hash().frame(lowest, Asid(1), vpn) == other);
        }
    }
}
