//! Snappy's framing format.
//!
//! Chunks as in the "Snappy framing format description" of 2013-10-25. DrMemtrace also writes compressed (2) and plain
//! (3) chunks without a checksum, which no other program does (`common/snappy_consts.h` of DynamoRIO).

use std::io::{Error, ErrorKind, Read, Result};

/// The first chunk of each file.
pub(crate) const MAGIC: &[u8] = b"\xff\x06\x00\x00sNaPpY";
/// Most bytes of a chunk's contents.
const MOST: usize = 1 << 16;

/// Decompresses a framed file.
pub(crate) struct Snappy<R> {
    reader: R,
    decoder: snap::raw::Decoder,
    /// A chunk of the file.
    chunk: Vec<u8>,
    contents: Vec<u8>,
    /// Bytes of `contents` that have been read.
    at: usize,
}

impl<R: Read> Snappy<R> {
    pub(crate) fn new(reader: R) -> Self {
        Snappy {
            reader,
            decoder: snap::raw::Decoder::new(),
            chunk: Vec::new(),
            contents: Vec::new(),
            at: 0,
        }
    }

    /// Reads the next chunk. Returns false at the end of the file.
    fn next(&mut self) -> Result<bool> {
        let mut header = [0; 4];
        let first = loop {
            match self.reader.read(&mut header[..1]) {
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                read => break read?,
            }
        };
        if first == 0 {
            return Ok(false);
        }
        self.reader.read_exact(&mut header[1..])?;
        let length = u32::from_le_bytes([header[1], header[2], header[3], 0]) as usize;
        self.contents.clear();
        self.at = 0;
        self.chunk.resize(length, 0);
        self.reader.read_exact(&mut self.chunk)?;
        let (compressed, checked) = match header[0] {
            0 => (true, true),
            1 => (false, true),
            2 => (true, false),
            3 => (false, false),
            // Padding, names of streams, and chunks that readers may skip.
            0x80..=0xff => return Ok(true),
            kind => return Err(damaged(&format!("chunk type {kind} is unknown"))),
        };
        let split = if checked { 4 } else { 0 };
        let Some((checksum, data)) = self.chunk.split_at_checked(split) else {
            return Err(damaged("a chunk lacks its checksum"));
        };
        if compressed {
            let bytes = snap::raw::decompress_len(data).map_err(Error::other)?;
            if bytes > MOST {
                return Err(damaged("a chunk is longer than 65536 bytes"));
            }
            self.contents.resize(bytes, 0);
            self.decoder
                .decompress(data, &mut self.contents)
                .map_err(Error::other)?;
        } else {
            self.contents.extend_from_slice(data);
        }
        let masked = crc32c(&self.contents)
            .rotate_right(15)
            .wrapping_add(0xa282_ead8);
        if checked && masked.to_le_bytes() != *checksum {
            return Err(damaged("a chunk has another checksum"));
        }
        Ok(true)
    }
}

impl<R: Read> Read for Snappy<R> {
    fn read(&mut self, into: &mut [u8]) -> Result<usize> {
        while self.at == self.contents.len() {
            if !self.next()? {
                return Ok(0);
            }
        }
        let bytes = into.len().min(self.contents.len() - self.at);
        into[..bytes].copy_from_slice(&self.contents[self.at..self.at + bytes]);
        self.at += bytes;
        Ok(bytes)
    }
}

fn damaged(what: &str) -> Error {
    Error::new(ErrorKind::InvalidData, what.to_owned())
}

/// CRC-32C (Castagnoli), bytes through a table.
fn crc32c(bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = {
        let mut table = [0; 256];
        let mut n = 0;
        while n < 256 {
            let (mut crc, mut bit) = (n as u32, 0);
            while bit < 8 {
                crc = (crc >> 1) ^ ((crc & 1) * 0x82f6_3b78);
                bit += 1;
            }
            table[n] = crc;
            n += 1;
        }
        table
    };
    !bytes
        .iter()
        .fold(!0, |crc, b| crc >> 8 ^ TABLE[usize::from(crc as u8 ^ b)])
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::{MAGIC, Snappy, crc32c};

    #[test]
    fn the_checksum_is_that_of_rfc_3720() {
        // RFC 3720, B.4: 32 bytes of zeroes, and of ones.
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
    }

    #[test]
    fn frames_of_another_writer_and_chunks_without_checksum_are_read() {
        let data: Vec<u8> = (0..300_000u32)
            .flat_map(|n| (n / 7).to_le_bytes())
            .collect();
        let mut file = Vec::new();
        let mut writer = snap::write::FrameEncoder::new(&mut file);
        writer.write_all(&data).unwrap();
        drop(writer);
        let packed = snap::raw::Encoder::new().compress_vec(b"more").unwrap();
        for (kind, bytes) in [(2, &packed[..]), (3, b"plain"), (0xfe, b"padding")] {
            file.push(kind);
            file.extend_from_slice(&(bytes.len() as u32).to_le_bytes()[..3]);
            file.extend_from_slice(bytes);
        }
        assert!(file.starts_with(MAGIC));
        let mut all = Vec::new();
        Snappy::new(&file[..]).read_to_end(&mut all).unwrap();
        assert!(all == [&data[..], b"more", b"plain"].concat());
        let read = |file: &[u8]| Snappy::new(file).read_to_end(&mut Vec::new());
        assert!(read(&file[..file.len() - 1]).is_err());
        file[5000] ^= 1;
        assert!(read(&file).is_err());
        for kind in [4, 0x7f] {
            assert!(read(&[kind, 0, 0, 0]).is_err());
        }
        assert!(read(&[0, 2, 0, 0, 1, 1]).is_err());
    }
}
