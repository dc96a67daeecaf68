//! Templates of hand-assembled sequences: ops, dependences, latencies, branches.

use pagewalk_ring::record;
use pagewalk_stream::{FlushKind, Op, OpClass, PrefetchHint, UNKNOWN_ADDRESS, flags};
use pagewalk_trace::x86::{Block, Recorded, Registers};
use proptest::prelude::*;

const AT: u64 = 0x40_0000;

/// A block from the bytes of its instructions.
fn block(instructions: &[&[u8]]) -> Block {
    let sizes: Vec<u8> = instructions.iter().map(|i| i.len() as u8).collect();
    Block::decode(AT, &sizes, &instructions.concat())
}

/// A block as the plugin sends it.
fn raw(instructions: &[&[u8]]) -> Vec<u8> {
    let mut raw = AT.to_le_bytes().to_vec();
    raw.extend((instructions.len() as u32).to_le_bytes());
    raw.extend(instructions.iter().map(|i| i.len() as u8));
    raw.extend(instructions.concat());
    raw
}

fn load(index: usize, address: u64) -> u64 {
    record::memory(index, false) | address
}

fn store(index: usize, address: u64) -> u64 {
    record::memory(index, true) | address
}

fn expand(b: &Block, records: &[u64], next: Option<u64>, r: &mut Registers) -> Vec<Op> {
    let mut out = Vec::new();
    b.expand(records, next, r, &mut out);
    out
}

const MOV_RAX_FROM_RAX: &[u8] = &[0x48, 0x8b, 0x00];
const MOV_RBX_FROM_RAX: &[u8] = &[0x48, 0x8b, 0x18];
const ADD_RAX_1: &[u8] = &[0x48, 0x83, 0xc0, 0x01];
const ADD_RAX_RBX: &[u8] = &[0x48, 0x01, 0xd8];
const IMUL_RAX_RAX: &[u8] = &[0x48, 0x0f, 0xaf, 0xc0];
const XOR_EAX_EAX: &[u8] = &[0x31, 0xc0];
const NOP: &[u8] = &[0x90];

#[test]
fn a_chain_of_loads_depends_on_the_load_before() {
    let b = block(&[MOV_RAX_FROM_RAX, MOV_RAX_FROM_RAX]);
    let mut r = Registers::default();
    let first = expand(&b, &[load(0, 0x1000), load(1, 0x2000)], None, &mut r);
    assert_eq!(first.len(), 2);
    assert_eq!(
        (first[0].kind, first[0].va, first[0].size),
        (OpClass::Load, 0x1000, 8)
    );
    assert_eq!(first[0].dep, [0, 0], "nobody has written rax yet");
    assert_eq!((first[1].dep, first[1].pc), ([1, 0], AT + 3));
    // Across the border of two blocks.
    let second = expand(&b, &[load(0, 0x3000), load(1, 0x4000)], None, &mut r);
    assert_eq!(second[0].dep, [1, 0]);
}

/// Kind, address, size and latency of the ops of one execution, without the one that joins the inputs.
fn repeated(code: &[u8], records: &[u64]) -> Vec<(OpClass, u64, u8, u8)> {
    let b = block(&[code]);
    let ops = expand(&b, records, None, &mut Registers::default());
    assert_eq!(ops.iter().map(|op| op.insns).sum::<u16>(), 1);
    ops.iter()
        .filter(|op| op.kind != OpClass::Compute || op.latency > 0)
        .map(|op| (op.kind, op.va, op.size, op.latency))
        .collect()
}

#[test]
fn a_repeated_string_instruction_moves_a_line_at_a_time() {
    use OpClass::{Compute, Load, Store};
    // rep movsb of 200 bytes from 0x1010 to 0x2000: the first access to each line, and the last one.
    let records = [
        load(0, 0x1010),
        store(0, 0x2000),
        load(0, 0x1040),
        store(0, 0x2040),
        load(0, 0x1080),
        store(0, 0x2080),
        load(0, 0x10c0),
        store(0, 0x20c0),
        load(0, 0x10d7),
        store(0, 0x20c7),
    ];
    let expected = [
        (Compute, 0, 0, 35),
        (Load, 0x1010, 48, 0),
        (Store, 0x2000, 64, 0),
        (Compute, 0, 0, 2),
        (Load, 0x1040, 64, 0),
        (Store, 0x2040, 64, 0),
        (Compute, 0, 0, 2),
        (Load, 0x1080, 64, 0),
        (Store, 0x2080, 64, 0),
        (Compute, 0, 0, 2),
        (Load, 0x10c0, 24, 0),
        (Store, 0x20c0, 8, 0),
        (Compute, 0, 0, 1),
    ];
    assert_eq!(repeated(&[0xf3, 0xa4], &records), expected);
    // rep stosq of one element, at the end of a page.
    assert_eq!(
        repeated(&[0xf3, 0x48, 0xab], &[store(0, 0x1ff8)]),
        [
            (Compute, 0, 0, 35),
            (Store, 0x1ff8, 8, 0),
            (Compute, 0, 0, 1)
        ]
    );
    // std; rep stosb of 70 bytes downwards.
    assert_eq!(
        repeated(
            &[0xf3, 0xaa],
            &[store(0, 0x1045), store(0, 0x103f), store(0, 0x1000)]
        ),
        [
            (Compute, 0, 0, 35),
            (Store, 0x1040, 6, 0),
            (Compute, 0, 0, 1),
            (Store, 0x1000, 64, 0),
            (Compute, 0, 0, 2)
        ]
    );
    // repne scasb of 10 bytes: 5/2 cycles each.
    assert_eq!(
        repeated(&[0xf2, 0xae], &[load(0, 0x1000), load(0, 0x1009)]),
        [
            (Compute, 0, 0, 15),
            (Load, 0x1000, 10, 0),
            (Compute, 0, 0, 25)
        ]
    );
    // repe cmpsb of 66 bytes: two streams of loads, 10/3 cycles each.
    let records = [
        load(0, 0x1000),
        load(0, 0x5020),
        load(0, 0x5040),
        load(0, 0x1040),
        load(0, 0x1041),
        load(0, 0x5061),
    ];
    assert_eq!(
        repeated(&[0xf3, 0xa6], &records),
        [
            (Compute, 0, 0, 16),
            (Load, 0x1000, 64, 0),
            (Load, 0x5020, 32, 0),
            (Compute, 0, 0, 214),
            (Load, 0x5040, 34, 0),
            (Load, 0x1040, 2, 0),
            (Compute, 0, 0, 7),
        ]
    );
}

#[test]
fn results_of_a_repeated_string_instruction_wait_for_its_end() {
    // rep stosb ; mov rbx, (rdi)
    let b = block(&[&[0xf3, 0xaa]]);
    let next = block(&[&[0x48, 0x8b, 0x1f]]);
    let mut r = Registers::default();
    let ops = expand(&b, &[store(0, 0x1000), store(0, 0x1040)], None, &mut r);
    // The last step is the last op, and the store before it names the step before.
    let [.., step, store, last] = &ops[..] else {
        panic!("{ops:?}");
    };
    assert_eq!(
        (step.kind, step.flags),
        (OpClass::Compute, flags::MICROCODE)
    );
    assert_eq!((store.kind, store.dep), (OpClass::Store, [1, 0]));
    assert_eq!((last.kind, last.dep), (OpClass::Compute, [2, 0]));
    assert_eq!(last.flags, flags::MICROCODE);
    let after = expand(&next, &[load(0, 0x1041)], None, &mut r);
    assert_eq!(after[0].dep, [1, 0]);
}

#[test]
fn a_software_prefetch_is_an_op_with_its_hint_and_the_producers_of_its_address() {
    let hints = [
        (&[0x0f, 0x18, 0x08][..], PrefetchHint::T0),
        (&[0x0f, 0x18, 0x10], PrefetchHint::T1),
        (&[0x0f, 0x18, 0x18], PrefetchHint::T2),
        (&[0x0f, 0x18, 0x00], PrefetchHint::Nta),
        (&[0x0f, 0x0d, 0x08], PrefetchHint::Write),
    ];
    for (code, hint) in hints {
        let b = block(&[MOV_RAX_FROM_RAX, code, MOV_RBX_FROM_RAX]);
        let mut r = Registers::default();
        let records = [load(0, 0x1000), load(1, 0x2040), load(2, 0x3000)];
        let ops = expand(&b, &records, None, &mut r);
        let kinds: Vec<_> = ops
            .iter()
            .map(|o| (o.kind, o.va, o.size, o.insns))
            .collect();
        let expected = [
            (OpClass::Load, 0x1000, 8, 1),
            (OpClass::Prefetch, 0x2040, hint as u8, 1),
            (OpClass::Load, 0x3000, 8, 1),
        ];
        assert_eq!(kinds, expected);
        assert_eq!((ops[1].dep, ops[2].dep), ([1, 0], [2, 0]));
    }
    // The plugin does not know every address.
    let b = block(&[&[0x0f, 0x18, 0x08]]);
    let records = [record::memory(0, false) | record::UNKNOWN_ADDRESS];
    let ops = expand(&b, &records, None, &mut Registers::default());
    assert_eq!(
        (ops[0].kind, ops[0].va),
        (OpClass::Prefetch, UNKNOWN_ADDRESS)
    );
}

#[test]
fn a_flush_is_an_op_with_its_kind_and_the_producers_of_its_address() {
    for (code, kind) in [
        (&[0x0f, 0xae, 0x38][..], FlushKind::Ordered),
        (&[0x66, 0x0f, 0xae, 0x38], FlushKind::Unordered),
        (&[0x66, 0x0f, 0xae, 0x30], FlushKind::WriteBack),
    ] {
        let b = block(&[MOV_RAX_FROM_RAX, code, MOV_RBX_FROM_RAX]);
        let records = [load(0, 0x1000), load(1, 0x2040), load(2, 0x3000)];
        let ops = expand(&b, &records, None, &mut Registers::default());
        let middle = (ops[1].kind, ops[1].va, ops[1].size, ops[1].insns);
        assert_eq!(middle, (OpClass::Flush, 0x2040, kind as u8, 1));
        assert_eq!((ops.len(), ops[1].dep, ops[2].dep), (3, [1, 0], [2, 0]));
        // Older recordings hold no addresses of flushes.
        let raw = raw(&[MOV_RAX_FROM_RAX, code, MOV_RBX_FROM_RAX]);
        let old = Recorded {
            flushes: false,
            ..Recorded::ALL
        };
        let b = Block::parse(&raw, old).unwrap();
        let records = [load(0, 0x1000), load(2, 0x3000)];
        let ops = expand(&b, &records, None, &mut Registers::default());
        assert!(ops.iter().all(|op| op.kind != OpClass::Flush));
        let loads = ops.iter().filter(|op| op.kind == OpClass::Load);
        assert_eq!(loads.map(|op| op.va).collect::<Vec<_>>(), [0x1000, 0x3000]);
    }
}

#[test]
fn stores_past_the_caches_are_marked_and_loads_with_that_hint_are_not() {
    let marked = |code: &[u8], records: &[u64]| {
        let ops = expand(&block(&[code]), records, None, &mut Registers::default());
        let op = ops.last().copied().unwrap();
        (op.kind, op.size, op.flags & flags::NON_TEMPORAL != 0)
    };
    // movnti, movntdq, movntps, vmovntdq of 32 bytes
    let nti = &[0x48, 0x0f, 0xc3, 0x18];
    assert_eq!(marked(nti, &[store(0, 64)]), (OpClass::Store, 8, true));
    let pair = [store(0, 64), store(0, 72)];
    for code in [&[0x66, 0x0f, 0xe7, 0x00][..], &[0x0f, 0x2b, 0x00]] {
        assert_eq!(marked(code, &pair), (OpClass::Store, 16, true));
    }
    let wide = [store(0, 64), store(0, 72), store(0, 80), store(0, 88)];
    let code = &[0xc5, 0xfd, 0xe7, 0x00];
    assert_eq!(marked(code, &wide), (OpClass::Store, 32, true));
    // movdqa and movntdqa
    let code = &[0x66, 0x0f, 0x7f, 0x00];
    assert_eq!(marked(code, &pair), (OpClass::Store, 16, false));
    let code = &[0x66, 0x0f, 0x38, 0x2a, 0x00];
    let records = [load(0, 64), load(0, 72)];
    assert_eq!(marked(code, &records), (OpClass::Load, 16, false));
    // sfence
    let ops = expand(
        &block(&[&[0x0f, 0xae, 0xf8]]),
        &[],
        None,
        &mut Registers::default(),
    );
    assert_eq!((ops[0].insns, ops[0].flags), (1, flags::STORE_FENCE));
}

#[test]
fn plain_instructions_are_folded_into_the_path() {
    // Two additions and a multiplication (1 + 1 + 3) between two loads.
    let b = block(&[
        MOV_RAX_FROM_RAX,
        ADD_RAX_1,
        ADD_RAX_1,
        IMUL_RAX_RAX,
        MOV_RBX_FROM_RAX,
    ]);
    let ops = expand(
        &b,
        &[load(0, 8), load(4, 16)],
        None,
        &mut Registers::default(),
    );
    assert_eq!(ops.len(), 2);
    assert_eq!((ops[1].dep, ops[1].dep_latency), ([1, 0], [5, 0]));
    assert_eq!((ops[0].insns, ops[1].insns), (1, 4));
}

#[test]
fn the_path_goes_on_in_the_next_block() {
    let b = block(&[MOV_RAX_FROM_RAX, ADD_RAX_1]);
    let c = block(&[ADD_RAX_1, MOV_RBX_FROM_RAX]);
    let mut r = Registers::default();
    let first = expand(&b, &[load(0, 8)], None, &mut r);
    // The load, and a `Compute` op that counts the addition after it.
    assert_eq!(first.iter().map(|o| o.insns).collect::<Vec<_>>(), [1, 1]);
    let second = expand(&c, &[load(1, 16)], None, &mut r);
    assert_eq!((second[0].dep[0], second[0].dep_latency[0]), (2, 2));
}

#[test]
fn a_cleared_register_waits_for_nothing() {
    let b = block(&[MOV_RAX_FROM_RAX, XOR_EAX_EAX, MOV_RBX_FROM_RAX]);
    let ops = expand(
        &b,
        &[load(0, 8), load(2, 16)],
        None,
        &mut Registers::default(),
    );
    assert_eq!(ops[1].dep, [0, 0]);
}

#[test]
fn two_makers_become_one_compute_op() {
    // rax and rbx are loaded and added, and the sum is an address.
    let b = block(&[MOV_RBX_FROM_RAX, MOV_RAX_FROM_RAX, ADD_RAX_RBX]);
    let mut r = Registers::default();
    let ops = expand(&b, &[load(0, 8), load(1, 16)], None, &mut r);
    assert_eq!(ops.len(), 3);
    assert_eq!((ops[2].kind, ops[2].latency), (OpClass::Compute, 1));
    let mut dep = ops[2].dep;
    dep.sort();
    assert_eq!(dep, [1, 2]);
    let next = expand(&block(&[MOV_RAX_FROM_RAX]), &[load(0, 24)], None, &mut r);
    assert_eq!((next[0].dep, next[0].dep_latency), ([1, 0], [0, 0]));
}

#[test]
fn a_read_modify_write_is_a_load_and_a_store_of_one_instruction() {
    // xor [rdi], rax
    let b = block(&[&[0x48, 0x31, 0x07]]);
    let ops = expand(
        &b,
        &[load(0, 64), store(0, 64)],
        None,
        &mut Registers::default(),
    );
    assert_eq!(
        ops.iter().map(|o| (o.kind, o.insns)).collect::<Vec<_>>(),
        [(OpClass::Load, 1), (OpClass::Store, 0)]
    );
    assert_eq!((ops[1].dep, ops[1].dep_latency), ([0, 1], [0, 1]));
}

#[test]
fn a_locked_one_drains_the_window_however_it_arrives() {
    // lock xadd [rdi], rax
    let b = block(&[&[0xf0, 0x48, 0x0f, 0xc1, 0x07]]);
    for records in [&[load(0, 64), store(0, 64)][..], &[store(0, 64)]] {
        let ops = expand(&b, records, None, &mut Registers::default());
        // The result of the addition may follow as a `Compute` op.
        let seen: Vec<_> = ops[..2].iter().map(|o| (o.kind, o.va)).collect();
        assert_eq!(seen, [(OpClass::Load, 64), (OpClass::Store, 64)]);
        assert_ne!(ops[0].flags & flags::SERIALISING, 0);
    }
}

#[test]
fn conditional_branches_wait_for_what_was_compared() {
    // mov rbx, [rax]; cmp rbx, 1; jne +16
    let b = block(&[MOV_RBX_FROM_RAX, &[0x48, 0x83, 0xfb, 0x01], &[0x75, 0x10]]);
    let target = b.end + 16;
    let taken = expand(&b, &[load(0, 8)], Some(target), &mut Registers::default());
    let branch = taken.last().unwrap();
    assert_eq!((branch.kind, branch.va), (OpClass::Branch, target));
    assert_eq!(branch.flags, flags::CONDITIONAL | flags::TAKEN);
    assert_eq!((branch.dep, branch.dep_latency), ([1, 0], [1, 0]));
    assert_eq!((branch.latency, branch.insns), (1, 2));
    let not = expand(&b, &[load(0, 8)], Some(b.end), &mut Registers::default());
    assert_eq!(not.last().unwrap().flags, flags::CONDITIONAL);
}

#[test]
fn calls_push_and_returns_pop() {
    // call +0x100
    let call = block(&[&[0xe8, 0x00, 0x01, 0x00, 0x00]]);
    let mut r = Registers::default();
    let ops = expand(&call, &[store(0, 0x7ff8)], Some(AT + 0x105), &mut r);
    assert_eq!(
        ops.iter().map(|o| (o.kind, o.insns)).collect::<Vec<_>>(),
        [(OpClass::Store, 1), (OpClass::Branch, 0)]
    );
    assert_eq!(
        (ops[1].flags, ops[1].va),
        (flags::CALL | flags::TAKEN, AT + 0x105)
    );
    let ret = block(&[&[0xc3]]);
    let ops = expand(&ret, &[load(0, 0x7ff8)], Some(AT + 5), &mut r);
    assert_eq!(
        (ops[1].flags, ops[1].va),
        (flags::RETURN | flags::INDIRECT | flags::TAKEN, AT + 5)
    );
    assert_eq!(ops[1].dep[0], 1, "the return waits for the address");
}

#[test]
fn the_stack_pointer_moves_without_waiting_for_the_data() {
    // pop rax; pop rbx
    let b = block(&[&[0x58], &[0x5b]]);
    let ops = expand(
        &b,
        &[load(0, 8), load(1, 16)],
        None,
        &mut Registers::default(),
    );
    assert_eq!((ops[0].dep, ops[1].dep), ([0, 0], [0, 0]));
}

#[test]
fn sixteen_bytes_arrive_in_two_records_and_are_one_op() {
    // movups xmm0, [rdi]; movups [rsi], xmm0
    let b = block(&[&[0x0f, 0x10, 0x07], &[0x0f, 0x11, 0x06]]);
    let records = [
        load(0, 0x100),
        load(0, 0x108),
        store(1, 0x200),
        store(1, 0x208),
    ];
    assert_eq!(b.records(), 4);
    let ops = expand(&b, &records, None, &mut Registers::default());
    assert_eq!(
        ops.iter().map(|o| (o.va, o.size)).collect::<Vec<_>>(),
        [(0x100, 16), (0x200, 16)]
    );
    assert_eq!(ops[1].dep, [0, 1]);
}

#[test]
fn a_repeated_string_instruction_with_nothing_to_do_accesses_nothing() {
    // rep movsb
    let b = block(&[&[0xf3, 0xa4]]);
    let some = expand(
        &b,
        &[load(0, 8), store(0, 64)],
        None,
        &mut Registers::default(),
    );
    assert_eq!(
        some.iter().filter(|o| o.kind != OpClass::Compute).count(),
        2
    );
    let none = expand(&b, &[], None, &mut Registers::default());
    assert!(none.iter().all(|o| o.kind == OpClass::Compute));
    assert_eq!(none.iter().map(|o| o.insns).sum::<u16>(), 1);
}

#[test]
fn a_faulting_access_ends_the_block_there() {
    let b = block(&[MOV_RBX_FROM_RAX, MOV_RAX_FROM_RAX, MOV_RAX_FROM_RAX]);
    let ops = expand(&b, &[load(0, 8)], None, &mut Registers::default());
    assert_eq!(ops.len(), 1);
}

#[test]
fn an_access_that_the_template_does_not_know_is_not_lost() {
    let b = block(&[NOP]);
    let ops = expand(&b, &[store(0, 0x500)], None, &mut Registers::default());
    assert!(
        ops.iter()
            .any(|o| o.kind == OpClass::Store && o.va == 0x500)
    );
}

#[test]
fn long_chains_are_cut_before_they_cannot_be_named() {
    let b = block(&[ADD_RAX_1]);
    let mut r = Registers::default();
    expand(&block(&[MOV_RAX_FROM_RAX]), &[load(0, 8)], None, &mut r);
    let mut total = 0;
    for _ in 0..1000 {
        for op in expand(&b, &[], None, &mut r)
            .iter()
            .filter(|o| o.insns == 0)
        {
            total += u32::from(op.dep_latency[0]) + u32::from(op.latency);
        }
    }
    let last = expand(&block(&[MOV_RBX_FROM_RAX]), &[load(0, 8)], None, &mut r);
    assert_eq!(total + u32::from(last[0].dep_latency[0]), 1000);
}

#[test]
fn markers_are_found_where_they_are() {
    let begin = &[0x0f, 0x1f, 0x80, 0x01, 0x4d, 0x49, 0x53][..];
    let end = &[0x0f, 0x1f, 0x80, 0x02, 0x4d, 0x49, 0x53][..];
    let b = block(&[NOP, begin, ADD_RAX_1, end, NOP]);
    let found: Vec<_> = b.markers.iter().map(|m| (m.op, m.begin)).collect();
    assert_eq!(found, [(1, true), (2, false)]);
    let ops = expand(&b, &[], None, &mut Registers::default());
    assert_eq!(ops.iter().map(|o| o.insns).collect::<Vec<_>>(), [2, 2, 1]);
}

proptest! {
    /// With any code and records, every instruction counts once if the block runs to its end, and no op names a
    /// producer before the stream.
    #[test]
    fn any_code_expands(
        code in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..15), 1..40),
        noise in proptest::collection::vec(any::<u64>(), 0..60),
        rounds in 1usize..4,
    ) {
        let parts: Vec<&[u8]> = code.iter().map(Vec::as_slice).collect();
        let b = block(&parts);
        let mut r = Registers::default();
        let mut made = 0u64;
        for _ in 0..rounds {
            let ops = expand(&b, &noise, Some(AT), &mut r);
            for op in &ops {
                for d in op.dep {
                    prop_assert!(u64::from(d) <= made);
                }
                prop_assert!(op.kind == OpClass::Compute || op.kind == OpClass::Branch || (1..=64).contains(&op.size));
                made += 1;
            }
            prop_assert!(ops.iter().map(|o| usize::from(o.insns)).sum::<usize>() <= parts.len());
        }
    }
}

/// Integer operations, multiplications, vector operations and their multiplications of the ops.
fn work(ops: &[Op]) -> (i32, u32, u32, u32) {
    ops.iter().fold((0, 0, 0, 0), |(a, m, v, vm), op| {
        (
            a + i32::from(op.simple()) + i32::from(op.work.alu),
            m + u32::from(op.work.multiply),
            v + u32::from(op.work.vector),
            vm + u32::from(op.work.vector_multiply),
        )
    })
}

#[test]
fn ops_say_which_ports_their_instructions_take() {
    const CMP_RAX_RBX: &[u8] = &[0x48, 0x39, 0xd8];
    const JNE_NEXT: &[u8] = &[0x75, 0x00];
    const ADD_RAX_FROM_RBX: &[u8] = &[0x48, 0x03, 0x03];
    const ADD_AT_RBX_RAX: &[u8] = &[0x48, 0x01, 0x03];
    const MOV_AT_RBX_RAX: &[u8] = &[0x48, 0x89, 0x03];
    const MOV_RAX_RBX: &[u8] = &[0x48, 0x89, 0xd8];
    const MOV_EAX_1: &[u8] = &[0xb8, 1, 0, 0, 0];
    const LEA_RAX_RBX_1: &[u8] = &[0x48, 0x8d, 0x43, 0x01];
    const ADDSD_XMM0_XMM1: &[u8] = &[0xf2, 0x0f, 0x58, 0xc1];
    const MULSD_XMM0_XMM1: &[u8] = &[0xf2, 0x0f, 0x59, 0xc1];
    const FADD_ST_1: &[u8] = &[0xd8, 0xc1];
    let ops = |instructions: &[&[u8]], records: &[u64]| {
        let mut r = Registers::default();
        expand(&block(instructions), records, Some(AT), &mut r)
    };
    for (instructions, records, expected) in [
        (
            &[ADD_RAX_1, ADD_RAX_RBX, MOV_EAX_1][..],
            &[][..],
            (3, 0, 0, 0),
        ),
        (&[LEA_RAX_RBX_1], &[], (1, 0, 0, 0)),
        (&[IMUL_RAX_RAX, ADD_RAX_1], &[], (1, 1, 0, 0)),
        // Renaming executes these.
        (&[MOV_RAX_RBX, XOR_EAX_EAX, NOP], &[], (0, 0, 0, 0)),
        (&[ADDSD_XMM0_XMM1, MULSD_XMM0_XMM1], &[], (0, 0, 2, 1)),
        (&[FADD_ST_1], &[], (0, 0, 1, 0)),
        // A comparison executes with the branch behind it, and no longer with another between.
        (&[CMP_RAX_RBX, JNE_NEXT], &[], (0, 0, 0, 0)),
        (&[CMP_RAX_RBX, MOV_EAX_1, JNE_NEXT], &[], (2, 0, 0, 0)),
        // A plain load or store is one of its op only.
        (&[MOV_RAX_FROM_RAX], &[load(0, 64)], (0, 0, 0, 0)),
        (&[MOV_AT_RBX_RAX], &[store(0, 64)], (0, 0, 0, 0)),
        (&[ADD_RAX_FROM_RBX], &[load(0, 64)], (1, 0, 0, 0)),
        (
            &[ADD_AT_RBX_RAX, ADD_RAX_1, IMUL_RAX_RAX, JNE_NEXT],
            &[load(0, 64), store(0, 64)],
            (2, 1, 0, 0),
        ),
    ] {
        assert_eq!(
            work(&ops(instructions, records)),
            expected,
            "{instructions:x?}"
        );
    }
}
