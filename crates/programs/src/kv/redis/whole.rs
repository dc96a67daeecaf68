//! A GET of Redis from its parsed command to its reply, around the search for the key: argument objects, search
//! for the command, checks, expiry, statistics, reply, release of the objects.
//!
//! The instructions are those of a real server, recorded by `validation/redis_request.py` into `get.txt`. Each
//! op there names an instruction that accesses memory or branches, and the ops that produce its inputs. Code
//! lies line by line, fixed data page by page, in the order of the recording. The arguments, the record, the
//! query and the reply lie where this program has them. Protocol parsing and the event loop are left out.
//!
//! Each op belongs to a part, and a GET executes chosen parts. A call and its return belong to the part that is
//! called. An op whose producer is in a part left out does not wait for it.

use pagewalk_stream::flags::{CALL, CONDITIONAL, INDIRECT, RETURN, TAKEN};

use super::Dictionary;
use crate::heap::Heap;
use crate::kv::globals::{DATA_PAGES, REPLIES, SERVER};
use crate::kv::index::Key;
use crate::thread::{NONE, Thread, Value};

/// Code of the listing, behind the program's libraries.
const CODE: u64 = 0xb000;
/// Bytes of a client's reply buffer (`PROTO_REPLY_CHUNK_BYTES`).
const REPLY_BYTES: u64 = 16 << 10;
/// Bytes of the arguments' array, and of the objects of command and key with their characters.
const ARGUMENTS: [u64; 3] = [16, 16 + 3 + 3 + 1, 16 + 3 + 24 + 1];
/// Offset of the characters in an object that holds them.
const EMBEDDED: u64 = 16 + 3;
/// Names of the sections: before the search, and after it by the length of the value.
const SECTIONS: [&str; 5] = ["before", "64", "128", "256", "missing"];
/// Names of the parts, in the order in which the paper's readings add them.
const PARTS: [&str; 7] = [
    "key",
    "reply",
    "call",
    "checks",
    "table",
    "reset",
    "arguments",
];
/// Letters of the places, in the order of [`WholeGet::bases`].
const PLACES: &str = "DSANKEOVQR";

/// Parts of a GET that are executed around the search, as bits in the order of [`PARTS`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parts(u8);

impl Parts {
    /// The whole request.
    pub const ALL: Parts = Parts((1 << PARTS.len()) - 1);

    /// Reads `search`, or `search` and parts joined by `+`. An unknown name is the error.
    pub fn read(text: &str) -> Result<Parts, &str> {
        let mut names = text.split('+');
        let mut parts = Parts(0);
        match names.next() {
            Some("search") => {}
            other => return Err(other.unwrap_or(text)),
        }
        for name in names {
            parts.0 |= 1 << PARTS.iter().position(|p| *p == name).ok_or(name)?;
        }
        Ok(parts)
    }

    /// All names that [`Parts::read`] takes.
    pub fn names() -> impl Iterator<Item = &'static str> + Clone {
        ["search"].into_iter().chain(PARTS)
    }
}

/// Kind of an op.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Load,
    Store,
    Jump(u8),
    Plain,
}

/// Source of an input.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Input {
    None,
    /// The search's result, and cycles after it.
    Entry(u8),
    /// So many ops back, and cycles after it.
    Back(u16, u8),
}

/// An op of the listing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Step {
    kind: Kind,
    pc: u16,
    insns: u16,
    place: u8,
    size: u8,
    offset: i32,
    inputs: [Input; 2],
    target: u16,
    /// Bit of its part.
    part: u8,
}

/// A found record, as the reply reads it.
#[derive(Clone, Copy, Debug)]
pub struct Reply {
    /// Address of the entry.
    pub entry: u64,
    /// Value that produces it.
    pub at: Value,
    /// Address of the value's object.
    pub object: u64,
    /// Address of the value's sds, header first.
    pub sds: u64,
    /// Length of the value.
    pub bytes: u64,
}

/// The listing, and the state of the client that it serves.
pub struct WholeGet {
    sections: [Vec<Step>; SECTIONS.len()],
    parts: Parts,
    /// Bytes of stack in use at the search.
    depth: u64,
    /// Array of the arguments, object of the command's name, object of the key. The allocator gives the same
    /// ones to each GET, because the last object freed is the first one taken.
    arguments: [u64; 3],
    /// Bytes in the reply buffer.
    reply: u64,
    /// Results of the ops of the section in execution.
    values: Vec<Value>,
}

impl WholeGet {
    /// Reads the listing and allocates the client's arguments.
    pub fn new(heap: &mut Heap, parts: Parts) -> Self {
        let mut made = WholeGet {
            sections: Default::default(),
            parts,
            depth: 0,
            arguments: ARGUMENTS.map(|bytes| heap.malloc(bytes)),
            reply: 0,
            values: Vec::new(),
        };
        let (mut section, mut part) = (0, 0);
        for line in include_str!("get.txt").lines() {
            let words: Vec<&str> = line.split(' ').collect();
            match words[0] {
                "#" => {}
                "depth" => made.depth = decimal(words[1]),
                "pages" => assert!(decimal::<u64>(words[1]) <= DATA_PAGES, "{line}"),
                "section" => {
                    let of = SECTIONS.iter().position(|s| *s == words[1]);
                    section = of.unwrap_or_else(|| panic!("get.txt: section {}", words[1]));
                }
                "part" => {
                    let of = PARTS.iter().position(|p| *p == words[1]);
                    part = 1 << of.unwrap_or_else(|| panic!("get.txt: part {}", words[1]));
                }
                _ => made.sections[section].push(step(&words, part)),
            }
        }
        made
    }

    /// The key as an argument.
    pub fn key(&self, number: u64) -> Key {
        Key {
            number,
            object: self.arguments[2],
            text: self.arguments[2] + EMBEDDED,
        }
    }

    /// Stack pointer of the search, from that of the caller.
    pub fn sp(&self, sp: u64) -> u64 {
        sp - self.depth
    }

    /// Executes the GET of the key at `query` up to the search.
    pub async fn before(&mut self, t: &mut Thread, query: u64, sp: u64) {
        self.execute(t, 0, (query, sp), None).await;
    }

    /// Executes the rest, and replies.
    pub async fn after(&mut self, t: &mut Thread, query: u64, sp: u64, found: Option<Reply>) {
        let section = match found.map(|f| f.bytes) {
            Some(64) => 1,
            Some(128) => 2,
            Some(_) => 3,
            None => 4,
        };
        let bytes = found.map(|f| f.bytes);
        self.make_room(bytes);
        self.execute(t, section, (query, sp), found).await;
        self.reply += reply_bytes(bytes);
    }

    /// The effect of a GET: bytes in the reply buffer.
    pub fn skip(&mut self, bytes: Option<u64>) {
        self.make_room(bytes);
        self.reply += reply_bytes(bytes);
    }

    /// Sends the replies if the next one does not fit.
    fn make_room(&mut self, bytes: Option<u64>) {
        if self.reply + reply_bytes(bytes) > REPLY_BYTES {
            self.reply = 0;
        }
    }

    /// Addresses that offsets count from, by place.
    fn bases(&self, (query, sp): (u64, u64), found: Option<&Reply>) -> [u64; PLACES.len()] {
        let [array, name, key] = self.arguments;
        let [entry, object, text] = found.map_or([0; 3], |f| {
            [f.entry, f.object, f.sds + Dictionary::header(f.bytes)]
        });
        let reply = REPLIES + self.reply;
        [
            SERVER, sp, array, name, key, entry, object, text, query, reply,
        ]
    }

    async fn execute(
        &mut self,
        t: &mut Thread,
        section: usize,
        of: (u64, u64),
        found: Option<Reply>,
    ) {
        let bases = self.bases(of, found.as_ref());
        let entry = found.map_or(NONE, |f| f.at);
        self.values.clear();
        for step in &self.sections[section] {
            if step.part & self.parts.0 == 0 {
                self.values.push(NONE);
                continue;
            }
            // The op that ends the request must be in the last batch: a pause comes before an op.
            if t.full() {
                t.pause().await;
            }
            let input = |i: usize| match step.inputs[i] {
                Input::None => NONE,
                Input::Entry(cycles) => entry.plus(u64::from(cycles)),
                Input::Back(back, cycles) => {
                    let at = self.values.len() - usize::from(back);
                    self.values[at].plus(u64::from(cycles))
                }
            };
            let inputs = [input(0), input(1)];
            let va = bases[usize::from(step.place)].wrapping_add_signed(i64::from(step.offset));
            let (pc, insns) = (CODE + u64::from(step.pc), step.insns);
            let value = match step.kind {
                Kind::Load => t.load(pc, insns, va, step.size, inputs),
                Kind::Store => {
                    t.store(pc, insns, va, step.size, inputs[0], inputs[1]);
                    NONE
                }
                Kind::Jump(flags) => {
                    t.jump(pc, CODE + u64::from(step.target), insns, flags, inputs);
                    NONE
                }
                Kind::Plain => t.compute(pc, insns, 1, inputs),
            };
            self.values.push(value);
        }
    }
}

/// Bytes of a reply: `$`, the length in digits, the value, two line ends; or `$-1` and a line end.
fn reply_bytes(bytes: Option<u64>) -> u64 {
    bytes.map_or(5, |n| 1 + u64::from(n.ilog10()) + 1 + 2 + n + 2)
}

fn decimal<T: std::str::FromStr>(text: &str) -> T {
    let number = text.parse().ok();
    number.unwrap_or_else(|| panic!("get.txt: {text} is no number"))
}

fn code(text: &str) -> u16 {
    u16::from_str_radix(text, 16).unwrap_or_else(|_| panic!("get.txt: {text} is no address"))
}

/// An op from the words of its line, and the bit of its part.
fn step(words: &[&str], part: u8) -> Step {
    let kind = match words[0] {
        "l" => Kind::Load,
        "s" => Kind::Store,
        "x" => Kind::Plain,
        "c" => Kind::Jump(TAKEN | CALL),
        "C" => Kind::Jump(TAKEN | CALL | INDIRECT),
        "r" => Kind::Jump(TAKEN | RETURN),
        "j" => Kind::Jump(TAKEN),
        "J" => Kind::Jump(TAKEN | INDIRECT),
        "b" => Kind::Jump(CONDITIONAL | TAKEN),
        "n" => Kind::Jump(CONDITIONAL),
        other => panic!("get.txt: kind {other}"),
    };
    let mut made = Step {
        kind,
        pc: code(words[1]),
        insns: decimal(words[2]),
        place: 0,
        size: 0,
        offset: 0,
        inputs: [Input::None; 2],
        target: 0,
        part,
    };
    let mut rest = &words[3..];
    if matches!(kind, Kind::Load | Kind::Store) {
        let (place, offset) = rest[0].split_at(1);
        let of = PLACES.find(place);
        made.place = of.unwrap_or_else(|| panic!("get.txt: place {place}")) as u8;
        let offset = i32::from_str_radix(offset, 16);
        made.offset = offset.unwrap_or_else(|_| panic!("get.txt: offset of {}", rest[0]));
        made.size = decimal(rest[1]);
        rest = &rest[2..];
    }
    let mut inputs = made.inputs.iter_mut();
    for word in rest {
        if let Some(target) = word.strip_prefix('>') {
            made.target = code(target);
        } else if let (Some(input), Some((from, cycles))) = (inputs.next(), word.split_once(':')) {
            *input = match from {
                "-" => Input::None,
                "e" => Input::Entry(decimal(cycles)),
                back => Input::Back(decimal(back), decimal(cycles)),
            };
        }
    }
    made
}
