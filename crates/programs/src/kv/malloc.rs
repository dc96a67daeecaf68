//! Allocation and deallocation: `operator new`, glibc 2.36's `malloc` and `free`.
//!
//! Addresses are the heap's. The emitted instructions are those of the common paths. Arguments as in
//! `libc.rs`.

use super::emit::{Emit, Library};
use super::globals::ARENA;
use crate::heap::{Bin, Heap, LISTED_EACH};
use crate::thread::{NONE, Value};

/// `__libc_single_threaded`.
const SINGLE_THREADED: u64 = ARENA + 1;

/// `operator new`: address of a new object of `bytes`.
#[inline(always)]
pub fn new<E: Emit>(
    e: &mut E,
    heap: &mut Heap,
    (pc, insns): (u64, u16),
    bytes: u64,
    sp: u64,
) -> (u64, Value) {
    e.call_library(pc, Library::New, insns, sp);
    new_body(e, heap, pc, bytes, sp)
}

/// The rest of `operator new`, which returns to the instruction after the call at `site`.
///
/// ```text
/// 00 endbr64 ; test ; mov ; push %rbx ; cmovne ; mov ; mov ; 17 call malloc
/// 1c test ; je ; pop %rbx ; ret
/// ```
#[inline(always)]
pub fn new_body<E: Emit>(
    e: &mut E,
    heap: &mut Heap,
    site: u64,
    bytes: u64,
    sp: u64,
) -> (u64, Value) {
    let code = Library::New.code();
    e.store(code + 0xc, 4, sp - 16, 8, NONE, NONE);
    let got = malloc(e, heap, (code + 0x17, 4), bytes, sp - 16);
    e.branch(code + 0x1f, code + 0x23, 2, false, [got.1, NONE]);
    e.load(code + 0x21, 1, sp - 16, 8, [NONE; 2]);
    e.ret(code + 0x22, site, 1, sp);
    got
}

/// `malloc`: from the thread cache if possible, else from the fast bin, else from the end of the heap after a
/// search of the bins. A split free chunk, or one from the kernel, costs as much as the end of the heap.
#[inline(always)]
pub fn malloc<E: Emit>(
    e: &mut E,
    heap: &mut Heap,
    (pc, insns): (u64, u16),
    bytes: u64,
    sp: u64,
) -> (u64, Value) {
    // jemalloc's thread cache has a list per size, filled in advance.
    let listed = E::LOUD && (heap.is_listed(bytes) || !heap.has_headers());
    let stashed = if E::LOUD {
        heap.is_stashed(bytes)
    } else {
        None
    };
    let at = heap.malloc(bytes);
    if !E::LOUD {
        return (at, NONE);
    }
    e.emit_heap_events(heap);
    let code = Library::Malloc.code();
    e.call_library(pc, Library::Malloc, insns, sp);
    e.push(code, 3, sp - 8);
    let set_up = e.load(code + 0xb, 3, ARENA, 1, [NONE; 2]);
    e.branch(code + 0x12, code + 0x210, 1, false, [set_up, NONE]);
    e.branch(code + 0x1b, code + 0x21e, 2, false, [NONE; 2]);
    e.branch(code + 0x2b, code + 0x39, 4, false, [NONE; 2]);
    let offset = e.load(code + 0x39, 4, ARENA + 8, 8, [NONE; 2]);
    let lists = e.load(code + 0x40, 1, ARENA + 0x10, 8, [offset, NONE]);
    e.branch(code + 0x48, code + 0x108, 2, false, [lists, NONE]);
    let limit = e.load(code + 0x4e, 1, ARENA + 0x18, 8, [NONE; 2]);
    e.branch(code + 0x55, code + 0x140, 1, true, [limit, NONE]);
    let size = crate::heap::chunk(bytes) / 16;
    let count = e.load(
        code + 0x140,
        1,
        ARENA + 0x100 + 2 * (size % 64),
        2,
        [lists, NONE],
    );
    e.branch(code + 0x147, code + 0x5b, 2, !listed, [count, NONE]);
    let got = if listed {
        // 149 head of the list; its successor becomes the head.
        let head_at = ARENA + 0x180 + 8 * (size % 64);
        let head = e.load(code + 0x149, 2, head_at, 8, [lists, NONE]);
        let next = e.load(code + 0x158, 5, at, 8, [head, NONE]);
        e.store(code + 0x162, 2, head_at, 8, lists, next.plus(1));
        e.store(
            code + 0x168,
            1,
            ARENA + 0x100 + 2 * (size % 64),
            2,
            lists,
            count.plus(1),
        );
        e.store(code + 0x16c, 1, at + 8, 8, head, NONE);
        head
    } else {
        from_bins(e, (at, size), stashed.as_deref(), sp - 8 - 24 - 16)
    };
    e.pop(code + 0xfc, 3, sp - 8);
    e.ret(code + 0x100, pc, 1, sp);
    (at, got)
}

/// `_int_malloc` for an object at `at` of `size` units of 16 bytes. It takes a chunk of the fast bin, with
/// the chunks that move to the thread cache, or else one from the end of the heap. Code is at the offsets of
/// the listing.
fn from_bins<E: Emit>(
    e: &mut E,
    (at, size): (u64, u64),
    stashed: Option<&[u64]>,
    sp: u64,
) -> Value {
    let malloc = Library::Malloc.code();
    let (code, site) = (malloc + 0x600, malloc + 0x195);
    e.load(malloc + 0x5b, 1, SINGLE_THREADED, 1, [NONE; 2]);
    e.branch(malloc + 0x62, malloc + 0x188, 1, true, [NONE; 2]);
    e.call(site, code, 4, sp);
    e.branch(code + 0x3, code + 0x600, 2, false, [NONE; 2]);
    e.push(code + 0x9, 6, sp - 8);
    let frame = sp - 8 - 48 - 0x28;
    e.branch(code + 0x25, code + 0x3f0, 6, false, [NONE; 2]);
    e.branch(code + 0x32, code + 0x61d, 3, false, [NONE; 2]);
    e.load(code + 0x38, 1, ARENA + 0x20, 8, [NONE; 2]);
    e.branch(code + 0x3f, code + 0x1b8, 1, false, [NONE; 2]);
    let bin = ARENA + 0x400 + 8 * (size % 16);
    let first = e.load(code + 0x5c, 7, bin, 8, [NONE; 2]);
    e.branch(
        code + 0x63,
        code + 0x55c,
        2,
        stashed.is_none(),
        [first, NONE],
    );
    let got = match stashed {
        Some(stashed) => fast_bin(e, (at, size), first, stashed),
        None => end_of_heap(e, at, size, frame),
    };
    e.load(code + 0x5dd, 3, sp - 56, 8, [NONE; 2]);
    e.pop(code + 0x5de, 5, sp - 8);
    e.ret(code + 0x5e7, site, 1, sp);
    e.branch(site + 8, code + 0x22c, 2, false, [got, NONE]);
    let head = e.load(site + 0xe, 1, at - 8, 8, [got, NONE]);
    e.branch(site + 0x15, malloc + 0xf8, 2, false, [head, NONE]);
    e.branch(site + 0x1e, malloc + 0xf8, 2, true, [head, NONE]);
    got
}

/// Takes the first chunk of a fast bin. More chunks of it, at `stashed`, move to the thread cache until that
/// is full or the bin empty.
///
/// ```text
/// 06c jne ; 75 cmpb $0,single_threaded ; … 8d xor 0x10(%rdx) ; 91 mov to bin ; 95 mov 8(%rdx)
/// 0b4 mov %fs:tcache ; … ce movzwl count ; d2 cmp limit ; dd jb 136
/// 0e8 lea ; ec mov 0x10(%rdx) ; … fa mov to bin ; fe mov key ; 105 mov to 0x18(%rdx)
/// 109 mov %fs:tcache ; 10d movzwl count ; 112 xor head ; 116 mov to 0x10(%rdx)
/// 11d mov to head ; 121 mov to count ; 129 cmp limit ; 130 jae 5c8
/// 136 mov bin ; 13d je 5c8 ; 146 jne ; 14c cmpb $0,single_threaded ; 153 jne e8
/// 5c8 mov perturb ; 5d0 jne
/// ```
fn fast_bin<E: Emit>(e: &mut E, (at, size): (u64, u64), first: Value, stashed: &[u64]) -> Value {
    /// `tcache_count` and `tcache_key`.
    const LIMIT: u64 = ARENA + 0x40;
    const MARK: u64 = ARENA + 0x48;
    let code = Library::Malloc.code() + 0x600;
    let bin = ARENA + 0x400 + 8 * (size % 16);
    let count_at = ARENA + 0x100 + 2 * (size % 64);
    let head_at = ARENA + 0x180 + 8 * (size % 64);
    e.branch(code + 0x6c, code + 0x918, 2, false, [first, NONE]);
    e.load(code + 0x75, 2, SINGLE_THREADED, 1, [NONE; 2]);
    e.branch(code + 0x7c, code + 0x198, 1, false, [NONE; 2]);
    let next = e.load(code + 0x8d, 4, at, 8, [first, NONE]);
    e.store(code + 0x91, 1, bin, 8, NONE, next);
    let head = e.load(code + 0x95, 1, at - 8, 8, [first, NONE]);
    e.branch(code + 0x9f, code + 0x890, 3, false, [head, NONE]);
    let offset = e.load(code + 0xa5, 1, ARENA + 8, 8, [NONE; 2]);
    let lists = e.load(code + 0xb4, 3, ARENA + 0x10, 8, [offset, NONE]);
    e.branch(code + 0xbb, code + 0x5c8, 2, false, [lists, NONE]);
    e.load(code + 0xc1, 1, ARENA + 0x18, 8, [NONE; 2]);
    e.branch(code + 0xc8, code + 0x5c8, 1, false, [NONE; 2]);
    let count = e.load(code + 0xce, 1, count_at, 2, [lists, NONE]);
    e.load(code + 0xd2, 1, LIMIT, 8, [NONE; 2]);
    e.branch(code + 0xdd, code + 0x136, 2, true, [count, NONE]);
    let mut left = stashed;
    loop {
        let chunk = e.load(code + 0x136, 1, bin, 8, [NONE; 2]);
        e.branch(
            code + 0x13d,
            code + 0x5c8,
            2,
            left.is_empty(),
            [chunk, NONE],
        );
        let Some((object, rest)) = left.split_first() else {
            break;
        };
        left = rest;
        e.branch(code + 0x146, code + 0x7f0, 2, false, [chunk, NONE]);
        e.load(code + 0x14c, 1, SINGLE_THREADED, 1, [NONE; 2]);
        e.branch(code + 0x153, code + 0xe8, 1, true, [NONE; 2]);
        let next = e.load(code + 0xec, 2, *object, 8, [chunk, NONE]);
        e.store(code + 0xfa, 4, bin, 8, NONE, next.plus(1));
        let mark = e.load(code + 0xfe, 1, MARK, 8, [NONE; 2]);
        e.store(code + 0x105, 1, object + 8, 8, chunk, mark);
        let lists = e.load(code + 0x109, 1, ARENA + 0x10, 8, [offset, NONE]);
        let count = e.load(code + 0x10d, 1, count_at, 2, [lists, NONE]);
        let old = e.load(code + 0x112, 1, head_at, 8, [lists, NONE]);
        e.store(code + 0x116, 1, *object, 8, chunk, old.plus(1));
        e.store(code + 0x11d, 2, head_at, 8, lists, chunk.plus(1));
        e.store(code + 0x121, 1, count_at, 2, lists, count.plus(1));
        e.load(code + 0x129, 2, LIMIT, 8, [NONE; 2]);
        let full = stashed.len() - left.len() == LISTED_EACH;
        e.branch(code + 0x130, code + 0x5c8, 1, full, [count.plus(2), NONE]);
        if full {
            break;
        }
    }
    e.load(code + 0x5c8, 1, ARENA + 0x28, 4, [NONE; 2]);
    e.branch(code + 0x5d0, code + 0x4c2, 2, false, [NONE; 2]);
    first.plus(1)
}

/// Takes the chunk at the end of the heap: small bin and unsorted list are empty, and the bitmap of bins is
/// zero.
fn end_of_heap<E: Emit>(e: &mut E, at: u64, size: u64, frame: u64) -> Value {
    let code = Library::Malloc.code() + 0x600;
    let small = e.load(
        code + 0x41a,
        5,
        ARENA + 0x480 + 16 * (size % 64),
        8,
        [NONE; 2],
    );
    e.branch(code + 0x425, code + 0x23b, 3, true, [small, NONE]);
    let offset = e.load(code + 0x23b, 1, ARENA + 8, 8, [NONE; 2]);
    e.store(code + 0x24d, 4, frame + 0x10, 8, NONE, NONE);
    let lists = e.load(code + 0x252, 1, ARENA + 0x10, 8, [offset, NONE]);
    e.branch(code + 0x257, code + 0x264, 1, false, [lists, NONE]);
    e.load(code + 0x259, 1, ARENA + 0x18, 8, [NONE; 2]);
    e.store(code + 0x264, 2, frame + 8, 8, NONE, NONE);
    let unsorted = e.load(code + 0x271, 2, ARENA + 0x478, 8, [NONE; 2]);
    e.branch(code + 0x278, code + 0x71a, 2, true, [unsorted, NONE]);
    e.branch(code + 0x721, code + 0x743, 2, true, [NONE; 2]);
    let mut bits = e.load(code + 0x758, 7, ARENA + 0xc60, 4, [NONE; 2]);
    e.branch(code + 0x772, code + 0x960, 5, true, [bits, NONE]);
    e.jump(
        code + 0x963,
        code + 0x97b,
        2,
        pagewalk_stream::flags::TAKEN,
        [NONE; 2],
    );
    for word in 1..4 {
        e.branch(code + 0x980, code + 0x968, 3, true, [NONE; 2]);
        bits = e.load(code + 0x96c, 2, ARENA + 0xc60 + 4 * word, 4, [NONE; 2]);
        e.branch(code + 0x975, code + 0xa70, 2, false, [bits, NONE]);
    }
    e.branch(code + 0x980, code + 0x968, 3, false, [NONE; 2]);
    let top = e.load(code + 0x982, 1, ARENA + 0x460, 8, [NONE; 2]);
    // The size of the rest is in the heap itself, in front of the new object.
    let rest = e.load(code + 0x986, 1, at - 8, 8, [top, NONE]);
    e.load(code + 0x98e, 2, ARENA + 0xc88, 8, [NONE; 2]);
    e.branch(code + 0x995, code + 0xbdf, 1, false, [rest, NONE]);
    e.branch(code + 0x9a2, code + 0xd77, 3, true, [rest, NONE]);
    e.store(code + 0xd85, 4, ARENA + 0x460, 8, NONE, top.plus(1));
    e.store(code + 0xda5, 9, at - 8, 8, top, rest.plus(1));
    e.store(
        code + 0xda9,
        1,
        at + 16 * size - 8,
        8,
        top.plus(1),
        rest.plus(2),
    );
    e.store(code + 0xd33, 4, frame + 8, 8, NONE, NONE);
    e.call(code + 0xd38, code + 0xf00, 1, frame);
    e.load(code + 0xf00, 1, ARENA + 0x28, 4, [NONE; 2]);
    e.branch(code + 0xf08, code + 0xf10, 2, false, [NONE; 2]);
    e.ret(code + 0xf0a, code + 0xd38, 1, frame);
    let got = e.load(code + 0xd3d, 1, frame + 8, 8, [NONE; 2]);
    e.jump(
        code + 0xd42,
        code + 0x5d6,
        1,
        pagewalk_stream::flags::TAKEN,
        [NONE; 2],
    );
    got
}

/// `operator delete` of the object of `bytes` at `at`, with known size. It calls `free` through two more
/// stubs. `_int_free` puts the object into the thread cache or, if that is full, into a fast bin or among its
/// neighbours. A merged object costs as much as one without free neighbours.
///
/// ```text
/// 00 endbr64 ; 04 jmp 10 ; 10 jmp *slot ; 20 endbr64 ; 24 jmp 30 ; 30 jmp *slot
/// free 40 test ; 43 je ; push ; lea ; push ; sub ; mov ; 5a mov -8(%rdi) ; mov %fs ; test ; 63 jne
///   65 mov ; cmpq %fs ; 71 je ; lea ; test ; 80 je a8 ; xor ; aa call _int_free ; mov %fs ; add ; pop ; pop ; ret
/// _int_free 100 push six ; … mov 8(%rsi) ; canary ; … 135 jb ; … 142 jne ; 14c jbe ; 158 jne ; mov ; mov %fs ; 16f je
///   cmp bins ; 181 jae ; mov ; mov ; lea ; cmp 0x18(%rbx) ; 199 je ; movzwl count ; cmp ; 1a9 jb 280 ; 1af cmp ; 1b6 jb 1f0
///   1bc lea ; mov 8(%r14) ; … cmpb ; mov bin ; … mov 0x10(%rbx) ; mov to bin ; test ; 23a je ; … 24b mov ; sub %fs ; pop six ; ret
///   280 mov ; add ; mov 0x18(%rbx) ; … xor head ; mov 0x10(%rbx) ; mov to head ; mov count ; jmp 24b
///   1f0 a look at the neighbours and the end of the heap ; into the unsorted list
/// ```
#[inline(always)]
pub fn free<E: Emit>(
    e: &mut E,
    heap: &mut Heap,
    call: (u64, u16),
    object: (u64, Value),
    bytes: u64,
    sp: u64,
) {
    if E::LOUD && heap.has_headers() {
        let bin = heap.bin_of(bytes);
        if bin == Bin::Mapped {
            // Its header is read before the mapping is removed.
            freed(e, call, object, (bytes, bin), sp);
        }
        heap.free(object.0, bytes);
        e.emit_heap_events(heap);
        if bin != Bin::Mapped {
            freed(e, call, object, (bytes, bin), sp);
        }
    } else {
        jemalloc_free(e, heap, call, object, bytes, sp);
    }
}

fn freed<E: Emit>(
    e: &mut E,
    (pc, insns): (u64, u16),
    (at, ready): (u64, Value),
    (bytes, bin): (u64, Bin),
    sp: u64,
) {
    use pagewalk_stream::flags::{INDIRECT, TAKEN};
    /// `tcache_key` and `global_max_fast`.
    const MARK: u64 = ARENA + 0x48;
    const FAST: u64 = ARENA + 0x50;
    /// Words of thread-local storage: errno, the stack canary.
    const ERRNO: u64 = ARENA + 0x30;
    const CANARY: u64 = ARENA + 0x38;
    let code = Library::Free.code();
    let inner = code + 0x100;
    e.call_library(pc, Library::Free, insns, sp);
    for (jump, stub) in [(0x4, 0x10), (0x24, 0x30)] {
        e.jump(code + jump, code + stub, 2, TAKEN, [NONE; 2]);
        let slot = ARENA + 0x58 + stub;
        let to = e.load(code + stub, 1, slot, 8, [NONE; 2]);
        e.jump(
            code + stub,
            code + stub + 0x10,
            0,
            TAKEN | INDIRECT,
            [to, NONE],
        );
    }
    e.branch(code + 0x43, code + 0xf8, 2, false, [ready, NONE]);
    e.store(code + 0x49, 1, sp - 16, 8, NONE, NONE);
    e.store(code + 0x4e, 2, sp - 24, 8, NONE, NONE);
    e.load(code + 0x53, 2, ARENA + 8, 8, [NONE; 2]);
    let head = e.load(code + 0x5a, 1, at - 8, 8, [ready, NONE]);
    let errno = e.load(code + 0x5e, 1, ERRNO, 4, [NONE; 2]);
    e.branch(
        code + 0x63,
        code + 0xb0,
        2,
        bin == Bin::Mapped,
        [head, NONE],
    );
    if bin == Bin::Mapped {
        // `munmap_chunk`, and `munmap` itself.
        e.load(code + 0xb0, 1, ARENA + 0x66, 1, [NONE; 2]);
        e.branch(code + 0xb8, code + 0xe0, 2, true, [NONE; 2]);
        e.load(code + 0xe3, 20, at - 16, 8, [ready, NONE]);
        e.compute(code + 0xe8, 12, 2, [NONE; 2]);
        e.store(code + 0xe9, 1, ERRNO, 4, NONE, errno);
        e.pop(code + 0xf0, 2, sp - 8);
        e.ret(code + 0xf6, pc, 2, sp);
        return;
    }
    let offset = e.load(code + 0x65, 1, ARENA + 8, 8, [NONE; 2]);
    e.load(code + 0x6c, 1, ARENA + 0x10, 8, [offset, NONE]);
    e.branch(code + 0x71, code + 0xf0, 1, false, [NONE; 2]);
    e.branch(code + 0x80, code + 0xa8, 3, true, [head, NONE]);
    let frame = sp - 24 - 24;
    e.call(code + 0xaa, inner, 2, frame);
    e.push(inner, 6, frame - 8);
    let head = e.load(inner + 0x11, 3, at - 8, 8, [ready, NONE]);
    let canary = e.load(inner + 0x15, 1, CANARY, 8, [NONE; 2]);
    e.store(inner + 0x1e, 1, frame - 72, 8, NONE, canary);
    e.branch(inner + 0x35, code + 0x3c0, 7, false, [head, NONE]);
    e.branch(inner + 0x42, code + 0x3c0, 3, false, [ready, NONE]);
    e.branch(inner + 0x4c, code + 0x3c8, 2, false, [head, NONE]);
    e.branch(inner + 0x58, code + 0x3c8, 3, false, [head, NONE]);
    let offset = e.load(inner + 0x5e, 1, ARENA + 8, 8, [NONE; 2]);
    let lists = e.load(inner + 0x68, 2, ARENA + 0x10, 8, [offset, NONE]);
    e.branch(inner + 0x6f, inner + 0xaf, 2, false, [lists, NONE]);
    let bins = e.load(inner + 0x7a, 3, ARENA + 0x18, 8, [NONE; 2]);
    e.branch(inner + 0x81, inner + 0xaf, 1, false, [bins, head]);
    let mark = e.load(inner + 0x83, 1, MARK, 8, [NONE; 2]);
    let limit = e.load(inner + 0x8a, 1, ARENA + 0x40, 8, [NONE; 2]);
    let own = e.load(inner + 0x95, 2, at + 8, 8, [ready, NONE]);
    e.branch(inner + 0x99, code + 0x3d0, 1, false, [own, mark]);
    let size = crate::heap::chunk(bytes) / 16;
    let count_at = ARENA + 0x100 + 2 * (size % 64);
    let count = e.load(inner + 0x9f, 1, count_at, 2, [lists, head]);
    let listed = bin == Bin::Listed;
    e.branch(inner + 0xa9, inner + 0x180, 3, listed, [count, limit]);
    if listed {
        let head_at = ARENA + 0x180 + 8 * (size % 64);
        e.store(inner + 0x186, 3, at + 8, 8, ready, mark);
        let old = e.load(inner + 0x18e, 2, head_at, 8, [lists, NONE]);
        e.store(inner + 0x196, 1, at, 8, ready, old.plus(1));
        e.store(inner + 0x19a, 1, head_at, 8, lists, ready);
        e.store(inner + 0x1a2, 1, count_at, 2, lists, count.plus(1));
        e.jump(inner + 0x1a6, inner + 0x14b, 1, TAKEN, [NONE; 2]);
    } else {
        let fast = e.load(inner + 0xaf, 1, FAST, 8, [NONE; 2]);
        e.branch(
            inner + 0xb6,
            inner + 0x1f0,
            1,
            bin == Bin::Merged,
            [fast, head],
        );
        let next = at + 16 * size;
        if bin == Bin::Fast {
            let behind = e.load(inner + 0xc0, 2, next - 8, 8, [head, NONE]);
            e.branch(inner + 0xc8, code + 0x3e0, 2, false, [behind, NONE]);
            let memory = e.load(inner + 0xd2, 2, ARENA + 0xc88, 8, [NONE; 2]);
            e.branch(inner + 0xd9, code + 0x3e0, 1, false, [memory, behind]);
            let perturb = e.load(inner + 0xdf, 1, ARENA + 0x28, 4, [NONE; 2]);
            e.branch(inner + 0xe7, code + 0x3e8, 2, false, [perturb, NONE]);
            e.store(inner + 0xed, 1, ARENA + 0x60, 4, NONE, NONE);
            e.load(inner + 0x101, 4, SINGLE_THREADED, 1, [NONE; 2]);
            let bin_at = ARENA + 0x400 + 8 * (size % 16);
            let first = e.load(inner + 0x108, 1, bin_at, 8, [head, NONE]);
            e.branch(inner + 0x10d, code + 0x3f0, 1, false, [NONE; 2]);
            e.branch(inner + 0x116, code + 0x3f8, 2, false, [first, ready]);
            e.store(inner + 0x127, 4, at, 8, ready, first.plus(1));
            e.store(inner + 0x12b, 1, bin_at, 8, head, ready);
            e.branch(inner + 0x133, inner + 0x14b, 2, true, [first, NONE]);
        } else {
            // Neither neighbour is free, and the chunk is not at the end of the heap.
            e.branch(inner + 0x1f3, code + 0x3d8, 2, false, [head, NONE]);
            e.load(inner + 0x1f9, 1, SINGLE_THREADED, 1, [NONE; 2]);
            e.branch(inner + 0x200, inner + 0x20c, 1, true, [NONE; 2]);
            e.store(inner + 0x20c, 1, frame - 92, 4, NONE, NONE);
            let end = e.load(inner + 0x214, 1, ARENA + 0x460, 8, [NONE; 2]);
            e.branch(inner + 0x21f, code + 0x3d8, 3, false, [end, ready]);
            e.load(inner + 0x225, 0, ARENA + 0x64, 1, [NONE; 2]);
            e.branch(inner + 0x229, code + 0x3d8, 2, false, [NONE; 2]);
            let behind = e.load(inner + 0x22f, 1, next - 8, 8, [head, NONE]);
            e.branch(inner + 0x235, code + 0x3d8, 2, false, [behind, NONE]);
            e.branch(inner + 0x246, code + 0x3e0, 4, false, [behind, NONE]);
            e.load(inner + 0x24c, 0, ARENA + 0xc88, 8, [NONE; 2]);
            e.branch(inner + 0x253, code + 0x3e0, 2, false, [behind, NONE]);
            let perturb = e.load(inner + 0x259, 1, ARENA + 0x28, 4, [NONE; 2]);
            e.branch(inner + 0x261, code + 0x3e8, 2, false, [perturb, NONE]);
            e.load(inner + 0x267, 0, at - 8, 1, [ready, NONE]);
            e.branch(inner + 0x26b, inner + 0x28f, 2, true, [head, NONE]);
            e.load(inner + 0x28f, 0, ARENA + 0x460, 8, [NONE; 2]);
            e.branch(inner + 0x293, code + 0x3d8, 2, false, [end, NONE]);
            let used = e.load(inner + 0x299, 0, next - 8, 1, [behind, NONE]);
            e.branch(inner + 0x29f, code + 0x3d8, 2, false, [used, NONE]);
            e.store(inner + 0x2a5, 1, next - 8, 8, behind, used);
            let unsorted = e.load(inner + 0x2aa, 1, ARENA + 0x470, 8, [NONE; 2]);
            e.load(inner + 0x2c0, 4, ARENA + 0x478, 8, [unsorted, NONE]);
            e.branch(inner + 0x2c4, code + 0x3e0, 2, false, [unsorted, NONE]);
            e.store(inner + 0x2cd, 2, at, 16, ready, unsorted);
            e.branch(inner + 0x2e0, inner + 0x2f0, 4, true, [head, NONE]);
            e.store(inner + 0x2f0, 1, ARENA + 0x470, 8, NONE, ready);
            e.store(inner + 0x2f4, 1, ARENA + 0x478, 8, unsorted, ready);
            e.store(inner + 0x2f8, 1, at - 8, 8, ready, head);
            e.store(inner + 0x2fc, 1, next - 16, 8, head, NONE);
            e.load(inner + 0x2ff, 1, frame - 92, 4, [NONE; 2]);
            e.branch(inner + 0x305, inner + 0x14b, 2, true, [NONE; 2]);
        }
    }
    let canary = e.load(inner + 0x14b, 1, frame - 72, 8, [NONE; 2]);
    let own = e.load(inner + 0x150, 1, CANARY, 8, [NONE; 2]);
    e.branch(inner + 0x159, code + 0x3f0, 1, false, [canary, own]);
    e.pop(inner + 0x163, 5, frame - 8);
    e.load(inner + 0x16b, 2, frame - 8 - 48, 8, [NONE; 2]);
    e.ret(inner + 0x16d, code + 0xaa, 1, frame);
    e.store(code + 0xaf, 1, ERRNO, 4, offset, errno);
    e.pop(code + 0xb7, 2, sp - 8);
    e.ret(code + 0xb8, pc, 2, sp);
}

/// `free` under jemalloc: costs as much as an object of the thread cache whose size is in the thread's own
/// data.
#[inline(always)]
fn jemalloc_free<E: Emit>(
    e: &mut E,
    heap: &mut Heap,
    (pc, insns): (u64, u16),
    (at, ready): (u64, Value),
    bytes: u64,
    sp: u64,
) {
    heap.free(at, bytes);
    if !E::LOUD {
        return;
    }
    e.emit_heap_events(heap);
    let code = Library::Free.code();
    let size = crate::heap::chunk(bytes) / 16;
    e.call_library(pc, Library::Free, insns, sp);
    e.branch(code + 0x4, code + 0x90, 2, false, [ready, NONE]);
    e.push(code + 0x6, 2, sp - 8);
    let offset = e.load(code + 0x10, 2, ARENA + 8, 8, [NONE; 2]);
    e.load(code + 0x18, 1, ARENA + 0x30, 4, [offset, NONE]);
    // It finds the size by the page, in the thread's own data.
    let head = e.load(code + 0x1c, 1, ARENA + 0x38, 8, [ready, NONE]);
    e.branch(code + 0x28, code + 0xa0, 2, false, [head, NONE]);
    e.branch(code + 0x38, code + 0xb0, 6, false, [head, NONE]);
    let lists = e.load(code + 0x48, 4, ARENA + 0x10, 8, [offset, NONE]);
    e.branch(code + 0x50, code + 0xc0, 2, false, [lists, NONE]);
    let mark = e.load(code + 0x5c, 6, at + 8, 8, [ready, NONE]);
    e.branch(code + 0x64, code + 0xd0, 2, false, [mark, NONE]);
    let count = e.load(
        code + 0x6c,
        2,
        ARENA + 0x100 + 2 * (size % 64),
        2,
        [lists, NONE],
    );
    e.branch(code + 0x74, code + 0xe0, 2, false, [count, NONE]);
    e.store(code + 0x78, 3, at + 8, 8, ready, NONE);
    let old = e.load(
        code + 0x80,
        3,
        ARENA + 0x180 + 8 * (size % 64),
        8,
        [lists, NONE],
    );
    e.store(code + 0x88, 2, at, 8, ready, old.plus(1));
    e.store(
        code + 0x8c,
        1,
        ARENA + 0x180 + 8 * (size % 64),
        8,
        lists,
        ready,
    );
    e.store(
        code + 0x90,
        2,
        ARENA + 0x100 + 2 * (size % 64),
        2,
        lists,
        count.plus(1),
    );
    e.pop(code + 0x98, 2, sp - 8);
    e.ret(code + 0x9c, pc, 1, sp);
}
