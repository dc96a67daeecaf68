//! Schema of the configuration, generated from the types and their comments. Key checks, `explain` and
//! the documentation use it.

use std::sync::LazyLock;

use serde_json::Value;

use super::Config;
use super::readers::{reader, unit};

/// One configuration key with its comment.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, schemars::JsonSchema)]
pub struct Key {
    /// Dotted path; `<name>` stands for a name that the file chooses.
    pub path: String,
    /// Definition, from the field's comment.
    pub text: String,
    /// Values that it takes.
    pub expected: String,
    /// Default value, if the key is optional.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<Value>,
    /// Unit of a number; empty where it has none.
    pub unit: &'static str,
    /// The component that reads it.
    pub reader: &'static str,
}

impl Key {
    fn new(path: String, text: String, expected: String, default: Option<Value>) -> Self {
        Key {
            unit: unit(&path, &expected),
            reader: reader(&path),
            path,
            text,
            expected,
            default,
        }
    }
}

/// JSON schema of [`Config`].
pub fn root_schema() -> &'static Value {
    // Cached: studies resolve thousands of configurations.
    static ROOT: LazyLock<Value> = LazyLock::new(|| schemars::schema_for!(Config).to_value());
    &ROOT
}

/// Resolves `$ref`, and the `allOf` around one with a comment.
pub(super) fn resolve_ref<'a>(root: &'a Value, mut schema: &'a Value) -> &'a Value {
    loop {
        if let Some(r) = schema.get("$ref").and_then(Value::as_str) {
            let name = r.rsplit('/').next().unwrap_or_default();
            schema = &root["$defs"][name];
        } else if let Some([one]) = schema
            .get("allOf")
            .and_then(Value::as_array)
            .map(Vec::as_slice)
        {
            schema = one;
        } else if let Some(some) = schema.get("anyOf").and_then(Value::as_array) {
            // Option<T>: T or null.
            match some
                .iter()
                .find(|s| s.get("type") != Some(&Value::from("null")))
            {
                Some(s) => schema = s,
                None => return schema,
            }
        } else {
            return schema;
        }
    }
}

/// Alternatives of an externally tagged enum that carry fields, by name.
pub(super) fn tagged(schema: &Value) -> Option<Vec<(&str, &Value)>> {
    let one_of = schema.get("oneOf")?.as_array()?;
    let mut out = Vec::new();
    for alternative in one_of {
        if let Some(properties) = alternative.get("properties").and_then(Value::as_object) {
            out.extend(properties.iter().map(|(k, v)| (k.as_str(), v)));
        }
    }
    Some(out)
}

/// Plain words that an enum accepts.
pub(super) fn words(schema: &Value) -> Vec<String> {
    let mut out = Vec::new();
    if let Some(list) = schema.get("enum").and_then(Value::as_array) {
        out.extend(list.iter().filter_map(|v| v.as_str().map(str::to_owned)));
    }
    if let Some(word) = schema.get("const").and_then(Value::as_str) {
        out.push(word.to_owned());
    }
    if let Some(one_of) = schema.get("oneOf").and_then(Value::as_array) {
        out.extend(one_of.iter().flat_map(words));
    }
    out
}

/// Form of the values of this schema, for messages and documentation.
pub(super) fn expected(root: &Value, schema: &Value) -> String {
    let schema = resolve_ref(root, schema);
    if let Some(alternatives) = tagged(schema) {
        let mut names: Vec<String> = alternatives.iter().map(|(k, _)| format!("[{k}]")).collect();
        names.extend(words(schema).into_iter().map(|w| format!("\"{w}\"")));
        return format!("one of {}", names.join(", "));
    }
    let w = words(schema);
    if !w.is_empty() {
        return format!(
            "one of {}",
            w.iter()
                .map(|w| format!("\"{w}\""))
                .collect::<Vec<_>>()
                .join(", ")
        );
    }
    let kind = match schema.get("type") {
        Some(Value::String(s)) => s.as_str(),
        Some(Value::Array(a)) => a
            .iter()
            .filter_map(Value::as_str)
            .find(|s| *s != "null")
            .unwrap_or("value"),
        _ => "value",
    };
    match kind {
        "integer" => "a whole number".to_owned(),
        "number" => "a number".to_owned(),
        "boolean" => "true or false".to_owned(),
        "string" => "text".to_owned(),
        "array" => match schema.get("items") {
            Some(items) => format!("a list of {}", expected(root, items)),
            None => "a list".to_owned(),
        },
        "object" => "a table".to_owned(),
        other => other.to_owned(),
    }
}

/// Every key of the configuration, in the order of the types.
pub fn keys() -> Vec<Key> {
    let root = root_schema();
    let mut out = Vec::new();
    walk(root, root, String::new(), &mut out);
    out
}

fn walk(root: &Value, schema: &Value, path: String, out: &mut Vec<Key>) {
    let join = |name: &str| {
        if path.is_empty() {
            name.to_owned()
        } else {
            format!("{path}.{name}")
        }
    };
    let resolved = resolve_ref(root, schema);
    let text = |v: &Value| {
        let own = v.get("description").and_then(Value::as_str);
        own.or_else(|| {
            resolve_ref(root, v)
                .get("description")
                .and_then(Value::as_str)
        })
        .unwrap_or_default()
        .replace('\n', " ")
    };
    if let Some(alternatives) = tagged(resolved) {
        for alternative in resolved["oneOf"].as_array().into_iter().flatten() {
            let described = text(alternative);
            for (name, inner) in alternative
                .get("properties")
                .and_then(Value::as_object)
                .into_iter()
                .flatten()
            {
                let leaf = expected(root, inner);
                out.push(Key::new(join(name), described.clone(), leaf, None));
                walk(root, inner, join(name), out);
            }
        }
        debug_assert!(alternatives.len() <= 64);
        return;
    }
    if let Some(properties) = resolved.get("properties").and_then(Value::as_object) {
        for (name, inner) in properties {
            let leaf = expected(root, inner);
            let default = inner.get("default").cloned();
            out.push(Key::new(join(name), text(inner), leaf, default));
            walk(root, inner, join(name), out);
        }
    } else if let Some(inner) = resolved
        .get("additionalProperties")
        .filter(|v| v.is_object())
    {
        walk(root, inner, join("<name>"), out);
    }
}
