//! Errors for the user: the failure, the place where its cause was read, and the option concerned.
//!
//! A sentence stores option names as structured parts, so that the command line prints `--skip-requests`
//! where Python prints `skip_requests`.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! run_options {
    ($($variant:ident $name:literal $flag:literal)*) => {
        /// An option of a run that an error can name. `pagewalk.config.options` in Python declares all options.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
        pub enum RunOption {
            $(
                #[doc = concat!("`", $flag, "`")]
                #[serde(rename = $name)]
                $variant,
            )*
        }

        impl RunOption {
            /// All run options.
            pub const ALL: &[RunOption] = &[$(RunOption::$variant),*];

            /// The canonical name, which is the keyword in Python.
            pub const fn name(self) -> &'static str {
                match self {
                    $(RunOption::$variant => $name,)*
                }
            }

            /// The flag of the command line.
            pub const fn flag(self) -> &'static str {
                match self {
                    $(RunOption::$variant => $flag,)*
                }
            }
        }
    };
}

run_options! {
    Machine "machine" "--machine"
    Design "design" "--design"
    Settings "settings" "--set"
    Workload "workload" "--workload"
    Size "size" "--size"
    Threads "threads" "--threads"
    Params "params" "--param"
    Trace "trace" "--trace"
    Mix "mix" "--mix"
    Program "program" "--"
    Cpu "cpu" "--cpu"
    Clock "clock" "--clock"
    Skip "skip" "--skip"
    Warmup "warmup" "--warmup"
    Instructions "instructions" "--instructions"
    SkipRequests "skip_requests" "--skip-requests"
    WarmupRequests "warmup_requests" "--warmup-requests"
    Requests "requests" "--requests"
    Roi "roi" "--roi"
    Sample "sample" "--sample"
    Precision "precision" "--precision"
    Regions "regions" "--regions"
    Jobs "jobs" "--jobs"
    Cluster "cluster" "--cluster"
    Frames "frames" "--frames"
    IgnoreMemory "ignore_memory" "--ignore-memory"
    TranslationCost "translation_cost" "--translation-cost"
    Interval "interval" "--interval"
    Perfetto "perfetto" "--perfetto"
}

impl fmt::Display for RunOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.flag())
    }
}

/// A piece of a sentence. `Display` writes it as on the command line.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// A run option: `--skip` or `skip`.
    Option(RunOption),
    /// A run option with the form of its value, which Python leaves out: `--trace FILE` or `trace`.
    OptionForm(RunOption, String),
    /// A parameter of a program: `--param k=v` or `params={'k': 'v'}`.
    Param(String, String),
    /// A configuration key.
    Key(String),
    /// Any other text.
    #[serde(untagged)]
    Text(String),
}

impl Part {
    /// A configuration key.
    pub fn key(key: impl Into<String>) -> Self {
        Part::Key(key.into())
    }

    /// A parameter of a program with its value.
    pub fn param(name: &str, value: &str) -> Self {
        Part::Param(name.to_owned(), value.to_owned())
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Part::Option(option) => option.fmt(f),
            Part::OptionForm(option, form) => write!(f, "{option} {form}"),
            Part::Param(name, value) => write!(f, "{} {name}={value}", RunOption::Params),
            Part::Key(text) | Part::Text(text) => f.write_str(text),
        }
    }
}

impl From<&str> for Part {
    fn from(text: &str) -> Self {
        Part::Text(text.to_owned())
    }
}

impl From<&String> for Part {
    fn from(text: &String) -> Self {
        Part::Text(text.clone())
    }
}

impl From<String> for Part {
    fn from(text: String) -> Self {
        Part::Text(text)
    }
}

impl From<RunOption> for Part {
    fn from(option: RunOption) -> Self {
        Part::Option(option)
    }
}

/// A sentence, or a part of one.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Text(Vec<Part>);

impl Text {
    /// The parts, in order.
    pub fn parts(&self) -> &[Part] {
        &self.0
    }

    /// Prepends `prefix.` to each configuration key.
    fn put_under(&mut self, prefix: &str) {
        for part in &mut self.0 {
            if let Part::Key(key) = part {
                *key = format!("{prefix}.{key}");
            }
        }
    }

    /// Appends `more` to the text.
    #[must_use]
    pub fn and(mut self, more: impl Into<Text>) -> Self {
        self.0.extend(more.into().0);
        self
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|part| part.fmt(f))
    }
}

impl<P: Into<Part>> From<P> for Text {
    fn from(part: P) -> Self {
        Text(vec![part.into()])
    }
}

impl FromIterator<Part> for Text {
    fn from_iter<I: IntoIterator<Item = Part>>(parts: I) -> Self {
        Text(parts.into_iter().collect())
    }
}

/// Makes a [`Text`] of strings, [`RunOption`]s and other [`Part`]s.
#[macro_export]
macro_rules! text {
    ($($part:expr),+ $(,)?) => {
        [$($crate::Part::from($part)),+].into_iter().collect::<$crate::Text>()
    };
}

/// Classification of an error by who can fix it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// The user, with another input or option.
    Refused,
    /// Not the user, or not by other input alone.
    Failed,
}

/// The reason why there is no result. `Display` writes the whole sentence as on the command line.
#[derive(Clone, PartialEq, Eq, Serialize)]
pub struct Error(Box<Fields>);

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
struct Fields {
    kind: ErrorKind,
    place: Option<Text>,
    option: Option<String>,
    lead: Text,
    text: Text,
}

impl Error {
    fn new(kind: ErrorKind, option: Option<String>, lead: Text, text: Text) -> Self {
        Error(Box::new(Fields {
            kind,
            place: None,
            option,
            lead,
            text,
        }))
    }

    /// Refused input.
    pub fn refused(text: impl Into<Text>) -> Self {
        Self::new(ErrorKind::Refused, None, Text::default(), text.into())
    }

    /// A failed operation.
    pub fn failed(text: impl Into<Text>) -> Self {
        Self::new(ErrorKind::Failed, None, Text::default(), text.into())
    }

    /// A refused run option: `--roi: …`.
    pub fn option(option: RunOption, text: impl Into<Text>) -> Self {
        Self::about(option, text![option, ": "], text)
    }

    /// A refused value of a run option: `--sample 5/1: …`.
    pub fn value(option: RunOption, value: impl fmt::Display, text: impl Into<Text>) -> Self {
        Self::about(option, text![option, format!(" {value}: ")], text)
    }

    /// A refused run option, whose sentence begins with `lead` instead of its name.
    pub fn about(option: RunOption, lead: impl Into<Text>, text: impl Into<Text>) -> Self {
        let name = Some(option.name().to_owned());
        Self::new(ErrorKind::Refused, name, lead.into(), text.into())
    }

    /// A refused configuration key. The sentence continues after it: `mmu.walkers is 0; …`.
    pub fn key(key: impl Into<String>, text: impl Into<Text>) -> Self {
        let key = key.into();
        let lead = text![Part::key(&key), " "];
        Self::new(ErrorKind::Refused, Some(key), lead, text.into())
    }

    /// A refused configuration key before a sentence of its own: `mmu.l2: …`.
    pub fn keyed(key: impl Into<String>, text: impl Into<Text>) -> Self {
        let key = key.into();
        let lead = text![Part::key(&key), ": "];
        Self::new(ErrorKind::Refused, Some(key), lead, text.into())
    }

    /// A refused configuration key as the user wrote it: `` `mmu.walkrs`: … ``.
    pub fn quoted_key(key: impl Into<String>, text: impl Into<Text>) -> Self {
        let key = key.into();
        let lead = text!["`", Part::key(&key), "`: "];
        Self::new(ErrorKind::Refused, Some(key), lead, text.into())
    }

    /// Adds the place where the cause was read, if none is set.
    #[must_use]
    pub fn at(mut self, place: impl Into<Text>) -> Self {
        self.0.place.get_or_insert_with(|| place.into());
        self
    }

    /// Prepends `prefix` to all configuration keys of the error.
    #[must_use]
    pub fn under(mut self, prefix: &str) -> Self {
        if let Some(option) = &mut self.0.option {
            *option = format!("{prefix}.{option}");
        }
        self.0.lead.put_under(prefix);
        self.0.text.put_under(prefix);
        self
    }

    /// The same error as a failure.
    #[must_use]
    pub fn into_failed(mut self) -> Self {
        self.0.kind = ErrorKind::Failed;
        self
    }

    /// The kind of error.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The canonical name of the run option, or the configuration key, concerned.
    pub fn option_name(&self) -> Option<&str> {
        self.0.option.as_deref()
    }

    /// The place where the cause was read: file and line, a design, a machine or a program, or an
    /// option.
    pub fn place(&self) -> Option<&Text> {
        self.0.place.as_ref()
    }

    /// The beginning of the sentence, which names the option.
    pub fn lead(&self) -> &Text {
        &self.0.lead
    }

    /// The rest of the sentence.
    pub fn text(&self) -> &Text {
        &self.0.text
    }

    /// The configuration keys that the sentence names, in order.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        let parts = self.0.lead.0.iter().chain(&self.0.text.0);
        parts.filter_map(|part| match part {
            Part::Key(key) => Some(key.as_str()),
            _ => None,
        })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(place) = &self.0.place {
            write!(f, "{place}: ")?;
        }
        write!(f, "{}{}", self.0.lead, self.0.text)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::{Error, ErrorKind, Part, RunOption};

    #[test]
    fn a_prefix_comes_before_all_keys_of_an_error() {
        let e = Error::key(
            "ways",
            text![
                "is 3; expected a divisor of ",
                Part::key("entries"),
                " (64), as ",
                RunOption::Settings,
                " says"
            ],
        );
        assert_eq!(
            e.to_string(),
            "ways is 3; expected a divisor of entries (64), as --set says"
        );
        let e = e.under("spectlb").under("engine");
        assert_eq!(e.option_name(), Some("engine.spectlb.ways"));
        assert_eq!(
            e.keys().collect::<Vec<_>>(),
            ["engine.spectlb.ways", "engine.spectlb.entries"]
        );
        assert_eq!(
            e.to_string(),
            "engine.spectlb.ways is 3; expected a divisor of engine.spectlb.entries (64), as --set says"
        );
    }

    #[test]
    fn the_first_place_stays() {
        let e = Error::keyed("mmu.l2", "no array holds 4KB pages")
            .at("mine.toml:3")
            .at("design mine");
        assert_eq!(
            e.to_string(),
            "mine.toml:3: mmu.l2: no array holds 4KB pages"
        );
        assert_eq!(e.kind(), ErrorKind::Refused);
        assert_eq!(e.into_failed().kind(), ErrorKind::Failed);
    }

    #[test]
    fn parts_are_distinguished_in_json() {
        let text = text![
            "add ",
            Part::param("symmetric", "yes"),
            ", or drop ",
            RunOption::SkipRequests,
            " and ",
            Part::OptionForm(RunOption::Trace, "FILE".to_owned()),
            " for ",
            Part::key("cores")
        ];
        assert_eq!(
            text.to_string(),
            "add --param symmetric=yes, or drop --skip-requests and --trace FILE for cores"
        );
        let json = serde_json::to_string(&text).unwrap();
        assert_eq!(
            json,
            r#"["add ",{"param":["symmetric","yes"]},", or drop ",{"option":"skip_requests"}," and ",{"option_form":["trace","FILE"]}," for ",{"key":"cores"}]"#
        );
        assert_eq!(serde_json::from_str::<crate::Text>(&json).unwrap(), text);
    }

    #[test]
    fn flags_derive_from_names_except_for_listed_ones() {
        for option in RunOption::ALL {
            let own = format!("--{}", option.name().replace('_', "-"));
            let apart = ["--set", "--param", "--"].contains(&option.flag());
            assert!(apart || option.flag() == own, "{option}");
        }
    }
}
