//! Finding machines and designs by name or by path.

use std::path::{Path, PathBuf};

use pagewalk_units::nearest;

use super::layers::{ConfigError, Layer, Resolved, resolve_layers};

/// What a name in a folder of shipped files stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shipped {
    /// `machines/NAME.toml`.
    Machine,
    /// `designs/NAME.toml`.
    Design,
}

impl Shipped {
    fn folder(self) -> &'static str {
        match self {
            Shipped::Machine => "machines",
            Shipped::Design => "designs",
        }
    }
    fn word(self) -> &'static str {
        match self {
            Shipped::Machine => "machine",
            Shipped::Design => "design",
        }
    }
}

/// A file that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShippedFile {
    /// File name without `.toml`.
    pub name: String,
    /// Where it is.
    pub path: PathBuf,
    /// Its text.
    pub text: String,
    /// Its `description`, empty if it has none.
    pub description: String,
    /// Its `source`, empty if it has none.
    pub source: String,
}

/// The folder that holds `machines/` and `designs/`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataDir(pub PathBuf);

fn about(text: &str, key: &str) -> String {
    toml_edit::Document::parse(text)
        .ok()
        .and_then(|d| {
            d.as_table()
                .get(key)
                .and_then(|v| v.as_str().map(str::to_owned))
        })
        .unwrap_or_default()
}

fn read(path: &Path) -> Result<ShippedFile, ConfigError> {
    let text = std::fs::read_to_string(path).map_err(|e| ConfigError {
        place: path.display().to_string(),
        key: String::new(),
        what: format!("cannot be read: {e}"),
        nearest: None,
    })?;
    Ok(ShippedFile {
        name: path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned(),
        path: path.to_owned(),
        description: about(&text, "description"),
        source: about(&text, "source"),
        text,
    })
}

impl DataDir {
    /// All shipped files of a kind, by name.
    ///
    /// # Errors
    /// The folder or a file in it cannot be read.
    pub fn list(&self, kind: Shipped) -> Result<Vec<ShippedFile>, ConfigError> {
        let folder = self.0.join(kind.folder());
        let entries = std::fs::read_dir(&folder).map_err(|e| ConfigError {
            place: folder.display().to_string(),
            key: String::new(),
            what: format!("cannot be read: {e}; is Pagewalk installed completely?"),
            nearest: None,
        })?;
        let mut paths: Vec<PathBuf> = entries
            .filter_map(|e| e.ok().map(|e| e.path()))
            .filter(|p| p.extension().is_some_and(|x| x == "toml"))
            .collect();
        paths.sort();
        paths.iter().map(|p| read(p)).collect()
    }

    /// A shipped file by name, or any file by path (a name with `/` or `.toml`).
    ///
    /// # Errors
    /// No such name (with the nearest one), or the file cannot be read.
    pub fn find(&self, kind: Shipped, name: &str) -> Result<ShippedFile, ConfigError> {
        if name.contains('/') || name.ends_with(".toml") {
            return read(Path::new(name));
        }
        let path = self.0.join(kind.folder()).join(format!("{name}.toml"));
        if path.is_file() {
            return read(&path);
        }
        let all = self.list(kind)?;
        let names: Vec<&str> = all.iter().map(|f| f.name.as_str()).collect();
        Err(ConfigError {
            place: format!("--{} {name}", kind.word()),
            key: String::new(),
            what: format!(
                "there is no {} of that name; expected one of {}, or the path of a .toml file",
                kind.word(),
                names.join(", ")
            ),
            nearest: nearest(name, names.iter().copied()).map(str::to_owned),
        })
    }

    /// The configuration of `design` on `machine` with `settings` (`a.b=c`).
    ///
    /// # Errors
    /// A file is not found, or a mistake in one of the layers.
    pub fn resolve(
        &self,
        machine: &str,
        design: &str,
        settings: &[String],
    ) -> Result<Resolved, ConfigError> {
        let mut layers = Vec::new();
        for (kind, name) in [(Shipped::Machine, machine), (Shipped::Design, design)] {
            let found = self.find(kind, name)?;
            layers.push(Layer::File {
                path: found.path,
                text: found.text,
            });
        }
        layers.extend(settings.iter().map(|s| Layer::Set(s.clone())));
        resolve_layers(&layers)
    }
}
