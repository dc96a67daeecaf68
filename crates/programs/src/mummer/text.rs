//! Sequences similar to chromosomes: unique stretches among copies of repeated elements. A second sequence
//! shares the elements and some stretches.

use rand::Rng as _;

/// Number of repeat families. Their elements range from short interspersed ones of 300 bases to parts of the
/// long ones of 6000.
const FAMILIES: usize = 64;

/// Composition of a sequence, in thousandths.
#[derive(Clone, Copy)]
pub struct Make {
    /// Fraction of the sequence that is copies of repeats (about half of a human genome).
    pub repeats: u64,
    /// Fraction of a copy's bases that differ from its family's element.
    pub divergence: u64,
    /// Fraction of the second sequence that is copied from the first.
    pub homology: u64,
    /// Fraction of a copied stretch's bases that differ.
    pub mutation: u64,
}

fn below(rng: &mut pagewalk_units::Rng, n: u64) -> u64 {
    ((u128::from(rng.next_u64()) * u128::from(n)) >> 64) as u64
}

fn bases(rng: &mut pagewalk_units::Rng, count: usize, out: &mut Vec<u8>) {
    let mut word = 0;
    for i in 0..count {
        if i % 32 == 0 {
            word = rng.next_u64();
        }
        out.push((word & 3) as u8);
        word >>= 2;
    }
}

fn copy(rng: &mut pagewalk_units::Rng, of: &[u8], wrong: u64, reverse: bool, out: &mut Vec<u8>) {
    let from = out.len();
    out.extend_from_slice(of);
    if reverse {
        out[from..].reverse();
        out[from..].iter_mut().for_each(|b| *b = 3 - *b);
    }
    // Distances to the next changed base are geometric, with mean 1000 / wrong.
    if wrong == 0 {
        return;
    }
    let mut at = from;
    loop {
        let draw = (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        let rate = wrong as f64 / 1000.0;
        at += ((1.0 - draw).ln() / (1.0 - rate).ln()) as usize;
        if at >= out.len() {
            return;
        }
        out[at] = (out[at] + 1 + below(rng, 3) as u8) & 3;
        at += 1;
    }
}

impl Make {
    /// The elements of all families, shared by both sequences.
    pub fn elements(rng: &mut pagewalk_units::Rng) -> Vec<Vec<u8>> {
        (0..FAMILIES)
            .map(|_| {
                let mut element = Vec::new();
                let length = 300 << below(rng, 5);
                bases(rng, length as usize, &mut element);
                element
            })
            .collect()
    }

    /// A sequence of `length`, with stretches copied from `from`.
    pub fn sequence(
        self,
        rng: &mut pagewalk_units::Rng,
        elements: &[Vec<u8>],
        from: &[u8],
        length: usize,
    ) -> Vec<u8> {
        let mut out = Vec::with_capacity(length + 5000);
        // The fractions so far determine the kind of the next stretch.
        let (mut repeated, mut taken) = (0u64, 0u64);
        while out.len() < length {
            let so_far = out.len() as u64 + 1;
            let reverse = rng.next_u64() & 1 == 1;
            if taken * 1000 < so_far * self.homology && !from.is_empty() {
                let piece = (2000 + below(rng, 16_000)).min(from.len() as u64);
                let at = below(rng, from.len() as u64 - piece + 1) as usize;
                let part = &from[at..at + piece as usize];
                copy(rng, part, self.mutation, false, &mut out);
                taken += piece;
            } else if repeated * 1000 < so_far * self.repeats {
                let element = &elements[below(rng, FAMILIES as u64) as usize];
                // Most copies are truncated.
                let kept = (element.len() as u64).min(100 + below(rng, 2000)) as usize;
                let at = below(rng, (element.len() - kept + 1) as u64) as usize;
                copy(
                    rng,
                    &element[at..at + kept],
                    self.divergence,
                    reverse,
                    &mut out,
                );
                repeated += kept as u64;
            } else {
                let length = 200 + below(rng, 1800);
                bases(rng, length as usize, &mut out);
            }
        }
        out.truncate(length);
        out
    }
}
