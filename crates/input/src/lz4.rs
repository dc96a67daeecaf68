//! LZ4 frames, one after the other.

use std::io::{BufRead, Error, ErrorKind, Read, Result};

use lz4_flex::frame::FrameDecoder;

/// The end mark of a frame.
const END: [u8; 4] = [0; 4];

/// Decompresses LZ4 frames. The decoder takes a file that is cut off between two blocks for a whole one, so the end mark
/// is looked for here.
pub(crate) struct Lz4<R: BufRead> {
    frames: FrameDecoder<Tail<R>>,
}

/// Forwards a reader, and keeps the last eight bytes.
struct Tail<R> {
    reader: R,
    last: [u8; 8],
}

impl<R: BufRead> Lz4<R> {
    pub(crate) fn new(reader: R) -> Self {
        let last = [0xff; 8];
        Lz4 {
            frames: FrameDecoder::new(Tail { reader, last }),
        }
    }
}

impl<R: BufRead> Read for Tail<R> {
    fn read(&mut self, into: &mut [u8]) -> Result<usize> {
        let bytes = self.reader.read(into)?;
        let kept = bytes.min(8);
        self.last.rotate_left(kept);
        self.last[8 - kept..].copy_from_slice(&into[bytes - kept..bytes]);
        Ok(bytes)
    }
}

impl<R: BufRead> Read for Lz4<R> {
    fn read(&mut self, into: &mut [u8]) -> Result<usize> {
        loop {
            let bytes = self.frames.read(into)?;
            if bytes > 0 || into.is_empty() {
                return Ok(bytes);
            }
            let tail = self.frames.get_mut();
            if tail.reader.fill_buf()?.is_empty() {
                // A checksum of the contents may follow the end mark.
                let ended = tail.last[4..] == END || tail.last[..4] == END;
                return if ended {
                    Ok(0)
                } else {
                    Err(Error::from(ErrorKind::UnexpectedEof))
                };
            }
        }
    }
}
