//! Merging of configuration layers, and locations for error messages.

use std::collections::BTreeMap;
use std::path::PathBuf;

use pagewalk_units::{Error, RunOption, Text, nearest, text};
use serde_json::{Map, Value};
use toml_edit::{Document, Item, TableLike};

use super::Config;
use super::naming::Setting;
use super::schema::{expected, resolve_ref, root_schema, tagged, words};

/// Clause that suggests the nearest name, or nothing.
pub(super) fn did_you_mean(nearest: Option<&str>) -> String {
    nearest.map_or_else(String::new, |n| format!("; did you mean `{n}`?"))
}

/// One source of configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Layer {
    /// Cores that no other layer needs to set.
    Cores(u8),
    /// A file and its text.
    File {
        /// Path, for messages.
        path: PathBuf,
        /// TOML.
        text: String,
    },
    /// `a.b=c` from the command line.
    Set(Setting),
}

/// A configuration with the origin of each value.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// The result.
    pub config: Config,
    /// `description` of each file that has one, in order.
    pub descriptions: Vec<String>,
}

/// Keys that describe a file rather than the machine.
const ABOUT: [&str; 4] = ["description", "source", "base", "calibrated"];

/// Keys of earlier versions, and their names now.
const RENAMED: [(&str, &str); 1] = [("in_memory_tlb", "`translation`, with pom_tlb for pom")];

/// Parts that define a design. Each has alternatives or is absent.
const PARTS: [&str; 6] = [
    "placement",
    "page_table",
    "engine",
    "translation",
    "shortcut",
    "virtual",
];

struct Merge<'a> {
    root: &'a Value,
    /// Last assignment of each key: its layer and its place in it.
    places: BTreeMap<String, (usize, Text)>,
    layer: usize,
    /// The current setting, whose design may have to keep its parts.
    setting: Option<&'a Setting>,
}

pub(super) fn line_of(text: &str, at: usize) -> usize {
    text.as_bytes()[..at.min(text.len())]
        .iter()
        .filter(|&&b| b == b'\n')
        .count()
        + 1
}

impl Merge<'_> {
    /// Merges the keys of `table` into `into`. `place` converts a byte offset to a place.
    fn table(
        &mut self,
        table: &dyn TableLike,
        schema: &Value,
        path: &str,
        into: &mut Map<String, Value>,
        place: &dyn Fn(Option<usize>) -> Text,
    ) -> Result<(), Error> {
        let schema = resolve_ref(self.root, schema);
        let alternatives = tagged(schema);
        let properties = schema.get("properties").and_then(Value::as_object);
        let any = schema.get("additionalProperties").filter(|v| v.is_object());
        if let Some(alternatives) = &alternatives {
            // An alternative replaces that of an earlier layer.
            if let Some((first, _)) = table.iter().next()
                && alternatives.iter().any(|(n, _)| *n == first)
                && !into.contains_key(first)
            {
                if let Some((old, _)) = into.iter().next() {
                    self.may_exchange(path, Some(old), first)?;
                }
                into.clear();
            }
            if table.iter().count() > 1 {
                let names: Vec<&str> = table.iter().map(|(k, _)| k).collect();
                return Err(Error::quoted_key(
                    path,
                    format!(
                        "takes one of its alternatives, but {} are given",
                        names.join(" and ")
                    ),
                )
                .at(place(
                    table
                        .iter()
                        .nth(1)
                        .and_then(|(_, v)| v.span())
                        .map(|s| s.start),
                )));
            }
        }
        for (name, item) in table.iter() {
            let key = if path.is_empty() {
                name.to_owned()
            } else {
                format!("{path}.{name}")
            };
            let key_span = table
                .key(name)
                .and_then(|k| k.span())
                .or_else(|| item.span());
            let at = place(key_span.map(|s| s.start));
            let inner = if let Some(alternatives) = &alternatives {
                alternatives
                    .iter()
                    .find(|(n, _)| *n == name)
                    .map(|(_, s)| *s)
            } else if let Some(p) = properties.and_then(|p| p.get(name)) {
                Some(p)
            } else {
                any
            };
            let Some(inner) = inner else {
                let names: Vec<&str> = match (&alternatives, properties) {
                    (Some(a), _) => a.iter().map(|(n, _)| *n).collect(),
                    (None, Some(p)) => p.keys().map(String::as_str).collect(),
                    (None, None) => vec![],
                };
                let what = if names.is_empty() {
                    "is not a table".to_owned()
                } else {
                    format!("is unknown here; expected one of {}", names.join(", "))
                };
                let renamed = RENAMED.iter().find(|(old, _)| *old == key);
                let advice = match renamed {
                    Some((_, new)) => format!("; it is {new} now"),
                    None => did_you_mean(nearest(name, names.iter().copied())),
                };
                return Err(Error::quoted_key(key, what + &advice).at(at));
            };
            if path.is_empty() && !into.contains_key(name) {
                self.may_exchange(path, None, name)?;
            }
            self.places.insert(key.clone(), (self.layer, at.clone()));
            if let Some(sub) = item.as_table_like() {
                if !takes_keys(self.root, inner) {
                    return Err(Error::quoted_key(
                        key,
                        format!("is a table here; expected {}", expected(self.root, inner)),
                    )
                    .at(at));
                }
                let slot = into
                    .entry(name)
                    .or_insert_with(|| Value::Object(Map::new()));
                if !slot.is_object() {
                    *slot = Value::Object(Map::new());
                }
                let Value::Object(map) = slot else {
                    unreachable!("made an object just above")
                };
                self.table(sub, inner, &key, map, place)?;
            } else {
                let value = to_json(item).ok_or_else(|| {
                    Error::quoted_key(&key, format!("expected {}", expected(self.root, inner)))
                        .at(at.clone())
                })?;
                if takes_keys(self.root, inner) && words(resolve_ref(self.root, inner)).is_empty() {
                    let near = did_you_mean(self.with_key(path, name, schema, into).as_deref());
                    let keys = resolve_ref(self.root, inner)["properties"].as_object();
                    let keys: Vec<&str> = keys
                        .into_iter()
                        .flatten()
                        .map(|(k, _)| k.as_str())
                        .collect();
                    let of = if keys.is_empty() {
                        String::new()
                    } else {
                        format!(" of {}", keys.join(", "))
                    };
                    let what = format!("is no single value; expected a table{of}{near}");
                    return Err(Error::quoted_key(key, what).at(at));
                }
                into.insert(name.to_owned(), value);
            }
        }
        Ok(())
    }
}

impl Merge<'_> {
    /// Path of key `name` in a named table beside it: `mmu.l2.main.entries` for `mmu.l2.entries`.
    fn with_key(
        &self,
        path: &str,
        name: &str,
        schema: &Value,
        beside: &Map<String, Value>,
    ) -> Option<String> {
        let inner = resolve_ref(self.root, schema.get("additionalProperties")?);
        inner.get("properties")?.get(name)?;
        let (table, _) = beside.iter().next()?;
        Some(format!("{path}.{table}.{name}"))
    }

    /// Refuses a setting that would replace part `old` of a design, or add one, under the design's
    /// unchanged name. A reader of the result would not see the change.
    fn may_exchange(&self, path: &str, old: Option<&str>, new: &str) -> Result<(), Error> {
        let part = path.split('.').next().filter(|p| !p.is_empty());
        let Some((setting, design)) = self
            .setting
            .and_then(|s| Some((s, s.keeps.as_ref()?)))
            .filter(|_| PARTS.contains(&part.unwrap_or(new)))
        else {
            return Ok(());
        };
        let there = match old {
            Some(old) => format!("has {path}.{old}, and with {path}.{new} in its place"),
            None => format!("has no {new}, and with one"),
        };
        let text = &setting.text;
        let single = if setting.single {
            Text::default()
        } else {
            text![
                "name the design that it is for (",
                RunOption::Settings,
                format!(" NAME:{text}), or "),
            ]
        };
        let variant = match design.strip_suffix(']') {
            Some(open) => format!("{open},{text}]"),
            None => format!("{design}[{text}]"),
        };
        let what = text![format!(
            "the design {design} {there} it would be another design under the same name; "
        )]
        .and(single)
        .and(format!("make a variant with a name of its own ({variant})"));
        Err(of_setting(setting, what))
    }
}

/// True if a value of this schema is a table.
fn takes_keys(root: &Value, schema: &Value) -> bool {
    let schema = resolve_ref(root, schema);
    tagged(schema).is_some_and(|a| !a.is_empty())
        || schema.get("properties").is_some()
        || schema.get("type").and_then(Value::as_str) == Some("object")
}

fn to_json(item: &Item) -> Option<Value> {
    fn value(v: &toml_edit::Value) -> Option<Value> {
        Some(match v {
            toml_edit::Value::String(s) => Value::from(s.value().as_str()),
            toml_edit::Value::Integer(i) => Value::from(*i.value()),
            // JSON has no NaN and no infinity, and no key accepts them.
            toml_edit::Value::Float(x) if !x.value().is_finite() => return None,
            toml_edit::Value::Float(x) => Value::from(*x.value()),
            toml_edit::Value::Boolean(b) => Value::from(*b.value()),
            toml_edit::Value::Array(a) => Value::Array(a.iter().map(value).collect::<Option<_>>()?),
            toml_edit::Value::InlineTable(t) => Value::Object(
                t.iter()
                    .map(|(k, v)| Some((k.to_owned(), value(v)?)))
                    .collect::<Option<_>>()?,
            ),
            toml_edit::Value::Datetime(_) => return None,
        })
    }
    match item {
        Item::Value(v) => value(v),
        _ => None,
    }
}

/// Place of an error. Among the keys that it names, this is the one from the strongest layer, since that
/// contradicts earlier ones; the first of equals. A key that no layer set is located at the nearest
/// enclosing table.
fn place_of(places: &BTreeMap<String, (usize, Text)>, error: &Error) -> Option<Text> {
    let mut named: Vec<&(usize, Text)> = error.keys().filter_map(|k| places.get(k)).collect();
    named.sort_by_key(|(layer, _)| std::cmp::Reverse(*layer));
    if let Some((_, place)) = named.first() {
        return Some(place.clone());
    }
    around(places, error.keys().next()?).cloned()
}

/// Place at which the key or the nearest enclosing table was set.
fn around<'a>(places: &'a BTreeMap<String, (usize, Text)>, key: &str) -> Option<&'a Text> {
    let mut key = key;
    loop {
        match places.get(key) {
            Some((_, place)) => return Some(place),
            None => key = key.rsplit_once('.')?.0,
        }
    }
}

/// Expected values in plain words, without names of Rust types.
fn in_plain_words(message: &str) -> String {
    let Some((found, expected)) = message.rsplit_once(", expected ") else {
        return message.to_owned();
    };
    let words = match expected {
        "u8" => format!("a whole number from 0 to {}", u8::MAX),
        "u32" => format!("a whole number from 0 to {}", u32::MAX),
        "u64" => format!("a whole number from 0 to {}", i64::MAX),
        "f64" => "a number".to_owned(),
        "a boolean" => "true or false".to_owned(),
        "a sequence" => "a list".to_owned(),
        _ => return message.to_owned(),
    };
    format!("{found}; expected {words}")
}

/// An error about a complete setting.
fn of_setting(setting: &Setting, what: impl Into<Text>) -> Error {
    Error::about(RunOption::Settings, Text::default(), what).at(setting.written.clone())
}

/// `a.b=c` as TOML: `c` is read as a TOML value if it is one, else as text.
fn set_to_toml(setting: &Setting) -> Result<(Text, Document<String>), Error> {
    let bad = |what: String| of_setting(setting, what);
    let place = setting.written.clone();
    let setting = &setting.text;
    let (key, value) = setting
        .split_once('=')
        .ok_or_else(|| bad("expected KEY=VALUE, such as core.rob=512".to_owned()))?;
    let (key, value) = (key.trim(), value.trim());
    let quoted: String = key
        .split('.')
        .map(|part| format!("{}", toml_edit::Key::new(part)))
        .collect::<Vec<_>>()
        .join(".");
    let raw = format!("{quoted} = {value}");
    let parsed = Document::parse(raw)
        .or_else(|_| Document::parse(format!("{quoted} = {}", toml_edit::Value::from(value))));
    parsed
        .map(|d| (place.clone(), d))
        .map_err(|e| bad(format!("is not KEY=VALUE: {}", e.message())))
}

/// Merges `layers`, the last one strongest, into a configuration.
///
/// # Errors
/// The first mistake: invalid TOML, an unknown or missing key, a value of the wrong type, or
/// contradictory values.
pub fn resolve_layers(layers: &[Layer]) -> Result<Resolved, Error> {
    let root = root_schema();
    let mut merge = Merge {
        root,
        places: BTreeMap::new(),
        layer: 0,
        setting: None,
    };
    let mut merged = Map::new();
    let mut descriptions = Vec::new();
    let mut files = Vec::new();
    for (number, layer) in layers.iter().enumerate() {
        merge.layer = number;
        merge.setting = None;
        match layer {
            Layer::Cores(cores) => {
                merged.insert("cores".to_owned(), (*cores).into());
            }
            Layer::File { path, text } => {
                files.push(path.display().to_string());
                let document = Document::parse(text.clone()).map_err(|e| {
                    let place = match e.span() {
                        Some(s) => format!("{}:{}", path.display(), line_of(text, s.start)),
                        None => path.display().to_string(),
                    };
                    Error::refused(format!("is not TOML: {}", e.message().replace('\n', " ")))
                        .at(place)
                })?;
                let mut table = document.as_table().clone();
                for about in ABOUT {
                    if let Some(item) = table.remove(about)
                        && about == "description"
                        && let Some(s) = item.as_str()
                    {
                        descriptions.push(s.to_owned());
                    }
                }
                let name = path.display().to_string();
                // Line ends are collected once, because each key looks up its line.
                let ends: Vec<usize> = text
                    .bytes()
                    .enumerate()
                    .filter_map(|(at, b)| (b == b'\n').then_some(at))
                    .collect();
                let place = |at: Option<usize>| match at {
                    Some(at) => {
                        format!("{name}:{}", ends.partition_point(|&end| end < at) + 1).into()
                    }
                    None => Text::from(&name),
                };
                merge.table(&table, root, "", &mut merged, &place)?;
            }
            Layer::Set(setting) => {
                let (place, document) = set_to_toml(setting)?;
                merge.setting = Some(setting);
                merge.table(document.as_table(), root, "", &mut merged, &|_| {
                    place.clone()
                })?;
            }
        }
    }
    let places = merge.places;
    let config: Config = serde_path_to_error::deserialize(Value::Object(merged)).map_err(|e| {
        let key = e.path().to_string();
        let place = around(&places, &key).cloned();
        let what = in_plain_words(&e.inner().to_string());
        let error = match key.as_str() {
            "." => Error::refused(what),
            _ => Error::quoted_key(key, what),
        };
        error.at(place.unwrap_or_else(|| files.join(" + ").into()))
    })?;
    config.validate().map_err(|e| {
        let place = place_of(&places, &e);
        e.at(place.unwrap_or_else(|| files.join(" + ").into()))
    })?;
    Ok(Resolved {
        config,
        descriptions,
    })
}
