//! Victima: the times of its lookups, and what fills a block.

use pagewalk_memory::{Request, RequestKind};
use pagewalk_mmu::source::VictimaSpec;
use pagewalk_mmu::{ServedBy, TranslationSpec};
use pagewalk_tables::Invalidation;
use pagewalk_units::{Asid, PhysAddr};

use crate::common::{L2, L2_TLB, Memory};
use crate::cores::{Cores, DRAM, tiny};

const BLOCK: ServedBy = ServedBy::Source(0);

/// A core with 64 pages, whose levels hold one page each.
fn core(spec: VictimaSpec) -> Cores {
    let spec = TranslationSpec {
        victima: Some(spec),
        ..TranslationSpec::default()
    };
    let mut b = Cores::with(1, &tiny(), &spec);
    for page in 0..64 {
        b.small(page, page + 100);
    }
    b
}

fn own(b: &Cores, name: &str) -> u64 {
    b.get(0, "mmu.victima", name)
}

#[test]
fn one_walk_brings_the_translations_of_eight_pages() {
    let mut b = core(VictimaSpec::default());
    // The walk reads its entry from memory, so the page is worth a block.
    let first = b.translate(0, 8 << 12, 0);
    assert_eq!((first.ready, first.from), (L2_TLB + DRAM, ServedBy::Walk));
    for page in 9..16u64 {
        let now = page * 10_000;
        let answer = b.translate(0, page << 12, now);
        assert_eq!(
            (answer.ready, answer.from),
            (now + L2_TLB + L2, BLOCK),
            "{page}"
        );
    }
    // Pages of another block walk.
    assert_eq!(b.translate(0, 16 << 12, 500_000).from, ServedBy::Walk);
    assert_eq!((own(&b, "hits"), b.get(0, "mmu", "walks")), (7, 2));
}

#[test]
fn a_walk_ends_when_the_block_is_read() {
    let mut b = core(VictimaSpec::default());
    b.translate(0, 8 << 12, 0);
    b.translate(0, 9 << 12, 10_000);
    let asked = |b: &Cores, name| b.get(0, "mmu.victima.asked", name);
    assert_eq!(asked(&b, "walks_avoided"), 1);
    // The walk began with the lookup, and read the entry from the L2 meanwhile.
    assert_eq!(asked(&b, "walks_ended"), 1);
    assert_eq!(asked(&b, "ended_reads"), 1);
    assert_eq!(b.get(0, "mmu", "walk_reads"), 1);
}

#[test]
fn cheap_walks_fill_no_block() {
    let mut b = core(VictimaSpec {
        on_eviction: false,
        ..VictimaSpec::default()
    });
    // The first walk of the line is costly, those of its other pages find it in the L2.
    b.translate(0, 8 << 12, 0);
    assert_eq!(own(&b, "fills"), 1);
    b.shoot_down(&Invalidation::Space { asid: Asid(1) });
    b.translate(0, 9 << 12, 10_000);
    assert_eq!((own(&b, "fills"), own(&b, "refused")), (1, 1));
    // Page 8 was costly once, and is again worth a block.
    b.translate(0, 8 << 12, 20_000);
    assert_eq!((own(&b, "hits"), own(&b, "refused")), (0, 1));
    assert_eq!(b.translate(0, 10 << 12, 30_000).from, BLOCK);
}

/// Loads these lines of data, one each cycle from `now` on.
fn load(b: &mut Cores, now: u64, lines: impl Iterator<Item = u64>) {
    let mut below = Memory::new(DRAM);
    for (n, line) in lines.enumerate() {
        let request = Request {
            at: PhysAddr((1 << 36) + (line << 6)),
            kind: RequestKind::Load,
            core: 0,
            pc: 0,
        };
        let now = now + n as u64;
        b.cores[0].private.access(request, now, &mut below);
    }
}

/// Has loads replace all lines of the L2 of 1 MB, from `now` on.
fn replace_l2(b: &mut Cores, now: u64) {
    load(b, now, 0..1 << 15);
}

#[test]
fn an_entry_that_the_last_tlb_evicts_gets_a_block_again() {
    let of = |on_eviction| {
        let mut b = core(VictimaSpec {
            on_eviction,
            ..VictimaSpec::default()
        });
        b.translate(0, 8 << 12, 0);
        replace_l2(&mut b, 10_000);
        // The walk for page 32 evicts page 8.
        b.translate(0, 32 << 12, 200_000);
        (
            b.translate(0, 9 << 12, 300_000).from,
            own(&b, "fills_evicted"),
        )
    };
    assert_eq!(of(false), (ServedBy::Walk, 0));
    assert_eq!(of(true), (BLOCK, 1));
}

/// The hit of a source fills the TLBs, too. What they evict then is followed at once.
#[test]
fn an_entry_that_a_hit_evicts_gets_a_block_again() {
    let mut b = core(VictimaSpec::default());
    b.translate(0, 8 << 12, 0);
    b.translate(0, 32 << 12, 10_000);
    // Pages 32 to 39 are block 4. Its set of the L2, one of 2048, is replaced; block 1 stays.
    load(&mut b, 20_000, (0..16).map(|n| 2048 * n + 4));
    assert_eq!(b.translate(0, 9 << 12, 200_000).from, BLOCK);
    assert_eq!((own(&b, "gone"), own(&b, "fills_evicted")), (1, 1));
    assert_eq!(b.get(0, "mmu.victima.asked", "own_walks"), 1);
    assert_eq!(b.translate(0, 33 << 12, 300_000).from, BLOCK);
}

/// Has the core execute `instructions`.
fn execute(b: &mut Cores, instructions: u64) {
    let private = &mut b.cores[0].private;
    private.set_instructions(private.l2_use().instructions + instructions);
}

/// A cheap page is worth a block if the program's loads missed in the L2 more often than the
/// threshold, in the last window.
#[test]
fn misses_of_the_l2_bypass_the_predictor() {
    // 51 misses in 10,000 instructions, of which two are translations.
    for (loads, bypass_mpki, filled) in [
        (51, 5, true),
        (50, 5, false),
        (51, 6, false),
        (51, 0, false),
    ] {
        let mut b = core(VictimaSpec {
            bypass_mpki,
            on_eviction: false,
            ..VictimaSpec::default()
        });
        b.translate(0, 8 << 12, 0);
        load(&mut b, 1000, 0..loads);
        execute(&mut b, 9_998);
        b.shoot_down(&Invalidation::Space { asid: Asid(1) });
        // Its entry is in the L2, so its walk is cheap.
        b.translate(0, 9 << 12, 100_000);
        let expected = (u64::from(filled), u64::from(!filled));
        assert_eq!((own(&b, "bypassed"), own(&b, "refused")), expected);
        assert_eq!(own(&b, "windows"), 1);
        assert_eq!(own(&b, "windows_bypassed"), u64::from(filled));
    }
}

/// Lines that replace a set of the L2 leave its block there while the last TLB misses often.
#[test]
fn blocks_stay_under_translation_pressure() {
    for (executed, pressure_mpki, stays) in [(399, 5, true), (400, 5, false), (399, 0, false)] {
        let mut b = core(VictimaSpec {
            pressure_mpki,
            window: 300,
            ..VictimaSpec::default()
        });
        b.translate(0, 8 << 12, 0);
        execute(&mut b, executed - 2);
        // The second miss of the last TLB: two in `executed` instructions.
        b.translate(0, 32 << 12, 10_000);
        assert_eq!(own(&b, "windows"), 1);
        assert_eq!(own(&b, "windows_preferred"), u64::from(stays));
        // Pages 8 to 15 are block 1. Lines of the same set, one of 2048.
        load(&mut b, 20_000, (0..40).map(|n| 2048 * n + 1));
        let from = b.translate(0, 9 << 12, 300_000).from;
        assert_eq!(from == BLOCK, stays, "{from:?}");
    }
}

#[test]
fn the_l2_replaces_blocks_as_it_replaces_lines() {
    let mut b = core(VictimaSpec {
        pressure_mpki: 0,
        ..VictimaSpec::default()
    });
    b.translate(0, 8 << 12, 0);
    assert_eq!(b.translate(0, 9 << 12, 10_000).from, BLOCK);
    replace_l2(&mut b, 20_000);
    assert_eq!(b.translate(0, 10 << 12, 200_000).from, ServedBy::Walk);
    assert_eq!(own(&b, "gone"), 1);
}
