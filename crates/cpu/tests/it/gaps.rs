//! Branches whose prediction is uncertain after a fast-forward.

use crate::bench::*;
use pagewalk_cpu::{CoreSpec, PredictorSpec};
use pagewalk_stream::{Op, flags};
use pagewalk_structures::StaleOutcomes;

/// Uncertain branches of the core.
fn branches(b: &Bench) -> StaleOutcomes {
    let found = b.core.stale().find(|(name, _)| *name == "branches");
    found.expect("there is a predictor").1
}

/// Number of uncertain branches among `ops`, run after a gap by a core that has run them before.
fn unknown(spec: &CoreSpec, ops: &[Op]) -> u64 {
    let mut b = Bench::new(spec);
    b.run(ops);
    assert_eq!(
        branches(&b),
        StaleOutcomes::default(),
        "nothing was fast-forwarded"
    );
    b.core.mark_stale(true);
    b.run(ops);
    let found = branches(&b);
    // Branches seen since the gap are certain.
    b.run(ops);
    assert_eq!(branches(&b), found);
    found.hits + found.misses
}

#[test]
fn a_branch_is_unknown_once_after_a_gap_whichever_others_there_are() {
    for apart in [4, 1 << 12, 1 << 13, 1 << 20] {
        let round = [branch(PC, true), branch(PC + apart, false)];
        let ops: Vec<Op> = round.into_iter().cycle().take(100).collect();
        assert_eq!(unknown(&spec(), &ops), 2, "{apart} bytes apart");
    }
}

#[test]
fn every_gap_makes_it_unknown_again() {
    let mut b = Bench::new(&spec());
    for gaps in 0..600 {
        b.run(&[branch(PC, true), branch(PC, true)]);
        let StaleOutcomes { hits, misses } = branches(&b);
        assert_eq!(hits + misses, gaps);
        b.core.mark_stale(false);
    }
}

#[test]
fn what_needs_no_guess_is_known() {
    let of = |flags: u8| Op {
        flags: flags | flags::TAKEN,
        ..branch(PC, true)
    };
    for (flags, count) in [
        (flags::CONDITIONAL, 1),
        (flags::INDIRECT, 1),
        (flags::INDIRECT | flags::CALL, 1),
        (flags::RETURN, 1),
        // The decoder knows their targets.
        (0, 0),
        (flags::CALL, 0),
    ] {
        assert_eq!(unknown(&spec(), &[of(flags)]), count, "{flags:x}");
        let perfect = CoreSpec {
            predictor: PredictorSpec::Perfect {},
            ..spec()
        };
        assert_eq!(unknown(&perfect, &[of(flags)]), 0, "{flags:x}");
    }
}
