//! Exponentially distributed times, the same on every host.

use pagewalk_units::Rng;
use rand::Rng as _;

/// An exponentially distributed number with mean 1, by comparisons of uniform ones (von Neumann,
/// 1951). A logarithm may round differently on another host.
pub(crate) fn draw_exponential(rng: &mut Rng) -> f64 {
    let mut whole = 0.0;
    loop {
        let first = rng.next_u64() >> 11;
        let (mut last, mut falling) = (first, 1_u32);
        loop {
            let next = rng.next_u64() >> 11;
            if next >= last {
                break;
            }
            (last, falling) = (next, falling + 1);
        }
        if falling % 2 == 1 {
            return whole + first as f64 / (1_u64 << 53) as f64;
        }
        whole += 1.0;
    }
}

#[cfg(test)]
mod tests {
    use pagewalk_units::rng;

    use super::draw_exponential;

    #[test]
    fn it_has_the_moments_and_the_tail_of_its_law() {
        let mut source = rng(1, "exponential");
        let drawn: Vec<f64> = (0..100_000)
            .map(|_| draw_exponential(&mut source))
            .collect();
        let mean = drawn.iter().sum::<f64>() / drawn.len() as f64;
        let square = drawn.iter().map(|x| x * x).sum::<f64>() / drawn.len() as f64;
        let beyond = drawn.iter().filter(|x| **x > 2.0).count() as f64 / drawn.len() as f64;
        assert!((mean - 1.0).abs() < 0.01, "{mean}");
        assert!((square - 2.0).abs() < 0.05, "{square}");
        assert!((beyond - (-2.0_f64).exp()).abs() < 0.003, "{beyond}");
    }
}
