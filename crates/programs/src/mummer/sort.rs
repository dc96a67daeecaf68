//! Suffix arrays by induced sorting (G. Nong, S. Zhang, W. H. Chan, Linear suffix
//! array construction by almost pure induced-sorting, DCC 2009).

/// A letter, or the name of a substring one recursion level up.
pub trait Letter: Copy + Eq + Ord {
    /// The letter as an index.
    fn index(self) -> usize;
}

impl Letter for u8 {
    fn index(self) -> usize {
        usize::from(self)
    }
}

impl Letter for u32 {
    fn index(self) -> usize {
        self as usize
    }
}

const NONE: u32 = u32::MAX;

/// Suffix array: starts of the suffixes of `text` in ascending order. Letters are at most `most`.
pub fn suffixes<L: Letter>(text: &[L], most: usize) -> Vec<u32> {
    let n = text.len();
    if n <= 1 {
        return (0..n as u32).collect();
    }
    // True where a suffix is smaller than the next one.
    let mut smaller = vec![false; n];
    for i in (0..n - 1).rev() {
        smaller[i] = match text[i].cmp(&text[i + 1]) {
            std::cmp::Ordering::Equal => smaller[i + 1],
            order => order.is_lt(),
        };
    }
    let (mut large, mut small) = (vec![0u32; most + 2], vec![0u32; most + 1]);
    for (letter, smaller) in text.iter().zip(&smaller) {
        if *smaller {
            large[letter.index() + 1] += 1;
        } else {
            small[letter.index()] += 1;
        }
    }
    for letter in 0..=most {
        small[letter] += large[letter];
        large[letter + 1] += small[letter];
    }
    let starts: Vec<u32> = (1..n)
        .filter(|i| !smaller[i - 1] && smaller[*i])
        .map(|i| i as u32)
        .collect();
    let mut order = vec![NONE; n];
    induce(text, &smaller, [&large, &small], &starts, &mut order);
    if starts.is_empty() {
        return order;
    }
    let mut number = vec![NONE; n];
    for (m, start) in (0u32..).zip(&starts) {
        number[*start as usize] = m;
    }
    let sorted: Vec<u32> = order
        .iter()
        .copied()
        .filter(|v| number[*v as usize] != NONE)
        .collect();
    let end = |start: u32| {
        let next = number[start as usize] as usize + 1;
        starts.get(next).map_or(n, |s| *s as usize)
    };
    let mut names = vec![0u32; starts.len()];
    let mut name = 0;
    for pair in sorted.windows(2) {
        let (a, b) = (pair[0] as usize, pair[1] as usize);
        let (length, other) = (end(pair[0]) - a, end(pair[1]) - b);
        let last = a.max(b) + length < n;
        let same = length == other && last && text[a..=a + length] == text[b..=b + length];
        name += u32::from(!same);
        names[number[b] as usize] = name;
    }
    drop((number, sorted));
    let order_of_names = suffixes(&names, name as usize);
    let sorted: Vec<u32> = order_of_names.iter().map(|v| starts[*v as usize]).collect();
    induce(text, &smaller, [&large, &small], &sorted, &mut order);
    order
}

/// Induces the order of all suffixes from the order of those in `sorted`.
fn induce<L: Letter>(
    text: &[L],
    smaller: &[bool],
    [large, small]: [&[u32]; 2],
    sorted: &[u32],
    order: &mut [u32],
) {
    let n = text.len();
    order.fill(NONE);
    let put = |at: &mut u32, v: usize, order: &mut [u32]| {
        order[*at as usize] = v as u32;
        *at += 1;
    };
    let mut next = small.to_vec();
    for start in sorted {
        let letter = text[*start as usize].index();
        put(&mut next[letter], *start as usize, order);
    }
    next.copy_from_slice(&large[..small.len()]);
    put(&mut next[text[n - 1].index()], n - 1, order);
    for i in 0..n {
        let v = order[i] as usize;
        if order[i] != NONE && v >= 1 && !smaller[v - 1] {
            put(&mut next[text[v - 1].index()], v - 1, order);
        }
    }
    let mut ends = large.to_vec();
    for i in (0..n).rev() {
        let v = order[i] as usize;
        if order[i] != NONE && v >= 1 && smaller[v - 1] {
            let end = &mut ends[text[v - 1].index() + 1];
            *end -= 1;
            order[*end as usize] = v as u32 - 1;
        }
    }
}

/// Length of the common prefix of each suffix in `order` with the previous one.
pub fn common_prefixes(text: &[u8], order: &[u32]) -> Vec<u32> {
    let n = text.len();
    let mut place = vec![0u32; n];
    for (at, start) in (0u32..).zip(order) {
        place[*start as usize] = at;
    }
    let mut common = vec![0u32; n];
    let mut length = 0;
    for i in 0..n {
        let at = place[i] as usize;
        if at == 0 {
            length = 0;
            continue;
        }
        let before = order[at - 1] as usize;
        let rest = n - i.max(before);
        while length < rest && text[i + length] == text[before + length] {
            length += 1;
        }
        common[at] = length as u32;
        length = length.saturating_sub(1);
    }
    common
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{common_prefixes, suffixes};

    proptest! {
        #[test]
        fn suffixes_are_in_order(
            text in proptest::collection::vec(0u8..4, 0..300),
            copies in 1usize..4,
        ) {
            let text = text.repeat(copies);
            let mut expected: Vec<u32> = (0..text.len() as u32).collect();
            expected.sort_by_key(|i| &text[*i as usize..]);
            let order = suffixes(&text, 3);
            prop_assert_eq!(&order, &expected);
            let common = common_prefixes(&text, &order);
            for at in 1..text.len() {
                let [a, b] = [order[at - 1], order[at]].map(|s| &text[s as usize..]);
                let shared = a.iter().zip(b).take_while(|(x, y)| x == y).count();
                prop_assert_eq!(common[at] as usize, shared);
            }
        }
    }
}
