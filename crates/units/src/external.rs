//! Kinds of a structure that crates outside of the workspace add, and the parameters that a design
//! gives them.

use std::collections::BTreeMap;
use std::ops::Deref;
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

/// The configuration of a kind. `K` is its trait, as `dyn SourceKind`.
pub enum Kind<'a, K: ?Sized> {
    /// A kind of the crate that defines the structure.
    Own(&'a K),
    /// One that another crate has registered.
    External(Box<K>),
}

impl<K: ?Sized> Deref for Kind<'_, K> {
    type Target = K;

    fn deref(&self) -> &K {
        match self {
            Kind::Own(kind) => kind,
            Kind::External(kind) => kind,
        }
    }
}

/// Reads the parameters of an external kind.
type Read<K> = Box<dyn Fn(&Parameters) -> Result<Box<K>, String> + Send + Sync>;

/// The external kinds of one structure, by name. `T` is its trait of configurations, as
/// `dyn SourceKind`.
pub struct Registry<T: ?Sized> {
    section: &'static str,
    kinds: RwLock<BTreeMap<String, Read<T>>>,
}

impl<T: ?Sized + 'static> Registry<T> {
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
    pub fn register<K: DeserializeOwned + 'static>(&self, name: &str, boxed: fn(K) -> Box<T>) {
        let read: Read<T> = Box::new(move |parameters| {
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
    pub fn read(&self, name: &str, parameters: &Parameters) -> Result<Box<T>, Error> {
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

    /// The kind of a structure that a machine has once.
    ///
    /// # Errors
    /// As [`Registry::read`], or `kinds` names none or several.
    pub fn read_one(&self, kinds: &BTreeMap<String, Parameters>) -> Result<Box<T>, Error> {
        match kinds.first_key_value() {
            Some((name, parameters)) if kinds.len() == 1 => self.read(name, parameters),
            _ => Err(Error::key(
                format!("{}.external", self.section),
                format!(
                    "has {} kinds; expected one, named as an extension of the engine registers it",
                    kinds.len()
                ),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    trait Size {
        fn size(&self) -> u32;
    }

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Own {
        size: u32,
    }

    impl Size for Own {
        fn size(&self) -> u32 {
            self.size
        }
    }

    #[test]
    fn a_kind_is_read_by_its_name_and_parameters() {
        static KINDS: Registry<dyn Size> = Registry::new("part");
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
        let one = BTreeMap::from([("own".to_owned(), size.clone())]);
        assert_eq!(KINDS.read_one(&one).ok().unwrap().size(), 7);
        for names in [&[][..], &["own", "other"]] {
            let kinds = names.iter().map(|n| ((*n).to_owned(), size.clone()));
            let wrong = KINDS.read_one(&kinds.collect()).err().unwrap().to_string();
            assert!(wrong.contains("part.external"), "{wrong}");
            assert!(wrong.contains("expected one"), "{wrong}");
        }
    }
}
