//! The benchmark as built by its own Makefile, `-O -DCHECK`: each round reads its numbers a second time to
//! check that they belong to this process.
//!
//! ```c
//! for (i = 0; i < chunk; i++) if ((data[i] & procmask) >> logtablelocal != me) nbad++;
//! ```
//!
//! gcc 12.2 -O1 of the three loops, with `nlocalm1` on the stack:
//!
//! ```text
//! 47e lea (%rbp,%rbp),%rsi ; sar $63,%rbp ; and $7,%ebp ; 48a xor %rsi,%rbp
//! 48d mov %rbp,(%rcx) ; add $8,%rcx ; cmp %rcx,%rdi ; 497 jne 47e
//! 3fd mov (%rcx),%r11 ; 400 mov 0x10(%rsp),%rsi ; and %r11,%rsi ; 408 xor %r11,(%rax,%rsi,8)
//!     add $8,%rcx ; cmp %rcx,%r9 ; 413 jne 3fd
//! 437 mov %r11,%r12 ; 43a and (%rsi),%r12 ; shr %cl,%r12 ; cmp %rbx,%r12 ; setne ; movzbl
//!     add %r12d,%edx ; add $8,%rsi ; cmp %r9,%rsi ; 455 jne 437
//! ```
//!
//! 25 instructions, four loads and two stores per update. The public runs of this binary have the same counts
//! (xlab-uiuc/gups, results in xlab-uiuc/dynamorio: 2,000,000,000 instructions, 320,000,572 loads and
//! 160,000,428 stores).

use pagewalk_stream::Facts;

use super::step;
use crate::layout::Layout;
use crate::program::Code;
use crate::thread::{NONE, Start, Thread, Touch};

/// Instructions per update.
pub const INSTRUCTIONS_PER_UPDATE: u64 = 25;
/// Instructions per round, without its updates.
pub const INSTRUCTIONS_PER_ROUND: u64 = 32;

/// One thread.
pub struct Share {
    /// Generator before its first number.
    pub ran: u64,
    /// Address of its buffer of numbers.
    pub data: u64,
    pub stack: u64,
    pub updates: u64,
}

/// Parameters shared by all threads.
#[derive(Clone, Copy)]
pub struct Work {
    pub table: u64,
    pub bytes: u64,
    pub chunk: u64,
}

/// The program with one thread per element of `shares`, in the memory of `layout`.
pub fn program(facts: Facts, layout: Layout, start: Start, work: Work, shares: Vec<Share>) -> Code {
    let mut code = Code::new(facts, start);
    let threads = shares.len() as u32;
    let mut layout = Some(layout);
    for share in shares {
        let layout = layout.take();
        code.thread(share.stack, move |mut t| async move {
            let first = layout.is_some();
            if let Some(mut layout) = layout {
                for event in layout.events() {
                    t.event(event).await;
                }
                if start.touch != Touch::Bulk {
                    t.touch(work.table, work.bytes).await;
                }
                t.begin(threads).await;
            }
            share.run(&mut t, work).await;
            if first {
                t.finish(threads).await;
            }
        });
    }
    code
}

impl Share {
    async fn run(self, t: &mut Thread, work: Work) {
        let sp = t.stack - 0x110;
        let (mut ran, mut number) = (self.ran, NONE);
        let mut left = self.updates;
        while left > 0 {
            let count = left.min(work.chunk);
            left -= count;
            let before = ran;
            let any = t.load(0x473, 1, sp + 0x48, 8, [NONE; 2]);
            t.branch(0x479, 0x499, 1, false, [any, NONE]);
            t.compute(0x47b, 1, 1, [NONE; 2]);
            for i in 0..count {
                ran = step(ran);
                number = t.compute(0x48a, 4, 3, [number, NONE]);
                t.store(0x48d, 1, self.data + 8 * i, 8, NONE, number);
                t.branch(0x497, 0x47e, 3, i + 1 < count, [NONE; 2]);
                if t.full() {
                    t.pause().await;
                }
            }
            between(t, sp);
            let mut again = before;
            for i in 0..count {
                again = step(again);
                let datum = t.load(0x3fd, 1, self.data + 8 * i, 8, [NONE; 2]);
                let mask = t.load(0x400, 1, sp + 0x10, 8, [NONE; 2]);
                let va = work.table + 8 * (again & (work.bytes / 8 - 1));
                let at = [mask.plus(1), datum.plus(1)];
                let word = t.load(0x408, 2, va, 8, at);
                t.store(0x408, 0, va, 8, at[1], word.plus(1));
                t.branch(0x413, 0x3fd, 3, i + 1 < count, [NONE; 2]);
                t.request();
                if t.full() {
                    t.pause().await;
                }
            }
            t.load(0x415, 1, sp + 0xb8, 4, [NONE; 2]);
            t.load(0x429, 5, sp + 0xbc, 4, [NONE; 2]);
            t.compute(0x434, 2, 1, [NONE; 2]);
            for i in 0..count {
                t.load(0x43a, 2, self.data + 8 * i, 8, [NONE; 2]);
                t.branch(0x455, 0x437, 8, i + 1 < count, [NONE; 2]);
                if t.full() {
                    t.pause().await;
                }
            }
            // Counts rounds, in memory.
            t.store(0x45a, 2, sp + 0xb0, 8, NONE, NONE);
            let rounds = t.load(0x462, 1, sp + 0x18, 4, [NONE; 2]);
            t.store(0x462, 0, sp + 0x18, 4, NONE, rounds.plus(1));
            t.load(0x467, 1, sp + 0x18, 4, [NONE; 2]);
            let most = t.load(0x46b, 1, sp + 0x54, 4, [NONE; 2]);
            t.branch(0x471, 0x4d9, 2, left == 0, [rounds.plus(1), most]);
        }
    }
}

/// Code between the first and second loop of a round: a single process has no partners.
fn between(t: &mut Thread, sp: u64) {
    let partners = t.load(0x499, 1, sp + 0xc, 4, [NONE; 2]);
    t.branch(0x49e, 0x680, 1, true, [partners, NONE]);
    let most = t.load(0x680, 1, sp + 0xa4, 4, [NONE; 2]);
    let count = t.load(0x687, 1, sp + 0x2c, 4, [NONE; 2]);
    t.jump(0x693, 0x3db, 3, pagewalk_stream::flags::TAKEN, [NONE; 2]);
    t.store(0x3db, 1, sp + 0xa4, 4, NONE, most.plus(2));
    t.store(0x3e2, 1, sp + 0xb0, 8, NONE, NONE);
    t.branch(0x3f4, 0x462, 3, false, [count.plus(1), NONE]);
    t.compute(0x3fa, 2, 1, [NONE; 2]);
}
