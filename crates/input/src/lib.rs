//! A file of the user's, decompressed by its contents, not by its name.

mod ahead;
mod check;
mod fault;
mod lz4;
mod snappy;
mod tar;
mod zip;

pub use fault::FileError;

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use liblzma::stream;

use ahead::Ahead;
use check::Checked;
use lz4::Lz4;
use snappy::Snappy;
use zip::Zip;

/// Compression of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    /// Not at all.
    None,
    /// xz (.xz).
    Xz,
    /// gzip (.gz).
    Gzip,
    /// Zstandard (.zst).
    Zstd,
    /// LZ4 frames (.lz4).
    Lz4,
    /// Snappy's framing format (.sz).
    Snappy,
    /// The members of a zip archive, one after the other (.zip).
    Zip,
}

const KINDS: [(Compression, &str, &[u8]); 6] = [
    (Compression::Xz, "xz", b"\xfd7zXZ\0"),
    (Compression::Gzip, "gz", b"\x1f\x8b"),
    (Compression::Zstd, "zst", b"\x28\xb5\x2f\xfd"),
    (Compression::Lz4, "lz4", b"\x04\x22\x4d\x18"),
    (Compression::Snappy, "sz", snappy::MAGIC),
    (Compression::Zip, "zip", zip::MAGIC),
];

/// Most memory for an xz dictionary; `xz -9` needs 65 MB.
const XZ_MEMORY: u64 = 256 << 20;

/// Largest member of a compressed tar archive that is decompressed once more, before the run, to see that no other
/// follows. A larger one would delay the run by seconds, and is checked at its end.
const MOST_TAR: u64 = 128 << 20;

/// Host threads that decompress a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decompress {
    /// A thread of its own, ahead of the reader.
    Ahead,
    /// The reader's thread: for many files at once.
    Inline,
}

/// An opened file; reads decompressed bytes. A tar archive with one member reads as that member.
pub struct Input {
    /// Path of the file.
    pub path: PathBuf,
    /// Detected from its first bytes.
    pub compression: Compression,
    /// Noun for messages: `trace`.
    what: &'static str,
    reader: Box<dyn BufRead + Send>,
    /// Bytes taken from the file.
    taken: Arc<AtomicU64>,
    /// Decompressed bytes given.
    pub at: u64,
}

struct CountedFile {
    file: File,
    taken: Arc<AtomicU64>,
}

impl Read for CountedFile {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let bytes = self.file.read(buffer)?;
        self.taken.fetch_add(bytes as u64, Ordering::Relaxed);
        Ok(bytes)
    }
}

impl Input {
    /// Opens the `what` (`trace`, `graph`) at `path`, and reads its first bytes.
    ///
    /// # Errors
    /// It cannot be opened or read, or is empty, although `expected` was expected.
    pub fn open(
        path: &Path,
        what: &'static str,
        expected: &'static str,
    ) -> Result<Self, FileError> {
        Self::open_with(path, what, expected, Decompress::Ahead)
    }

    /// As [`Input::open`], and decompresses in the chosen thread.
    ///
    /// # Errors
    /// As [`Input::open`].
    pub fn open_with(
        path: &Path,
        what: &'static str,
        expected: &'static str,
        decompress: Decompress,
    ) -> Result<Self, FileError> {
        let mut input = Self::decompressed(path, what, expected, decompress)?;
        input.unwrap_tar(expected)?;
        Ok(input)
    }

    /// As [`Input::open_with`], with a tar archive as it is.
    fn decompressed(
        path: &Path,
        what: &'static str,
        expected: &'static str,
        decompress: Decompress,
    ) -> Result<Self, FileError> {
        let opening = format!("open the {what}");
        let reading = format!("read the {what}");
        let file = File::open(path).map_err(|e| FileError::io(path, &opening, &e))?;
        let taken = Arc::new(AtomicU64::new(0));
        let counted = CountedFile {
            file,
            taken: Arc::clone(&taken),
        };
        let mut plain = BufReader::with_capacity(1 << 18, counted);
        let io = |e: std::io::Error| FileError::io(path, &reading, &e);
        let start = plain.fill_buf().map_err(io)?;
        if start.is_empty() {
            return Err(FileError::at(
                path,
                0,
                format!("the file is empty; expected {expected}"),
            ));
        }
        let found = KINDS.iter().find(|(_, _, magic)| start.starts_with(magic));
        let compression = found.map_or(Compression::None, |(kind, _, _)| *kind);
        let reader: Box<dyn BufRead + Send> = match compression {
            Compression::None => Box::new(plain),
            Compression::Xz => {
                let blocks = check::blocks(&plain.get_ref().file);
                let ignore = blocks.as_ref().map_or(0, |_| stream::IGNORE_CHECK);
                let flags = stream::CONCATENATED | ignore;
                let decoder = stream::Stream::new_stream_decoder(XZ_MEMORY, flags)
                    .map_err(|e| FileError::new(path, format!("cannot decompress xz: {e}")))?;
                let decoder = liblzma::bufread::XzDecoder::new_stream(plain, decoder);
                match blocks {
                    Some(blocks) => buffered(Checked::new(decoder, blocks), decompress),
                    None => buffered(decoder, decompress),
                }
            }
            Compression::Gzip => buffered(flate2::bufread::MultiGzDecoder::new(plain), decompress),
            Compression::Zstd => {
                buffered(zstd::Decoder::with_buffer(plain).map_err(io)?, decompress)
            }
            Compression::Lz4 => buffered(Lz4::new(plain), decompress),
            Compression::Snappy => buffered(Snappy::new(plain), decompress),
            Compression::Zip => {
                if !path.is_file() {
                    let what = format!(
                        "is a pipe, and a zip archive is read from its end; write it to a file first: cat {} > FILE",
                        path.display()
                    );
                    return Err(FileError::new(path, what));
                }
                let file = plain.into_inner();
                let zip = Zip::open(file.file, Arc::clone(&taken));
                buffered(zip.map_err(|e| FileError::new(path, e))?, decompress)
            }
        };
        Ok(Input {
            path: path.to_owned(),
            compression,
            what,
            reader,
            taken,
            at: 0,
        })
    }

    /// Replaces a tar archive by its only member.
    fn unwrap_tar(&mut self, expected: &'static str) -> Result<(), FileError> {
        let Ok(start) = self.peek() else {
            // The first read reports the fault.
            return Ok(());
        };
        let Some(found) = tar::member(start) else {
            return Ok(());
        };
        let (skip, bytes) = found.map_err(|e| FileError::new(&self.path, e))?;
        if self.another_follows(tar::behind(skip, bytes), expected) {
            return Err(FileError::new(&self.path, tar::several()));
        }
        self.consume(skip);
        let whole = std::mem::replace(&mut self.reader, Box::new(std::io::empty()));
        self.reader = Box::new(tar::Member::new(whole, bytes));
        self.at = 0;
        Ok(())
    }

    /// True if the tar archive has a header of another member at `offset`. False if that takes too long to find out, and
    /// if the archive cannot be read up to there: the run reports that fault.
    fn another_follows(&self, offset: u64, expected: &'static str) -> bool {
        if !self.path.is_file() {
            return false;
        }
        let mut next = [0; tar::BLOCK];
        if self.compression == Compression::None {
            let file = File::open(&self.path);
            let there = file.and_then(|file| file.read_at(&mut next, offset));
            return !tar::ends(&next[..there.unwrap_or(0)]);
        }
        if offset > MOST_TAR {
            return false;
        }
        let again = Self::decompressed(&self.path, self.what, expected, Decompress::Inline);
        let Ok(mut again) = again else { return false };
        while again.at < offset {
            match again.peek().map(<[u8]>::len) {
                Ok(0) | Err(_) => return false,
                Ok(there) => again.consume(there.min((offset - again.at) as usize)),
            }
        }
        let there = again.read_full(&mut next).unwrap_or(0);
        !tar::ends(&next[..there])
    }

    /// The compression that the name claims, if the contents have another one.
    pub fn misnamed(&self) -> Option<&'static str> {
        let extension = self.path.extension()?.to_str()?;
        let (kind, name, _) = KINDS.iter().find(|(_, name, _)| *name == extension)?;
        (*kind != self.compression).then_some(*name)
    }

    fn fault(&self, error: &std::io::Error) -> FileError {
        if error.kind() == std::io::ErrorKind::Unsupported {
            // Not damaged, and still not what is read.
            return FileError::new(&self.path, error.to_string());
        }
        let how = match self.compression {
            Compression::None => {
                return FileError::io(&self.path, &format!("read the {}", self.what), error);
            }
            Compression::Xz => "xz",
            Compression::Gzip => "gzip",
            Compression::Zstd => "zstd",
            Compression::Lz4 => "lz4",
            Compression::Snappy => "snappy",
            Compression::Zip => "zip",
        };
        let test = match self.compression {
            Compression::Snappy => String::new(),
            Compression::Zip => ", or test it with `unzip -t`".into(),
            _ => format!(", or test it with `{how} -t`"),
        };
        let what = if error.kind() == std::io::ErrorKind::UnexpectedEof {
            "is cut off"
        } else {
            "is damaged"
        };
        FileError::at(
            &self.path,
            self.at,
            format!(
                "the {how} data {what} near byte {} of the file ({error}); what comes before is good; fetch or make the {} again{test}",
                self.taken.load(Ordering::Relaxed),
                self.what
            ),
        )
    }

    /// Decompressed bytes that are available without reading beyond a buffer; empty at the end.
    ///
    /// # Errors
    /// Damaged data, data that is cut off, or the operating system's error.
    pub fn peek(&mut self) -> Result<&[u8], FileError> {
        // A second call returns the same buffer. The borrow checker cannot see that the first one's result is not kept.
        if let Err(error) = self.reader.fill_buf() {
            return Err(self.fault(&error));
        }
        let reading = "read the file";
        self.reader
            .fill_buf()
            .map_err(|e| FileError::io(&self.path, reading, &e))
    }

    /// Consumes `bytes` of the result of [`Input::peek`].
    pub fn consume(&mut self, bytes: usize) {
        self.reader.consume(bytes);
        self.at += bytes as u64;
    }

    /// Fills `buffer` as far as there are bytes. Returns their number.
    ///
    /// # Errors
    /// As [`Input::peek`].
    pub fn read_full(&mut self, buffer: &mut [u8]) -> Result<usize, FileError> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.reader.read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(n) => {
                    filled += n;
                    self.at += n as u64;
                }
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => return Err(self.fault(&e)),
            }
        }
        Ok(filled)
    }
}

fn buffered(reader: impl Read + Send + 'static, decompress: Decompress) -> Box<dyn BufRead + Send> {
    match decompress {
        Decompress::Ahead => Box::new(Ahead::new(reader)),
        Decompress::Inline => Box::new(BufReader::with_capacity(1 << 16, reader)),
    }
}
