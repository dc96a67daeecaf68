//! Compares histograms with sorted lists of the values.

use pagewalk_stats::{Distribution, Histogram, RELATIVE_ERROR};
use proptest::prelude::*;

/// Values of all magnitudes, some of them repeated.
fn values() -> impl Strategy<Value = Vec<u64>> {
    let value = (0u64..1 << 48, 0u32..48).prop_map(|(v, shift)| v >> shift);
    prop::collection::vec(value, 0..400)
}

fn recorded(values: &[u64]) -> Distribution {
    let mut h = Histogram::default();
    for &v in values {
        h.record(v);
    }
    h.distribution()
}

proptest! {
    #[test]
    fn percentiles_match_the_sorted_values(mut list in values()) {
        let d = recorded(&list);
        list.sort_unstable();
        prop_assert_eq!(d.count(), list.len() as u64);
        prop_assert_eq!(d.sum(), list.iter().sum::<u64>());
        prop_assert_eq!(d.largest(), list.last().copied().unwrap_or(0));
        prop_assert_eq!(d.percentile(100), list.last().copied());
        let mut before = 0;
        for percent in 0..=100 {
            let Some(reported) = d.percentile(percent) else {
                prop_assert!(list.is_empty());
                continue;
            };
            let rank = (list.len() * percent as usize).div_ceil(100).max(1);
            let exact = list[rank - 1];
            prop_assert!(reported >= exact && reported as f64 <= exact as f64 * (1.0 + RELATIVE_ERROR));
            prop_assert!(reported == exact || exact >= 64);
            prop_assert!(reported >= before);
            before = reported;
        }
    }

    #[test]
    fn merging_is_recording_everything_in_one(a in values(), b in values()) {
        let mut merged = recorded(&a);
        merged.merge(&recorded(&b));
        prop_assert_eq!(&merged, &recorded(&[a.clone(), b.clone()].concat()));
        let mut turned = recorded(&b);
        turned.merge(&recorded(&a));
        prop_assert_eq!(merged, turned);
    }

    #[test]
    fn what_came_since_a_mark_is_as_if_recorded_alone(a in values(), b in values()) {
        let mut h = Histogram::default();
        for &v in &a {
            h.record(v);
        }
        let before = h.distribution();
        h.mark();
        for &v in &b {
            h.record(v);
        }
        prop_assert_eq!(h.distribution().since(&before), recorded(&b));
    }

    #[test]
    fn values_added_at_once_are_values_recorded(a in values(), value: u32, n in 0u64..50) {
        let value = u64::from(value);
        let mut d = recorded(&a);
        d.add(value, n);
        let mut list = a;
        list.extend((0..n).map(|_| value));
        prop_assert_eq!(d, recorded(&list));
    }
}
