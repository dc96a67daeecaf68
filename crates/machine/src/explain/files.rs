//! Settings of a shipped file: its keys, their values and defaults, and its comments.

use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use toml_edit::{DocumentMut, Item, RawString, TableLike};

use crate::config::Key;

/// One key that a file sets.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "Setting")]
pub struct FileSetting {
    /// Dotted path.
    pub key: String,
    /// Value in the file; an empty table for a part chosen without values.
    pub value: Value,
    /// Default value, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<Value>,
    /// Comment in the file, with a source if it has one.
    pub comment: String,
}

/// Keys that describe a file.
const ABOUT: [&str; 2] = ["description", "source"];

/// Settings in the text of a machine or design, in order.
pub(super) fn settings(text: &str, keys: &[Key]) -> Vec<FileSetting> {
    let Ok(document) = text.parse::<DocumentMut>() else {
        return Vec::new();
    };
    let mut out = Vec::new();
    table(document.as_table(), "", &mut out);
    out.retain(|s| !ABOUT.contains(&s.key.as_str()));
    for setting in &mut out {
        let key = keys.iter().find(|k| super::matches(&k.path, &setting.key));
        setting.default = key.and_then(|k| k.default.clone());
    }
    out
}

fn table(from: &dyn TableLike, path: &str, out: &mut Vec<FileSetting>) {
    for (name, item) in from.iter() {
        let key = if path.is_empty() {
            name.to_owned()
        } else {
            format!("{path}.{name}")
        };
        let above = from.key(name).and_then(|k| k.leaf_decor().prefix());
        match item {
            Item::Table(inner) if inner.is_empty() => {
                let decor = inner.decor();
                out.push(FileSetting {
                    key,
                    value: Value::Object(serde_json::Map::new()),
                    default: None,
                    comment: comment([decor.prefix(), decor.suffix()]),
                });
            }
            Item::Table(inner) => table(inner, &key, out),
            Item::Value(value) => {
                let comment = comment([above, value.decor().suffix()]);
                if let Some(value) = json(value) {
                    out.push(FileSetting {
                        key,
                        value,
                        default: None,
                        comment,
                    });
                }
            }
            _ => {}
        }
    }
}

/// Text of comments without their comment signs.
fn comment(parts: [Option<&RawString>; 2]) -> String {
    let lines = parts.into_iter().flatten().filter_map(RawString::as_str);
    let words = lines.flat_map(str::lines).filter_map(|line| {
        let (_, text) = line.split_once('#')?;
        Some(text.trim())
    });
    words.collect::<Vec<_>>().join(" ")
}

fn json(value: &toml_edit::Value) -> Option<Value> {
    use toml_edit::Value as Toml;
    Some(match value {
        Toml::String(s) => Value::from(s.value().as_str()),
        Toml::Integer(n) => Value::from(*n.value()),
        Toml::Float(x) => Value::from(*x.value()),
        Toml::Boolean(b) => Value::from(*b.value()),
        Toml::Datetime(_) => return None,
        Toml::Array(list) => Value::from(list.iter().filter_map(json).collect::<Vec<_>>()),
        Toml::InlineTable(table) => Value::Object(
            table
                .iter()
                .filter_map(|(name, value)| Some((name.to_owned(), json(value)?)))
                .collect(),
        ),
    })
}

/// A paper that can be reproduced.
pub(super) struct Paper {
    pub text: String,
    pub source: String,
    pub settings: Vec<FileSetting>,
}

const FILE: &str = "paper.toml";

/// Names of the shipped papers, in order.
pub(super) fn papers(data: &Path) -> Vec<String> {
    let folders = std::fs::read_dir(data.join("papers"));
    let mut names: Vec<String> = folders
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.path().join(FILE).is_file())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// Contents of the file of a shipped paper, if it can be read.
pub(super) fn paper(data: &Path, name: &str) -> Option<Paper> {
    let folder = data.join("papers").join(name);
    let text = std::fs::read_to_string(folder.join(FILE)).ok()?;
    let mut all = settings(&text, &[]);
    let mut about = |key: &str| {
        let at = all.iter().position(|s| s.key == key)?;
        all.remove(at).value.as_str().map(str::to_owned)
    };
    let title = about("title")?;
    let summary = about("about").unwrap_or_default();
    let document = text.parse::<DocumentMut>().ok()?;
    let source = document.get("source").and_then(Item::as_str);
    // Keeps the inputs of the simulation. Drops its size and the layout of figures.
    let is_shown = |key: &str| {
        let last = key.rsplit('.').next().unwrap_or_default();
        match key.split('.').next() {
            Some("scales") => last == "about",
            Some("designs") => true,
            Some("applications") => ["workload", "size"].contains(&last),
            _ => ["machine", "seed", "figures", "on_request"].contains(&key),
        }
    };
    all.retain(|s| is_shown(&s.key));
    Some(Paper {
        text: format!("{title}. {summary}"),
        source: source.unwrap_or_default().to_owned(),
        settings: all,
    })
}
