//! Lookup of machines and designs by name or path.

use std::io::Read;
use std::path::{Path, PathBuf};

use pagewalk_units::{Error, RunOption, Text, nearest, text};

use super::cores_for;
use super::layers::{Layer, Resolved, did_you_mean, line_of, resolve_layers};
use super::naming::{DesignName, Setting, target};

/// Kind of a shipped file.
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
    fn option(self) -> RunOption {
        match self {
            Shipped::Machine => RunOption::Machine,
            Shipped::Design => RunOption::Design,
        }
    }
    fn word(self) -> &'static str {
        match self {
            Shipped::Machine => "machine",
            Shipped::Design => "design",
        }
    }
}

/// A file and its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShippedFile {
    /// File name without `.toml`.
    pub name: String,
    /// Path of the file.
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

/// Maximum size of a configuration file in bytes, a hundred times the largest shipped one.
/// `pagewalk.config` in Python has the same limit. Ours: an endless file would fill the memory.
const LARGEST: u64 = 1 << 20;

/// True for paths of open files: standard input, or a shell's `<(…)`.
fn is_open(path: &Path) -> bool {
    path == Path::new("/dev/stdin")
        || path.starts_with("/dev/fd")
        || path.starts_with("/proc/self/fd")
}

/// The text of a configuration file.
///
/// # Errors
/// The file cannot be read, is too large, is not text, or is a named device or pipe. Opening a pipe could
/// block.
fn text_of(path: &Path) -> Result<String, Error> {
    let unreadable = |e: std::io::Error| Error::refused(format!("cannot be read: {e}"));
    let kind = std::fs::metadata(path).map_err(unreadable)?.file_type();
    if !kind.is_file() && !is_open(path) {
        let what = if kind.is_dir() {
            "a folder"
        } else {
            "no regular file"
        };
        return Err(Error::refused(format!("is {what}; expected a .toml file")));
    }
    let mut text = Vec::new();
    let file = std::fs::File::open(path).map_err(unreadable)?;
    let mut file = file.take(LARGEST + 1);
    file.read_to_end(&mut text).map_err(unreadable)?;
    if text.len() as u64 > LARGEST {
        return Err(Error::refused(format!(
            "is larger than {} MiB; expected a .toml file",
            LARGEST >> 20
        )));
    }
    String::from_utf8(text).map_err(|e| {
        let line = line_of_bytes(e.as_bytes(), e.utf8_error().valid_up_to());
        Error::refused(format!(
            "line {line} is no text in UTF-8; expected a .toml file"
        ))
    })
}

fn line_of_bytes(text: &[u8], at: usize) -> usize {
    text[..at].iter().filter(|&&b| b == b'\n').count() + 1
}

fn read(path: &Path) -> Result<ShippedFile, Error> {
    let text = text_of(path).map_err(|e| e.at(path.display().to_string()))?;
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

/// The key of a design file that names the design it changes.
const BASE: &str = "base";

/// The base that a file names, and the place. Invalid TOML is refused later.
fn base_of(file: &ShippedFile) -> Result<Option<(String, String)>, Error> {
    let Ok(document) = toml_edit::Document::parse(file.text.as_str()) else {
        return Ok(None);
    };
    let Some((key, item)) = document.as_table().get_key_value(BASE) else {
        return Ok(None);
    };
    let line = key.span().map_or(1, |s| line_of(&file.text, s.start));
    let place = format!("{}:{line}", file.path.display());
    match item.as_str() {
        Some(base) => Ok(Some((base.to_owned(), place))),
        None => Err(Error::quoted_key(
            BASE,
            "expected the name of a shipped design, or the path of a .toml file in quotes",
        )
        .at(place)),
    }
}

fn same(a: &Path, b: &Path) -> bool {
    let whole = |p: &Path| p.canonicalize().unwrap_or_else(|_| p.to_owned());
    whole(a) == whole(b)
}

impl DataDir {
    /// The file of a design and its bases, the last base first.
    ///
    /// # Errors
    /// A file is not found, or the bases form a cycle.
    fn with_bases(&self, name: &str) -> Result<Vec<ShippedFile>, Error> {
        let mut found = vec![self.find(Shipped::Design, name)?];
        while let Some((base, place)) = base_of(&found[found.len() - 1])? {
            let wrong = |what: Text| Error::quoted_key(BASE, what).at(place.clone());
            // A path is relative to the file that contains it.
            let path = if base.contains('/') || base.ends_with(".toml") {
                let folder = found[found.len() - 1].path.parent();
                folder.unwrap_or(Path::new("")).join(&base)
            } else {
                PathBuf::from(&base)
            };
            let next = if path.as_os_str() == base.as_str() && !base.ends_with(".toml") {
                self.find(Shipped::Design, &base)
            } else {
                read(&path)
            };
            let next = next.map_err(|e| wrong(text![format!("{base}: ")].and(e.text().clone())))?;
            if found.iter().any(|f| same(&f.path, &next.path)) {
                let names = found.iter().map(|f| f.name.as_str());
                let circle: Vec<&str> = names.chain([next.name.as_str()]).collect();
                return Err(wrong(
                    format!(
                        "{} is a circle; expected a design that is based on another one",
                        circle.join(" on ")
                    )
                    .into(),
                ));
            }
            found.push(next);
        }
        found.reverse();
        Ok(found)
    }

    /// Refuses settings whose target is not exactly one of the `designs` or `machines` of the run.
    ///
    /// # Errors
    /// The first of them, with the nearest name.
    pub fn check_targets(
        &self,
        settings: &[String],
        designs: &[String],
        machines: &[String],
    ) -> Result<(), Error> {
        for setting in settings {
            let (Some(name), _) = target(setting) else {
                continue;
            };
            let is = |labels: &[String]| labels.iter().any(|l| l == name);
            let all = designs.iter().chain(machines).map(String::as_str);
            let (what, nearest) = match (is(designs), is(machines)) {
                (true, false) | (false, true) => continue,
                (true, true) => (
                    format!(
                        "a design and a machine of this run are both called {name}; rename the file of one"
                    ),
                    None,
                ),
                (false, false) => (
                    format!(
                        "no design of this run is called {name}; expected one of {}, or of the machines {}",
                        designs.join(", "),
                        machines.join(", ")
                    ),
                    nearest(name, all),
                ),
            };
            let what = what + &did_you_mean(nearest);
            return Err(Error::value(RunOption::Settings, setting, what));
        }
        Ok(())
    }

    /// All shipped files of a kind, sorted by name.
    ///
    /// # Errors
    /// The folder or a file in it cannot be read.
    pub fn list(&self, kind: Shipped) -> Result<Vec<ShippedFile>, Error> {
        let folder = self.0.join(kind.folder());
        let entries = std::fs::read_dir(&folder).map_err(|e| {
            Error::refused(format!(
                "cannot be read: {e}; is Pagewalk installed completely?"
            ))
            .at(folder.display().to_string())
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
    pub fn find(&self, kind: Shipped, name: &str) -> Result<ShippedFile, Error> {
        if name.contains('/') || name.ends_with(".toml") {
            return read(Path::new(name));
        }
        let path = self.0.join(kind.folder()).join(format!("{name}.toml"));
        if path.is_file() {
            return read(&path);
        }
        let all = self.list(kind)?;
        let names: Vec<&str> = all.iter().map(|f| f.name.as_str()).collect();
        if name.is_empty() {
            let what = format!("is empty; expected one of {}", names.join(", "));
            return Err(Error::about(kind.option(), text![kind.option(), " "], what));
        }
        let what = format!(
            "there is no {} of that name; {} the path of a .toml file, or one of {}",
            kind.word(),
            nearest(name, names.iter().copied()).map_or("expected".to_owned(), |n| format!(
                "did you mean `{n}`? Expected"
            )),
            names.join(", ")
        );
        Err(Error::value(kind.option(), name, what))
    }

    /// Resolves `design` (read by [`DesignName`]) on `machine` with the matching `settings`. `a.b=c`
    /// matches each design, `NAME:a.b=c` the design or each design on the machine of this name.
    ///
    /// # Errors
    /// A file is not found, or a mistake in one of the layers.
    pub fn resolve(
        &self,
        machine: &str,
        design: &str,
        settings: &[String],
    ) -> Result<Resolved, Error> {
        let found = self.described(machine, design, settings, cores_for(None));
        found.map(|(resolved, _)| resolved)
    }

    /// As [`DataDir::resolve`], with the description of the design file. The file is read once, since it
    /// may be a pipe such as a shell's `<(…)`. A machine that does not say how many has `cores`.
    ///
    /// # Errors
    /// As [`DataDir::resolve`].
    pub(crate) fn described(
        &self,
        machine: &str,
        design: &str,
        settings: &[String],
        cores: u8,
    ) -> Result<(Resolved, String), Error> {
        let name = DesignName::parse(design)?;
        let label = name.label();
        let on = super::label(machine);
        let machine = self.find(Shipped::Machine, machine)?;
        if let Some((_, place)) = base_of(&machine)? {
            return Err(Error::quoted_key(
                BASE,
                "belongs to a design; expected a machine with all of its keys",
            )
            .at(place));
        }
        let bases = self.with_bases(&name.base)?;
        let description = bases.last().map(|own| own.description.clone());
        let files = [machine].into_iter().chain(bases);
        let files = files.map(|f| Layer::File {
            path: f.path,
            text: f.text,
        });
        let mut layers = vec![Layer::Cores(cores)];
        layers.extend(files);
        let changes = name.changes.iter().map(|c| Setting::of_variant(&label, c));
        let settings = settings
            .iter()
            .filter_map(|s| Setting::for_design(s, &label, &on));
        // Changes in a variant's name take precedence over other settings.
        layers.extend(settings.chain(changes).map(Layer::Set));
        let resolved = resolve_layers(&layers)?;
        Ok((resolved, description.unwrap_or_default()))
    }
}
