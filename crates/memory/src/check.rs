//! Checks of the configuration. Every error is one sentence that begins with the key and names the
//! expected values.

use pagewalk_units::{Cycle, Error, LINE_BYTES, Part, text};

use crate::directory::MOST_CORES;
use crate::prefetch::{MAX_DEGREE, MOST_TABLES};
use crate::{CacheSpec, DramSpec, Level, PrefetcherSpec, PrivateSpec, SharedSpec};

/// Most ways of a cache.
const MOST_WAYS: u32 = 64;
/// Largest cache, KB: 2 GB, beyond any real one.
const MOST_KB: u32 = 1 << 21;
/// Most lines on their way into a cache.
const MOST_MSHRS: u32 = 4096;
/// Longest latency, cycles.
const MOST_LATENCY: Cycle = 1 << 20;
/// Most entries of a prefetcher's table.
const MOST_TRACKED: u32 = 4096;
/// Longest lookahead of a prefetcher: the lines of a 4 KB page minus one.
const MOST_LOOKAHEAD: u32 = 63;
/// Most banks of all channels together.
const MOST_BANKS: u64 = 1 << 16;
/// Most row hits that overtake an activation.
const MOST_OVERTAKING: u32 = 4096;
/// Longest DRAM timing, ns.
const MOST_NS: f64 = 10_000.0;
/// Longest fixed latency, ns.
const MOST_FIXED_NS: f64 = 100_000.0;
/// Range of the bandwidth of a fixed-latency memory, in 10^9 bytes a second.
const LEAST_FIXED_GBS: f64 = 0.001;
const MOST_FIXED_GBS: f64 = 100_000.0;
/// Most fills by other tenants, in 10^9 bytes a second. Ours.
const MOST_FILLS_GBS: f64 = 10_000.0;

fn within(key: &str, value: u32, least: u32, most: u32) -> Result<(), Error> {
    if (least..=most).contains(&value) {
        Ok(())
    } else {
        Err(Error::key(
            key,
            format!("is {value}; expected {least} to {most}"),
        ))
    }
}

impl PrivateSpec {
    /// Checks the private caches.
    ///
    /// # Errors
    /// One sentence that names the key and the expected values.
    pub fn check(&self) -> Result<(), Error> {
        self.l1i.check("caches.l1i")?;
        for (level, cache) in self.data_levels() {
            cache.check(&format!("caches.{}", level.name()))?;
        }
        if let Some(bytes) = self.l1d_fill_bytes
            && (bytes == 0 || !LINE_BYTES.is_multiple_of(u64::from(bytes)))
        {
            return Err(Error::key(
                "caches.l1d_fill_bytes",
                format!("is {bytes}; expected a divisor of {LINE_BYTES}"),
            ));
        }
        within(
            "caches.write_combining_buffers",
            self.write_combining_buffers,
            1,
            MOST_MSHRS,
        )?;
        let data = |level: Level| format!("caches.{}", level.name());
        grows(("caches.l1i", &self.l1i), (&data(Level::L2), &self.l2))?;
        let behind = self.data_levels().skip(1);
        for (near, far) in self.data_levels().zip(behind) {
            grows((&data(near.0), near.1), (&data(far.0), far.1))?;
        }
        self.check_walks()
    }

    /// Checks that walks enter at a private level or at the first shared one.
    fn check_walks(&self) -> Result<(), Error> {
        let shared = if self.l3.is_some() {
            Level::L4
        } else {
            Level::L3
        };
        let private = self.data_levels().map(|(level, _)| level);
        let levels: Vec<Level> = private.chain([shared]).collect();
        let entered = self.walks_enter.level();
        if levels.contains(&entered) {
            return Ok(());
        }
        let names: Vec<String> = levels.iter().map(|l| format!("\"{}\"", l.name())).collect();
        Err(Error::key(
            "caches.walks_enter",
            format!(
                "is \"{}\"; expected a private cache of this machine or the first shared one: {}",
                entered.name(),
                names.join(", ")
            ),
        ))
    }
}

/// Checks that the latency of the cache `far` is at least that of `near`, which requests pass first.
fn grows(near: (&str, &CacheSpec), far: (&str, &CacheSpec)) -> Result<(), Error> {
    if near.1.latency <= far.1.latency {
        return Ok(());
    }
    Err(Error::key(
        format!("{}.latency", far.0),
        text![
            format!("({}) is below ", far.1.latency),
            Part::key(format!("{}.latency", near.0)),
            format!(
                " ({}); latencies count from the core's request to its data and grow with the level",
                near.1.latency
            ),
        ],
    ))
}

/// Checks that private and shared caches together are the levels of one hierarchy.
///
/// # Errors
/// One sentence that names the key and the expected values.
pub fn check_levels(private: &PrivateSpec, shared: &SharedSpec) -> Result<(), Error> {
    let key = |level: Level| format!("memory.{}", level.name());
    match (&private.l3, &shared.l3) {
        (Some(_), Some(_)) => {
            return Err(Error::key(
                key(Level::L3),
                text![
                    "is a third level beside ",
                    Part::key("caches.l3"),
                    "; name the shared cache behind a private third level ",
                    Part::key("memory.l4"),
                ],
            ));
        }
        (None, None) => {
            return Err(Error::key(
                key(Level::L3),
                text![
                    "is missing; expected the shared third level, or a private one (",
                    Part::key("caches.l3"),
                    ") with a shared ",
                    Part::key("memory.l4"),
                ],
            ));
        }
        _ => {}
    }
    let last = private.data_levels().last();
    let (Some((last, near)), Some((first, far))) = (last, shared.levels().next()) else {
        return Err(Error::key(
            key(Level::L4),
            text![
                "is missing; expected the shared cache behind ",
                Part::key("caches.l3"),
            ],
        ));
    };
    grows(
        (&format!("caches.{}", last.name()), near),
        (&key(first), far),
    )
}

impl SharedSpec {
    /// Checks the shared levels for a machine of `cores`.
    ///
    /// # Errors
    /// One sentence that names the key and the expected values.
    pub fn check(&self, cores: u8) -> Result<(), Error> {
        within("cores", u32::from(cores), 1, u32::from(MOST_CORES))?;
        let key = |level: Level| format!("memory.{}", level.name());
        for (level, cache) in self.levels() {
            cache.check(&key(level))?;
        }
        for (near, far) in self.levels().zip(self.levels().skip(1)) {
            grows((&key(near.0), near.1), (&key(far.0), far.1))?;
        }
        let Some((first, cache)) = self.levels().next() else {
            return Err(Error::key(
                "memory.l3",
                "is missing; expected a shared cache",
            ));
        };
        if self.remote_latency > MOST_LATENCY {
            return Err(Error::key(
                "memory.remote_latency",
                format!(
                    "is {}; expected at most {MOST_LATENCY} cycles",
                    self.remote_latency
                ),
            ));
        }
        if cores > 1 && self.remote_latency < cache.latency {
            return Err(Error::key(
                "memory.remote_latency",
                text![
                    format!("({}) is below ", self.remote_latency),
                    Part::key(format!("{}.latency", key(first))),
                    format!(
                        " ({}), where the directory is that a request passes first",
                        cache.latency
                    ),
                ],
            ));
        }
        self.dram.check()?;
        self.check_background()
    }

    fn check_background(&self) -> Result<(), Error> {
        let Some(background) = self.background else {
            return Ok(());
        };
        let key = "memory.background.l3_fill_gbs";
        let fills = background.l3_fill_gbs;
        if fills != 0.0 && self.l3.is_none() {
            let expected = text![
                format!("is {fills}; expected 0, because there is no "),
                Part::key("memory.l3")
            ];
            return Err(Error::key(key, expected));
        }
        if !(0.0..=MOST_FILLS_GBS).contains(&fills) {
            let expected = format!("is {fills}; expected 0 to {MOST_FILLS_GBS}");
            return Err(Error::key(key, expected));
        }
        let (gbs, peak) = (background.bandwidth_gbs, self.dram.peak_gbs());
        if gbs != 0.0 && !(gbs > 0.0 && gbs < peak) {
            let limit = match peak {
                0.0 => "expected 0: this memory has unlimited bandwidth".to_owned(),
                _ => format!("expected 0 to below {peak}, the peak of the DRAM"),
            };
            return Err(Error::key(
                "memory.background.bandwidth_gbs",
                format!("is {gbs}; {limit}"),
            ));
        }
        Ok(())
    }
}

impl CacheSpec {
    /// `name`: the key of the cache.
    pub(crate) fn check(&self, name: &str) -> Result<(), Error> {
        within(&format!("{name}.ways"), self.ways, 1, MOST_WAYS)?;
        within(&format!("{name}.size_kb"), self.size_kb, 1, MOST_KB)?;
        let bytes = u64::from(self.size_kb) * 1024;
        if !bytes.is_multiple_of(u64::from(self.ways) * LINE_BYTES) {
            return Err(Error::key(
                format!("{name}.size_kb"),
                text![
                    format!("is {}; expected a multiple of ", self.size_kb),
                    Part::key(format!("{name}.ways")),
                    format!(" ({}) lines of {LINE_BYTES} bytes", self.ways),
                ],
            ));
        }
        // Without a miss register the cache could never miss.
        within(&format!("{name}.mshrs"), self.mshrs, 1, MOST_MSHRS)?;
        if self.latency == 0 || self.latency > MOST_LATENCY {
            return Err(Error::key(
                format!("{name}.latency"),
                format!(
                    "is {}; expected 1 to {MOST_LATENCY} cycles from the core's request to its data",
                    self.latency
                ),
            ));
        }
        match &self.prefetcher {
            Some(p) => p.check(&format!("{name}.prefetcher")),
            None => Ok(()),
        }
    }
}

impl PrefetcherSpec {
    fn check(&self, key: &str) -> Result<(), Error> {
        let tracked = |name, value| (name, value, MOST_TRACKED);
        let degree = |value| ("degree", value, MAX_DEGREE as u32);
        let lookahead = |value| ("lookahead", value, MOST_LOOKAHEAD);
        let (kind, parameters) = match *self {
            PrefetcherSpec::IpStride {
                entries,
                degree: lines,
                lookahead: ahead,
            } => {
                let all = [tracked("entries", entries), degree(lines), lookahead(ahead)];
                ("ip_stride", all.to_vec())
            }
            PrefetcherSpec::Streamer {
                pages,
                degree: lines,
                lookahead: ahead,
            } => {
                let all = [tracked("pages", pages), degree(lines), lookahead(ahead)];
                ("streamer", all.to_vec())
            }
            PrefetcherSpec::Vldp {
                pages,
                tables,
                entries,
                degree: lines,
            } => {
                let tables = ("tables", tables, MOST_TABLES);
                let all = [
                    tracked("pages", pages),
                    tables,
                    tracked("entries", entries),
                    degree(lines),
                ];
                ("vldp", all.to_vec())
            }
            PrefetcherSpec::Simple {
                flows,
                degree: lines,
                within_page: _,
            } => ("simple", vec![tracked("flows", flows), degree(lines)]),
        };
        for (name, value, most) in parameters {
            within(&format!("{key}.{kind}.{name}"), value, 1, most)?;
        }
        Ok(())
    }
}

impl DramSpec {
    fn check(&self) -> Result<(), Error> {
        match *self {
            DramSpec::Fixed {
                latency_ns,
                bandwidth_gbs,
            } => {
                if !(latency_ns > 0.0 && latency_ns <= MOST_FIXED_NS) {
                    return Err(Error::key(
                        "memory.dram.fixed.latency_ns",
                        format!(
                            "is {latency_ns}; expected nanoseconds above 0 and up to {MOST_FIXED_NS}"
                        ),
                    ));
                }
                let limited = (LEAST_FIXED_GBS..=MOST_FIXED_GBS).contains(&bandwidth_gbs);
                if bandwidth_gbs == 0.0 || limited {
                    return Ok(());
                }
                Err(Error::key(
                    "memory.dram.fixed.bandwidth_gbs",
                    format!(
                        "is {bandwidth_gbs}; expected 0 (unlimited) or {LEAST_FIXED_GBS} to {MOST_FIXED_GBS}"
                    ),
                ))
            }
            DramSpec::Ddr {
                data_rate_mts,
                bus_bytes,
                channels,
                ranks,
                bank_groups,
                banks,
                row_bytes,
                tcl_ns,
                trcd_ns,
                trp_ns,
                tras_ns,
                controller_ns,
                keep_open_ns,
                address_hash: _,
                row_hit_cap,
            } => {
                for (key, value, least, most) in [
                    ("data_rate_mts", data_rate_mts, 100, 20_000),
                    ("bus_bytes", bus_bytes, 1, LINE_BYTES as u32),
                    ("channels", channels, 1, 256),
                    ("ranks", ranks, 1, 64),
                    ("bank_groups", bank_groups, 1, 64),
                    ("banks", banks, 1, 64),
                    ("row_bytes", row_bytes, LINE_BYTES as u32, 1 << 20),
                    ("row_hit_cap", row_hit_cap, 0, MOST_OVERTAKING),
                ] {
                    within(&format!("memory.dram.ddr.{key}"), value, least, most)?;
                }
                if !LINE_BYTES.is_multiple_of(u64::from(bus_bytes)) {
                    return Err(Error::key(
                        "memory.dram.ddr.bus_bytes",
                        format!(
                            "is {bus_bytes}; expected a divisor of a line's {LINE_BYTES} bytes"
                        ),
                    ));
                }
                let per_channel = u64::from(ranks) * u64::from(bank_groups) * u64::from(banks);
                if u64::from(channels) * per_channel > MOST_BANKS {
                    return Err(Error::keyed(
                        "memory.dram.ddr.banks",
                        format!(
                            "{channels} channels of {per_channel} banks; expected at most {MOST_BANKS} banks in all"
                        ),
                    ));
                }
                if !u64::from(row_bytes).is_multiple_of(LINE_BYTES) {
                    return Err(Error::key(
                        "memory.dram.ddr.row_bytes",
                        format!(
                            "is {row_bytes}; expected a multiple of a line's {LINE_BYTES} bytes"
                        ),
                    ));
                }
                for (key, value, least) in [
                    ("tcl_ns", tcl_ns, 0.001),
                    ("trcd_ns", trcd_ns, 0.0),
                    ("trp_ns", trp_ns, 0.0),
                    ("tras_ns", tras_ns, 0.0),
                    ("controller_ns", controller_ns, 0.0),
                    ("keep_open_ns", keep_open_ns, 0.0),
                ] {
                    if !(least..=MOST_NS).contains(&value) {
                        return Err(Error::key(
                            format!("memory.dram.ddr.{key}"),
                            format!("is {value}; expected {least} to {MOST_NS} nanoseconds"),
                        ));
                    }
                }
                if tras_ns < trcd_ns {
                    return Err(Error::key(
                        "memory.dram.ddr.tras_ns",
                        text![
                            format!("({tras_ns}) is below "),
                            Part::key("memory.dram.ddr.trcd_ns"),
                            format!(" ({trcd_ns}): a row would close before it is open"),
                        ],
                    ));
                }
                Ok(())
            }
        }
    }
}
