//! Tests the contents of an in-memory TLB, and their addresses, against LRU lists.

use std::collections::BTreeMap;

use pagewalk_tables::{Invalidation, PomEntry, PomTlb, PomTlbSpec};
use pagewalk_units::{Asid, PageSize, PhysAddr, VirtAddr};
use proptest::prelude::*;

const BASES: [PhysAddr; 2] = [PhysAddr(1 << 30), PhysAddr(3 << 30)];

fn spec(entries_4kb: u32, entries_2mb: u32) -> PomTlbSpec {
    PomTlbSpec {
        entries_4kb,
        entries_2mb,
        ..PomTlbSpec::default()
    }
}

/// The LRU list of a set, most recently used last: address space and page, with the
/// entry.
type Set = Vec<((u16, u64), PomEntry)>;

/// Reference model of the TLB's contents.
struct Model {
    sets: [u64; 2],
    held: BTreeMap<(PageSize, u64), Set>,
    evictions: u64,
    invalidated: u64,
}

impl Model {
    fn set(&mut self, size: PageSize, page: u64) -> &mut Set {
        let set = page % self.sets[size.index()];
        self.held.entry((size, set)).or_default()
    }
    fn lookup(&mut self, asid: u16, va: u64, size: PageSize) -> Option<PomEntry> {
        let page = va >> size.shift();
        let set = self.set(size, page);
        let at = set.iter().position(|e| e.0 == (asid, page))?;
        let e = set.remove(at);
        set.push(e);
        Some(e.1)
    }
    fn insert(&mut self, asid: u16, va: u64, size: PageSize, entry: PomEntry) {
        let page = va >> size.shift();
        let set = self.set(size, page);
        let before = set.len();
        set.retain(|e| e.0 != (asid, page));
        let full = set.len() == 4;
        if full && before == 4 {
            set.remove(0);
        }
        set.push(((asid, page), entry));
        self.evictions += u64::from(full);
    }
    /// Drops all entries that overlap the range.
    fn drop_range(&mut self, asid: u16, from: u64, to: u64) {
        let mut dropped = 0;
        for ((size, _), set) in &mut self.held {
            set.retain(|((whose, page), _)| {
                let first = page << size.shift();
                let gone = *whose == asid && first < to && first + size.bytes() > from;
                dropped += u64::from(gone);
                !gone
            });
        }
        self.invalidated += dropped;
    }
    fn used(&self, size: PageSize) -> u64 {
        let sets = self.held.iter().filter(|((s, _), _)| *s == size);
        sets.map(|(_, set)| set.len() as u64).sum()
    }
}

#[derive(Clone, Debug)]
enum TlbOp {
    Lookup(u16, u64, PageSize),
    Insert(u16, u64, PageSize, u64, bool),
    Page(u16, u64, PageSize),
    Range(u16, u64, u64),
    Space(u16),
}

fn step() -> impl Strategy<Value = TlbOp> {
    let asid = 1u16..4;
    let va = 0u64..96 << 20;
    let size = prop_oneof![4 => Just(PageSize::K4), 1 => Just(PageSize::M2)];
    prop_oneof![
        20 => (asid.clone(), va.clone(), size.clone()).prop_map(|(a, v, s)| TlbOp::Lookup(a, v, s)),
        20 => (asid.clone(), va.clone(), size, any::<u32>(), any::<bool>())
            .prop_map(|(a, v, s, f, w)| TlbOp::Insert(a, v, s, u64::from(f) << 21, w)),
        2 => (asid.clone(), va.clone(), prop::sample::select(&PageSize::ALL[..]))
            .prop_map(|(a, v, s)| TlbOp::Page(a, v, s)),
        2 => (asid.clone(), va.clone(), prop_oneof![1u64..64 << 10, 1u64..64 << 20])
            .prop_map(|(a, v, b)| TlbOp::Range(a, v & !0xfff, b)),
        1 => asid.prop_map(TlbOp::Space),
    ]
}

proptest! {
    #[test]
    fn it_holds_what_lists_in_order_of_use_do(
        sets in prop::array::uniform2(1u32..40), steps in prop::collection::vec(step(), 1..800),
    ) {
        let mut tlb = PomTlb::new(&spec(4 * sets[0], 4 * sets[1]), BASES);
        let mut model = Model {
            sets: sets.map(u64::from),
            held: BTreeMap::new(),
            evictions: 0,
            invalidated: 0,
        };
        for s in steps {
            match s {
                TlbOp::Lookup(a, va, size) => {
                    prop_assert_eq!(tlb.lookup(Asid(a), va, size, 0), model.lookup(a, va, size));
                }
                TlbOp::Insert(a, va, size, frame, writable) => {
                    let entry = PomEntry { frame: PhysAddr(frame), writable };
                    tlb.insert(Asid(a), va, size, entry, 0);
                    model.insert(a, va, size, entry);
                }
                TlbOp::Page(a, va, size) => {
                    let page = VirtAddr(va).page(size);
                    tlb.invalidate(&Invalidation::Page { asid: Asid(a), page });
                    model.drop_range(a, page.base.0, page.base.0 + size.bytes());
                }
                TlbOp::Range(a, at, bytes) => {
                    tlb.invalidate(&Invalidation::Range { asid: Asid(a), at: VirtAddr(at), bytes });
                    model.drop_range(a, at, at + bytes);
                }
                TlbOp::Space(a) => {
                    tlb.invalidate(&Invalidation::Space { asid: Asid(a) });
                    model.drop_range(a, 0, 1 << 57);
                }
            }
            let stats = tlb.stats();
            prop_assert_eq!(stats.entries_4kb, model.used(PageSize::K4));
            prop_assert_eq!(stats.entries_2mb, model.used(PageSize::M2));
            prop_assert_eq!(stats.evictions, model.evictions);
            prop_assert_eq!(stats.invalidated, model.invalidated);
        }
    }
}

#[test]
fn a_set_is_a_line_and_neighbouring_pages_lie_in_neighbouring_lines() {
    let s = PomTlbSpec::default();
    assert_eq!(s.bytes(), [1 << 20, 1 << 20]);
    let tlb = PomTlb::new(&s, BASES);
    assert_eq!(tlb.stats().bytes, 2 << 20);
    for (size, base) in [
        (PageSize::K4, BASES[0]),
        (PageSize::M2, BASES[1]),
        (PageSize::G1, BASES[1]),
    ] {
        let held = PomTlb::held(size).bytes();
        for page in [0u64, 1, 16_383, 16_384, 100_000] {
            let line = base.0 + 64 * (page % 16_384);
            for va in [page * held, page * held + held - 1] {
                assert_eq!(tlb.line(va, size), PhysAddr(line), "{size} {page}");
            }
        }
    }
}

#[test]
fn an_entry_is_there_from_its_time_on() {
    let mut tlb = PomTlb::new(&spec(4, 4), BASES);
    let entry = PomEntry {
        frame: PhysAddr(0x7000),
        writable: true,
    };
    tlb.insert(Asid(1), 0x5123, PageSize::K4, entry, 100);
    let at = |tlb: &mut PomTlb, now| tlb.lookup(Asid(1), 0x5fff, PageSize::K4, now);
    assert_eq!((at(&mut tlb, 99), at(&mut tlb, 100)), (None, Some(entry)));
    assert_eq!(tlb.lookup(Asid(1), 0x5123, PageSize::M2, 100), None);
}

#[test]
fn an_impossible_size_is_refused_by_key() {
    for (s, key) in [
        (spec(0, 4), "entries_4kb"),
        (spec(4, 6), "entries_2mb"),
        (spec(4, 1 << 25), "entries_2mb"),
        (
            PomTlbSpec {
                size_predictor: 500,
                ..spec(4, 4)
            },
            "size_predictor",
        ),
    ] {
        let message = s.check().expect_err("impossible");
        assert!(message.to_string().starts_with(key), "{message}");
    }
}
