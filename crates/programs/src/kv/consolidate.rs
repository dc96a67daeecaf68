//! `malloc_consolidate` of glibc 2.36: merges the chunks of the fast bins. It runs on a request of at least 1
//! KiB, when the heap grows, or when a chunk next to the end of the heap is freed.
//!
//! Per chunk, from the disassembly. A free neighbour is unlinked from its list first:
//!
//! ```text
//! 0a6 test ; jne ; mov 8(%rbx) ; … c0 cmp ; jne ; mov 0x10(%rbx) ; … e3 mov 8(%rax) ; xor ; mov ; and ; and ; f4 jne 140
//!   f6 mov (%rbx) ; sub ; add ; ff mov 8(%rbx) ; and ; cmp ; jne ; four words kept ; 127 call unlink ; the four words
//! 140 cmp end ; 144 jne 50 : 14a add ; or ; mov to 8(%rbx) ; mov to end ; 159 jmp 9e
//!   050 testb 8(%rax,%r10) ; je 160 ; and ; 60 mov to 8(%rax) ; 160 mov ; mov ; add ; 16b call unlink ; mov ; 175 jmp 64
//!   064 mov unsorted ; mov to it ; movq ; 71 mov to 0x18 of the first ; movhps ; cmp ; jbe ; movups ; movups ; or ; mov ; 9a mov size
//! 09e cmp ; je ; a3 mov
//! unlink 00 sub ; mov 8(%rdi) ; mov ; and ; f cmp (%rdi,%rax) ; jne ; movdqu 0x10(%rdi) ; mov 0x18(%rdi) ; movq
//!   27 cmp 0x18(%rax) ; jne ; cmp 0x10(%rdx) ; jne ; mov 0x10(%rdi) ; mov ; movq ; cmp ; 47 jbe 71 ; mov 0x20(%rdi) ; test ; je ; 71 add ; ret
//! ```

use pagewalk_stream::flags::TAKEN;

use super::emit::{Emit, Library};
use super::globals::ARENA;
use crate::heap::Merged;
use crate::thread::{NONE, Value};

/// `malloc_consolidate` and `unlink_chunk`, behind `_int_malloc`.
const CODE: u64 = Library::Malloc.code() + 0x1600;
const UNLINK: u64 = Library::Malloc.code() + 0x1540;
/// The end of the heap and the unsorted list, at the same addresses as in `malloc`.
const TOP: u64 = ARENA + 0x460;
const UNSORTED: u64 = ARENA + 0x470;
/// Chunks from this size on have two more links.
const LARGE: u64 = 0x400;

/// Merges one chunk. `first` holds the first chunk of the unsorted list, and the value that produces the
/// pointer to this chunk. Both are updated for the next chunk.
///
/// The list neighbours of a free neighbour are not tracked: its links are taken to lead to `first` and to the
/// head of the list. A chunk behind that is in use is taken to be as long as this one.
pub fn consolidate<E: Emit>(e: &mut E, merged: &Merged, first: &mut (u64, Value), sp: u64) {
    let Merged { at, size, .. } = *merged;
    let ready = first.1;
    e.branch(CODE + 0xa9, CODE + 0x180, 3, false, [ready, NONE]);
    let head = e.load(CODE + 0xaf, 1, at, 8, [ready, NONE]);
    e.branch(CODE + 0xc3, CODE + 0x19c, 6, false, [head, NONE]);
    let next = e.load(CODE + 0xcc, 2, at + 8, 8, [ready, NONE]);
    let behind = e.load(CODE + 0xe3, 6, at + size, 8, [head, NONE]);
    let alone = merged.before.is_none();
    e.branch(CODE + 0xf4, CODE + 0x140, 5, alone, [head, NONE]);
    let (mut start, mut length) = (at, size);
    if let Some((from, bytes)) = merged.before {
        let distance = e.load(CODE + 0xf6, 1, at - 8, 8, [ready, NONE]);
        let its = e.load(CODE + 0xff, 3, from, 8, [distance, NONE]);
        e.branch(CODE + 0x10a, CODE + 0x190, 3, false, [its, distance]);
        for (i, insns) in [2, 1, 1, 1].into_iter().enumerate() {
            let i = i as u64;
            e.store(CODE + 0x113 + 5 * i, insns, sp + 8 + 8 * i, 8, NONE, NONE);
        }
        unlink(e, (CODE + 0x127, 1), (from, bytes, its), first.0, sp);
        for i in 0..4 {
            e.load(CODE + 0x12c + 5 * i, 1, sp + 8 + 8 * i, 8, [NONE; 2]);
        }
        (start, length) = (from, bytes + size);
    }
    let end = e.load(CODE + 0x140, 0, TOP, 8, [NONE; 2]);
    e.branch(CODE + 0x144, CODE + 0x50, 2, !merged.last, [end, NONE]);
    if merged.last {
        e.store(CODE + 0x151, 3, start, 8, ready, behind);
        e.store(CODE + 0x155, 1, TOP, 8, NONE, ready);
        e.jump(CODE + 0x159, CODE + 0x9e, 1, TAKEN, [NONE; 2]);
    } else {
        let after = at + size + merged.behind.unwrap_or(size);
        let used = e.load(CODE + 0x50, 0, after, 1, [behind, NONE]);
        let free = merged.behind.is_some();
        e.branch(CODE + 0x56, CODE + 0x160, 2, free, [used, NONE]);
        if let Some(bytes) = merged.behind {
            e.store(CODE + 0x163, 2, sp + 8, 8, NONE, NONE);
            unlink(
                e,
                (CODE + 0x16b, 2),
                (at + size, bytes, behind),
                first.0,
                sp,
            );
            e.load(CODE + 0x170, 1, sp + 8, 8, [NONE; 2]);
            e.jump(CODE + 0x175, CODE + 0x64, 1, TAKEN, [NONE; 2]);
            length += bytes;
        } else {
            e.store(CODE + 0x60, 2, at + size, 8, head, behind);
        }
        let old = e.load(CODE + 0x64, 1, UNSORTED, 8, [NONE; 2]);
        e.store(CODE + 0x68, 1, UNSORTED, 8, NONE, ready);
        e.store(CODE + 0x71, 2, first.0 + 16, 8, old, ready);
        e.load(CODE + 0x75, 1, sp, 8, [NONE; 2]);
        e.branch(CODE + 0x81, CODE + 0x8b, 2, length < LARGE, [head, NONE]);
        if length >= LARGE {
            e.store(CODE + 0x87, 2, start + 24, 16, ready, NONE);
        }
        e.store(CODE + 0x8e, 2, start + 8, 16, ready, old);
        e.store(CODE + 0x96, 2, start, 8, ready, head);
        e.store(CODE + 0x9a, 1, start + length - 8, 8, ready, head);
        first.0 = start;
    }
    e.branch(CODE + 0xa1, CODE + 0x30, 2, false, [next, NONE]);
    first.1 = next.plus(1);
}

/// Unlinks a free chunk from its list.
fn unlink<E: Emit>(
    e: &mut E,
    (site, insns): (u64, u16),
    (at, size, ready): (u64, u64, Value),
    linked: u64,
    sp: u64,
) {
    e.call(site, UNLINK, insns, sp);
    let head = e.load(UNLINK + 0x4, 2, at, 8, [NONE; 2]);
    let again = e.load(UNLINK + 0xf, 3, at + size - 8, 8, [head, NONE]);
    e.branch(UNLINK + 0x13, UNLINK + 0xc2, 1, false, [again, head]);
    let next = e.load(UNLINK + 0x19, 1, at + 8, 16, [ready, NONE]);
    let before = e.load(UNLINK + 0x1e, 1, at + 16, 8, [ready, NONE]);
    let back = e.load(UNLINK + 0x27, 2, linked + 16, 8, [next, NONE]);
    e.branch(UNLINK + 0x2b, UNLINK + 0xa8, 1, false, [back, NONE]);
    let forth = e.load(UNLINK + 0x2d, 1, UNSORTED, 8, [before, NONE]);
    e.branch(UNLINK + 0x31, UNLINK + 0xa8, 1, false, [forth, NONE]);
    e.load(UNLINK + 0x33, 1, at + 8, 8, [ready, NONE]);
    e.store(UNLINK + 0x37, 1, linked + 16, 8, next, before);
    e.store(UNLINK + 0x3b, 1, UNSORTED, 8, before, next);
    let small = size < LARGE;
    e.branch(UNLINK + 0x47, UNLINK + 0x71, 2, small, [head, NONE]);
    if !small {
        // The chunk is not sorted yet, and has no such links.
        let link = e.load(UNLINK + 0x49, 1, at + 24, 8, [ready, NONE]);
        e.branch(UNLINK + 0x50, UNLINK + 0x71, 2, true, [link, NONE]);
    }
    e.ret(UNLINK + 0x75, site, 2, sp);
}

#[cfg(test)]
mod tests {
    use super::consolidate;
    use crate::heap::{Heap, Merged};
    use crate::kv::emit::Emit;
    use crate::thread::{NONE, Value};

    /// Counts of instructions, loads and stores.
    #[derive(Default)]
    struct Counts(u16, u16, u16);

    impl Emit for Counts {
        const LOUD: bool = true;

        fn load(&mut self, _: u64, insns: u16, _: u64, _: u8, _: [Value; 2]) -> Value {
            self.0 += insns;
            self.1 += 1;
            NONE
        }
        fn store(&mut self, _: u64, insns: u16, _: u64, _: u8, _: Value, _: Value) {
            self.0 += insns;
            self.2 += 1;
        }
        fn compute(&mut self, _: u64, insns: u16, _: u8, _: [Value; 2]) -> Value {
            self.0 += insns;
            NONE
        }
        fn prefetch(&mut self, _: u64, insns: u16, _: u64, _: [Value; 2]) {
            self.0 += insns;
        }
        fn jump(&mut self, _: u64, _: u64, insns: u16, _: u8, _: [Value; 2]) {
            self.0 += insns;
        }
        fn emit_heap_events(&mut self, _: &mut Heap) {}
    }

    /// Counts from the listing of glibc 2.36-9+deb12u14.
    #[test]
    fn a_chunk_takes_the_instructions_of_its_way() {
        let alone = Merged {
            at: 0x1000,
            size: 48,
            before: None,
            behind: None,
            last: false,
        };
        let count = |merged| {
            let mut counts = Counts::default();
            consolidate(&mut counts, &merged, &mut (0x9000, NONE), 0x8000);
            (counts.0, counts.1, counts.2)
        };
        let before = Some((0xf00, 0x100));
        let behind = Some(0x100);
        assert_eq!(count(alone), (43, 7, 6));
        assert_eq!(count(Merged { before, ..alone }), (43 + 37, 7 + 14, 6 + 7));
        // Two links of a large neighbour, and two of the merged chunk that becomes large.
        let large = Some((0xc00, 0x400));
        assert_eq!(
            count(Merged {
                before: large,
                ..alone
            })
            .0,
            43 + 37 + 3 + 2
        );
        assert_eq!(count(Merged { behind, ..alone }).0, 43 - 2 + 26);
        assert_eq!(
            count(Merged {
                last: true,
                ..alone
            }),
            (32, 4, 2)
        );
    }
}
