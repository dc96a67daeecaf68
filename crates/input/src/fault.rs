//! Faults of files.

use std::fmt;
use std::path::{Path, PathBuf};

use pagewalk_stream::Error;

/// A file that cannot be read (further), or not be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileError {
    /// The file.
    pub path: PathBuf,
    /// Offset in bytes; after decompression for compressed files.
    pub offset: Option<u64>,
    /// The fault, the expected content, and a remedy.
    pub message: String,
}

impl FileError {
    /// A fault of the file at `path` as a whole.
    pub fn new(path: &Path, message: impl Into<String>) -> Self {
        FileError {
            path: path.to_owned(),
            offset: None,
            message: message.into(),
        }
    }

    /// A fault at byte `offset`.
    pub fn at(path: &Path, offset: u64, message: impl Into<String>) -> Self {
        FileError {
            offset: Some(offset),
            ..FileError::new(path, message)
        }
    }

    /// The file, and the offset in it.
    fn place(&self) -> String {
        let path = self.path.display();
        match self.offset {
            Some(offset) => format!("{path}, byte {offset}"),
            None => path.to_string(),
        }
    }

    /// The operating system's error when `doing` was tried: `open the trace`.
    pub fn io(path: &Path, doing: &str, error: &std::io::Error) -> Self {
        FileError::new(path, format!("cannot {doing}: {error}"))
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place(), self.message)
    }
}

impl std::error::Error for FileError {}

impl From<FileError> for Error {
    fn from(error: FileError) -> Self {
        let place = error.place();
        Error::refused(error.message).at(place)
    }
}
