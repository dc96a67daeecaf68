//! Kinds of a structure that crates outside of the workspace add, and the parameters that a design
//! gives them.

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock};

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::Error;

/// A value of a parameter of an external kind.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Parameter {
    /// `true` or `false`.
    Flag(bool),
    /// A whole number.
    Whole(i64),
    /// Another number.
    Number(f64),
    /// Text.
    Text(String),
    /// A list of texts, such as page sizes.
    Texts(Vec<String>),
}

/// The parameters of an external kind, by name.
pub type Parameters = BTreeMap<String, Parameter>;

/// Reads the parameters of an external kind.
type Read<Kind> = Box<dyn Fn(&Parameters) -> Result<Box<Kind>, String> + Send + Sync>;

/// The external kinds of one structure, by name. `Kind` is its trait of configurations, as
/// `dyn SourceKind`.
pub struct Registry<Kind: ?Sized> {
    section: &'static str,
    kinds: RwLock<BTreeMap<String, Read<Kind>>>,
}

impl<Kind: ?Sized + 'static> Registry<Kind> {
    /// An empty registry of kinds that designs configure as `[SECTION.external.NAME]`.
    pub const fn new(section: &'static str) -> Self {
        Registry {
            section,
            kinds: RwLock::new(BTreeMap::new()),
        }
    }

    /// Adds a kind, whose parameters are the fields of `K`. A later kind of the same name replaces
    /// an earlier one. `boxed` is `|kind| Box::new(kind)`, with the type that the compiler cannot
    /// derive here.
    pub fn register<K: DeserializeOwned + 'static>(&self, name: &str, boxed: fn(K) -> Box<Kind>) {
        let read: Read<Kind> = Box::new(move |parameters| {
            let value = serde_json::to_value(parameters).map_err(|e| e.to_string())?;
            let kind = serde_json::from_value::<K>(value).map_err(|e| e.to_string())?;
            Ok(boxed(kind))
        });
        let mut kinds = self.kinds.write().unwrap_or_else(PoisonError::into_inner);
        kinds.insert(name.to_owned(), read);
    }

    /// The kind of this name with these parameters.
    ///
    /// # Errors
    /// No such kind is registered, or it has other parameters.
    pub fn read(&self, name: &str, parameters: &Parameters) -> Result<Box<Kind>, Error> {
        let key = format!("{}.external.{name}", self.section);
        let kinds = self.kinds.read().unwrap_or_else(PoisonError::into_inner);
        let Some(read) = kinds.get(name) else {
            let known: Vec<&str> = kinds.keys().map(String::as_str).collect();
            let known = match known[..] {
                [] => "this engine has none (PAGEWALK_ENGINE names one that has)".to_owned(),
                _ => format!("expected one of {}", known.join(", ")),
            };
            return Err(Error::quoted_key(
                key,
                format!("is registered by no extension of the engine; {known}"),
            ));
        };
        read(parameters)
            .map_err(|what| Error::quoted_key(key, format!("has wrong parameters: {what}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    trait Kind {
        fn size(&self) -> u32;
    }

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Own {
        size: u32,
    }

    impl Kind for Own {
        fn size(&self) -> u32 {
            self.size
        }
    }

    #[test]
    fn a_kind_is_read_by_its_name_and_parameters() {
        static KINDS: Registry<dyn Kind> = Registry::new("part");
        let size = Parameters::from([("size".to_owned(), Parameter::Whole(7))]);
        let none = KINDS.read("own", &size).err().unwrap().to_string();
        assert!(none.contains("part.external.own"), "{none}");
        assert!(none.contains("this engine has none"), "{none}");
        KINDS.register::<Own>("own", |kind| Box::new(kind));
        assert_eq!(KINDS.read("own", &size).ok().unwrap().size(), 7);
        let other = KINDS.read("other", &size).err().unwrap().to_string();
        assert!(other.contains("expected one of own"), "{other}");
        let text = Parameters::from([("size".to_owned(), Parameter::Text("x".to_owned()))]);
        let wrong = KINDS.read("own", &text).err().unwrap().to_string();
        assert!(wrong.contains("has wrong parameters"), "{wrong}");
    }
}
