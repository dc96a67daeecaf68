//! Parts of a machine that consume energy, with the energy of each counted event.

use std::collections::BTreeMap;

use pagewalk_memory::{CacheSpec, DramSpec, Level};
use pagewalk_mmu::{EngineSpec, INSERTIONS, STB_ENTRIES, TlbPrefetcherSpec, TlbSpec};
use pagewalk_os::PageTableSpec;
use pagewalk_tables::{ShortcutSpec, WalkCacheKind};
use pagewalk_units::{Error, LINE_BYTES, nearest};
use schemars::JsonSchema;
use serde::Serialize;

use super::spec::{EnergySpec, OwnEnergy};
use super::table::{Cost, array, cache};
use crate::config::Config;

/// A kind of part of the machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Group {
    /// Cores without caches and TLBs.
    Core,
    /// Caches and the directory.
    Caches,
    /// TLBs.
    Tlbs,
    /// Page-walk caches.
    WalkCaches,
    /// Speculation engines.
    Engine,
    /// Main memory.
    Dram,
}

/// Attojoules in a picojoule. Energies are whole attojoules, so that sums are exact.
const FINE: f64 = 1e6;

/// A counter that counts an event: its place ([`place`]), name and sign.
#[derive(Clone, Debug)]
pub(super) struct Count {
    pub place: String,
    pub counter: &'static str,
    pub sign: i128,
}

/// An event that consumes energy.
#[derive(Clone, Debug)]
pub(super) struct Event {
    pub what: &'static str,
    pub each_pj: f64,
    pub counts: Vec<Count>,
}

impl Event {
    /// Attojoules of one event.
    pub fn each(&self) -> i128 {
        (self.each_pj * FINE).round() as i128
    }
}

/// A part of the machine, of all cores together.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub name: String,
    pub group: Group,
    /// Number of such parts in the machine.
    pub number: u64,
    /// Leakage and clock power of each, mW.
    pub static_mw: f64,
    /// Origin of its numbers.
    pub source: String,
    pub events: Vec<Event>,
}

/// Energies of all parts of a machine.
#[derive(Clone, Debug)]
pub(crate) struct Prices {
    pub(super) parts: Vec<Part>,
    pub(super) frequency_ghz: f64,
}

impl Part {
    /// Attojoules that all parts of this kind take in a cycle by leakage and clocks.
    pub fn static_each(&self, frequency_ghz: f64) -> i128 {
        let picojoules = self.static_mw * self.number as f64 / frequency_ghz;
        (picojoules * FINE).round() as i128
    }
}

/// Place of a counter: its path without the number of the core or channel.
pub(super) fn place(path: &str) -> &str {
    if let Some(rest) = path.strip_prefix("core.") {
        let below = rest.trim_start_matches(|c: char| c.is_ascii_digit());
        return below.strip_prefix('.').unwrap_or("core");
    }
    if path.starts_with("dram.") {
        return "dram";
    }
    path
}

/// Places whose counters cost nothing: other places count the same events, or the events are software's
/// or other tenants'.
#[cfg(test)]
pub(super) fn costs_nothing(at: &str) -> bool {
    matches!(
        at,
        "mmu"
            | "mmu.cuckoo"
            | "mmu.nested.cuckoo"
            | "mmu.in_memory_tlb"
            | "mmu.stlt"
            | "mmu.prefetcher"
            | "stlt"
            | "stlt.guard"
            | "in_memory_tlb"
            | "cycles"
            | "predictor"
            | "software_prefetch"
            | "flush"
            | "write_combining"
            | "walked_loads"
            | "l3.tenants"
    ) || at.ends_with(".asked")
        || [
            "os",
            "host",
            "page_table",
            "mmu.engine.data",
            "mmu.engine.data_2mb",
            "mmu.engine.entries",
            "mmu.engine.steps",
        ]
        .iter()
        .any(|&counted| {
            at == counted || at.strip_prefix(counted).is_some_and(|r| r.starts_with('.'))
        })
}

/// Counters `a` and `-b` at a place.
fn counts(at: &str, names: &[&'static str]) -> Vec<Count> {
    let count = |name: &&'static str| {
        let (sign, counter) = match name.strip_prefix('-') {
            Some(counter) => (-1, counter),
            None => (1, *name),
        };
        Count {
            place: at.to_owned(),
            counter,
            sign,
        }
    };
    names.iter().map(count).collect()
}

fn event(what: &'static str, each_pj: f64, counts: Vec<Count>) -> Event {
    Event {
        what,
        each_pj,
        counts,
    }
}

/// Collects the parts of a machine.
struct Parts<'a> {
    spec: &'a EnergySpec,
    cores: u64,
    /// True if translation hardware leaks. A perfect MMU has no arrays.
    lit: bool,
    list: Vec<Part>,
    /// Place of the directory.
    directory: String,
    /// Arrays for which the user may set energies.
    arrays: Vec<String>,
}

impl Parts<'_> {
    /// Energies of an array, from the user or the tables.
    fn own(&mut self, name: &str, table: Cost, source: String) -> (Cost, String) {
        self.arrays.push(name.to_owned());
        let Some(&own) = self.spec.arrays.get(name) else {
            return (table, source);
        };
        let OwnEnergy {
            read_pj,
            write_pj,
            tag_pj,
            static_mw,
        } = own;
        let cost = Cost {
            read_pj: read_pj.unwrap_or(table.read_pj),
            write_pj: write_pj.unwrap_or(table.write_pj),
            tag_pj: tag_pj.unwrap_or(table.tag_pj),
            static_mw: static_mw.unwrap_or(table.static_mw),
        };
        (
            cost,
            format!("energy.arrays.{name}, and of what it leaves out {source}"),
        )
    }

    /// Leakage of an MMU array, mW; zero if it is absent (not `there`).
    fn leaks(&self, cost: &Cost, there: bool) -> f64 {
        if self.lit && there {
            cost.static_mw
        } else {
            0.0
        }
    }

    /// An array with lookups and fills, whose counters have its name. The counters exist even if the
    /// array is absent.
    fn lookups(&mut self, name: &str, group: Group, geometry: (u64, u64), there: bool) {
        let (cost, source) = self.tlb_like(name, geometry);
        let events = vec![
            event("lookup", cost.read_pj, counts(name, &["lookups"])),
            event("fill", cost.write_pj, counts(name, &["fills"])),
        ];
        self.list.push(Part {
            name: name.to_owned(),
            group,
            number: self.cores,
            static_mw: self.leaks(&cost, there),
            source,
            events,
        });
    }

    /// A speculation engine: a power for logic, or an array.
    fn engine(&mut self, spec: &EngineSpec) {
        let (name, static_mw, source, events) = match spec.array() {
            None => {
                let source = "energy.engine_mw".to_owned();
                let name = "mmu.engine".to_owned();
                (name, self.spec.engine_mw, source, vec![])
            }
            Some(array) => {
                let name = format!("mmu.engine.{}", array.name);
                let geometry = (array.entries.into(), array.ways.into());
                let (cost, source) = self.tlb_like(&name, geometry);
                let events = vec![
                    event("lookup", cost.read_pj, counts(&name, array.lookups)),
                    event("fill", cost.write_pj, counts(&name, array.fills)),
                ];
                (name, cost.static_mw, source, events)
            }
        };
        self.list.push(Part {
            name,
            group: Group::Engine,
            number: self.cores,
            static_mw,
            source,
            events,
        });
    }

    /// Buffers of the STLT unit. They compare all entries, as a TLB does (STLT, table I).
    fn stlt(&mut self, translations: bool) {
        let n = STB_ENTRIES as u64;
        if translations {
            self.lookups("mmu.stb", Group::Tlbs, (n, n), true);
            // As many pages as the STB has translations.
            self.lookups("mmu.ipb", Group::Tlbs, (n, n), true);
        }
        let n = INSERTIONS as u64;
        self.lookups("mmu.insertion_buffer", Group::Tlbs, (n, n), true);
    }

    /// Table and buffer of a TLB prefetcher. The buffer compares all entries.
    fn tlb_prefetcher(&mut self, spec: &TlbPrefetcherSpec) {
        if let Some(table) = spec.table() {
            let geometry = (table.entries.into(), table.ways.into());
            let name = format!("mmu.{}", table.name);
            self.lookups(&name, Group::Tlbs, geometry, true);
        }
        if spec.buffer() > 0 {
            let n = u64::from(spec.buffer());
            self.lookups("mmu.prefetch_buffer", Group::Tlbs, (n, n), true);
        }
    }

    fn tlb_like(&mut self, name: &str, (entries, ways): (u64, u64)) -> (Cost, String) {
        let spec = self.spec;
        let cost = array(&spec.tlb, entries, ways, spec.fully_associative);
        let how = if ways >= entries {
            format!("{entries} entries, fully associative")
        } else {
            format!("{entries} entries, {ways} ways")
        };
        self.own(name, cost, format!("energy.tlb for {how}"))
    }

    /// A first-level cache, which reads all ways in parallel.
    fn first_level(&mut self, name: &str, spec: &CacheSpec, [reads, writes]: [&[&'static str]; 2]) {
        let table = cache(&self.spec.l1, spec.size_kb);
        let source = format!("energy.l1 for {} KB", spec.size_kb);
        let (cost, source) = self.own(name, table, source);
        self.list.push(Part {
            name: name.to_owned(),
            group: Group::Caches,
            number: self.cores,
            static_mw: cost.static_mw,
            source,
            events: vec![
                event("read", cost.read_pj, counts(name, reads)),
                event("write", cost.write_pj, counts(name, writes)),
            ],
        });
    }

    /// A cache from the L2 on, which reads its tags first. The tag array has one entry for each line.
    /// `supplies`: it has the dirty lines that other cores read.
    fn behind(&mut self, name: &str, spec: &CacheSpec, number: u64, supplies: bool) {
        let tags = array(&self.spec.tlb, lines(spec), u64::from(spec.ways), 1.0);
        let table = Cost {
            tag_pj: tags.read_pj,
            ..cache(&self.spec.l2_l3, spec.size_kb)
        };
        let source = format!(
            "energy.l2_l3 for {} KB; its tags energy.tlb for {} entries, {} ways",
            spec.size_kb,
            lines(spec),
            spec.ways
        );
        let (cost, source) = self.own(name, table, source);
        let mut reads = counts(
            name,
            &[
                "hits",
                "merged",
                "prefetch_accesses",
                "-prefetch_misses",
                "speculative_accesses",
                "-speculative_misses",
                "software_prefetch_accesses",
                "-software_prefetch_misses",
                "writebacks",
            ],
        );
        if supplies {
            // Another core's dirty line is read from that core's cache.
            reads.extend(counts(&self.directory, &["remote_hits"]));
        }
        let tags = [
            "misses",
            "-merged",
            "prefetch_misses",
            "speculative_misses",
            "software_prefetch_misses",
            "invalidated",
        ];
        self.list.push(Part {
            name: name.to_owned(),
            group: Group::Caches,
            number,
            static_mw: cost.static_mw,
            source,
            events: vec![
                event("read", cost.read_pj, reads),
                event("tags", cost.tag_pj, counts(name, &tags)),
                event("write", cost.write_pj, counts(name, &["fills", "updates"])),
            ],
        });
    }

    /// Lookups of blocks in the L2 `spec` that hold translations. The L2 counts their fills, and
    /// leaks.
    fn blocks(&mut self, name: &str, spec: &CacheSpec) {
        let tags = array(&self.spec.tlb, lines(spec), u64::from(spec.ways), 1.0);
        let table = Cost {
            tag_pj: tags.read_pj,
            ..cache(&self.spec.l2_l3, spec.size_kb)
        };
        let source = format!("energy.l2_l3 for {} KB, as of the L2", spec.size_kb);
        let (cost, source) = self.own(name, table, source);
        self.list.push(Part {
            name: name.to_owned(),
            group: Group::Tlbs,
            number: self.cores,
            static_mw: 0.0,
            source,
            events: vec![
                event("read", cost.read_pj, counts(name, &["hits"])),
                event("tags", cost.tag_pj, counts(name, &["misses"])),
            ],
        });
    }

    /// The directory has an entry for each line of a private cache. Each request reads and writes one
    /// entry.
    fn directory(&mut self, private_lines: u64, shared: &str, ways: u32) {
        let name = &self.directory.clone();
        let (cost, source) = self.tlb_like(name, (private_lines, u64::from(ways)));
        let mut accesses = counts(
            shared,
            &[
                "accesses",
                "prefetch_accesses",
                "speculative_accesses",
                "software_prefetch_accesses",
            ],
        );
        accesses.extend(counts(name, &["remote_hits", "upgrades"]));
        self.list.push(Part {
            name: name.to_owned(),
            group: Group::Caches,
            number: 1,
            static_mw: cost.static_mw,
            source,
            events: vec![
                event("lookup", cost.read_pj, accesses.clone()),
                event("write", cost.write_pj, accesses),
            ],
        });
    }

    /// Walk caches of the walker of one table; `at` is their path in the MMU's statistics.
    fn walk_caches(&mut self, at: &str, config: &Config, table: &PageTableSpec) {
        let mmu = &config.mmu;
        match table.walk_caches() {
            WalkCacheKind::Levels => {
                let w = &mmu.walk_caches;
                // All arrays report; those of absent levels do not leak.
                let levels = table.address_bits().saturating_sub(12) / 9;
                for level in (2..=5).filter(|_| w.entries > 0) {
                    let geometry = (w.entries.into(), w.ways.into());
                    let name = format!("{at}.pwc.{level}");
                    self.lookups(&name, Group::WalkCaches, geometry, level <= levels);
                }
            }
            WalkCacheKind::Cuckoo => {
                let c = &mmu.cuckoo;
                for (name, entries) in [("pmd", c.pmd_cwc_entries), ("pud", c.pud_cwc_entries)] {
                    if entries > 0 {
                        let geometry = (entries.into(), entries.into());
                        let name = format!("{at}.cwc.{name}");
                        self.lookups(&name, Group::WalkCaches, geometry, true);
                    }
                }
                self.l2p(at, table);
            }
            WalkCacheKind::Nothing => {}
        }
    }

    /// L2P table of ways stored in chunks. Each probe reads one indexed entry to find its chunk.
    fn l2p(&mut self, at: &str, table: &PageTableSpec) {
        let Some((ways, entries)) = table.l2p() else {
            return;
        };
        let name = format!("{at}.l2p");
        // Entries for each way and page size, with the minimum number of ways.
        let (cost, source) = self.tlb_like(&name, (u64::from(ways) * u64::from(entries) * 3, 1));
        let probes = counts(&format!("{at}.cuckoo"), &["probes"]);
        self.list.push(Part {
            name,
            group: Group::WalkCaches,
            number: self.cores,
            static_mw: self.leaks(&cost, true),
            source,
            events: vec![event("lookup", cost.read_pj, probes)],
        });
    }

    fn tlbs(&mut self, level: &str, arrays: &BTreeMap<String, TlbSpec>) {
        for (name, spec) in arrays {
            let geometry = (spec.entries.into(), spec.ways.into());
            self.lookups(&format!("mmu.{level}.{name}"), Group::Tlbs, geometry, true);
        }
    }
}

/// Lines of a cache.
fn lines(spec: &CacheSpec) -> u64 {
    u64::from(spec.size_kb) * 1024 / LINE_BYTES
}

fn core(config: &Config) -> Part {
    let c = &config.energy.core;
    let kernel = c.instruction_pj * c.kernel_ipc / f64::from(config.core.width);
    let wrong = counts("wrong_path", &["instructions"]);
    Part {
        name: "core".to_owned(),
        group: Group::Core,
        number: config.cores.into(),
        static_mw: c.static_mw,
        source: "energy.core".to_owned(),
        events: vec![
            event(
                "instruction",
                c.instruction_pj,
                counts("core", &["instructions"]),
            ),
            event("instruction of a wrong path", c.instruction_pj, wrong),
            event("slot of the kernel", kernel, counts("slots", &["kernel"])),
        ],
    }
}

/// Nanojoules as picojoules.
const NANO: f64 = 1e3;

fn dram(config: &Config) -> Part {
    let d = &config.energy.dram;
    let (ranks, activations) = match config.memory.dram {
        DramSpec::Ddr {
            channels, ranks, ..
        } => (
            u64::from(channels) * u64::from(ranks),
            &["row_misses", "row_conflicts"],
        ),
        DramSpec::Fixed { .. } => (u64::from(d.fixed_ranks), &["reads", "writes"]),
    };
    Part {
        name: "dram".to_owned(),
        group: Group::Dram,
        number: ranks,
        // Nanojoules a microsecond are milliwatts.
        static_mw: d.background_mw + d.refresh_nj / d.refresh_interval_us,
        source: "energy.dram".to_owned(),
        events: vec![
            event(
                "activation",
                d.activate_nj * NANO,
                counts("dram", activations),
            ),
            event("read", d.read_nj * NANO, counts("dram", &["reads"])),
            event("write", d.write_nj * NANO, counts("dram", &["writes"])),
            event(
                "line on the channel",
                d.io_nj * NANO,
                counts("dram", &["reads", "writes"]),
            ),
        ],
    }
}

impl Prices {
    /// Prices of the machine and design in `config`.
    ///
    /// # Errors
    /// The user set energies for an absent array: a sentence with the key.
    pub(crate) fn new(config: &Config) -> Result<Self, Error> {
        let (mmu, caches) = (&config.mmu, &config.caches);
        let cores = u64::from(config.cores);
        let mut parts = Parts {
            spec: &config.energy,
            cores,
            lit: !mmu.perfect,
            list: vec![core(config)],
            directory: config
                .memory
                .levels()
                .next()
                .map_or(String::new(), |(first, _)| {
                    format!("{}.directory", first.name())
                }),
            arrays: vec![],
        };
        let fetched = [&["accesses", "invalidated"][..], &["fills"]];
        parts.first_level("l1i", &caches.l1i, fetched);
        let data = [
            &[
                "accesses",
                "software_prefetch_accesses",
                "-stores",
                "writebacks",
                "invalidated",
            ][..],
            &["stores", "fills"],
        ];
        // Behind an L0, stores fetch lines from the L1D and write them back later.
        let behind_l0 = [
            &[
                "accesses",
                "prefetch_accesses",
                "software_prefetch_accesses",
                "writebacks",
                "invalidated",
            ][..],
            &["fills", "updates"],
        ];
        let private: Vec<_> = caches.data_levels().collect();
        for (n, &(level, spec)) in private.iter().enumerate() {
            if level < Level::L2 {
                let counted = if n == 0 { data } else { behind_l0 };
                parts.first_level(level.name(), spec, counted);
            } else {
                parts.behind(level.name(), spec, cores, n + 1 == private.len());
            }
        }
        for (level, spec) in config.memory.levels() {
            parts.behind(level.name(), spec, 1, false);
        }
        if let Some((first, spec)) = config.memory.levels().next().filter(|_| cores > 1) {
            let data: u64 = private.iter().map(|(_, spec)| lines(spec)).sum();
            let private = lines(&caches.l1i) + data;
            parts.directory(private * cores, first.name(), spec.ways);
        }
        for name in config.translation.blocks_in_l2() {
            parts.blocks(&format!("mmu.{name}"), &caches.l2);
        }
        let mut l2 = mmu.l2.clone();
        if let Some((name, _)) = mmu.small_l2().filter(|_| config.translation.replaces_l2()) {
            l2.remove(name);
        }
        for (level, arrays) in [
            ("l1i", &mmu.l1i),
            ("l1d", &mmu.l1d),
            ("l2", &l2),
            ("l2i", &mmu.l2i),
        ] {
            parts.tlbs(level, arrays);
        }
        for array in config.translation.arrays(mmu) {
            let geometry = (array.entries.into(), array.ways.into());
            parts.lookups(&format!("mmu.{}", array.name), Group::Tlbs, geometry, true);
            if let Some(part) = parts.list.last_mut().filter(|_| array.shared) {
                part.number = 1;
            }
        }
        let (walked, host) = config.walked();
        parts.walk_caches("mmu", config, &walked);
        if let Some(host) = &host {
            let entries = u64::from(mmu.nested_tlb.entries);
            let geometry = (entries, entries);
            parts.lookups("mmu.nested", Group::Tlbs, geometry, entries > 0);
            parts.walk_caches("mmu.nested", config, host);
        }
        if let Some(spec) = mmu.prefetcher.as_ref().filter(|_| !mmu.perfect) {
            parts.tlb_prefetcher(spec);
        }
        if let Some(ShortcutSpec::Stlt(spec)) = &config.shortcut {
            parts.stlt(spec.translations);
        }
        if let Some(spec) = &config.engine {
            parts.engine(spec);
        }
        parts.list.push(dram(config));
        for name in config.energy.arrays.keys() {
            if !parts.arrays.contains(name) {
                let near = nearest(name, parts.arrays.iter().map(String::as_str));
                return Err(Error::key(
                    format!("energy.arrays.{name}"),
                    format!(
                        "is no array of this machine; expected one of {}{}",
                        parts.arrays.join(", "),
                        near.map_or(String::new(), |n| format!("; did you mean {n}?"))
                    ),
                ));
            }
        }
        Ok(Prices {
            parts: parts.list,
            frequency_ghz: config.frequency_ghz,
        })
    }
}
