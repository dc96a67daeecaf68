//! The same-page filter and the hints change no statistics, replacement or times.

use super::common::{Flat, Memory, array, caches, mmu};
use pagewalk_stats::Tree;
use pagewalk_tables::{Invalidation, View};
use pagewalk_units::{Access, Asid, PageSize, VirtAddr, rng};
use rand::RngExt;

use super::{Fault, Lookup, Mmu, NO_PAGE, Translated, WalkContext};
use crate::TlbReplacement;
use crate::level::TlbLevel;

/// State that determines an array's replacement.
type ReplacementState = (Vec<u64>, String);

fn run(
    fast: bool,
    perfect: bool,
    replacement: TlbReplacement,
) -> (Vec<Result<Translated, Fault>>, Tree, Vec<ReplacementState>) {
    let mut spec = mmu();
    spec.perfect = perfect;
    spec.l1d = [
        ("main".to_owned(), array(&[PageSize::K4], 16, 4, 1)),
        (
            "huge".to_owned(),
            array(&[PageSize::M2, PageSize::G1], 8, 8, 1),
        ),
    ]
    .into();
    spec.l2 = [("main".to_owned(), array(&PageSize::ALL, 96, 12, 7))].into();
    for level in [&mut spec.l1d, &mut spec.l1i, &mut spec.l2] {
        level.values_mut().for_each(|t| t.replacement = replacement);
    }
    let mut m = Mmu::new(&spec, 0).expect("possible");
    let mut private = caches(8);
    let mut memory = Memory::new(150);
    let mut r = rng(7, "test.filter");
    let mut answers = vec![];
    let (mut va, mut now) = (0u64, 0);
    let mut protected = false;
    for i in 0..60_000 {
        if r.random_range(0..4) == 0 {
            va = r.random_range(0..200u64) << 12 | u64::from(r.random_range(0..3u8)) << 31;
        }
        if r.random_range(0..500) == 0 {
            protected = !protected;
            m.invalidate(&Invalidation::Space { asid: Asid(1) });
        }
        let mut table = Flat::new(1 << 34);
        table.size = PageSize::ALL[(va >> 31) as usize % 3];
        table.writable = !protected;
        let access = [Access::Read, Access::Write, Access::Fetch][r.random_range(0..3)];
        now += r.random_range(0..60);
        let at = now + r.random_range(0..200);
        let asid = Asid(1 + (i >> 12 & 1) as u16);
        let lookup = Lookup {
            asid,
            va: VirtAddr(va + r.random_range(0..4096)),
            access,
            pc: 0,
            now: at,
        };
        let context = WalkContext {
            view: &View::Native(&table),
            tiers: None,
            private: &mut private,
            below: &mut memory,
        };
        answers.push(m.translate(lookup, context));
        if !fast {
            m.settle(0);
            m.settle(1);
            m.filter = [NO_PAGE; 2];
            m.remembered.fill((u64::MAX, 0));
            m.l1.iter_mut().for_each(TlbLevel::forget_hints);
            m.l2.iter_mut().flatten().for_each(|l| l.forget_hints());
        }
    }
    let mut tree = Tree::default();
    m.report("mmu", &mut tree);
    let orders =
        m.l1.iter()
            .chain(m.l2.iter().flatten().map(|l| &**l))
            .flat_map(|l| l.arrays.iter().map(|a| a.state()))
            .collect();
    (answers, tree, orders)
}

#[test]
fn filter_and_hints_change_nothing() {
    for (name, policy) in TlbReplacement::all() {
        for perfect in [false, true] {
            let (fast, slow) = (run(true, perfect, policy), run(false, perfect, policy));
            assert!(fast.0 == slow.0, "{name}: answers differ");
            assert_eq!(fast.1.rows, slow.1.rows, "{name}");
            assert_eq!(fast.2, slow.2, "{name}");
            assert!(fast.0.iter().any(|a| a.is_err()), "faults are among them");
        }
    }
}
