//! Sizes as users write them.

use pagewalk_units::{Error, RunOption};

/// Parses a size in bytes: a whole number with an optional unit. `KiB`, `MiB`, `GiB`, `TiB` are powers of
/// 1024, and so are `K`, `KB`, `M`, `MB`, … as is usual for memory. Letter case does not matter.
///
/// # Errors
/// There is no number, the unit is unknown, or the size does not fit 64 bits.
pub fn parse_size(text: &str) -> Result<u64, Error> {
    let trimmed = text.trim();
    let digits = trimmed
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(digits);
    let wrong = |joint: &str, why: &str| {
        Error::about(RunOption::Size, format!("size `{text}`{joint}"), why)
    };
    let too_large = || wrong(" ", "does not fit 64 bits");
    let expected = "expected a whole number with a unit, such as 64MB, 4GiB or 1TB";
    let number: u64 = match number.parse() {
        Ok(n) => n,
        Err(_) if number.is_empty() => return Err(wrong(": ", expected)),
        Err(_) => return Err(too_large()),
    };
    let shift = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return Err(wrong(": ", &format!("unknown unit; {expected}"))),
    };
    number.checked_mul(1 << shift).ok_or_else(too_large)
}

/// `bytes` in the largest unit that divides it: `4GiB`, `1536MiB`, `17B`.
pub fn format_size(bytes: u64) -> String {
    for (shift, unit) in [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")] {
        if bytes != 0 && bytes.trailing_zeros() >= shift {
            return format!("{}{unit}", bytes >> shift);
        }
    }
    format!("{bytes}B")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{format_size, parse_size};

    #[test]
    fn units_are_powers_of_1024() {
        for (text, bytes) in [
            ("4096", 4096),
            ("64MB", 64 << 20),
            ("4GiB", 4 << 30),
            ("1TB", 1 << 40),
            ("1 tib", 1 << 40),
            (" 3k ", 3 << 10),
            ("17B", 17),
            ("0", 0),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused_with_the_expected_form() {
        for text in [
            "",
            "GB",
            "-1",
            "4XB",
            "1.5GB",
            "99999999999999999999",
            "99999999TB",
        ] {
            let error = parse_size(text).unwrap_err();
            assert!(error.to_string().contains(text), "{error}");
        }
    }

    proptest! {
        #[test]
        fn formatted_sizes_parse_back(bytes: u64) {
            prop_assert_eq!(parse_size(&format_size(bytes)), Ok(bytes));
        }
        #[test]
        fn any_text_is_answered(text: String) {
            let _ = parse_size(&text);
        }
    }
}
