//! Parameters of every graph kernel: the graph, and its memory layout.

use std::path::PathBuf;

use pagewalk_stream::Error;

use super::layout::{Csr, Layout as _, OpenG, Properties};
use super::source::{self, Degrees, Generated, Graph, Model, Order, Shape, ldbc, load};
use crate::entry::Values;
use crate::host;
use crate::info::ParamInfo;
use crate::size::format_size;
use crate::thread::Start;

/// `--param graph=…`
pub const GRAPH: ParamInfo = ParamInfo {
    name: "graph",
    unit: "",
    default: "kronecker",
    range: "kronecker, uniform, ldbc or the path of a file",
    meaning: "Kind of graph: kronecker (Graph500: A=.57, B=C=.19; few vertices have most edges), uniform (the same number of uniformly drawn neighbours for each vertex), ldbc (a social network with Facebook's degrees and communities, as LDBC's Datagen makes it), or a file: an edge list, a Matrix Market file (both also as .gz, .xz or .zst) or a folder with GraphBIG's vertex.csv and edge.csv.",
};
/// `--param scale=…`
pub const SCALE: ParamInfo = ParamInfo {
    name: "scale",
    unit: "log2 of vertices",
    default: "the largest that fits the size",
    range: "12 to 31",
    meaning: "The graph has 2^scale vertices; given instead of a size.",
};
/// `--param vertices=…`
pub const VERTICES: ParamInfo = ParamInfo {
    name: "vertices",
    unit: "vertices",
    default: "2^scale",
    range: "1000 to 2^31",
    meaning: "Number of vertices, given instead of a size or a scale; a power of two for a Kronecker graph.",
};
/// `--param degree=…`
pub const DEGREE: ParamInfo = ParamInfo {
    name: "degree",
    unit: "directed edges a vertex",
    default: "16; with ldbc 29, as GraphBIG's LDBC-1000k has",
    range: "1 to 1024",
    meaning: "Mean number of neighbours.",
};
/// `--param symmetric=…`
pub const SYMMETRIC: ParamInfo = ParamInfo {
    name: "symmetric",
    unit: "",
    default: "no",
    range: "yes or no",
    meaning: "With yes, each edge has its reverse. The graph is then held in the host's memory, 4 bytes an edge. An LDBC-like graph is always symmetric.",
};
/// `--param layout=…`
pub const LAYOUT: ParamInfo = ParamInfo {
    name: "layout",
    unit: "",
    default: "csr",
    range: "csr or graphbig",
    meaning: "Data structure: compressed sparse rows with an array for each property, as in GAP, or GraphBIG's lists of vertex and edge objects with a hash map from vertex numbers to objects.",
};
/// `--param direction=…`
pub const DIRECTION: ParamInfo = ParamInfo {
    name: "direction",
    unit: "",
    default: "top-down",
    range: "top-down or optimizing",
    meaning: "Direction of a search over csr: top-down scans each level from the vertices found last; optimizing switches, as GAP does, to the vertices not yet found if that takes fewer edges. Optimizing needs one thread and symmetric=yes.",
};
/// `--param order=…`
pub const ORDER: ParamInfo = ParamInfo {
    name: "order",
    unit: "",
    default: "sorted",
    range: "sorted, shuffled or edges",
    meaning: "Loading order of GraphBIG's layout. sorted loads all vertices, then the edges by ascending sources; shuffled does so with the sources in random order, as in GraphBIG's own LDBC files. edges loads edges alone (its build with EDGES=1): an edge creates the vertices that it names first, so that vertices and edges are interleaved, and vertices without edges do not exist.",
};
/// `--param degrees=…`
pub const DEGREES: ParamInfo = ParamInfo {
    name: "degrees",
    unit: "",
    default: "facebook",
    range: "facebook or graphbig",
    meaning: "Distribution of degrees around the mean for graph=ldbc: Facebook's, in which one person in a hundred has seven times the mean, or that of GraphBIG's graph of a thousand persons, in which the maximum is 3.3 times the mean.",
};
/// `--param roots=…`
pub const ROOTS: ParamInfo = ParamInfo {
    name: "roots",
    unit: "searches",
    default: "64",
    range: "1 to 2^32",
    meaning: "Searches one after the other, each from another random vertex that has neighbours.",
};

const SCALES: std::ops::RangeInclusive<u32> = 12..=31;
/// Vertices of the smallest graph of ME-HPT's figure 15.
const LEAST_VERTICES: u64 = 1000;

/// Host memory per vertex of GraphBIG's layout, in bytes: addresses of the vertex and of its map entries
/// (32), incoming edges (4), and at least one run of its edges and of each of their other objects (16 each).
fn objects_bytes(properties: &Properties) -> u64 {
    36 + 16 * if properties.weights { 3 } else { 1 }
}

/// Memory layout of a graph.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GraphLayout {
    /// Compressed sparse rows.
    Csr,
    /// GraphBIG's objects.
    OpenG,
}

/// The chosen graph and its options.
pub struct Setup {
    /// The graph.
    pub graph: Graph,
    /// Its layout.
    pub kind: GraphLayout,
    /// Order in which it is loaded.
    pub order: Order,
    /// Initialisation of its memory.
    pub start: Start,
    /// Number of threads, from 1.
    pub threads: u32,
    /// Random seed.
    pub seed: u64,
    /// The choices as text, with defaults filled in.
    pub name: String,
}

impl Setup {
    /// Reads the parameters of a kernel with these `properties` per vertex.
    ///
    /// # Errors
    /// A value out of range, or a size too small for any graph.
    pub fn read(values: &Values<'_>, properties: &Properties) -> Result<Self, Error> {
        Self::read_shaped(values, properties, Shape::default())
    }

    /// [`read`](Self::read) for a kernel that needs a graph of some shape.
    ///
    /// # Errors
    /// Those of [`read`](Self::read). Also a file that is not a graph, or one too large for the host.
    pub fn read_shaped(
        values: &Values<'_>,
        properties: &Properties,
        shape: Shape,
    ) -> Result<Self, Error> {
        let kind = match values.choice("layout", &["csr", "graphbig"], "csr")? {
            "graphbig" => GraphLayout::OpenG,
            _ => GraphLayout::Csr,
        };
        let start = values.start()?;
        let seed = values.options.seed;
        let threads = values.options.threads;
        let mut name = values.name().to_owned();
        let graph = match file(values)? {
            Some(path) => {
                name += &format!(" --param graph={}", path.display());
                load(&path, shape).map(Graph::Held)?
            }
            None => generate(values, properties, kind, shape, &mut name)?,
        };
        if graph.edges() == 0 {
            return Err(values.refuse("graph", "a graph without any edge"));
        }
        let mut loaded = (graph, Order::default());
        if kind == GraphLayout::OpenG {
            let what = format!("{name}: the objects of {} vertices", loaded.0.vertices());
            host::fits(objects_bytes(properties) * loaded.0.vertices(), &what)?;
            name += " --param layout=graphbig";
        }
        let order = values.choice("order", &ORDERS, ORDERS[0])?;
        if order != ORDERS[0] {
            if kind == GraphLayout::Csr {
                return Err(values.refuse("order", "only GraphBIG's layout is loaded in an order"));
            }
            loaded = in_order(loaded.0, order, shape, seed, &name)?;
            name += &format!(" --param order={order}");
        }
        let (graph, order) = loaded;
        name += &format!(" --threads {threads}");
        Ok(Setup {
            graph,
            kind,
            order,
            start,
            threads,
            seed,
            name,
        })
    }
}

impl Setup {
    /// Refuses a graph if the host has no room for the kernel's own `bytes` per vertex.
    ///
    /// # Errors
    /// Too little host memory.
    pub fn holds(&self, bytes: u64) -> Result<(), Error> {
        let n = self.graph.vertices();
        let what = format!("{}: the arrays of {n} vertices", self.name);
        host::fits(bytes.saturating_mul(n), &what)
    }
}

/// True if the graph is a file of the user.
pub fn is_file(values: &Values<'_>) -> bool {
    values.text("graph").is_some_and(|g| !GRAPHS.contains(&g))
}

/// The shape selected by [`SYMMETRIC`].
pub fn symmetric(values: &Values<'_>) -> Result<Shape, Error> {
    Ok(Shape {
        symmetric: values.choice("symmetric", &["yes", "no"], "no")? == "yes",
        ..Shape::default()
    })
}

const GRAPHS: [&str; 3] = ["kronecker", "uniform", "ldbc"];
const ORDERS: [&str; 3] = ["sorted", "shuffled", "edges"];

/// Applies the chosen load order to the graph. Returns both.
fn in_order(
    graph: Graph,
    order: &str,
    shape: Shape,
    seed: u64,
    name: &str,
) -> Result<(Graph, Order), Error> {
    let vertices = graph.vertices();
    if order == "shuffled" {
        host::fits(
            4 * vertices,
            &format!("{name}: an order of {vertices} vertices"),
        )?;
        let order = source::shuffled(&graph, seed);
        return Ok((graph, order));
    }
    let edges = graph.edges();
    let bytes = if shape.weighted { 8 } else { 4 };
    let what = format!("{name}: {vertices} vertices and {edges} edges, named anew");
    host::fits(bytes * edges + 32 * vertices, &what)?;
    let (graph, order) = source::by_edges(&graph, shape, seed);
    Ok((Graph::Held(graph), order))
}

/// Path of the user's file, if the graph is one.
fn file(values: &Values<'_>) -> Result<Option<PathBuf>, Error> {
    let Some(given) = values.text("graph").filter(|g| !GRAPHS.contains(g)) else {
        return Ok(None);
    };
    let path = PathBuf::from(given);
    if !path.exists() {
        // A name without a dot or slash is more likely a misspelt choice than a file.
        if !given.contains(['/', '.']) {
            values.choice("graph", &GRAPHS, "kronecker")?;
        }
        return Err(values.refuse("graph", "there is no such file"));
    }
    for size in ["scale", "vertices", "degree", "degrees"] {
        if values.text(size).is_some() {
            return Err(values.refuse(size, "given together with a file, which has its own"));
        }
    }
    if let Some(bytes) = values.options.size_bytes {
        return Err(values.refuse_size(bytes, "given together with a file, which has its own"));
    }
    Ok(Some(path))
}

/// Generates a graph from the seed. Its options are appended to `name`.
fn generate(
    values: &Values<'_>,
    properties: &Properties,
    kind: GraphLayout,
    shape: Shape,
    name: &mut String,
) -> Result<Graph, Error> {
    let graph = values.choice("graph", &GRAPHS, "kronecker")?;
    let degrees = match values.choice("degrees", &["facebook", "graphbig"], "facebook")? {
        "graphbig" => Degrees::GraphBig,
        _ => Degrees::Facebook,
    };
    if degrees != Degrees::Facebook && graph != "ldbc" {
        return Err(values.refuse("degrees", "only graph=ldbc has a choice of them"));
    }
    let usual = if graph == "ldbc" { 29 } else { 16 };
    let degree = values.number_in("degree", 1..=1024, usual)?;
    // Social networks are symmetric already.
    let both = if shape.symmetric && graph != "ldbc" {
        2
    } else {
        1
    };
    let vertices = vertices(values, graph, &|vertices| {
        let edges = both * vertices * degree;
        match kind {
            GraphLayout::Csr => Csr::footprint(vertices, edges, properties),
            GraphLayout::OpenG => OpenG::footprint(vertices, edges, properties),
        }
    })?;
    *name += &format!(" --param graph={graph}");
    if vertices.is_power_of_two() {
        *name += &format!(" --param scale={}", vertices.trailing_zeros());
    } else {
        *name += &format!(" --param vertices={vertices}");
    }
    *name += &format!(" --param degree={degree}");
    if degrees != Degrees::Facebook {
        *name += " --param degrees=graphbig";
    }
    if shape.symmetric {
        *name += " --param symmetric=yes";
    }
    let held = shape.symmetric || shape.simple || graph == "ldbc";
    if held {
        let edges = both * vertices * degree;
        // 4 bytes per edge, and 32 per vertex during construction.
        let what = format!("{}: {vertices} vertices and {edges} edges", values.name());
        host::fits(4 * edges + 32 * vertices, &what)?;
    }
    let seed = values.options.seed;
    let model = match graph {
        "ldbc" => {
            let graph = ldbc(vertices as u32, degree as f64, seed, degrees);
            return Ok(Graph::Held(graph));
        }
        "uniform" => Model::Uniform,
        _ => Model::Kronecker,
    };
    let graph = Graph::Generated(Generated::new(model, vertices, degree, seed));
    Ok(if held {
        Graph::Held(source::Csr::of(&graph, shape))
    } else {
        graph
    })
}

/// Number of vertices: as given, by scale, or the largest scale that fits the size.
fn vertices(
    values: &Values<'_>,
    graph: &str,
    footprint: &dyn Fn(u64) -> u64,
) -> Result<u64, Error> {
    let (scale, vertices) = (values.number("scale")?, values.number("vertices")?);
    for (name, given) in [("scale", scale), ("vertices", vertices)] {
        if given.is_some() && values.options.size_bytes.is_some() {
            return Err(values.refuse(name, "given together with a size; give one of them"));
        }
    }
    let range = LEAST_VERTICES..=1 << SCALES.end();
    match (scale, vertices) {
        (Some(_), Some(_)) => {
            Err(values.refuse("vertices", "given together with a scale; give one of them"))
        }
        (Some(scale), None) => match u32::try_from(scale) {
            Ok(scale) if SCALES.contains(&scale) => Ok(1 << scale),
            _ => Err(values.refuse("scale", "out of range")),
        },
        (None, Some(n)) if !range.contains(&n) => Err(values.refuse("vertices", "out of range")),
        (None, Some(n)) if graph == "kronecker" && !n.is_power_of_two() => {
            Err(values.refuse("vertices", "a Kronecker graph has a power of two"))
        }
        (None, Some(n)) => Ok(n),
        (None, None) => {
            let size = values.size();
            let fits = SCALES.rev().find(|&scale| footprint(1 << scale) <= size);
            fits.map(|scale| 1 << scale).ok_or_else(|| {
                let least = format_size(footprint(1 << SCALES.start()));
                values.refuse_size(size, format!("too small for any graph ({least} at least)"))
            })
        }
    }
}
