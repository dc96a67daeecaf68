//! Key-value stores under a YCSB client: one program around six structures.
//!
//! [`serve`] is the program, [`index`] its interface to a structure, [`ycsb`] the client's choice of keys.
//! The code of a structure serves both loading, which emits nothing, and serving ([`emit`]). The host holds a
//! record's shape and addresses. Characters of keys and values are functions of their numbers.

mod btree;
#[cfg(test)]
mod check;
mod consolidate;
mod dense;
mod earlier;
mod emit;
mod flat;
mod flood;
mod globals;
mod hash;
mod index;
mod libc;
mod malloc;
mod map;
mod nodes;
mod records;
mod redis;
mod serve;
mod shortcut;
mod siphash;
mod tree;
pub mod ycsb;

use pagewalk_stream::{Error, Facts, Program};
use pagewalk_units::{PageSize, RunOption, text};

use self::index::Index;
use self::redis::Parts;
use self::serve::{Server, Work};
use self::shortcut::{Choice, FastHash, Shortcut, ShortcutKind, SlbChoice};
use crate::entry::{Entry, Values, did_you_mean};
use crate::info::{POPULATE, ParamInfo, REGION, WorkloadInfo};
use crate::layout::Layout;
use crate::program::Code;
use crate::size::format_size;
use crate::thread::Touch;

/// Maximum number of records, by 32-bit numbers and a heap of 64 GiB.
const MOST_KEYS: u64 = 100_000_000;

pub(crate) const HASH: Entry = Entry {
    info: info(
        "kv-hash",
        "GETs and SETs on std::unordered_map, a chained hash table.",
        "A dependent chain of five pages for each GET: bucket, preceding node, node, key and value.",
        "libstdc++ of gcc 12; requests of YCSB",
    ),
    build: |values| program(values, hash::Hash::footprint, hash::Hash::new),
};

pub(crate) const MAP: Entry = Entry {
    info: info(
        "kv-map",
        "GETs and SETs on std::map, a red-black tree.",
        "A dependent chain of one or two pages for each level: about 25 levels with 10 million keys.",
        "libstdc++ of gcc 12; requests of YCSB",
    ),
    build: |values| program(values, map::Map::footprint, map::Map::new),
};

pub(crate) const DENSE: Entry = Entry {
    info: info(
        "kv-dense",
        "GETs and SETs on google::dense_hash_map, a hash table with open addressing.",
        "A dependent chain of three pages for each GET (slot, key and value); growth copies every string.",
        "sparsehash 2.0.3; requests of YCSB",
    ),
    build: |values| program(values, dense::Dense::footprint, dense::Dense::new),
};

pub(crate) const BTREE: Entry = Entry {
    info: info(
        "kv-btree",
        "GETs and SETs on absl::btree_map, a B-tree with four records in each node.",
        "A dependent chain of a node and its keys for each level: about 12 levels with 10 million keys.",
        "Abseil 20220623; requests of YCSB",
    ),
    build: |values| program(values, btree::Tree::footprint, btree::Tree::new),
};

pub(crate) const FLAT: Entry = Entry {
    info: info(
        "kv-flat",
        "GETs and SETs on absl::flat_hash_map, a SwissTable, which compares 16 control bytes at once.",
        "A dependent chain of four pages for each GET (control bytes, slot, key and value); growth moves every slot.",
        "Abseil 20220623; requests of YCSB",
    ),
    build: |values| program(values, flat::Flat::footprint, flat::Flat::new),
};

pub(crate) const REDIS: Entry = Entry {
    info: info(
        "kv-redis",
        "GETs and SETs on Redis's dictionary, with its strings and objects.",
        "A dependent chain of six pages for each GET (bucket, entry, key, object and value); SETs free and allocate.",
        "Redis 5.0.7; requests of YCSB",
    ),
    build: |values| program(values, redis::Dictionary::footprint, redis::Dictionary::new),
};

/// Description shared by the six programs.
const fn info(
    name: &'static str,
    description: &'static str,
    stresses: &'static str,
    source: &'static str,
) -> WorkloadInfo {
    WorkloadInfo {
        name,
        group: "key-value",
        description,
        stresses,
        source,
        default_size: 1 << 30,
        size_range: "1MiB to the memory of 100 million keys (10 to 50 GiB)",
        max_threads: 1,
        params: PARAMS,
    }
}

const PARAMS: &[ParamInfo] = &[
    ParamInfo {
        name: "keys",
        unit: "keys",
        default: "what fits --size",
        range: "1000 to 100000000",
        meaning: "Keys loaded before the region of interest, of 24 bytes each.",
    },
    ParamInfo {
        name: "operations",
        unit: "requests",
        default: "ten times the keys",
        range: "1 to 2^40",
        meaning: "GETs, SETs and DELETEs in the region of interest.",
    },
    ParamInfo {
        name: "earlier",
        unit: "requests",
        default: "0",
        range: "0 to 2^40",
        meaning: "Requests before the region of interest whose effects alone are made: values written by SETs, and the contents of the shortcut. They cost much less than fast-forwarding, and leave caches and TLBs cold.",
    },
    ParamInfo {
        name: "distribution",
        unit: "",
        default: "zipfian",
        range: "zipfian, scrambled, latest or uniform",
        meaning: "Distribution of the requested keys, by YCSB's generators: zipfian (0.99) in the order of insertion; scrambled, the same hashed over all keys (YCSB's requestdistribution=zipfian); latest, zipfian from the newest key back; uniform.",
    },
    ParamInfo {
        name: "sets",
        unit: "%",
        default: "0, and 5 with latest",
        range: "0 to 100",
        meaning: "Share of SETs; with latest a SET inserts a new key, otherwise it writes the value of an old one.",
    },
    ParamInfo {
        name: "deletes",
        unit: "%",
        default: "0",
        range: "0 to 100, with sets at most 100",
        meaning: "Share of DELETEs, which remove the key if it is present. A SET inserts it again, so with as many SETs half of the keys are present in the end.",
    },
    ParamInfo {
        name: "resize",
        unit: "",
        default: "no",
        range: "yes or no",
        meaning: "With yes, each SET writes 64, 128 or 256 bytes with equal probability, so that values move to other strings.",
    },
    ParamInfo {
        name: "value",
        unit: "bytes",
        default: "64",
        range: "64, 128 or 256",
        meaning: "Size of each value.",
    },
    ParamInfo {
        name: "reply",
        unit: "",
        default: "value",
        range: "value or none",
        meaning: "With value, a GET copies the value of its record into a reply buffer; with none, it leaves the value unread, so that only the lookup is timed.",
    },
    ParamInfo {
        name: "request",
        unit: "",
        default: "whole for kv-redis, lookup for the others and with reply=none",
        range: "whole, lookup, or search and parts joined by +",
        meaning: "Parts of a GET that kv-redis executes. whole: all from the parsed command to the reply, with the objects of the arguments, the search for the command, checks, expiry and statistics. lookup: search and copy of the value alone, as for the other structures. search: of whole, the search alone; search+key+reply adds parts: key (expiry, clock), reply, call (command, statistics), checks, table (search for the command), reset (of the client), arguments (objects).",
    },
    ParamInfo {
        name: "order",
        unit: "",
        default: "hashed",
        range: "hashed or ordered",
        meaning: "Number in a key: its insertion number hashed by FNV-64, or the insertion number itself (YCSB's insertorder).",
    },
    ParamInfo {
        name: "indexes",
        unit: "structures",
        default: "1",
        range: "1 or 2",
        meaning: "Number of structures, each with all keys and records of its own; a request uses one of them at random. With two and a shortcut, shortcut_id= is the identifier of the first, and the next number that of the second.",
    },
    ParamInfo {
        name: "flood",
        unit: "bits",
        default: "0",
        range: "0 to 24",
        meaning: "Chooses keys whose fast hash has zeros in this many bits from the 12th up, which select STLT's set. With as many bits as the table has for its sets, all keys share one set. Keys for djb2 are constructed; those for xxh3, xxh64 and murmur are found by trying.",
    },
    ParamInfo {
        name: "shortcut",
        unit: "",
        default: "none",
        range: "none, stlt, slb or stlt-sw",
        meaning: "Shortcut that a GET queries for the record's address before it searches: the machine's table by loadVA and insertSTLT, on a design with one (stlt); a search lookaside buffer in software (slb); STLT's table in software (stlt-sw).",
    },
    ParamInfo {
        name: "fast_hash",
        unit: "",
        default: "xxh3",
        range: "xxh3, xxh64, murmur, djb2 or siphash",
        meaning: "Hash of the key for queries of the shortcut; the structure keeps its own hash.",
    },
    ParamInfo {
        name: "shortcut_size",
        unit: "bytes",
        default: "512MiB with stlt-sw, 1280MiB with slb",
        range: "4KiB to 64GiB, with stlt-sw a power of two",
        meaning: "Memory of a table in software, added to --size. Four fifths of it are the logs of slb.",
    },
    ParamInfo {
        name: "shortcut_id",
        unit: "",
        default: "none",
        range: "0 to 15",
        meaning: "Identifier that replaces the low 4 bits of the hash, as for several indexes in one table.",
    },
    ParamInfo {
        name: "slb_sampling",
        unit: "records",
        default: "32",
        range: "1 to 4096, a power of two",
        meaning: "Sampling of misses by a full slot of slb: it considers one record in this many.",
    },
    ParamInfo {
        name: "slb_admit",
        unit: "",
        default: "first_free",
        range: "first_free or second",
        meaning: "Admission of slb while a slot has a free entry: at a record's first miss (first_free), or only if its log has its tag already, so at the second miss (the published code, wuxb45/SLB). Full slots always ask the log.",
    },
    ParamInfo {
        name: "slb_pages",
        unit: "",
        default: "4KB",
        range: "4KB or 2MB",
        meaning: "Pages of slb. 2MB come from the pool os.hugetlb.pages_2mb (the published code asks for such pages first); without enough of them the kernel gives 4 KB pages.",
    },
    ParamInfo {
        name: "slb_prefetch",
        unit: "",
        default: "no",
        range: "yes or no",
        meaning: "With yes, a query of slb prefetches its slot before it computes the tag, as the published code does.",
    },
    POPULATE,
    REGION,
];

fn fast_hash(values: &Values<'_>) -> Result<FastHash, Error> {
    let names = FastHash::ALL.map(|(name, _)| name);
    let hash = values.choice("fast_hash", &names, names[0])?;
    let hash = FastHash::ALL.iter().find(|(name, _)| *name == hash);
    Ok(hash.map_or(FastHash::Xxh3, |h| h.1))
}

/// Parts of a request of Redis that GETs execute. `None` for the lookup alone.
fn parts(values: &Values<'_>, replies: bool) -> Result<Option<Parts>, Error> {
    let is_redis = values.name() == REDIS.info.name;
    let parts = match values.text("request") {
        None if is_redis && replies => Parts::ALL,
        None | Some("lookup") => return Ok(None),
        Some("whole") => Parts::ALL,
        Some(given) => Parts::read(given).map_err(|name| {
            let names = ["whole", "lookup"].into_iter().chain(Parts::names());
            values.refuse("request", did_you_mean(name, names))
        })?,
    };
    if !is_redis {
        return Err(values.refuse("request", "only kv-redis is a server; take request=lookup"));
    }
    if !replies {
        return Err(values.refuse("request", "a whole request replies; leave out reply=none"));
    }
    Ok(Some(parts))
}

/// The numbers of `count` colliding keys, if an option requests them.
fn flood(values: &Values<'_>, count: u64) -> Result<Vec<u64>, Error> {
    let bits = values.number_in("flood", 0..=flood::MOST_BITS, 0)?;
    if bits == 0 {
        return Ok(Vec::new());
    }
    if values.text("order").is_some() {
        return Err(values.refuse("order", "flood= chooses the keys"));
    }
    let hash = fast_hash(values)?;
    if hash == FastHash::SipHash {
        let why = "siphash has a secret seed; give xxh3, xxh64, murmur or djb2";
        return Err(values.refuse("fast_hash", why));
    }
    if !flood::is_feasible(hash, bits, count) {
        let why = format!(
            "to find {count} such keys takes too long; take fewer keys or bits, or fast_hash=djb2"
        );
        return Err(values.refuse("flood", why));
    }
    Ok(flood::keys(hash, bits, count))
}

/// The table in front of the structure.
fn shortcut(values: &Values<'_>, indexes: u64) -> Result<Option<Choice>, Error> {
    let choices = ["none", "stlt", "slb", "stlt-sw"];
    let name = values.choice("shortcut", &choices, "none")?;
    let needs = |params: &[&str], why: &str, holds: bool| {
        let given = params.iter().find(|p| values.text(p).is_some());
        match given {
            Some(param) if !holds => Err(values.refuse(param, why)),
            _ => Ok(()),
        }
    };
    let why = "there is no shortcut to use it; give shortcut=, too";
    let flooded = values.text("flood").is_some();
    needs(&["fast_hash"], why, name != "none" || flooded)?;
    needs(&["shortcut_id"], why, name != "none")?;
    let why = "only a table in software has it: shortcut=slb or stlt-sw";
    let software = matches!(name, "slb" | "stlt-sw");
    needs(&["shortcut_size"], why, software)?;
    needs(
        &["slb_sampling"],
        "only shortcut=slb samples",
        name == "slb",
    )?;
    let own = ["slb_admit", "slb_pages", "slb_prefetch"];
    needs(&own, "only shortcut=slb has it", name == "slb")?;
    let bytes = |default| values.number_in("shortcut_size", 4 << 10..=64 << 30, default);
    let kind = match name {
        "stlt" => ShortcutKind::Machine,
        "slb" => {
            let sampling = values.number_in("slb_sampling", 1..=4096, 32)?;
            if !sampling.is_power_of_two() {
                return Err(values.refuse("slb_sampling", "not a power of two"));
            }
            let pages = values.choice("slb_pages", &["4KB", "2MB"], "4KB")?;
            ShortcutKind::Slb(SlbChoice {
                bytes: bytes(1280 << 20)?,
                sampling,
                first_free: values.choice("slb_admit", &["first_free", "second"], "first_free")?
                    == "first_free",
                prefetches: values.choice("slb_prefetch", &["no", "yes"], "no")? == "yes",
                pages: if pages == "2MB" {
                    PageSize::M2
                } else {
                    PageSize::K4
                },
            })
        }
        "stlt-sw" => {
            let bytes = bytes(512 << 20)?;
            if !bytes.is_power_of_two() {
                return Err(values.refuse("shortcut_size", "its sets are a power of two"));
            }
            ShortcutKind::Rows { bytes }
        }
        _ => return Ok(None),
    };
    Ok(Some(Choice {
        kind,
        hash: fast_hash(values)?,
        indexes,
        id: match values.text("shortcut_id") {
            Some(_) => Some(values.number_in("shortcut_id", 0..=15, 0)?),
            None => None,
        },
    }))
}

fn program<I: Index>(
    values: &Values<'_>,
    footprint: fn(u64, u64) -> u64,
    make: fn(u64) -> I,
) -> Result<Box<dyn Program>, Error> {
    let value: u64 = match values.choice("value", &["64", "128", "256"], "64")? {
        "128" => 128,
        "256" => 256,
        _ => 64,
    };
    let indexes = values.number_in("indexes", 1..=2, 1)?;
    let keys = match values.number_in("keys", 1000..=MOST_KEYS, 0)? {
        0 => fitting(values, |keys| indexes * footprint(keys, value))?,
        _ if values.options.size_bytes.is_some() => {
            return Err(values.refuse(
                "keys",
                text![RunOption::Size, " chooses them, too; give one of the two"],
            ));
        }
        keys => keys,
    };
    let distributions = ["zipfian", "scrambled", "latest", "uniform"];
    let distribution = values.choice("distribution", &distributions, "zipfian")?;
    let latest = distribution == "latest";
    let sets = values.number_in("sets", 0..=100, if latest { 5 } else { 0 })?;
    let deletes = values.number_in("deletes", 0..=100, 0)?;
    if sets + deletes > 100 {
        return Err(values.refuse("deletes", "with sets= more than 100 %"));
    }
    let resize = values.choice("resize", &["no", "yes"], "no")? == "yes";
    let operations = values.number_in("operations", 1..=1 << 40, 10 * keys)?;
    let earlier = values.number_in("earlier", 0..=1 << 40, 0)?;
    let inserts = if latest {
        (operations + earlier).saturating_mul(sets) / 100
    } else {
        0
    };
    let choice = shortcut(values, indexes)?;
    // Values may all become the longest, and freed texts stay unused.
    let longest = if resize { 256 } else { value };
    holds::<I>(values, (keys, inserts, indexes), longest, choice)?;
    // Requests insert at random: eight standard deviations above the mean.
    let flood = flood(values, keys + inserts + 8 * inserts.isqrt())?;
    let start = values.start()?;
    if earlier > 0 && start.touch != Touch::Bulk {
        let why = "records are not there before the region of interest; take populate=yes";
        return Err(values.refuse("earlier", why));
    }
    if earlier > 0 && (deletes > 0 || resize || indexes > 1) {
        let why = text![
            "not with deletes=, resize=yes or indexes=2; fast-forward requests instead (",
            RunOption::SkipRequests,
            ")"
        ];
        return Err(values.refuse("earlier", why));
    }
    let mut work = Work {
        keys,
        operations,
        earlier,
        distribution,
        sets: sets as f64 / 100.0,
        deletes: deletes as f64 / 100.0,
        resize,
        indexes: indexes as usize,
        flood,
        inserts: latest,
        ordered: values.choice("order", &["hashed", "ordered"], "hashed")? == "ordered",
        replies: values.choice("reply", &["value", "none"], "value")? == "value",
        parts: None,
        touch: start.touch,
    };
    let name = values.name();
    work.parts = parts(values, work.replies)?;
    let facts = Facts {
        name: match values.options.size_bytes {
            Some(size) => format!("{name} --size {}", format_size(size)),
            None => format!("{name} keys={keys}"),
        },
        deterministic: true,
        has_roi: true,
        request: Some("key-value operation".to_owned()),
        ..Facts::default()
    };
    let mut layout = Layout::new();
    let populate = matches!(start.touch, Touch::Bulk | Touch::Part(_));
    let server = if work.parts.is_some() {
        globals::DATA_PAGES << 12
    } else {
        0
    };
    layout.data(globals::BYTES + server, populate);
    let shortcut = choice.map(|c| Shortcut::new(c, &mut layout, populate));
    let mut heap = I::heap(layout);
    let stack = heap.stack(0);
    let rng = pagewalk_units::rng(values.options.seed, "workload.kv");
    let mut code = Code::new(facts, start);
    code.thread(stack, move |t| async move {
        let made = (0..indexes).map(|_| make(value)).collect();
        let server = Server::new((made, value), heap, shortcut, stack, &work);
        server.run(t, work, rng).await;
    });
    Ok(Box::new(code))
}

/// Upper bound of heap bytes for objects of this footprint. The footprint includes copies during growth, but
/// not the fragmentation between objects of several sizes and in half-full nodes.
fn heap(footprint: u64) -> u64 {
    footprint / 8 * 9
}

/// Refuses more keys than [`Place`](index::Place) can address or the host can hold.
fn holds<I: Index>(
    values: &Values<'_>,
    (keys, inserts, indexes): (u64, u64, u64),
    value: u64,
    shortcut: Option<Choice>,
) -> Result<(), Error> {
    let all = keys.saturating_add(inserts);
    let bytes = indexes * heap(I::footprint(all, value));
    if all > 4 * MOST_KEYS || bytes > index::Place::REACH {
        let why = format!(
            "{keys} keys and {inserts} more that are inserted take more than the {} of heap that can be addressed; take fewer of either",
            format_size(index::Place::REACH)
        );
        return Err(values.refuse("operations", why));
    }
    let what = format!("{}: {all} keys", values.name());
    let (each, table) = match shortcut {
        Some(choice) => (shortcut::HOST_BYTES, choice.kind.host_bytes()),
        None => (0, 0),
    };
    crate::host::fits((I::HOST_BYTES + each) * indexes * all + table, &what)
}

/// The most keys whose records fit the requested size.
fn fitting(values: &Values<'_>, footprint: impl Fn(u64) -> u64) -> Result<u64, Error> {
    let size = values.size();
    if footprint(1000) > size {
        return Err(values.refuse_size(size, "too small for 1000 keys"));
    }
    if footprint(MOST_KEYS) < size {
        return Err(values.refuse_size(size, "more than 100 million keys take"));
    }
    let (mut low, mut high) = (1000, MOST_KEYS + 1);
    while high - low > 1 {
        let middle = (low + high) / 2;
        if footprint(middle) <= size {
            low = middle;
        } else {
            high = middle;
        }
    }
    Ok(low)
}

#[cfg(test)]
mod tests {
    use super::index::Index as _;
    use super::{MOST_KEYS, btree, dense, flat, hash, heap, index, map, redis};

    /// Without inserts, every accepted number of keys fits.
    #[test]
    fn the_most_keys_fit_what_places_reach() {
        for footprint in [
            hash::Hash::footprint,
            map::Map::footprint,
            dense::Dense::footprint,
            btree::Tree::footprint,
            flat::Flat::footprint,
            redis::Dictionary::footprint,
        ] {
            assert!(heap(footprint(MOST_KEYS, 256)) <= index::Place::REACH);
        }
    }

    #[test]
    fn a_place_is_exact_up_to_its_reach() {
        let last = crate::layout::HEAP + index::Place::REACH - 16;
        assert_eq!(index::Place::new(last).va(), last);
        assert!(std::panic::catch_unwind(|| index::Place::new(last + 16)).is_err());
    }
}
