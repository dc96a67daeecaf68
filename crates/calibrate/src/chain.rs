//! Orders of lines, and the loops that follow them.

use std::arch::asm;

use pagewalk_units::rng;
use rand::Rng as _;
use rand::seq::SliceRandom as _;

/// Loads in a round of a loop; then a count and a branch follow.
pub(crate) const UNROLLED: u64 = 16;
/// Lines of a page.
const LINES: u64 = 64;
/// Bytes of a line and of a page.
const LINE: u64 = 64;
const PAGE: u64 = 4096;

/// Byte offsets of the lines in the order of a cycle through all of them.
///
/// With 64 lines a page, the footprint is dense. With fewer, one line is chosen in each of as many
/// groups of neighbouring lines, so that no prefetcher finds a stride; with one line a page, page
/// after page uses the next line, so that all sets of a cache are used. If `local`, the lines of a
/// page follow one another, from its lower and its upper half in turn, so that no prefetcher finds a
/// direction; pages come in random order. Else all lines do.
pub(crate) fn order(bytes: u64, lines_per_page: u64, local: bool) -> Vec<u64> {
    let mut shuffler = rng(1, "calibrate.order");
    let mut draws = rng(1, "calibrate.lines");
    let pages = bytes / PAGE;
    let group = LINES / lines_per_page;
    let line = |page: u64, n: u64, draw: u64| match lines_per_page {
        1 => page * PAGE + page % LINES * LINE,
        _ => page * PAGE + (n * group + draw % group) * LINE,
    };
    let mut draw = || draws.next_u64() >> 32;
    let mut by_page: Vec<Vec<u64>> = (0..pages)
        .map(|page| (0..lines_per_page).map(|n| line(page, n, draw())).collect())
        .collect();
    if local {
        by_page.shuffle(&mut shuffler);
        let half = lines_per_page as usize / 2;
        for page in by_page.iter_mut().filter(|page| page.len() > 1) {
            let (low, high) = page.split_at_mut(half);
            low.shuffle(&mut shuffler);
            high.shuffle(&mut shuffler);
            let turns = low.iter().zip(&*high);
            *page = turns.flat_map(|(a, b)| [*a, *b]).collect();
        }
        return by_page.concat();
    }
    let mut all = by_page.concat();
    all.shuffle(&mut shuffler);
    all
}

/// Makes each word at an offset of `order` the address of the next one, in `chains` cycles of equal
/// length. Returns an address in each.
pub(crate) fn link(words: &mut [u64], order: &[u64], chains: usize) -> Vec<u64> {
    let base = words.as_ptr() as u64;
    let length = order.len() / chains;
    order
        .chunks_exact(length)
        .take(chains)
        .map(|cycle| {
            let next = cycle.iter().cycle().skip(1);
            for (at, next) in cycle.iter().zip(next) {
                words[*at as usize / 8] = base + next;
            }
            base + cycle[0]
        })
        .collect()
}

/// A loop of `rounds` times 16 dependent additions.
pub(crate) fn add(rounds: u64) {
    // SAFETY: only registers are used.
    unsafe {
        asm!(
            "2:",
            ".rept 16",
            "add {x}, {y}",
            ".endr",
            "dec {n}",
            "jnz 2b",
            x = inout(reg) 1_u64 => _,
            y = in(reg) 1_u64,
            n = inout(reg) rounds => _,
            options(nomem, nostack),
        );
    }
}

macro_rules! chase {
    ($from:expr, $rounds:expr, [$($name:ident = $n:literal),*]) => {{
        let from: &mut [u64] = $from;
        // SAFETY: each address is in a cycle that `link` has made, of words in one live mapping.
        unsafe {
            asm!(
                "2:",
                ".rept 16",
                $(concat!("mov {", stringify!($name), "}, [{", stringify!($name), "}]"),)*
                ".endr",
                "dec {rounds}",
                "jnz 2b",
                rounds = inout(reg) $rounds => _,
                $($name = inout(reg) from[$n],)*
                options(nostack),
            );
        }
    }};
}

/// Numbers of chains that there is a loop for.
pub(crate) const CHAINS: [usize; 5] = [1, 2, 4, 8, 12];

/// Follows the chains in parallel, 16 loads of each in a round. Advances the addresses.
///
/// # Panics
/// A number of addresses that is not one of [`CHAINS`].
pub(crate) fn chase(at: &mut [u64], rounds: u64) {
    match at.len() {
        1 => chase!(at, rounds, [a = 0]),
        2 => chase!(at, rounds, [a = 0, b = 1]),
        4 => chase!(at, rounds, [a = 0, b = 1, c = 2, d = 3]),
        8 => chase!(
            at,
            rounds,
            [a = 0, b = 1, c = 2, d = 3, e = 4, f = 5, g = 6, h = 7]
        ),
        12 => chase!(
            at,
            rounds,
            [
                a = 0,
                b = 1,
                c = 2,
                d = 3,
                e = 4,
                f = 5,
                g = 6,
                h = 7,
                i = 8,
                j = 9,
                k = 10,
                l = 11
            ]
        ),
        other => unreachable!("{other} chains were refused"),
    }
}

/// Loads the lines whose addresses stand in `list`, a multiple of 16: two loads for each line, of
/// which the second needs the first.
pub(crate) fn gather(list: &[u64]) {
    // SAFETY: the list is read in its bounds, and holds addresses of one live mapping.
    unsafe {
        asm!(
            "2:",
            ".set off, 0",
            ".rept 16",
            "mov {x}, [{p} + off]",
            "mov {x}, [{x}]",
            ".set off, off + 8",
            ".endr",
            "add {p}, 128",
            "dec {n}",
            "jnz 2b",
            x = out(reg) _,
            p = inout(reg) list.as_ptr() => _,
            n = inout(reg) list.len() as u64 / UNROLLED => _,
            options(nostack, readonly),
        );
    }
}

/// Loads a word each `STRIDE` bytes, from the first to the last.
pub(crate) fn read<const STRIDE: usize>(words: &[u64]) {
    // SAFETY: 16 strides a round lie in the slice.
    unsafe {
        asm!(
            "2:",
            ".set off, 0",
            ".rept 16",
            "mov {x}, [{p} + off]",
            ".set off, off + {stride}",
            ".endr",
            "add {p}, {round}",
            "dec {n}",
            "jnz 2b",
            x = out(reg) _,
            p = inout(reg) words.as_ptr() => _,
            n = inout(reg) size_of_val(words) as u64 / (STRIDE as u64 * UNROLLED) => _,
            stride = const STRIDE,
            round = const STRIDE * UNROLLED as usize,
            options(nostack, readonly),
        );
    }
}

/// Copies a word of each line of the first half of `words` to the second half.
pub(crate) fn copy(words: &mut [u64]) {
    let half = words.len() / 2;
    // SAFETY: 16 lines a round lie in each half of the slice.
    unsafe {
        asm!(
            "2:",
            ".set off, 0",
            ".rept 16",
            "mov {x}, [{p} + off]",
            "mov [{q} + off], {x}",
            ".set off, off + 64",
            ".endr",
            "add {p}, 1024",
            "add {q}, 1024",
            "dec {n}",
            "jnz 2b",
            x = out(reg) _,
            p = inout(reg) words.as_ptr() => _,
            q = inout(reg) words.as_mut_ptr().add(half) => _,
            n = inout(reg) half as u64 / (8 * UNROLLED) => _,
            options(nostack),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(mut order: Vec<u64>) -> Vec<u64> {
        order.sort_unstable();
        order
    }

    #[test]
    fn an_order_visits_each_line_once() {
        let dense: Vec<u64> = (0..1024).map(|n| n * 64).collect();
        assert_eq!(sorted(order(1 << 16, 64, false)), dense);
        assert_ne!(order(1 << 16, 64, false), dense);
        let one: Vec<u64> = (0..16).map(|page| page * 4096 + page * 64).collect();
        assert_eq!(sorted(order(1 << 16, 1, false)), one);
        let some = sorted(order(1 << 16, 16, true));
        for (n, at) in some.iter().enumerate() {
            assert_eq!(at / 256, n as u64, "one line of each group of four");
        }
    }

    #[test]
    fn a_local_order_stays_in_a_page_until_it_is_done() {
        let pages: Vec<u64> = order(1 << 18, 16, true)
            .iter()
            .map(|at| at / 4096)
            .collect();
        for page in pages.chunks(16) {
            assert!(page.iter().all(|p| *p == page[0]));
        }
        let order = order(1 << 18, 16, true);
        for (n, at) in order.iter().enumerate() {
            assert_eq!(
                at % 4096 / 2048,
                n as u64 % 2,
                "the halves of a page in turn"
            );
        }
        assert_eq!(super::order(1 << 14, 1, true).len(), 4);
    }

    #[test]
    fn a_chase_goes_through_its_whole_cycle() {
        for chains in CHAINS {
            let mut words = vec![0; 3 * 4096];
            let order: Vec<u64> = order(96 << 10, 64, false);
            let first = link(&mut words, &order, chains);
            let length = order.len() / chains;
            let mut at = first.clone();
            let mut steps = 0;
            while steps == 0 || at != first {
                chase(&mut at, 1);
                steps += UNROLLED as usize;
                assert!(steps <= 16 * length);
            }
            // Back at once: after a common multiple of 16 and the cycle.
            assert_eq!(steps % length, 0, "{chains}");
        }
    }

    #[test]
    fn a_copy_moves_a_word_of_each_line() {
        let mut words: Vec<u64> = (0..1024).collect();
        copy(&mut words);
        for line in 0..64 {
            assert_eq!(words[512 + line * 8], line as u64 * 8);
            assert_eq!(words[513 + line * 8], 513 + line as u64 * 8);
        }
        read::<64>(&words);
        read::<8>(&words);
        let list: Vec<u64> = words[..32]
            .iter()
            .map(|w| std::ptr::from_ref(w) as u64)
            .collect();
        gather(&list);
        add(3);
    }
}
