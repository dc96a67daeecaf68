//! Suggestions for misspelt names.

/// The name in `names` that is nearest to `given`, if any is close enough
/// ([`distance`]). Among equally near names, the first.
pub fn nearest<'a>(given: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let lower = given.to_lowercase();
    names
        .into_iter()
        .filter_map(|name| {
            let apart = distance(&lower, &name.to_lowercase())?;
            Some(((apart, strsim::osa_distance(given, name)), name))
        })
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// Edit distance of `given` and `name` (a swap of neighbours counts as one), if it is
/// at most half of the longer length.
pub fn distance(given: &str, name: &str) -> Option<usize> {
    let distance = strsim::osa_distance(given, name);
    let letters = given.chars().count().max(name.chars().count());
    (2 * distance <= letters).then_some(distance)
}

#[cfg(test)]
mod tests {
    use super::{distance, nearest};

    #[test]
    fn a_misspelt_name_is_found() {
        let names = ["radix", "radix5", "thp", "perfect-tlb"];
        assert_eq!(nearest("raidx", names), Some("radix"));
        assert_eq!(nearest("perfect_tlb", names), Some("perfect-tlb"));
        assert_eq!(nearest("thp", names), Some("thp"));
        // Case counts only between names that are equally near without it.
        assert_eq!(nearest("RADIX", names), Some("radix"));
        assert_eq!(nearest("Ab", ["ab", "AB", "Ab"]), Some("Ab"));
    }

    #[test]
    fn half_of_the_letters_may_differ_and_no_more() {
        assert_eq!(nearest("ab", ["ax"]), Some("ax"));
        assert_eq!(nearest("abc", ["axy"]), None);
        assert_eq!(
            (distance("abcd", "abxy"), distance("abcd", "axyz")),
            (Some(2), None)
        );
        assert_eq!(nearest("", ["a"]), None);
        assert_eq!(nearest("anything", []), None);
    }

    #[test]
    fn the_first_of_equally_near_names_is_taken() {
        assert_eq!(nearest("l2", ["l1", "l3"]), Some("l1"));
    }
}
