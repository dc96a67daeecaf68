//! Warnings for the reader of a result.

use std::collections::BTreeMap;

use pagewalk_os::{InferredPages, PlacementSpec};
use pagewalk_stream::Facts;
use serde_json::Value;

use crate::config::Config;
use crate::limits::Limits;
use crate::results::{DesignResult, KERNEL, Stat, Status};

/// Warnings of a run, one sentence each. A warning for several designs appears once.
pub(crate) fn warnings(facts: &Facts, limits: &Limits, designs: &[DesignResult]) -> Vec<String> {
    let mut out = Vec::new();
    if let Some(instructions) = facts.stopped {
        out.push(format!(
            "the trace is partial: an interrupt stopped its recording after {instructions} instructions"
        ));
    }
    out.extend(facts.notes.iter().cloned());
    if facts.infer_mappings {
        out.extend(inferred_mappings(designs));
    }
    if facts.no_dependences {
        out.push(
            "the source has no register information: instructions are taken as independent, so time is a lower bound".to_owned(),
        );
    }
    let mut said = Said::new(designs);
    for d in designs {
        let own = d.message.iter().chain(&d.refused).chain(&d.broken_waits);
        said.of(d, own.cloned());
    }
    if !facts.infer_mappings {
        for d in designs {
            let inferred = |s: &&Stat| s.path == "os" && s.name == "inferred_mappings";
            let n = d.stats.iter().find(inferred).map_or(0, |s| s.value);
            said.of(d, (n > 0).then(|| format!("the program used memory that no system call had mapped: {n} mappings of 2 MB were inferred")));
        }
    }
    for d in designs {
        let refused = |s: &&Stat| s.path == "os.hugetlb" && s.name == "refused";
        let n = d.stats.iter().find(refused).map_or(0, |s| s.value);
        said.of(d, (n > 0).then(|| format!("{n} mappings of huge pages got ordinary pages, because the design's pool is smaller than the one that the program saw; expected os.hugetlb of the first design")));
    }
    for d in designs {
        said.of(d, not_as_recorded(d));
    }
    for d in designs {
        said.of(d, unknown_prefetches(d));
    }
    for d in designs {
        said.of(d, turns(d, designs));
    }
    // Inferred mappings may count as mapped before, at no cost.
    for d in designs.iter().filter(|_| !facts.infer_mappings) {
        said.of(d, start_up(d).or_else(|| unsteady(d)));
    }
    for d in designs.iter().filter(|d| made_no_query(d)) {
        let what = "the program made no shortcut query, so nothing of shortcut had an effect: a built-in key-value store queries with --param shortcut=stlt, and your own program with pagewalk_load_va of pagewalk.h";
        said.of(d, Some(what.to_owned()));
    }
    for d in designs {
        said.of(d, too_few_requests(d, limits));
    }
    out.extend(said.sentences());
    out.extend(never_differed(designs));
    let mut said = Said::new(designs);
    for d in designs {
        said.of(d, d.impossible.clone());
    }
    out.extend(said.sentences());
    out
}

/// Sentences and the designs that they apply to.
struct Said<'a> {
    designs: &'a [DesignResult],
    found: Vec<(String, Vec<&'a str>)>,
}

impl<'a> Said<'a> {
    fn new(designs: &'a [DesignResult]) -> Self {
        Said {
            designs,
            found: Vec::new(),
        }
    }

    fn of(&mut self, design: &'a DesignResult, sentences: impl IntoIterator<Item = String>) {
        for sentence in sentences {
            match self.found.iter_mut().find(|(s, _)| *s == sentence) {
                Some((_, names)) if !names.contains(&design.name.as_str()) => {
                    names.push(&design.name);
                }
                Some(_) => {}
                None => self.found.push((sentence, vec![&design.name])),
            }
        }
    }

    /// Sentences with the names of their designs, or without names if they apply to all of several
    /// designs.
    fn sentences(self) -> impl Iterator<Item = String> {
        let every = self.designs.len();
        self.found.into_iter().map(move |(sentence, names)| {
            if every > 1 && names.len() == every {
                return sentence;
            }
            format!("{}: {sentence}", listed(&names))
        })
    }
}

/// Names as a list in a sentence: `a, b and c`.
fn listed(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// Groups of designs with equal counts.
fn equal_groups(designs: &[DesignResult]) -> Vec<Vec<&DesignResult>> {
    let same = |a: &DesignResult, b: &DesignResult| {
        !a.stats.is_empty() && a.histograms == b.histograms && nothing_differs(&a.stats, &b.stats)
    };
    let mut groups: Vec<Vec<&DesignResult>> = Vec::new();
    for d in designs {
        match groups.iter_mut().find(|g| same(g[0], d)) {
            Some(group) => group.push(d),
            None => groups.push(vec![d]),
        }
    }
    groups.retain(|g| g.len() > 1);
    groups
}

/// Designs that have no huge page because khugepaged had no time, and so equal another one. Each with the
/// variant for which it had all that it needs.
pub(crate) fn unsettled(designs: &[DesignResult]) -> Vec<(&DesignResult, String)> {
    let groups = equal_groups(designs);
    let pairs = groups.iter().flat_map(|group| {
        let first = group[0];
        group[1..].iter().map(move |b| Pair { a: first, b })
    });
    let mut found: Vec<(&DesignResult, String)> = Vec::new();
    for pair in pairs.filter(|pair| pair.lacks_time()) {
        for d in [pair.a, pair.b]
            .into_iter()
            .filter(|d| leaves_to_khugepaged(d))
        {
            if !found.iter().any(|(other, _)| other.name == d.name) {
                found.push((d, settled_name(d)));
            }
        }
    }
    found
}

/// Warning about pages that are not in their recorded frames.
fn not_as_recorded(d: &DesignResult) -> Option<String> {
    let count = |name: &str| {
        let is_it = |s: &&Stat| s.path == "os.recorded" && s.name == name;
        d.since_boot.iter().find(is_it).map_or(0, |s| s.value)
    };
    let (missing, taken) = (count("pages_missing"), count("pages_taken"));
    let all = count("pages_as_recorded") + missing + taken;
    (missing + taken > 0).then(|| {
        format!(
            "{} of {all} pages of 4 KB are in other frames than recorded: the file names no frame for {missing}, and the recorded frames of {taken} were in use",
            missing + taken
        )
    })
}

/// Name of the variant of a design whose huge pages are settled.
fn settled_name(d: &DesignResult) -> String {
    let name = d.on.as_ref().map_or(&d.name, |on| &on.design);
    match name.strip_suffix(']') {
        Some(open) => format!("{open},{SETTLED}]"),
        None => format!("{name}[{SETTLED}]"),
    }
}

/// True if khugepaged makes those huge pages of the design that a first touch does not.
fn leaves_to_khugepaged(d: &DesignResult) -> bool {
    match &d.config.placement {
        PlacementSpec::Thp(thp) => thp.khugepaged.enabled && !thp.khugepaged.settled,
        _ => false,
    }
}

/// One sentence for each group of designs with equal counts, with the causes.
fn never_differed(designs: &[DesignResult]) -> Vec<String> {
    equal_groups(designs)
        .iter()
        .map(|group| {
            let names: Vec<&str> = group.iter().map(|d| d.name.as_str()).collect();
            // Compared with the first design only: equality is transitive.
            let mut causes: Vec<(String, Vec<&str>)> = Vec::new();
            for b in &group[1..] {
                let cause = Pair { a: group[0], b }.cause();
                match causes.iter_mut().find(|(c, _)| *c == cause) {
                    Some((_, of)) => of.push(&b.name),
                    None => causes.push((cause, vec![&b.name])),
                }
            }
            let why = match &causes[..] {
                [(cause, _)] => cause.clone(),
                several => {
                    let parts = several
                        .iter()
                        .map(|(cause, of)| format!("{}: {cause}", listed(of)));
                    format!(
                        "beside {}, {}",
                        names[0],
                        parts.collect::<Vec<_>>().join("; ")
                    )
                }
            };
            format!("{} never differed in any statistic: {why}", listed(&names))
        })
        .collect()
}

/// Share of software prefetches with unknown addresses from which the reader is warned.
const NOTABLE: f64 = 0.01;

/// The warning of a design whose software prefetches did nothing, because their addresses are unknown.
fn unknown_prefetches(d: &DesignResult) -> Option<String> {
    let sum = |name| of_cores(d, "software_prefetch", &[name]);
    let (unknown, all) = (sum("dropped_unknown"), sum("instructions"));
    (unknown as f64 > NOTABLE * all as f64).then(|| {
        format!("{unknown} of {all} software prefetches did nothing, because QEMU did not reveal their addresses: cycles and cache misses are too large (QEMU from 9.0 on reveals all)")
    })
}

/// The sum of counters of a component of all cores.
fn of_cores(d: &DesignResult, component: &str, names: &[&str]) -> u64 {
    let own = d.stats.iter().filter(|s| {
        let of_core = s.path.strip_prefix("core.").and_then(|p| p.split_once('.'));
        of_core.is_some_and(|(_, path)| path == component) && names.contains(&s.name)
    });
    own.map(|s| s.value).sum()
}

/// A metric of the summary; 0 if it has no value.
fn metric(d: &DesignResult, name: &str) -> f64 {
    let found = d.summary.iter().find(|m| m.name == name);
    found.and_then(|m| m.value).unwrap_or(0.0)
}

/// The warning of a design whose program ended before the requests that were asked for.
fn too_few_requests(d: &DesignResult, limits: &Limits) -> Option<String> {
    let asked = limits.requests.filter(|_| limits.sample.is_none())?;
    let made = metric(d, "requests");
    let by_instructions = limits
        .instructions
        .is_some_and(|n| metric(d, "instructions") >= n as f64);
    if d.status != Status::Complete || by_instructions || made >= asked as f64 {
        return None;
    }
    Some(if made > 0.0 {
        format!(
            "the program ended after {made} of {asked} requests (--requests), and all of them were measured"
        )
    } else {
        "the program marked no request, so --requests had no effect and all of the program was measured: mark requests as regions of pagewalk.h, or limit by --instructions".to_owned()
    })
}

/// True if a design has a table for shortcut queries, and the measured part has no query.
fn made_no_query(d: &DesignResult) -> bool {
    let mut queries = (d.stats.iter())
        .filter(|s| s.path == "stlt" && matches!(s.name, "loads" | "inserts"))
        .peekable();
    queries.peek().is_some() && queries.all(|s| s.value == 0)
}

/// True if two designs have equal counts. A component in only one of them, such as khugepaged, counts as
/// different if it counted anything.
fn nothing_differs(a: &[Stat], b: &[Stat]) -> bool {
    let values = |stats: &[Stat]| -> BTreeMap<_, _> {
        let counted = stats.iter().filter(|s| s.value != 0);
        counted
            .map(|s| ((s.path.clone(), s.name), s.value))
            .collect()
    };
    values(a) == values(b)
}

/// Warning about inferred mappings and the treatment of their pages, once if it is the same in all
/// designs.
fn inferred_mappings(designs: &[DesignResult]) -> Vec<String> {
    let what = |d: &DesignResult| {
        match (d.config.os.inferred_pages, d.config.os.inferred_touch_cycles) {
        (InferredPages::MappedBefore, 0) => {
            "their pages count as mapped before, so that first touches cost nothing (os.inferred_pages = \"mapped_before\")".to_owned()
        }
        (InferredPages::MappedBefore, cycles) => {
            format!("their pages count as mapped before, and the first walk for each takes {cycles} cycles longer (os.inferred_touch_cycles)")
        }
        (InferredPages::FirstTouch, _) => {
            "the first touch of each of their pages is a page fault (os.inferred_pages = \"first_touch\")".to_owned()
        }
    }
    };
    let inferred = "the source has no mapping information: mappings were inferred from the addresses used, 2 MB at a time";
    if designs.iter().all(|d| what(d) == what(&designs[0])) {
        let each = designs.first().map(|d| format!("{inferred}; {}", what(d)));
        return each.into_iter().collect();
    }
    let each = designs.iter().map(|d| format!("{}: {}", d.name, what(d)));
    std::iter::once(inferred.to_owned()).chain(each).collect()
}

/// Warning that threads shared cores. The maximum is taken over all designs with as many cores, because
/// threads end at design-dependent times.
fn turns(d: &DesignResult, designs: &[DesignResult]) -> Option<String> {
    let cores = usize::from(d.config.cores);
    let slice = d.config.schedule.time_slice_cycles;
    let alike = designs.iter().filter(|o| {
        usize::from(o.config.cores) == cores && o.config.schedule.time_slice_cycles == slice
    });
    let threads = alike.map(|o| o.threads_in_turns).max().unwrap_or(0);
    (d.threads_in_turns > cores).then(|| {
        let cores_words = format!("{cores} core{}", if cores == 1 { "" } else { "s" });
        format!(
            "up to {threads} threads wanted {cores_words} at a time and took turns of {slice} cycles (schedule.time_slice_cycles), so that time is that of {cores_words}; --set cores={threads} gives each thread a core"
        )
    })
}

/// Share of the kernel's cycles from which the reader is warned that a window is mostly page faults.
const MOSTLY_KERNEL: f64 = 0.3;

/// Options by which the measured part begins later.
const REMEDY: &str = "--skip N or --warmup N measures what follows, --roi a marked part";

/// Relative change of the cycles an instruction from the first half of the measured part to the second,
/// from which the reader is warned if the caches still fill.
const UNSTEADY: f64 = 0.1;

/// Warning that the measured part ends before the caches and the DRAM's traffic are steady.
fn unsteady(d: &DesignResult) -> Option<String> {
    let (first, second) = d.halves?;
    let count = |name: &str| -> u64 {
        let of_last = |s: &&Stat| s.path == "l3" && s.name == name;
        d.stats.iter().find(of_last).map_or(0, |s| s.value)
    };
    let (fills, evictions) = (count("fills"), count("evictions"));
    (fills > 2 * evictions && (second / first - 1.0).abs() > UNSTEADY).then(|| {
        format!(
            "the second half of the measured part takes over {:.0} % {} cycles an instruction than the first, and most lines filled an empty place of the L3: caches and DRAM traffic are not steady yet; --warmup N measures what follows",
            UNSTEADY * 100.0,
            if second < first { "fewer" } else { "more" },
        )
    })
}

/// Warning that the measured part is a program's start-up: the kernel's time or first touches dominate it.
fn start_up(d: &DesignResult) -> Option<String> {
    let kernel = d.cycle_stack.iter().find(|s| s.cause == KERNEL);
    let share = kernel.map_or(0.0, |s| s.share);
    let count = |of: &[Stat], name: &str| -> u64 {
        let found = of.iter().find(|s| s.path == "os" && s.name == name);
        found.map_or(0, |s| s.value)
    };
    let faults = |of: &[Stat]| count(of, "faults_4kb") + count(of, "faults_2mb");
    let (measured, all) = (faults(&d.stats), faults(&d.since_boot));
    if share >= MOSTLY_KERNEL && measured > 0 {
        return Some(format!(
            "the kernel takes over {:.0} % of the cycles: the measured part is mostly the first use of memory; {REMEDY}",
            MOSTLY_KERNEL * 100.0
        ));
    }
    // Tables of few pages stay in the caches either way.
    let entries = d
        .config
        .mmu
        .l2
        .values()
        .map(|array| u64::from(array.entries));
    let many = entries.max().unwrap_or(0);
    (all > many && 2 * measured > all).then(|| {
        format!(
            "{measured} of {all} page faults lie in the measured part: while it begins, page tables are smaller and walks cheaper than later; {REMEDY}"
        )
    })
}

/// Setting of a design whose khugepaged has collapsed all that it can before the measured part.
const SETTLED: &str = "placement.thp.khugepaged.settled=true";

const NO_TIME: &str = "khugepaged had no time";

/// Two designs with equal statistics of the measured part.
struct Pair<'a> {
    a: &'a DesignResult,
    b: &'a DesignResult,
}

impl Pair<'_> {
    /// Cause of equal counts, as far as the statistics show it.
    fn cause(&self) -> String {
        let keys = differing(&self.a.config, &self.b.config);
        if keys.is_empty() {
            return "their configurations are the same".to_owned();
        }
        if self.measured("memory_operands", is_core) == 0 {
            return "the measured part has no load and no store; measure more instructions"
                .to_owned();
        }
        let mut causes: Vec<String> = Vec::new();
        for key in &keys {
            let Some(cause) = self.cause_of(key) else {
                return format!(
                    "why is not known; their configurations differ in {}",
                    keys.join(", ")
                );
            };
            if !causes.contains(&cause) {
                causes.push(cause);
            }
        }
        causes.join("; ")
    }

    /// Reason why a difference in this key had no effect.
    fn cause_of(&self, key: &str) -> Option<String> {
        let path: Vec<&str> = key.split('.').collect();
        match path[..] {
            ["placement", ..] => self.no_large_pages(),
            ["shortcut", ..] if made_no_query(self.a) || made_no_query(self.b) => {
                Some("the program made no shortcut query (shortcut)".to_owned())
            }
            ["mmu", "walkers"] if self.measured("walker_wait_cycles", is_mmu) == 0 => {
                Some("no walk ever waited for a walker (mmu.walkers)".to_owned())
            }
            ["mmu", level, array, ..] if level.starts_with('l') => self.fits(level, array),
            ["page_table" | "virtual" | "engine" | "translation", ..] | ["mmu", ..] => self
                .no_walk()
                .or_else(|| (path[0] == "page_table").then(|| self.no_resize(key))?),
            _ => None,
        }
    }

    /// A counter of the measured part, summed over components. It is equal in both designs.
    fn measured(&self, name: &str, of: impl Fn(&str) -> bool) -> u64 {
        let wanted = |s: &&Stat| s.name == name && of(&s.path);
        self.a.stats.iter().filter(wanted).map(|s| s.value).sum()
    }

    /// A counter of the kernel since boot: the larger one of both designs.
    fn since_boot(&self, name: &str) -> u64 {
        let of = |d: &DesignResult| {
            let wanted = |s: &&Stat| s.path == "os" && s.name == name;
            d.since_boot.iter().find(wanted).map_or(0, |s| s.value)
        };
        of(self.a).max(of(self.b))
    }

    /// Pages of all sizes that are mapped at the end.
    fn pages(&self) -> u64 {
        let parts = [
            ("mapped_4kb_bytes", 12),
            ("mapped_2mb_bytes", 21),
            ("mapped_1gb_bytes", 30),
        ];
        let pages = |(name, bits): (&str, u32)| self.since_boot(name) >> bits;
        parts.map(pages).iter().sum()
    }

    /// True if the designs have no huge page because khugepaged had no time for any.
    fn lacks_time(&self) -> bool {
        let keys = differing(&self.a.config, &self.b.config);
        keys.iter().any(|key| key.starts_with("placement"))
            && (self.no_large_pages()).is_some_and(|cause| cause.contains(NO_TIME))
    }

    /// Reason why the policies of large pages had the same effect.
    fn no_large_pages(&self) -> Option<String> {
        let (huge, giant) = (
            self.since_boot("mapped_2mb_bytes"),
            self.since_boot("mapped_1gb_bytes"),
        );
        if giant > 0 {
            return None;
        }
        let (size, fallbacks) = if huge > 0 {
            ("1 GB", self.since_boot("giant_fallbacks"))
        } else {
            ("2 MB", self.since_boot("huge_fallbacks"))
        };
        if fallbacks > 0 {
            return Some(format!(
                "no page of {size} was possible: {fallbacks} first touches found no free block of {size} (os.fragmentation, os.memory_gb)"
            ));
        }
        let reserved = self.since_boot("reservations_made");
        if huge == 0 && reserved > 0 {
            return Some(format!(
                "the policy made no page of 2 MB: of {reserved} reservations none came to placement.reservation.promotion_threshold"
            ));
        }
        let by_advice = |d: &DesignResult| {
            let config = serde_json::to_value(&d.config).unwrap_or_default();
            config.pointer("/placement/thp/mode") == Some(&Value::from("madvise"))
        };
        if huge == 0 && (by_advice(self.a) || by_advice(self.b)) {
            return Some(
                "the policy made no page of 2 MB: the program asked for none with madvise (placement.thp.mode)".to_owned(),
            );
        }
        let touched = self.since_boot("faults_4kb") + self.since_boot("faults_2mb");
        if touched == 0 {
            return Some("no page was touched for the first time".to_owned());
        }
        // A policy without large pages has nothing to report.
        let wants = |d: &DesignResult| {
            let config = serde_json::to_value(&d.config).unwrap_or_default();
            let thp = config.pointer("/placement/thp");
            let giant = thp.and_then(|t| t.get("giant")) == Some(&Value::from(true));
            thp.is_some() && (huge == 0 || giant)
        };
        let by_khugepaged = [self.a, self.b]
            .into_iter()
            .find(|d| huge == 0 && leaves_to_khugepaged(d));
        let later = by_khugepaged.map_or(String::new(), |d| {
            let variant = settled_name(d);
            format!("; {NO_TIME} to collapse pages of a heap that grew: the design {variant} has the huge pages that it would make")
        });
        (wants(self.a) || wants(self.b)).then(|| {
            format!(
                "no page of {size} was possible: no first touch lay in an aligned {size} that one mapping covers and that had no smaller page{later}"
            )
        })
    }

    /// Reason why there was no walk.
    fn no_walk(&self) -> Option<String> {
        if self.measured("walks", is_mmu) > 0 {
            return None;
        }
        let perfect = |d: &DesignResult| d.config.mmu.perfect;
        if perfect(self.a) && perfect(self.b) {
            return Some("no page was walked for: their TLBs never miss (mmu.perfect)".to_owned());
        }
        let (pages, held) = (self.pages(), self.entries());
        Some(if pages <= held {
            format!(
                "no page was walked for: the program fits the TLBs ({pages} pages, {held} entries)"
            )
        } else {
            format!(
                "no page was walked for: of {pages} pages the measured part used only some that the TLBs held; it may be too short, or the program keeps to them"
            )
        })
    }

    /// Second-level entries for one page size: the smaller number of both designs.
    fn entries(&self) -> u64 {
        let of = |c: &Config| {
            let level = c.mmu.l2.values();
            level
                .map(|array| u64::from(array.entries))
                .max()
                .unwrap_or(0)
        };
        of(&self.a.config).min(of(&self.b.config))
    }

    /// Reason why an array of a TLB never filled up.
    fn fits(&self, level: &str, array: &str) -> Option<String> {
        let path = format!(".mmu.{level}.{array}");
        let here = |p: &str| p.ends_with(&path);
        if self.measured("evictions", here) > 0 {
            return None;
        }
        let (pages, fills) = (self.pages(), self.measured("fills", here));
        let key = &path[1..];
        Some(if pages <= self.entries() {
            format!("no entry of {key} had to make room: the program fits it ({pages} pages)")
        } else {
            format!(
                "no entry of {key} had to make room: the measured part put in {fills}, and {pages} pages are mapped; it is too short to fill it, or the program keeps to a few pages"
            )
        })
    }

    /// Explanation that the tables never resized, for keys of their growth.
    fn no_resize(&self, key: &str) -> Option<String> {
        let ways = |d: &DesignResult| {
            let growth = ["upsizes", "downsizes"];
            let of_way = |s: &&Stat| growth.contains(&s.name);
            d.since_boot
                .iter()
                .filter(of_way)
                .map(|s| s.value)
                .sum::<u64>()
        };
        let sizes = [
            "upsize",
            "downsize",
            "in_place",
            "per_way",
            "chunks",
            "change_chunks",
            "migrat",
        ];
        let by_growth = sizes.iter().any(|s| key.contains(s));
        (by_growth && ways(self.a) + ways(self.b) == 0).then(|| {
            format!("no page table was resized since the machine booted, which {key} is about")
        })
    }
}

fn is_core(path: &str) -> bool {
    path.strip_prefix("core.")
        .is_some_and(|rest| !rest.contains('.'))
}

fn is_mmu(path: &str) -> bool {
    path.starts_with("core.") && path.ends_with(".mmu")
}

/// Keys in which two configurations differ. Different alternatives of a table count as the table.
fn differing(a: &Config, b: &Config) -> Vec<String> {
    let value = |c: &Config| serde_json::to_value(c).unwrap_or_default();
    let mut out = Vec::new();
    compare(&value(a), &value(b), "", &mut out);
    out
}

fn compare(a: &Value, b: &Value, path: &str, out: &mut Vec<String>) {
    match (a, b) {
        _ if a == b => {}
        (Value::Object(x), Value::Object(y)) if path.is_empty() || x.keys().eq(y.keys()) => {
            let names = x.keys().chain(y.keys().filter(|k| !x.contains_key(*k)));
            for name in names {
                let key = if path.is_empty() {
                    name.clone()
                } else {
                    format!("{path}.{name}")
                };
                let none = Value::Null;
                let (left, right) = (x.get(name).unwrap_or(&none), y.get(name).unwrap_or(&none));
                compare(left, right, &key, out);
            }
        }
        _ => out.push(path.to_owned()),
    }
}
