//! JSON form of arguments and file names, which need not be UTF-8: a string, or `{"bytes": [...]}` if it
//! is not UTF-8.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A string of the operating system.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Written", into = "Written")]
pub struct OsText(pub OsString);

/// Serialised form.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Written {
    Utf8(String),
    Bytes { bytes: Vec<u8> },
}

impl From<Written> for OsText {
    fn from(written: Written) -> Self {
        OsText(match written {
            Written::Utf8(text) => text.into(),
            Written::Bytes { bytes } => OsString::from_vec(bytes),
        })
    }
}

impl From<OsText> for Written {
    fn from(OsText(text): OsText) -> Self {
        match text.into_string() {
            Ok(text) => Written::Utf8(text),
            Err(text) => Written::Bytes {
                bytes: text.as_bytes().to_vec(),
            },
        }
    }
}

/// File name.
pub mod path {
    use super::{Deserialize, Deserializer, OsText, PathBuf, Serialize, Serializer};

    /// Serialises a path.
    pub fn serialize<S: Serializer>(path: &std::path::Path, to: S) -> Result<S::Ok, S::Error> {
        OsText(path.into()).serialize(to)
    }
    /// Deserialises a path.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
        OsText::deserialize(from).map(|text| text.0.into())
    }
}

/// Optional file name.
pub mod optional_path {
    use super::{Deserialize, Deserializer, OsText, PathBuf, Serialize, Serializer};

    /// Serialises an optional path.
    pub fn serialize<S: Serializer>(path: &Option<PathBuf>, to: S) -> Result<S::Ok, S::Error> {
        let text = path.as_ref().map(|path| OsText(path.into()));
        text.serialize(to)
    }
    /// Deserialises an optional path.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<PathBuf>, D::Error> {
        let text = Option::<OsText>::deserialize(from)?;
        Ok(text.map(|text| text.0.into()))
    }
}

/// Serialises a path for display.
pub(crate) fn shown<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&path.display())
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use serde_json::json;

    use super::OsText;

    #[test]
    fn text_that_is_not_utf8_survives_json() {
        let texts: [(&[u8], _); 3] = [
            (b"plain", json!("plain")),
            ("π".as_bytes(), json!("π")),
            (b"a\xff", json!({"bytes": [97, 255]})),
        ];
        for (bytes, written) in texts {
            let text = OsText(std::ffi::OsString::from_vec(bytes.to_vec()));
            assert_eq!(serde_json::to_value(&text).unwrap(), written);
            assert_eq!(serde_json::from_value::<OsText>(written).unwrap(), text);
        }
    }
}
