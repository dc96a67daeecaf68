//! Names of designs and targets of settings, as users write them: `thp`, `mine/thp.toml`,
//! `thp[placement.thp.giant=true]`, `--set thp:mmu.walkers=2`.

use std::path::Path;

use pagewalk_units::{Error, RunOption, Text, text};

fn is_path(name: &str) -> bool {
    name.contains('/') || name.ends_with(".toml")
}

/// Name of a file in results: its name without folders and extension.
pub fn label(name: &str) -> String {
    if !is_path(name) {
        return name.to_owned();
    }
    let stem = Path::new(name).file_stem().unwrap_or_default();
    stem.to_string_lossy().into_owned()
}

/// A design as the user names it: a shipped one or a file, with changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesignName {
    /// Name or path.
    pub base: String,
    /// Changes `a.b=c`, in order; a design with changes is a variant with its own name.
    pub changes: Vec<String>,
}

impl DesignName {
    /// Reads `NAME` or `NAME[KEY=VALUE,…]`; commas in brackets and quotes belong to a value.
    ///
    /// # Errors
    /// Brackets with nothing before them or nothing in them.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let text = text.trim();
        if text.contains('[') && !text.ends_with(']') && !Path::new(text).exists() {
            return Err(Error::value(
                RunOption::Design,
                text,
                "has no `]` at its end; expected NAME[KEY=VALUE,…], such as thp[placement.thp.giant=true]",
            ));
        }
        let variant = text.strip_suffix(']').and_then(|t| t.split_once('['));
        let Some((base, inner)) = variant else {
            return Ok(DesignName {
                base: text.to_owned(),
                changes: vec![],
            });
        };
        let changes: Vec<String> = split(inner).iter().map(|c| c.trim().to_owned()).collect();
        if base.trim().is_empty() || changes.iter().any(String::is_empty) {
            return Err(Error::value(
                RunOption::Design,
                text,
                "expected NAME[KEY=VALUE,…], such as thp[placement.thp.giant=true]",
            ));
        }
        Ok(DesignName {
            base: base.trim().to_owned(),
            changes,
        })
    }

    /// Name of the design in results.
    pub fn label(&self) -> String {
        let stem = label(&self.base);
        if self.changes.is_empty() {
            stem
        } else {
            format!("{stem}[{}]", self.changes.join(","))
        }
    }
}

/// Splits a list at its commas, except those in brackets and quotes.
fn split(list: &str) -> Vec<&str> {
    let (mut depth, mut quote, mut start) = (0_u32, None, 0);
    let mut parts = Vec::new();
    for (at, c) in list.char_indices() {
        match (quote, c) {
            (Some(open), c) => quote = (c != open).then_some(open),
            (None, '"' | '\'') => quote = Some(c),
            (None, '[' | '{') => depth += 1,
            (None, ']' | '}') => depth = depth.saturating_sub(1),
            (None, ',') if depth == 0 => {
                parts.push(&list[start..at]);
                start = at + 1;
            }
            (None, _) => {}
        }
    }
    parts.push(&list[start..]);
    parts
}

/// A setting of the user for one design.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// `a.b=c`.
    pub text: String,
    /// The setting as written, for messages.
    pub written: Text,
    /// The design that the setting is for. The name stays, so the setting may change values but not
    /// exchange parts. None for a variant, whose name states the change.
    pub keeps: Option<String>,
    /// True if the setting names this design.
    pub single: bool,
}

impl Setting {
    /// The setting `text` in the brackets of the variant `label`.
    pub fn of_variant(label: &str, text: &str) -> Self {
        Setting {
            text: text.to_owned(),
            written: label.into(),
            keeps: None,
            single: true,
        }
    }

    /// The setting `--set written` for the design `label` on `machine`; none if it is for another design
    /// or machine.
    pub fn for_design(written: &str, label: &str, machine: &str) -> Option<Self> {
        let (target, text) = target(written);
        let meant = target.is_none_or(|t| t == label || t == machine);
        meant.then(|| Setting {
            text: text.to_owned(),
            written: text![RunOption::Settings, format!(" {written}")],
            keeps: Some(label.to_owned()),
            single: target == Some(label),
        })
    }
}

/// Splits a setting into the design or machine before its colon, and the rest. Brackets of a label may
/// contain `=` and colons; keys contain no colon.
pub fn target(setting: &str) -> (Option<&str>, &str) {
    let key_end = setting.find('=').unwrap_or(setting.len());
    let labelled = setting
        .split_once("]:")
        .filter(|(label, _)| label.find('[').is_some_and(|at| at < key_end))
        .map(|(label, rest)| (&setting[..=label.len()], rest));
    let plain = setting[..key_end]
        .rfind(':')
        .map(|at| (&setting[..at], &setting[at + 1..]));
    match labelled.or(plain) {
        Some((label, rest)) => (Some(label.trim()), rest),
        None => (None, setting),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variant_has_its_changes_in_its_name() {
        let plain = DesignName::parse("mine/thp.toml").unwrap();
        assert_eq!((plain.label().as_str(), plain.changes.len()), ("thp", 0));
        let name = DesignName::parse("a/x.toml[a.b=[1, 2], c = \"d,]\",e={f=1,g=2}]").unwrap();
        assert_eq!(name.base, "a/x.toml");
        assert_eq!(name.changes, ["a.b=[1, 2]", "c = \"d,]\"", "e={f=1,g=2}"]);
        assert_eq!(name.label(), "x[a.b=[1, 2],c = \"d,]\",e={f=1,g=2}]");
        for wrong in ["[a=1]", "thp[]", "thp[a=1,]"] {
            let e = DesignName::parse(wrong).unwrap_err();
            assert!(e.to_string().contains("expected NAME[KEY=VALUE"), "{e}");
        }
    }

    #[test]
    fn a_setting_is_for_all_designs_or_for_the_one_that_it_names() {
        assert_eq!(target("a.b=c:d"), (None, "a.b=c:d"));
        assert_eq!(target("thp:a.b=c"), (Some("thp"), "a.b=c"));
        assert_eq!(target("thp[a=1]:b=2"), (Some("thp[a=1]"), "b=2"));
        assert_eq!(target("a=x[1]:y"), (None, "a=x[1]:y"));
        assert!(Setting::for_design("thp:a=1", "radix", "m").is_none());
        assert!(Setting::for_design("thp:a=1", "thp", "m").unwrap().single);
        assert!(!Setting::for_design("a=1", "thp", "m").unwrap().single);
        assert!(!Setting::for_design("m:a=1", "thp", "m").unwrap().single);
        assert!(Setting::for_design("m:a=1", "thp", "n").is_none());
    }
}
