//! Graphs from the user's files: edge lists and Matrix Market files, plain or compressed.
//!
//! A file is read twice. The first pass names vertices and counts their edges, the second fills rows. An edge
//! thus takes 4 bytes (8 with its weight).
//!
//! - Edge list: a line `source target` or `source target weight`, separated by spaces, commas, bars or
//!   semicolons. `#` and `%` begin a comment. A first line that begins with a letter is a header. Vertices may
//!   have any 64-bit numbers.
//! - GraphBIG's folder: `vertex.csv` and `edge.csv`, each with a header, columns separated by `|` or commas.
//! - Matrix Market: `matrix coordinate`, `pattern`, `integer` or `real`, `general` or `symmetric` (R.
//!   Boisvert et al., The Matrix Market Exchange Formats, NISTIR 5935). An entry in row i and column j is an
//!   edge from i to j.

use std::path::{Path, PathBuf};

use pagewalk_stream::Error;

use super::csr::{Builder, Csr, Shape};
use super::lines::{LineReader, fields, weight, whole};
use super::names::Names;
use crate::host;

/// Edges between two checks of the required memory.
const LOOK: u64 = 1 << 16;

/// Loads the graph from the file (or GraphBIG folder) at `path`.
///
/// # Errors
/// The file cannot be read, a line violates the format (with its number), or the graph does not fit host
/// memory.
pub fn load(path: &Path, shape: Shape) -> Result<Csr, Error> {
    load_within(path, shape, host::room())
}

fn load_within(path: &Path, shape: Shape, room: u64) -> Result<Csr, Error> {
    let source = GraphFile::open(path)?;
    let mut shape = shape;
    shape.symmetric |= source.symmetric();
    if shape.weighted && matches!(source, GraphFile::Matrix { pattern: true, .. }) {
        return Err(Error::refused(
            "a Matrix Market file of type `pattern` has no weights; expected `integer` or `real`",
        )
        .at(path.display().to_string()));
    }
    let mut pass = Pass {
        builder: Builder::new(shape),
        names: Names::default(),
        edges: 0,
        room,
        path: path.to_owned(),
    };
    source.vertices(&mut pass)?;
    source.edges(shape, &mut pass, Pass::count)?;
    let vertices = pass.vertices();
    if vertices > 0 {
        pass.builder.vertex((vertices - 1) as u32);
    }
    if vertices == 0 {
        return Err(Error::refused(
            "no vertex and no edge; expected one edge a line, such as `0 1`",
        )
        .at(path.display().to_string()));
    }
    pass.fits()?;
    pass.builder.allocate();
    let counted = std::mem::take(&mut pass.edges);
    source.edges(shape, &mut pass, Pass::add)?;
    if pass.edges != counted {
        return Err(pass.changed());
    }
    Ok(pass.builder.finish())
}

/// State of a pass over the file.
struct Pass {
    builder: Builder,
    names: Names,
    /// Edges of the file read so far in this pass.
    edges: u64,
    room: u64,
    path: PathBuf,
}

impl Pass {
    fn vertices(&self) -> u64 {
        u64::from(self.names.count()).max(self.builder.vertices())
    }

    fn count(&mut self, source: u32, target: u32, _: u32) -> Result<(), Error> {
        self.builder.count(source, target);
        self.edges += 1;
        if self.edges.is_multiple_of(LOOK) {
            self.fits()?;
        }
        Ok(())
    }

    fn add(&mut self, source: u32, target: u32, weight: u32) -> Result<(), Error> {
        self.edges += 1;
        if self.builder.add(source, target, weight) {
            Ok(())
        } else {
            Err(self.changed())
        }
    }

    fn changed(&self) -> Error {
        Error::refused("the file changed while it was read; try again when nobody writes it")
            .at(self.path.display().to_string())
    }

    /// Refuses a graph that would make the host swap.
    fn fits(&self) -> Result<(), Error> {
        self.fits_with(self.vertices(), self.builder.counted())
    }

    fn fits_with(&self, vertices: u64, edges: u64) -> Result<(), Error> {
        let needed = self.builder.bytes(vertices, edges) + self.names.bytes();
        let what = format!(
            "{}: at least {vertices} vertices and {edges} edges",
            self.path.display()
        );
        host::fits_in(needed, self.room, &what)
    }
}

/// Kind of input at the path.
enum GraphFile {
    EdgeList(PathBuf),
    GraphBig {
        vertices: Option<PathBuf>,
        edges: PathBuf,
    },
    Matrix {
        path: PathBuf,
        symmetric: bool,
        pattern: bool,
    },
}

/// Suffixes of GraphBIG's files: both may be compressed.
const ENDINGS: [&str; 4] = ["", ".gz", ".xz", ".zst"];

const BANNER: &str = "%%MatrixMarket matrix coordinate pattern|integer|real general|symmetric";

impl GraphFile {
    fn open(path: &Path) -> Result<Self, Error> {
        if path.is_dir() {
            let find = |name: &str| {
                let files = ENDINGS.iter().map(|end| path.join(format!("{name}{end}")));
                files.into_iter().find(|f| f.is_file())
            };
            let edges = find("edge.csv").ok_or_else(|| {
                Error::refused("a folder without `edge.csv`; expected GraphBIG's `vertex.csv` and `edge.csv`, or a file").at(path.display().to_string())
            })?;
            return Ok(GraphFile::GraphBig {
                vertices: find("vertex.csv"),
                edges,
            });
        }
        let path = path.to_owned();
        let mut lines = LineReader::open(&path)?;
        lines.advance()?;
        let banner = lines.line().to_ascii_lowercase();
        if !banner.starts_with(b"%%matrixmarket") {
            return Ok(GraphFile::EdgeList(path));
        }
        let banner = String::from_utf8_lossy(&banner);
        let words: Vec<&str> = banner.split_ascii_whitespace().skip(1).collect();
        let ["matrix", "coordinate", field, symmetry] = words[..] else {
            return Err(lines.wrong_line(&format!("`{BANNER}`")));
        };
        let known = matches!(field, "pattern" | "integer" | "real")
            && matches!(symmetry, "general" | "symmetric");
        if !known {
            return Err(lines.wrong_line(&format!("`{BANNER}`")));
        }
        Ok(GraphFile::Matrix {
            path,
            symmetric: symmetry == "symmetric",
            pattern: field == "pattern",
        })
    }

    /// True if the format itself declares edges symmetric.
    fn symmetric(&self) -> bool {
        matches!(
            self,
            GraphFile::Matrix {
                symmetric: true,
                ..
            }
        )
    }

    /// Reads the file of vertices, if there is one.
    fn vertices(&self, pass: &mut Pass) -> Result<(), Error> {
        let GraphFile::GraphBig {
            vertices: Some(path),
            ..
        } = self
        else {
            return Ok(());
        };
        let mut lines = LineReader::open(path)?;
        lines.advance()?; // its header
        while lines.advance()? {
            let Some(first) = fields(lines.line()).next() else {
                continue;
            };
            let name = whole(first)
                .ok_or_else(|| lines.wrong_line("a vertex's number in the first column"))?;
            name_vertex(&mut pass.names, name, &lines)?;
            if u64::from(pass.names.count()).is_multiple_of(LOOK) {
                pass.fits()?;
            }
        }
        Ok(())
    }

    /// Calls `each` for the file's edges in order.
    fn edges(
        &self,
        shape: Shape,
        pass: &mut Pass,
        each: fn(&mut Pass, u32, u32, u32) -> Result<(), Error>,
    ) -> Result<(), Error> {
        match self {
            GraphFile::EdgeList(path) => edge_list(path, false, shape, pass, each),
            GraphFile::GraphBig { edges, .. } => edge_list(edges, true, shape, pass, each),
            GraphFile::Matrix { path, .. } => matrix(path, shape.weighted, pass, each),
        }
    }
}

fn name_vertex(names: &mut Names, name: u64, lines: &LineReader) -> Result<u32, Error> {
    names
        .vertex(name)
        .ok_or_else(|| lines.wrong("one more vertex", "fewer than 2^32 - 1 vertices"))
}

const EDGE: &str = "two vertices' numbers below 2^64, such as `0 1`";
const WEIGHT: &str = "a weight from 0 to 2^32 - 1 in the third column";

fn edge_list(
    path: &Path,
    header: bool,
    shape: Shape,
    pass: &mut Pass,
    each: fn(&mut Pass, u32, u32, u32) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut lines = LineReader::open(path)?;
    let mut first = true;
    while lines.advance()? {
        let line = lines.line();
        if line.is_empty() || matches!(line[0], b'#' | b'%') {
            continue;
        }
        let letter = line[0].is_ascii_alphabetic() || matches!(line[0], b'"' | b'_' | b':');
        if std::mem::replace(&mut first, false) && (header || letter) {
            continue;
        }
        let mut fields = fields(line);
        let mut next = || fields.next().and_then(whole);
        let (Some(source), Some(target)) = (next(), next()) else {
            return Err(lines.wrong_line(EDGE));
        };
        let heavy = if shape.weighted {
            let value = fields.next().and_then(weight);
            value.ok_or_else(|| lines.wrong_line(WEIGHT))?
        } else {
            1
        };
        let source = name_vertex(&mut pass.names, source, &lines)?;
        let target = name_vertex(&mut pass.names, target, &lines)?;
        each(pass, source, target, heavy)?;
    }
    Ok(())
}

fn matrix(
    path: &Path,
    weighted: bool,
    pass: &mut Pass,
    each: fn(&mut Pass, u32, u32, u32) -> Result<(), Error>,
) -> Result<(), Error> {
    const SIZE: &str = "the size `rows columns entries` of a square matrix of fewer than 2^32 rows";
    const MORE: &str = "as many entries as the size line gives";
    let mut lines = LineReader::open(path)?;
    let mut size = None;
    let mut entries = 0;
    while lines.advance()? {
        let line = lines.line();
        if line.is_empty() || line[0] == b'%' {
            continue;
        }
        let mut fields = fields(line);
        let mut next = || fields.next().and_then(whole);
        let pair = (next(), next());
        let Some((rows, expected_entries)) = size else {
            let (Some(rows), Some(columns), Some(entries)) = (pair.0, pair.1, next()) else {
                return Err(lines.wrong_line(SIZE));
            };
            if rows != columns || rows == 0 || rows >= u64::from(u32::MAX) {
                return Err(lines.wrong_line(SIZE));
            }
            pass.fits_with(rows, 0)?;
            pass.builder.vertex((rows - 1) as u32);
            size = Some((rows, entries));
            continue;
        };
        let inside = 1..=rows;
        let (Some(i), Some(j)) = pair else {
            return Err(lines.wrong_line("an entry `row column` or `row column value`"));
        };
        if !inside.contains(&i) || !inside.contains(&j) {
            return Err(lines.wrong_line(&format!("a row and a column from 1 to {rows}")));
        }
        let heavy = if weighted {
            let value = fields.next().and_then(weight);
            value.ok_or_else(|| lines.wrong_line(WEIGHT))?
        } else {
            1
        };
        if entries == expected_entries {
            return Err(lines.wrong(&format!("more than {expected_entries} entries"), MORE));
        }
        entries += 1;
        each(pass, (i - 1) as u32, (j - 1) as u32, heavy)?;
    }
    match size {
        None => Err(lines.wrong("the end of the file", SIZE)),
        Some((_, expected_entries)) if entries != expected_entries => Err(lines.wrong(
            &format!("the end after {entries} of {expected_entries} entries"),
            MORE,
        )),
        Some(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::path::Path;

    use proptest::prelude::*;

    use super::{load, load_within};
    use crate::graph::source::csr::{Csr, Shape};
    use crate::graph::source::names::Names;

    const PLAIN: Shape = Shape {
        symmetric: false,
        simple: false,
        weighted: false,
    };
    const WEIGHTED: Shape = Shape {
        weighted: true,
        ..PLAIN
    };

    fn file(text: &[u8]) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text).unwrap();
        file
    }

    fn read(text: &[u8], shape: Shape) -> Result<Csr, String> {
        load(file(text).path(), shape).map_err(|e| e.to_string())
    }

    fn graph(vertices: u32, edges: &[(u32, u32, u32)], shape: Shape) -> Csr {
        Csr::from_edges(vertices, edges, shape)
    }

    #[test]
    fn an_edge_list_names_vertices_in_the_order_of_first_appearance() {
        let text = b"# a comment\n\n9 18446744073709551615\n%another\n7,9\n 18446744073709551615\t7 \n7|7\r\n";
        let wanted = graph(3, &[(0, 1, 1), (2, 0, 1), (1, 2, 1), (2, 2, 1)], PLAIN);
        assert_eq!(read(text, PLAIN).unwrap(), wanted);
    }

    #[test]
    fn weights_are_the_third_column() {
        let text = b"src,dst,weight\n0,1,5\n1,0,1\n1,2,2.6,99\n";
        let wanted = graph(3, &[(0, 1, 5), (1, 0, 1), (1, 2, 3)], WEIGHTED);
        assert_eq!(read(text, WEIGHTED).unwrap(), wanted);
        assert_eq!(read(b"0 1 heavy\n", PLAIN).unwrap().edges(), 1);
    }

    /// Text after `%%MatrixMarket matrix`, and expected parts of the message.
    const WRONG_MATRICES: [(Shape, &str); 2] = [
        (
            PLAIN,
            r"
            array real general => line 1, array, coordinate
            coordinate complex general => line 1, complex, real
            coordinate real general\n%\n3 4 1 => line 3, 3 4 1, square
            coordinate real general => line 2, end of the file, size
            coordinate pattern general\n3 3 1\n0 1 => line 3, `0 1`, 1 to 3
            coordinate pattern general\n3 3 1\n1 1\n2 2 => line 4, more than 1, size line
            coordinate pattern general\n3 3 2\n1 1 => after 1 of 2, size line, entries
            ",
        ),
        (
            WEIGHTED,
            r"
            coordinate pattern general\n3 3 1\n1 1 => pattern, no weights, integer
            coordinate real general\n3 3 1\n1 1 -2 => line 3, -2, a weight
            ",
        ),
    ];

    #[test]
    fn wrong_matrices_are_named_with_what_was_expected() {
        let mut cases = 0;
        for (shape, table) in WRONG_MATRICES {
            for (text, parts) in table.lines().filter_map(|l| l.trim().split_once(" => ")) {
                let text = format!("%%MatrixMarket matrix {}\n", text.replace("\\n", "\n"));
                let message = read(text.as_bytes(), shape).unwrap_err();
                for part in parts.split(", ") {
                    assert!(message.contains(part), "{text:?}: {message}");
                }
                cases += 1;
            }
        }
        assert_eq!(cases, 9);
    }

    #[test]
    fn wrong_lines_are_named_with_what_was_expected() {
        for (text, shape, parts) in [
            ("0 1\n2\n", PLAIN, ["line 2", "`2`", "two vertices"]),
            ("0 1\n1 -2\n", PLAIN, ["line 2", "`1 -2`", "two vertices"]),
            ("0 1\n#\n1 x\n", PLAIN, ["line 3", "`1 x`", "such as `0 1`"]),
            ("0 18446744073709551616", PLAIN, ["line 1", "1844", "2^64"]),
            ("0 1 -3\n", WEIGHTED, ["line 1", "`0 1 -3`", "a weight"]),
            ("0 1 3\n1 0\n", WEIGHTED, ["line 2", "`1 0`", "a weight"]),
            ("# only this\n", PLAIN, ["no vertex", "no edge", "expected"]),
            ("", PLAIN, ["empty", "expected", "edge list"]),
        ] {
            let message = read(text.as_bytes(), shape).unwrap_err();
            for part in parts {
                assert!(message.contains(part), "{text:?}: {message}");
            }
        }
        let long = vec![b'1'; 100_000];
        assert!(read(&long, PLAIN).unwrap_err().contains("64 KiB"));
        let message = load(Path::new("/no/such/graph"), PLAIN)
            .unwrap_err()
            .to_string();
        assert!(message.contains("cannot open the graph"), "{message}");
    }

    #[test]
    fn matrices_count_from_one_and_symmetric_ones_go_both_ways() {
        let text =
            b"%%MatrixMarket matrix coordinate real symmetric\n% c\n4 4 3\n2 1 1.5\n3 3 2\n3 1 7\n";
        let edges = [(1, 0, 2), (0, 1, 2), (2, 2, 2), (2, 0, 7), (0, 2, 7)];
        assert_eq!(read(text, WEIGHTED).unwrap(), graph(4, &edges, WEIGHTED));
        let text = b"%%matrixmarket MATRIX coordinate pattern general\n2 2 1\n2 1\n";
        assert_eq!(read(text, PLAIN).unwrap(), graph(2, &[(1, 0, 1)], PLAIN));
    }

    #[test]
    fn graphbigs_folder_lists_vertices_first() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        std::fs::write(path.join("edge.csv"), "SRC|DST\n5|3\n3|8\n").unwrap();
        let without = load(path, PLAIN).unwrap();
        assert_eq!(without, graph(3, &[(0, 1, 1), (1, 2, 1)], PLAIN));
        std::fs::write(path.join("vertex.csv"), "ID|NAME\n1|a b\n3|c\n5|d\n").unwrap();
        let with = load(path, PLAIN).unwrap();
        assert_eq!(with, graph(4, &[(2, 1, 1), (1, 3, 1)], PLAIN));
        std::fs::write(path.join("vertex.csv"), "ID\nanna\n").unwrap();
        let message = load(path, PLAIN).unwrap_err().to_string();
        assert!(message.contains("vertex.csv, line 2") && message.contains("anna"));
        std::fs::remove_file(path.join("edge.csv")).unwrap();
        assert!(
            load(path, PLAIN)
                .unwrap_err()
                .to_string()
                .contains("edge.csv")
        );
    }

    #[test]
    fn compressed_files_are_read_and_damaged_ones_refused() {
        let text = b"0 1\n1 2\n2 0\n".repeat(100);
        let wanted = read(&text, PLAIN).unwrap();
        let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        gz.write_all(&text).unwrap();
        let gz = gz.finish().unwrap();
        assert_eq!(read(&gz, PLAIN).unwrap(), wanted);
        let zst = zstd::encode_all(&text[..], 1).unwrap();
        assert_eq!(read(&zst, PLAIN).unwrap(), wanted);
        let message = read(&gz[..gz.len() / 2], PLAIN).unwrap_err();
        assert!(
            message.contains("cut off") && message.contains("the graph again"),
            "{message}"
        );
    }

    #[test]
    fn a_graph_that_does_not_fit_is_refused_before_allocation() {
        let text =
            b"%%MatrixMarket matrix coordinate pattern general\n4000000000 4000000000 1\n1 1\n";
        let message = load_within(file(text).path(), PLAIN, 1 << 30)
            .unwrap_err()
            .to_string();
        assert!(message.contains("host memory"), "{message}");
        let mut text = Vec::new();
        for n in 0..100_000 {
            writeln!(text, "{n} {}", n + 1).unwrap();
        }
        let text = file(&text);
        assert!(load_within(text.path(), PLAIN, 4 << 20).is_ok());
        let message = load_within(text.path(), PLAIN, 1 << 20)
            .unwrap_err()
            .to_string();
        assert!(message.contains("host memory"), "{message}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn an_edge_list_is_read_as_written(
            edges in proptest::collection::vec((0u64..40, any::<u64>(), 0u32..9), 1..60),
            symmetric: bool, simple: bool,
        ) {
            let mut text = Vec::new();
            let mut names = Names::default();
            let mut wanted = Vec::new();
            for (s, t, w) in edges {
                writeln!(text, "{s} {t} {w}").unwrap();
                let s = names.vertex(s).unwrap();
                wanted.push((s, names.vertex(t).unwrap(), w));
            }
            let shape = Shape { symmetric, simple, weighted: true };
            prop_assert_eq!(read(&text, shape).unwrap(), graph(names.count(), &wanted, shape));
        }

        #[test]
        fn damaged_files_are_read_or_refused(
            which in 0usize..3,
            damage in proptest::collection::vec((any::<usize>(), any::<u8>(), 0u8..3), 1..6),
            weighted: bool, symmetric: bool,
        ) {
            let texts: [&[u8]; 3] = [
                b"# graph\n0 1 3\n1,2,4\n2|0|5\n",
                b"%%MatrixMarket matrix coordinate integer symmetric\n% c\n4 4 3\n2 1 1\n3 3 2\n4 1 7\n",
                b"%%MatrixMarket matrix coordinate pattern general\n3 3 2\n1 2\n3 1\n",
            ];
            let mut text = texts[which].to_vec();
            for (at, byte, how) in damage {
                let at = at % text.len().max(1);
                match how {
                    0 if !text.is_empty() => text[at] = byte,
                    1 if !text.is_empty() => { text.remove(at); }
                    _ => text.insert(at, byte),
                }
            }
            let shape = Shape { symmetric, simple: false, weighted };
            let path = file(&text);
            match load_within(path.path(), shape, 64 << 20) {
                Ok(graph) => {
                    prop_assert!(graph.vertices() > 0);
                    let v = graph.vertices();
                    prop_assert!((0..v as u32).all(|u| graph.neighbours(u).iter().all(|t| u64::from(*t) < v)));
                }
                Err(e) => prop_assert!(e.to_string().len() > 20, "{}", e.to_string()),
            }
        }
    }
}
