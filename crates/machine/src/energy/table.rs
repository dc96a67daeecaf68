//! Log-log interpolation in the tables of energies.

use std::collections::BTreeMap;

use super::spec::{ArrayEnergy, CacheEnergy};

/// Slope for a curve of a single point: wires grow with the side of an array.
const SQUARE_ROOT: f64 = 0.5;

/// Energies and leakage of an array.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cost {
    pub read_pj: f64,
    pub write_pj: f64,
    /// Energy of a tag lookup.
    pub tag_pj: f64,
    pub static_mw: f64,
}

/// Points of one curve, ascending: size and value.
type Curve = Vec<(f64, f64)>;

/// Log-log slope of a curve at `x`; `None` for a single point.
fn slope(curve: &Curve, x: f64) -> Option<f64> {
    let last = curve.len().checked_sub(2)?;
    let from = curve.iter().skip(1).position(|p| x <= p.0).unwrap_or(last);
    let ((x0, y0), (x1, y1)) = (curve[from], curve[from + 1]);
    Some((y1 / y0).ln() / (x1 / x0).ln())
}

/// Value of the curve at `x`. A curve of a single point has slope `otherwise`.
fn along(curve: &Curve, x: f64, otherwise: f64) -> f64 {
    let from = curve.iter().rposition(|p| p.0 <= x).unwrap_or(0);
    let (x0, y0) = curve[from];
    // Sizes in the table have exactly their values.
    if x0.to_bits() == x.to_bits() {
        return y0;
    }
    y0 * (x / x0).powf(slope(curve, x).unwrap_or(otherwise))
}

/// A cache of this size.
pub(super) fn cache(points: &[CacheEnergy], size_kb: u32) -> Cost {
    let read = |of: fn(&CacheEnergy) -> f64| {
        let curve = points.iter().map(|p| (f64::from(p.size_kb), of(p)));
        along(&curve.collect(), f64::from(size_kb), SQUARE_ROOT)
    };
    let read_pj = read(|p| p.read_pj);
    Cost {
        read_pj,
        write_pj: read(|p| p.write_pj),
        tag_pj: read_pj,
        static_mw: read(|p| p.static_mw),
    }
}

fn by_geometry(
    points: &[ArrayEnergy],
    entries: f64,
    ways: u32,
    of: fn(&ArrayEnergy) -> f64,
) -> f64 {
    let mut curves: BTreeMap<u32, Curve> = BTreeMap::new();
    for p in points {
        let curve = curves.entry(p.ways).or_default();
        curve.push((f64::from(p.entries), of(p)));
    }
    for curve in curves.values_mut() {
        curve.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    // A curve of a single point has the slope of the nearest other curve.
    let at = |ways: u32| {
        let others = curves.iter().filter(|c| c.1.len() > 1);
        let nearest = others.min_by_key(|c| c.0.abs_diff(ways));
        let otherwise = nearest.and_then(|c| slope(c.1, entries));
        along(&curves[&ways], entries, otherwise.unwrap_or(SQUARE_ROOT))
    };
    let below = curves.range(..=ways).next_back();
    let above = curves.range(ways..).next();
    match (below, above) {
        (Some((&a, _)), Some((&b, _))) if a != b => {
            let between =
                (f64::from(ways) / f64::from(a)).ln() / (f64::from(b) / f64::from(a)).ln();
            at(a) * (at(b) / at(a)).powf(between)
        }
        (Some((&one, _)), _) | (_, Some((&one, _))) => at(one),
        (None, None) => 0.0,
    }
}

/// A TLB-like array. A fully associative one costs `fully_associative` times as much as one of the fewest
/// ways.
pub(super) fn array(
    points: &[ArrayEnergy],
    entries: u64,
    ways: u64,
    fully_associative: f64,
) -> Cost {
    let full = ways >= entries;
    let (ways, times) = if full {
        (0, fully_associative)
    } else {
        (u32::try_from(ways).unwrap_or(u32::MAX), 1.0)
    };
    let read = |of: fn(&ArrayEnergy) -> f64| times * by_geometry(points, entries as f64, ways, of);
    let read_pj = read(|p| p.read_pj);
    Cost {
        read_pj,
        write_pj: read(|p| p.write_pj),
        tag_pj: read_pj,
        static_mw: read(|p| p.static_mw),
    }
}

#[cfg(test)]
mod tests {
    use super::super::spec::{ArrayEnergy, EnergySpec};
    use super::{array, cache};

    fn near(a: f64, b: f64) {
        assert!((a / b - 1.0).abs() < 1e-9, "{a} and {b}");
    }

    #[test]
    fn at_its_own_sizes_the_table_says_what_it_has() {
        let spec = EnergySpec::default();
        for p in &spec.l2_l3 {
            let c = cache(&spec.l2_l3, p.size_kb);
            assert_eq!((c.read_pj, c.static_mw), (p.read_pj, p.static_mw));
        }
        for p in &spec.tlb {
            let c = array(&spec.tlb, p.entries.into(), p.ways.into(), 2.0);
            assert_eq!((c.read_pj, c.write_pj), (p.read_pj, p.write_pj));
        }
    }

    #[test]
    fn between_two_sizes_it_is_their_geometric_mean_and_beyond_goes_on() {
        let spec = EnergySpec::default();
        let l1 = |kb| cache(&spec.l1, kb).read_pj;
        near(l1(128), 34.0 * 34.0 / 19.0);
        near(l1(16), 19.0 * 19.0 / 34.0);
        // 2 MB and 16 MB are three doublings apart.
        let doubling = (1404f64 / 499.0).powf(1.0 / 3.0);
        near(cache(&spec.l2_l3, 4096).read_pj, 499.0 * doubling);
        near(cache(&spec.l2_l3, 32768).read_pj, 1404.0 * doubling);
    }

    #[test]
    fn ways_are_read_between_their_curves_and_clamped_outside() {
        let point = |entries, ways, read_pj| ArrayEnergy {
            entries,
            ways,
            read_pj,
            write_pj: 1.0,
            static_mw: 1.0,
        };
        // Two curves of slope 1/2, and a single point between them, which takes their slope.
        let points = [
            point(64, 2, 2.0),
            point(256, 2, 4.0),
            point(256, 4, 6.0),
            point(64, 16, 8.0),
            point(1024, 16, 32.0),
        ];
        let read = |entries, ways| array(&points, entries, ways, 3.0).read_pj;
        near(read(128, 2), 8f64.sqrt());
        near(read(1024, 4), 12.0);
        near(read(256, 8), (6.0f64 * 16.0).sqrt());
        near(read(256, 1), 4.0);
        near(read(256, 128), 16.0);
        near(read(256, 256), 12.0);
    }

    #[test]
    fn larger_and_more_associative_arrays_never_cost_less() {
        let spec = EnergySpec::default();
        let sizes: Vec<u64> = (5..20).map(|n| 1 << n).collect();
        for pair in sizes.windows(2) {
            for ways in [1, 4, 8, 12, 16] {
                let of = |entries| array(&spec.tlb, entries, ways, 2.0);
                let (small, large) = (of(pair[0]), of(pair[1]));
                assert!(small.read_pj < large.read_pj, "{pair:?} {ways}");
                assert!(small.static_mw < large.static_mw, "{pair:?} {ways}");
            }
        }
        let of = |ways| array(&spec.tlb, 1024, ways, 2.0).read_pj;
        assert!(of(4) < of(8) && of(8) < of(12) && of(12) < of(16));
    }
}
