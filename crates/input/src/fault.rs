//! What can be wrong with a file.

use std::fmt;
use std::path::{Path, PathBuf};

use pagewalk_stream::Error;

/// A file that cannot be read (on), or not be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileError {
    /// The file.
    pub path: PathBuf,
    /// Where in it, in bytes; after decompression for compressed files.
    pub offset: Option<u64>,
    /// What is wrong, what was expected, and what to do.
    pub message: String,
}

impl FileError {
    /// About the file at `path` as a whole.
    pub fn new(path: &Path, message: impl Into<String>) -> Self {
        FileError {
            path: path.to_owned(),
            offset: None,
            message: message.into(),
        }
    }

    /// About what stands at byte `offset`.
    pub fn at(path: &Path, offset: u64, message: impl Into<String>) -> Self {
        FileError {
            offset: Some(offset),
            ..FileError::new(path, message)
        }
    }

    /// The file, and where in it.
    fn place(&self) -> String {
        let path = self.path.display();
        match self.offset {
            Some(offset) => format!("{path}, byte {offset}"),
            None => path.to_string(),
        }
    }

    /// What the operating system said when `doing` was tried: `open the trace`.
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
