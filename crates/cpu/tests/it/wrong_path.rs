//! Wrong paths whose loads are known in closed form.

use std::sync::Arc;

use crate::bench::*;
use pagewalk_cpu::{Core, CoreSpec, WrongPathSpec};
use pagewalk_mmu::{Mmu, MmuSpec};
use pagewalk_stream::{Memory, Op, OpClass, ProgramMemory, flags};

fn with_wrong_path() -> CoreSpec {
    CoreSpec {
        wrong_path: WrongPathSpec {
            enabled: Some(true),
            blocks: 1 << 10,
            addresses: 1 << 16,
        },
        ..spec()
    }
}

/// A branch without pattern: its outcome is a bit of a hash.
fn coin(i: u64) -> bool {
    let h = i.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (h ^ h >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 60 & 1 == 1
}

fn at(pc: u64, op: Op) -> Op {
    Op { pc, ..op }
}

fn jump(pc: u64) -> Op {
    Op {
        flags: flags::TAKEN,
        ..branch(pc, true)
    }
}

fn fence() -> Op {
    Op {
        flags: flags::SERIALISING,
        ..compute(1, 1)
    }
}

fn wrong(b: &Bench, name: &str) -> u64 {
    b.get("core.0.wrong_path", name)
}

/// Levels of a tree above its leaves; each node is a page.
const LEVELS: u64 = 8;
/// Cycles that a comparison takes.
const COMPARE: u8 = 20;

/// Address of node `n` of the tree. Node `i` has the children `2i` and `2i + 1`.
fn node(n: u64) -> u64 {
    n << 12 | (n % 64) << 6
}

/// From the root to the leaf `leaf`: at each level the key is loaded, compared, and the
/// child's address loaded from the same line. Each level has code of its own.
fn descent(leaf: u64, out: &mut Vec<Op>) {
    let mut n = 1;
    for level in 0..LEVELS {
        let pc = |k: u64| PC + level * 0x40 + k * 4;
        // A left child has a jump between the load of its address and here.
        let left = n % 2 == 0;
        let address = match (level, left) {
            (0, _) => 0,
            (_, true) => 2,
            (_, false) => 1,
        };
        out.push(at(pc(0), after(load(node(n) + 0x28), address)));
        let right = leaf >> (LEVELS - 1 - level) & 1;
        let compare = after(branch(pc(1), right == 1), 1);
        out.push(Op {
            latency: COMPARE,
            ..compare
        });
        let address = if address == 0 { 0 } else { address + 2 };
        let child = after(load(node(n) + 0x10 + 8 * right), address);
        out.push(at(pc(2 + 2 * right), child));
        if right == 0 {
            out.push(jump(pc(3)));
        }
        n = 2 * n + right;
    }
    let address = if n % 2 == 0 { 2 } else { 1 };
    out.push(at(PC + LEVELS * 0x40, after(load(node(n) + 0x28), address)));
}

/// Fills the TLB with other pages, and drains the window.
fn flush(out: &mut Vec<Op>) {
    out.push(fence());
    out.extend((0..64).map(|i| at(PC - 64, load((1 << 30) + i * 4096 + i * 64))));
    out.push(fence());
}

/// First-level TLBs of 64 entries, and no second level.
fn small() -> MmuSpec {
    MmuSpec {
        l2: Default::default(),
        ..mmu()
    }
}

fn descents(b: &mut Bench, order: impl Iterator<Item = u64>) {
    let mut ops = vec![];
    for leaf in order {
        flush(&mut ops);
        descent(leaf, &mut ops);
    }
    b.run(&ops);
}

#[test]
fn the_other_child_is_walked_to_at_each_misprediction() {
    let leaves = 1 << LEVELS;
    let walks = |s: &CoreSpec| {
        let mut b = Bench::with(s, &small(), 256);
        // Every pointer has been used, often enough that code which uses each pointer once counts
        // as recurring.
        descents(&mut b, (0..8 * leaves).map(|i| i % leaves));
        let before = b.tree();
        descents(&mut b, (0..leaves).map(|i| i * 97 % leaves));
        let since = b.tree().since(&before);
        let of = |path: &str, name: &str| since.get(path, name);
        let missed = of("core.0", "mispredictions").expect("there");
        // Nearly half of the comparisons, whose outcomes are random.
        assert!(missed * 5 > leaves * LEVELS * 2, "{missed}");
        (
            of("core.0.mmu", "walks").expect("there"),
            of("core.0", "cycles").expect("there"),
            missed,
            ["episodes", "walks", "l1d_tlb_misses", "unknown_loads"]
                .map(|name| of("core.0.wrong_path", name)),
            since,
        )
    };
    let (without, _, missed, nothing, _) = walks(&spec());
    assert_eq!(nothing, [None; 4]);
    // Walks without wrong paths: each node of a descent and the 64 pages between two descents. The
    // page of the code stays in its TLB.
    assert_eq!(without, leaves * (LEVELS + 1 + 64));
    let (with, _, again, counts, since) = walks(&with_wrong_path());
    assert_eq!(missed, again, "prediction is the same");
    // The node's address is loaded from the same line as the key, and is ready with the key: long
    // before the comparison ends. Its page is in no TLB.
    assert_eq!(counts, [missed, missed, missed, 0].map(Some));
    assert_eq!(with, without + missed);
    // For each node: the loads of its address, of its key and, one level down, of the next address,
    // except for leaves. Later loads are too late.
    let of = |name| since.get("core.0.wrong_path", name).expect("there");
    let (loads, late) = (of("loads"), of("late_loads"));
    // The root's addresses are the same in the next descent.
    let sources = ["converged_loads", "constant_loads", "remembered_loads"].map(of);
    assert_eq!(loads, sources.iter().sum::<u64>());
    assert!(sources[2] * 2 > loads, "{sources:?}");
    let last = 3 * missed - loads;
    assert!(
        last * LEVELS / 2 < missed && missed < last * LEVELS * 2,
        "{last}"
    );
    assert!(
        late > missed * (LEVELS - 3) && late < missed * LEVELS,
        "{late}"
    );
}

/// Memory that holds the tree: the addresses of both children of each node.
#[derive(Debug)]
struct Tree;

impl Memory for Tree {
    fn read(&self, va: u64, into: &mut [u8]) -> bool {
        let n = va >> 12;
        let word = match va.wrapping_sub(node(n)) {
            0x10 => node(2 * n),
            0x18 => node(2 * n + 1),
            _ => return false,
        };
        into.copy_from_slice(&word.to_le_bytes());
        true
    }
}

#[test]
fn mispredictions_decide_if_the_configuration_does_not() {
    let spec = spec();
    let mut b = Bench::with(&spec, &small(), 256);
    let mmu = Mmu::new(&small(), 0).expect("possible");
    let core = Core::new(&spec, mmu, caches(256), 0).expect("possible");
    b.core = core.with_wrong_paths_by_need(&spec.wrong_path);
    let memory = ProgramMemory(Arc::new(Tree));
    // Half of the branches are mispredicted.
    let mut number = 0;
    let mut phase = |b: &mut Bench, branches: u64| {
        let before = wrong(b, "episodes");
        for _ in 0..200 {
            b.core.see(Some(&memory));
            let mut ops = vec![];
            for _ in 0..branches {
                let taken = coin(number);
                number += 1;
                ops.push(at(PC, compute((1000 / branches) as u16 - 1, 1)));
                ops.push(at(PC + 4, branch(PC + 4, taken)));
            }
            b.run(&ops);
        }
        wrong(b, "episodes") - before
    };
    assert_eq!(phase(&mut b, 4), 0, "two of a thousand");
    let half = 200 * 20 / 2;
    // All but those of the window that decides.
    let many = phase(&mut b, 20);
    assert!((half * 3 / 5..half * 4 / 5).contains(&many), "{many}");
    let few = phase(&mut b, 2);
    assert!(few < 80, "one of a thousand: {few}");
    assert_eq!(phase(&mut b, 2), 0, "the state rests");
    let again = phase(&mut b, 20);
    assert!(again > half / 2, "{again}");
}

#[test]
fn a_node_never_visited_is_reached_by_the_pointer_that_memory_holds() {
    let half = 1 << (LEVELS - 1);
    let walked = |memory: Option<ProgramMemory>| {
        let mut b = Bench::with(&with_wrong_path(), &small(), 256);
        b.core.see(memory.as_ref());
        // The left half alone is visited, then one descent of the right half.
        descents(&mut b, (0..8 * half).map(|i| i % half));
        let before = b.tree();
        descents(&mut b, (half..2 * half).map(|i| half + i * 97 % half));
        let since = b.tree().since(&before);
        let missed = since.get("core.0", "mispredictions").expect("there");
        let of = |name| since.get("core.0.wrong_path", name).expect("there");
        (
            missed,
            of("walks"),
            of("unknown_loads"),
            of("pointer_loads"),
        )
    };
    let (missed, learned, unknown, none) = walked(None);
    assert_eq!(none, 0);
    assert!(unknown > half, "{unknown}");
    assert!(learned < missed, "{learned} of {missed}");
    let memory = ProgramMemory(Arc::new(Tree));
    let (again, walks, unknown, pointers) = walked(Some(memory));
    assert_eq!(again, missed, "prediction is the same");
    assert_eq!(unknown, 0);
    // The first paths of the right half take a child's address from the left one.
    assert!((missed..missed * 51 / 50).contains(&walks), "{walks}");
    assert!(pointers >= missed - learned, "{pointers}");
}

#[test]
fn a_pointer_is_known_by_a_store_that_went_through_it() {
    let mut b = Bench::with(&with_wrong_path(), &small(), 256);
    let place = |i: u64| (1 << 32) + i * 0x4000;
    let variable = 1 << 20;
    let run = |b: &mut Bench, from: u64, rounds: u64| {
        let mut ops = vec![];
        for i in from..from + rounds {
            // The pointer is loaded, used for a store, and stored.
            ops.push(at(PC, load((1 << 31) + i % 512 * 8)));
            ops.push(at(PC + 4, after(store(place(i) + 0x20), 1)));
            let keep = Op {
                dep: [0, 2],
                ..store(variable)
            };
            ops.push(at(PC + 8, keep));
            ops.push(at(PC + 12, fence()));
            let slow = Op {
                latency: 200,
                ..branch(PC + 16, coin(i))
            };
            ops.push(slow);
            if coin(i) {
                ops.push(at(PC + 20, load(variable)));
                ops.push(at(PC + 24, after(load(place(i) + 0x2028), 1)));
            }
            ops.push(jump(PC + 28));
        }
        b.run(&ops);
    };
    run(&mut b, 0, 1000);
    let before = b.tree();
    run(&mut b, 1000, 1000);
    let since = b.tree().since(&before);
    let of = |name| since.get("core.0.wrong_path", name).expect("there");
    // This address was never read before and will not be read later.
    let walks = of("walks");
    assert_eq!(of("remembered_loads"), walks);
    assert!(walks > 150, "{walks}");
    // The right path provides the origin of the next pointer, until that path ends.
    assert!(of("unknown_loads") <= 1);
}

/// Ten loads on either side of a branch that waits for nothing.
fn ten_either_way(taken: bool) -> Vec<Op> {
    let arm = |i: u64| {
        let page = 16 * u64::from(taken) + i + 1;
        at(PC + 0x100 * page, load(page << 12))
    };
    let mut ops = vec![branch(PC, taken)];
    ops.extend((0..10).map(arm));
    ops.push(jump(PC + 0x20));
    ops
}

#[test]
fn no_load_begins_after_the_branch_is_resolved() {
    for latency in [1u64, 2, 3] {
        let mut b = Bench::with(&with_wrong_path(), &mmu(), 256);
        let ops: Vec<Op> = (0..4000)
            .flat_map(|i| {
                let mut ops = ten_either_way(coin(i));
                ops[0].latency = latency as u8;
                ops.insert(0, fence());
                ops
            })
            .collect();
        b.run(&ops[..ops.len() / 2]);
        let before = b.tree();
        b.run(&ops[ops.len() / 2..]);
        let since = b.tree().since(&before);
        let of = |name| since.get("core.0.wrong_path", name).expect("there");
        // The slots between the branch's dispatch and its resolution, four a cycle.
        let each = (4 * latency - 1).min(10);
        assert!(of("episodes") > 500);
        assert_eq!(of("instructions"), of("episodes") * (4 * latency - 1));
        assert_eq!(of("loads"), of("episodes") * each);
        // The right path soon reaches most of them.
        let constant = of("constant_loads");
        assert_eq!(constant + of("converged_loads"), of("loads"));
    }
}

#[test]
fn the_window_and_the_load_queue_bound_a_wrong_path() {
    let each = |rob: u32, load_queue: u32| {
        let s = CoreSpec {
            rob,
            load_queue,
            ..with_wrong_path()
        };
        let mut b = Bench::with(&s, &mmu(), 256);
        let ops: Vec<Op> = (0..4000)
            .flat_map(|i| {
                let mut ops = ten_either_way(coin(i));
                ops[0] = after(ops[0], 1);
                // Always from memory.
                ops.insert(0, load((1 << 32) + i * 4096));
                ops.insert(0, fence());
                ops
            })
            .collect();
        b.run(&ops);
        (wrong(&b, "instructions"), wrong(&b, "episodes"))
    };
    // The fence has retired, the branch has not. The load that it waits for retires a cycle before
    // the branch is resolved, and frees its entry.
    let (instructions, episodes) = each(6, 72);
    assert_eq!(instructions, 5 * episodes);
    let (instructions, episodes) = each(224, 8);
    assert_eq!(instructions, 8 * episodes);
    // The fence of the next round ends it.
    let (instructions, episodes) = each(224, 72);
    assert_eq!(instructions, 11 * episodes);
}

#[test]
fn an_unmapped_page_is_not_requested() {
    let mut b = Bench::with(&with_wrong_path(), &mmu(), 256);
    let slow = |taken| {
        let mut ops = ten_either_way(taken);
        ops[0].latency = 100;
        ops
    };
    for _ in 0..100 {
        b.run(&slow(false));
        b.run(&slow(true));
        b.run(&slow(true));
    }
    let ops: Vec<Op> = (0..200).flat_map(|_| slow(true)).collect();
    b.run(&ops);
    let before = b.tree();
    // The pages of one arm are unmapped; the branch is still predicted to go there.
    b.table.limit = 16 << 12;
    b.run(&slow(false));
    let since = b.tree().since(&before);
    let of = |path, name| since.get(path, name).expect("there");
    assert_eq!(of("core.0.wrong_path", "episodes"), 1);
    // As many as fit into the load queue, repeatedly around the loop.
    assert_eq!(of("core.0.wrong_path", "unmapped_loads"), 72);
    assert_eq!(of("core.0.mmu", "faults"), 0);
}

#[test]
fn where_the_paths_meet_again_addresses_are_those_of_the_right_one() {
    let cycles = |s: &CoreSpec| {
        let mut b = Bench::with(s, &perfect(), 256);
        // An array, whose index is in a register, and an arm of one instruction or none.
        let ops: Vec<Op> = (0..4000)
            .flat_map(|i| {
                let mut ops = vec![
                    at(PC, load((1 << 32) + i * 4096)),
                    after(branch(PC + 4, coin(i)), 1),
                ];
                if !coin(i) {
                    ops.push(at(PC + 8, compute(1, 1)));
                }
                ops.push(at(PC + 12, load((1 << 33) + i * 64)));
                ops.push(jump(PC + 16));
                ops
            })
            .collect();
        let cycles = b.run(&ops);
        (b, cycles)
    };
    let (_, without) = cycles(&spec());
    let (b, with) = cycles(&with_wrong_path());
    let loads = wrong(&b, "loads");
    assert!(loads > 2 * wrong(&b, "episodes"), "{loads}");
    assert_eq!(wrong(&b, "converged_loads"), loads);
    assert!(with * 4 < without * 3, "{with} {without}");
}

#[test]
fn warming_learns_too() {
    let mut b = Bench::with(&with_wrong_path(), &mmu(), 256);
    let ops: Vec<Op> = (0..400).flat_map(|i| ten_either_way(coin(i))).collect();
    b.warm(&ops);
    assert_eq!(wrong(&b, "episodes") + wrong(&b, "unknown_episodes"), 0);
    b.run(&ops);
    assert!(wrong(&b, "loads") > 200);
    assert_eq!(
        wrong(&b, "unknown_loads") + wrong(&b, "unknown_episodes"),
        0
    );
}

#[test]
fn the_cycle_stack_adds_up_and_the_program_is_the_same() {
    let run = |s: &CoreSpec| {
        let mut b = Bench::with(s, &mmu(), 256);
        let ops: Vec<Op> = (0..4000).flat_map(|i| ten_either_way(coin(i))).collect();
        b.run(&ops);
        let s = b.stats();
        let total = b.core.slots().total();
        assert_eq!(total.div_ceil(4), s.cycles);
        (s.instructions, s.loads, s.branches, s.mispredictions)
    };
    assert_eq!(run(&spec()), run(&with_wrong_path()));
}

#[test]
fn an_atomic_on_a_wrong_path_ends_it() {
    let mut b = Bench::with(&with_wrong_path(), &mmu(), 256);
    let ops: Vec<Op> = (0..1000)
        .flat_map(|i| {
            let mut ops = ten_either_way(coin(i));
            ops[0].latency = 100;
            ops[3].flags |= flags::SERIALISING;
            assert_eq!(ops[3].kind, OpClass::Load);
            ops
        })
        .collect();
    b.run(&ops);
    assert_eq!(wrong(&b, "instructions"), 2 * wrong(&b, "episodes"));
}

#[test]
fn impossible_tables_are_refused_by_key() {
    for (blocks, addresses, key) in [
        (1000, 1 << 16, "core.wrong_path.blocks"),
        (0, 1 << 16, "core.wrong_path.blocks"),
        (1024, 1000, "core.wrong_path.addresses"),
    ] {
        let s = CoreSpec {
            wrong_path: WrongPathSpec {
                enabled: Some(true),
                blocks,
                addresses,
            },
            ..spec()
        };
        let m = Mmu::new(&mmu(), 0).expect("possible");
        let message = Core::new(&s, m, caches(4), 0).err().expect("refused");
        assert!(message.to_string().contains(key), "{message}");
    }
}
