//! Ways of a set in LRU order, most recently used first.

/// The index of the first of `words` for which `is_it` holds.
#[inline(always)]
pub fn position(words: &[u64], is_it: impl Fn(u64) -> bool) -> Option<usize> {
    // For these common lengths the comparison is branch-free.
    #[inline(always)]
    fn among<const N: usize>(words: &[u64; N], is_it: impl Fn(u64) -> bool) -> Option<usize> {
        let mut found = 0u32;
        for (way, &word) in words.iter().enumerate() {
            found |= u32::from(is_it(word)) << way;
        }
        (found != 0).then(|| found.trailing_zeros() as usize)
    }
    if let Ok(words) = <&[u64; 8]>::try_from(words) {
        return among(words, is_it);
    }
    if let Ok(words) = <&[u64; 16]>::try_from(words) {
        return among(words, is_it);
    }
    // A separate function, to keep inlined code small.
    #[inline(never)]
    fn any(words: &[u64], is_it: impl Fn(u64) -> bool) -> Option<usize> {
        words.iter().position(|&word| is_it(word))
    }
    any(words, is_it)
}

/// Moves the word in `way` to the front (MRU).
#[inline(always)]
pub fn touch_mru(words: &mut [u64], way: usize) {
    let words = &mut words[..=way];
    let word = words[way];
    for at in (1..words.len()).rev() {
        words[at] = words[at - 1];
    }
    words[0] = word;
}

/// Inserts `word` at the front (MRU). Returns the last word (LRU), which is
/// evicted.
#[inline(always)]
pub fn push_mru(words: &mut [u64], word: u64) -> u64 {
    #[inline(always)]
    fn among<const N: usize>(words: &mut [u64; N], word: u64) -> u64 {
        let before = *words;
        words[1..].copy_from_slice(&before[..N - 1]);
        words[0] = word;
        before[N - 1]
    }
    if let Ok(words) = <&mut [u64; 8]>::try_from(&mut *words) {
        return among(words, word);
    }
    if let Ok(words) = <&mut [u64; 16]>::try_from(&mut *words) {
        return among(words, word);
    }
    #[inline(never)]
    fn any(words: &mut [u64], word: u64) -> u64 {
        let last = words.len() - 1;
        let old = std::mem::replace(&mut words[last], word);
        touch_mru(words, last);
        old
    }
    any(words, word)
}

#[cfg(test)]
mod tests {
    use super::{position, push_mru, touch_mru};

    #[test]
    fn sets_of_any_width_are_kept_in_the_order_of_use() {
        for ways in [1, 2, 7, 8, 12, 16, 20] {
            let mut words: Vec<u64> = (0..ways as u64).collect();
            let mut model = words.clone();
            for n in 0..1000u64 {
                let word = n * n % (ways as u64 + 5);
                let found = position(&words, |w| w == word);
                assert_eq!(found, model.iter().position(|&w| w == word));
                match found {
                    Some(way) => {
                        touch_mru(&mut words, way);
                        model.remove(way);
                    }
                    None => assert_eq!(Some(push_mru(&mut words, word)), model.pop()),
                }
                model.insert(0, word);
                assert_eq!(words, model);
            }
        }
    }
}
