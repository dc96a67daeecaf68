//! The reads whose k-mers are counted: generated or from a file.

use std::io::{BufRead, BufReader, Read};

use pagewalk_stream::Error;

/// Source of the bases. A base is 0 to 3 for A, C, G, T, so 3 - b is its complement.
pub enum Reads {
    /// Reads of equal length from a genome, both functions of the seed.
    Generated(Generated),
    /// Bases of a file, and the start of each read, plus the end.
    File { bases: Vec<u8>, starts: Vec<usize> },
}

/// Parameters of generated reads (see [`Reads`]).
#[derive(Clone, Copy)]
pub struct Generated {
    pub seed: u64,
    /// Number of reads.
    pub count: u64,
    /// Bases per read.
    pub length: u64,
    /// Bases of the genome, at least `length`.
    pub genome: u64,
    /// Sequencing errors per thousand bases.
    pub errors: u64,
}

#[inline(always)]
fn hash(seed: u64, n: u64) -> u64 {
    let mut z = seed ^ n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Generated {
    /// Base at position `at` of the genome.
    fn genome(self, at: u64) -> u8 {
        (hash(self.seed, at / 32) >> (2 * (at % 32)) & 3) as u8
    }

    fn read(self, number: u64, out: &mut Vec<u8>) {
        let place = hash(self.seed ^ 0x5eed, number);
        let room = self.genome - self.length + 1;
        let start = ((u128::from(place) * u128::from(room)) >> 64) as u64;
        let reverse = place & 1 == 1;
        let wrong = hash(self.seed ^ 0xe220, number);
        for i in 0..self.length {
            let base = if reverse {
                3 - self.genome(start + self.length - 1 - i)
            } else {
                self.genome(start + i)
            };
            // One draw of 16 bits per base, four per hash value.
            let draw = hash(wrong, i / 4) >> (16 * (i % 4)) & 0xffff;
            let flip = draw * 1000 < self.errors << 16;
            out.push((base + if flip { 1 + (draw % 3) as u8 } else { 0 }) & 3);
        }
    }
}

impl Reads {
    /// Number of reads.
    pub fn count(&self) -> u64 {
        match self {
            Reads::Generated(g) => g.count,
            Reads::File { starts, .. } => starts.len() as u64 - 1,
        }
    }

    /// Number of bases of read `number`.
    pub fn length(&self, number: u64) -> u64 {
        match self {
            Reads::Generated(g) => g.length,
            Reads::File { starts, .. } => {
                let number = number as usize;
                (starts[number + 1] - starts[number]) as u64
            }
        }
    }

    /// Replaces the contents of `out` by the bases of read `number`.
    pub fn read(&self, number: u64, out: &mut Vec<u8>) {
        out.clear();
        match self {
            Reads::Generated(g) => g.read(number, out),
            Reads::File { bases, starts } => {
                let number = number as usize;
                out.extend_from_slice(&bases[starts[number]..starts[number + 1]]);
            }
        }
    }
}

/// Reads every sequence of a FASTA or FASTQ file, gzip-compressed or not, as bases. Other letters than A, C,
/// G and T become a base that depends on their position.
///
/// # Errors
/// The file cannot be read, or has neither format (with the line).
pub fn sequences(path: &str) -> Result<(Vec<u8>, Vec<usize>), Error> {
    let unreadable = |e: std::io::Error| Error::refused(e.to_string()).at(path);
    let mut file = std::fs::File::open(path).map_err(unreadable)?;
    let mut magic = [0; 2];
    let zipped = file.read_exact(&mut magic).is_ok() && magic == [0x1f, 0x8b];
    let file = std::fs::File::open(path).map_err(unreadable)?;
    let mut text: Box<dyn BufRead> = if zipped {
        Box::new(BufReader::new(flate2::read::MultiGzDecoder::new(file)))
    } else {
        Box::new(BufReader::new(file))
    };
    let (mut bases, mut starts) = (Vec::new(), Vec::new());
    let (mut line, mut number) = (Vec::new(), 0u64);
    let mut state = ParserState::Start;
    loop {
        line.clear();
        if text.read_until(b'\n', &mut line).map_err(unreadable)? == 0 {
            break;
        }
        number += 1;
        let content = line.trim_ascii_end();
        let refuse = |what: &str| Err(Error::refused(what).at(format!("{path}, line {number}")));
        state = match (state, content.first()) {
            (ParserState::Quality, _) => ParserState::Start,
            (state, None) => state,
            (ParserState::Start | ParserState::Fasta, Some(b'>')) => {
                starts.push(bases.len());
                ParserState::Fasta
            }
            (ParserState::Start, Some(b'@')) => {
                starts.push(bases.len());
                ParserState::Fastq
            }
            (ParserState::Start, _) => return refuse("expected a header that begins with > or @"),
            (ParserState::Fastq, Some(b'+')) => ParserState::Quality,
            (state, _) => {
                if !content.iter().all(u8::is_ascii_alphabetic) {
                    return refuse("expected letters of a sequence");
                }
                let first = bases.len();
                bases.extend((first..).zip(content).map(|(at, letter)| match letter {
                    b'A' | b'a' => 0,
                    b'C' | b'c' => 1,
                    b'G' | b'g' => 2,
                    b'T' | b't' => 3,
                    _ => (hash(0x00ac_6700, at as u64) & 3) as u8,
                }));
                state
            }
        };
    }
    if bases.is_empty() {
        return Err(
            Error::refused("no sequence; expected FASTA or FASTQ, gzip-compressed or not").at(path),
        );
    }
    starts.push(bases.len());
    Ok((bases, starts))
}

enum ParserState {
    Start,
    Fasta,
    Fastq,
    Quality,
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::{Generated, Reads, sequences};

    fn parsed(text: &[u8]) -> Result<(Vec<u8>, Vec<usize>), String> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text).unwrap();
        sequences(file.path().to_str().unwrap()).map_err(|e| e.to_string())
    }

    #[test]
    fn fasta_and_fastq_are_read() {
        let expected = (vec![0, 1, 2, 3, 3, 0, 2], vec![0, 5, 7]);
        assert_eq!(parsed(b">a x\nACG\ntt\n>b\nAG\n"), Ok(expected.clone()));
        assert_eq!(
            parsed(b"@a\nACGtt\n+\n@>IIII\n@b\nAG\n+b\nII\n"),
            Ok(expected.clone())
        );
        let mut zipped = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        zipped.write_all(b">a\r\nACGTT\r\n>b\r\nAG\r\n").unwrap();
        assert_eq!(parsed(&zipped.finish().unwrap()), Ok(expected));
    }

    #[test]
    fn other_files_are_refused_with_the_line() {
        assert!(parsed(b"ACGT\n").unwrap_err().contains("line 1"));
        assert!(parsed(b">a\nAC\n17\n").unwrap_err().contains("line 3"));
        assert!(parsed(b"").unwrap_err().contains("FASTA"));
        assert!(
            sequences("/nowhere/x")
                .unwrap_err()
                .to_string()
                .contains("/nowhere/x")
        );
    }

    #[test]
    fn reads_are_pieces_of_the_genome_with_the_given_errors() {
        let g = Generated {
            seed: 4,
            count: 100,
            length: 500,
            genome: 3000,
            errors: 0,
        };
        let genome: Vec<u8> = (0..3000).map(|i| g.genome(i)).collect();
        let back: Vec<u8> = genome.iter().rev().map(|b| 3 - b).collect();
        let (mut exact, mut noisy) = (Vec::new(), Vec::new());
        let mut wrong = 0;
        for number in 0..100 {
            let found = |text: &[u8], read: &[u8]| text.windows(500).any(|w| w == read);
            Reads::Generated(g).read(number, &mut exact);
            assert!(found(&genome, &exact) || found(&back, &exact));
            Reads::Generated(Generated { errors: 100, ..g }).read(number, &mut noisy);
            wrong += exact.iter().zip(&noisy).filter(|(a, b)| a != b).count();
        }
        // A tenth of 50,000 bases. The standard deviation is 67.
        assert!((4650..5350).contains(&wrong), "{wrong}");
    }
}
