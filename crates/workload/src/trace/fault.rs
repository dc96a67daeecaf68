//! What can be wrong with a trace.

use std::fmt;
use std::path::{Path, PathBuf};

use pagewalk_stream::ProgramError;

/// A trace that cannot be read (on), or not be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceError {
    /// The file.
    pub path: PathBuf,
    /// Where in the trace, in bytes; after decompression for compressed files.
    pub offset: Option<u64>,
    /// What is wrong, what was expected, and what to do.
    pub message: String,
}

impl TraceError {
    pub(crate) fn new(path: &Path, message: impl Into<String>) -> Self {
        TraceError {
            path: path.to_owned(),
            offset: None,
            message: message.into(),
        }
    }

    pub(crate) fn at(path: &Path, offset: u64, message: impl Into<String>) -> Self {
        TraceError {
            offset: Some(offset),
            ..TraceError::new(path, message)
        }
    }

    pub(crate) fn io(path: &Path, doing: &str, error: &std::io::Error) -> Self {
        TraceError::new(path, format!("cannot {doing}: {error}"))
    }
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())?;
        if let Some(offset) = self.offset {
            write!(f, ", byte {offset}")?;
        }
        write!(f, ": {}", self.message)
    }
}

impl std::error::Error for TraceError {}

impl From<TraceError> for ProgramError {
    fn from(error: TraceError) -> Self {
        ProgramError {
            message: error.to_string(),
        }
    }
}
