//! The instructions of a lookup, as compiled by gcc 12.2 with the flags of the source's Makefile (-O3 -flto
//! -fopenmp). Program counters are those of its listing. There `calculate_micro_xs`, the search and
//! `pick_mat` are inlined, and the sums of `pick_mat` are constants.
//!
//! ```text
//! calculate_macro_xs
//! 2cf0 6 x push ; 4 x mov stack ; 3 x store macro ; 2d32 jne 2f70 ; 2d47 jle
//! 2d58 sar ; lea ; 2d5f movsd (%r9,%rbx,8),%xmm0 ; comisd ; 2d69 ja 30b0
//!      mov ; mov ; sub ; cmp ; 2d7c jg 2d58      30b0 cmp ; 30b4 je 2d7e ; mov ; 30bd jmp 2d58
//! 2d7e movslq ; 2d81 movslq (%r11,%rdx,4),%rdx ; test ; 2d87 jle
//! 2d8d 3 x mov stack ; 4 x store stack ; 18 more ; 2dec jmp 2ed9
//! 2ed9 movsd (%r11) ; 2ede movslq (%r9) ; mov ; movapd ; imul ; unpcklpd ; cmp ; 2ef6 jne 2df8
//! 2df8 mov -0x30(%rsp) ; add ; 2e00 movslq (%r14,%rax,4) ; 3 more ; 2e10 mov -0x38(%rsp)
//!      test ; 2e18 jne ; lea ; lea ; cmp ; cmove
//! 2e2e movsd 0x30(%rcx) ; movupd 0x38 ; add ; add ; movupd 8 ; movupd 0x18 ; movapd
//!      2e50 subsd (%rcx) ; movapd ; subsd ; subpd ; divsd ; 2e66 movupd 0x48 ; 8 more
//!      2e91 movups macro ; 4 more ; 2ea7 movsd 0x58 ; movapd ; subsd 0x28 ; 2eb5 movups macro+16
//!      mulsd ; subsd ; mulsd ; addsd ; 2eca movsd macro+32 ; cmp ; 2ed3 je 2fb3
//! 2fb3 6 x pop ; 2fbd ret
//! ```
//!
//! The surrounding loops over particles (history, at 30e0) and over lookups (event, at 3ce0) are in
//! [`super::outer`].

use std::sync::atomic::AtomicU64;

use super::data::Grid;
use crate::thread::{NONE, Thread, Value};

/// Addresses of the arrays.
pub struct Tables {
    pub points: u64,
    pub energies: u64,
    pub index: u64,
    pub num_nucs: u64,
    pub mats: u64,
    pub concs: u64,
    /// Row length of `mats` and `concs`.
    pub widest: u64,
}

/// State shared by all threads.
pub struct Simulation {
    pub grid: Grid,
    pub materials: Vec<Vec<u32>>,
    pub concs: Vec<Vec<f64>>,
    pub tables: Tables,
    /// Next item of the dynamic schedule.
    pub next: AtomicU64,
    /// The source's checksum: sum over lookups of the number of the largest channel.
    pub verification: AtomicU64,
}

/// A call of `calculate_macro_xs`.
#[derive(Clone, Copy)]
pub struct Call {
    /// Address of the call instruction, in the listing.
    pub pc: u64,
    /// Stack pointer at the call.
    pub stack: u64,
    /// Address of the five sums.
    pub totals: u64,
    /// The neutron's energy, a state of the generator.
    pub energy: u64,
    /// Value that produces it.
    pub at: Value,
    /// Number of the material.
    pub material: usize,
}

impl Call {
    /// Stack pointer within the function.
    fn frame(&self) -> u64 {
        self.stack - 0x38
    }

    /// The function, from the call to the return. Returns the sums, and the value that produces them.
    pub async fn run(self, t: &mut Thread, shared: &Simulation) -> ([f64; 5], Value) {
        let (grid, tables) = (shared.grid, &shared.tables);
        let depth = t.stack - self.stack;
        t.call(self.pc, 0x2cf0, 1, depth);
        self.enter(t);
        let row = search(t, shared, self.energy, self.at);
        let nuclides = &shared.materials[self.material];
        let concs = &shared.concs[self.material];
        let list = tables.num_nucs + 4 * self.material as u64;
        let count = t.load(0x2d81, 2, list, 4, [NONE; 2]);
        t.branch(0x2d87, 0x2fb3, 2, false, [count, NONE]);
        self.prepare(t);
        let start = self.material as u64 * tables.widest;
        let mut totals = [0.0; 5];
        let mut sums = NONE;
        for (j, (&nuclide, &conc)) in nuclides.iter().zip(concs).enumerate() {
            let place = start + j as u64;
            let nuclide = u64::from(nuclide);
            let micro = grid.micro(nuclide, self.energy);
            for (total, xs) in totals.iter_mut().zip(micro.xs) {
                *total += xs * conc;
            }
            let element = Element {
                conc: tables.concs + 8 * place,
                mat: tables.mats + 4 * place,
                index: tables.index + 4 * (row * grid.nuclides + nuclide),
                low: tables.points + 48 * (nuclide * grid.points + micro.low),
                last: j + 1 == nuclides.len(),
            };
            sums = element.emit(t, self.frame(), self.totals);
            if t.full() {
                t.pause().await;
            }
        }
        for (k, pc) in [0x2fb3, 0x2fb4, 0x2fb5, 0x2fb7, 0x2fb9, 0x2fbb]
            .into_iter()
            .enumerate()
        {
            t.load(pc, 1, self.frame() + 8 * k as u64, 8, [NONE; 2]);
        }
        t.ret(0x2fbd, self.pc, 1, depth);
        t.request();
        (totals, sums)
    }

    /// Prologue, up to the search.
    fn enter(&self, t: &mut Thread) {
        let frame = self.frame();
        for (k, (pc, insns)) in [
            (0x2cf0, 1),
            (0x2cfc, 4),
            (0x2d01, 2),
            (0x2d03, 1),
            (0x2d08, 2),
            (0x2d09, 1),
        ]
        .into_iter()
        .enumerate()
        {
            t.store(pc, insns, frame + 0x28 - 8 * k as u64, 8, NONE, NONE);
        }
        t.load(0x2d0a, 1, frame + 0x50, 8, [NONE; 2]);
        t.load(0x2d0f, 1, frame + 0x58, 4, [NONE; 2]);
        t.load(0x2d14, 1, frame + 0x40, 8, [NONE; 2]);
        t.store(0x2d19, 1, self.totals + 0x20, 8, NONE, NONE);
        t.load(0x2d21, 1, frame + 0x48, 8, [NONE; 2]);
        t.store(0x2d26, 1, self.totals, 16, NONE, NONE);
        t.store(0x2d2a, 1, self.totals + 0x10, 16, NONE, NONE);
        t.branch(0x2d32, 0x2f70, 2, false, [NONE; 2]);
        t.branch(0x2d47, 0x30ca, 5, false, [NONE; 2]);
    }

    /// Code between the search and the first nuclide.
    fn prepare(&self, t: &mut Thread) {
        let frame = self.frame();
        t.load(0x2d90, 2, frame + 0x60, 4, [NONE; 2]);
        t.load(0x2d9d, 3, frame + 0x68, 4, [NONE; 2]);
        t.store(0x2da2, 1, frame - 0x20, 8, NONE, NONE);
        t.load(0x2db8, 5, frame + 0x38, 8, [NONE; 2]);
        t.store(0x2dc2, 3, frame - 0x28, 8, NONE, NONE);
        t.store(0x2dca, 2, frame - 0x30, 8, NONE, NONE);
        t.store(0x2ddf, 5, frame - 0x18, 8, NONE, NONE);
        t.store(0x2de4, 1, frame - 0xc, 4, NONE, NONE);
        t.jump(0x2dec, 0x2ed9, 2, pagewalk_stream::flags::TAKEN, [NONE; 2]);
    }
}

/// The binary search. Returns the last element up to `energy`. The compiler made a branch of each comparison,
/// so no load depends on the previous one.
fn search(t: &mut Thread, shared: &Simulation, energy: u64, at: Value) -> u64 {
    let grid = shared.grid;
    let rank = grid.rank_of_all(energy);
    let (mut low, mut length) = (0, grid.nuclides * grid.points - 1);
    let mut high = length;
    let mut before = 3;
    while length > 1 {
        let middle = low + length / 2;
        let va = shared.tables.energies + 8 * middle;
        let value = t.load(0x2d5f, 3 + before, va, 8, [NONE; 2]);
        before = 0;
        let above = middle >= rank;
        t.branch(0x2d69, 0x30b0, 2, above, [value.plus(3), at]);
        if above {
            high = middle;
            length /= 2;
            t.branch(0x30b4, 0x2d7e, 2, length <= 1, [NONE; 2]);
            if length > 1 {
                t.jump(0x30bd, 0x2d58, 2, pagewalk_stream::flags::TAKEN, [NONE; 2]);
            }
        } else {
            low = middle;
            length = high - low;
            t.branch(0x2d7c, 0x2d58, 5, length > 1, [NONE; 2]);
        }
    }
    low
}

/// One nuclide of a lookup.
struct Element {
    conc: u64,
    mat: u64,
    index: u64,
    low: u64,
    last: bool,
}

impl Element {
    /// Emits one nuclide. Returns the value that produces the sums.
    #[inline(always)]
    fn emit(&self, t: &mut Thread, frame: u64, totals: u64) -> Value {
        let conc = t.load(0x2ed9, 1, self.conc, 8, [NONE; 2]);
        let mat = t.load(0x2ede, 1, self.mat, 4, [NONE; 2]);
        t.branch(0x2ef6, 0x2df8, 6, true, [NONE; 2]);
        let row = t.load(0x2df8, 1, frame - 0x30, 8, [NONE; 2]);
        let index = t.load(0x2e00, 2, self.index, 4, [mat.plus(1), row.plus(1)]);
        // The number of the nuclide times the points per nuclide, then the sum.
        let point = [index.plus(5), mat.plus(8)];
        t.store(0x2e10, 4, frame - 0x38, 8, NONE, index.plus(3));
        t.branch(0x2e18, 0x2fd8, 2, false, [NONE; 2]);
        let e_high = t.load(0x2e2e, 5, self.low + 0x30, 8, point);
        t.load(0x2e33, 1, self.low + 0x38, 16, point);
        t.load(0x2e40, 3, self.low + 8, 16, point);
        t.load(0x2e46, 1, self.low + 0x18, 16, point);
        let e_low = t.load(0x2e50, 2, self.low, 8, point);
        // Difference of energies, division, then the values of the points.
        let f = t.compute(0x2e62, 4, 13, [e_low.plus(4), e_high.plus(4)]);
        t.load(0x2e66, 1, self.low + 0x48, 16, point);
        // Factor, difference, concentration and sum.
        let sum = f.plus(17);
        t.store(0x2e91, 9, totals, 16, conc, sum);
        t.load(0x2ea7, 5, self.low + 0x58, 8, point);
        t.load(0x2eb0, 2, self.low + 0x28, 8, point);
        t.store(0x2eb5, 1, totals + 0x10, 16, NONE, sum);
        t.store(0x2eca, 5, totals + 0x20, 8, NONE, sum);
        t.branch(0x2ed3, 0x2fb3, 2, self.last, [NONE; 2]);
        sum
    }
}
