//! Energy of whole runs: laws that relate counts and energies.

use crate::common::{installation, metric, one, run, run_spec, shipped, spec, sum};
use pagewalk_machine::{DesignResult, EnergyResult, Group, PartEnergy};

const MACHINE: &str = "revelator-table1";
const N: u64 = 150_000;

fn energy(d: &DesignResult) -> &EnergyResult {
    d.energy.as_ref().expect("something was measured")
}

fn part<'a>(d: &'a DesignResult, name: &str) -> &'a PartEnergy {
    let found = energy(d).parts.iter().find(|p| p.part == name);
    found.unwrap_or_else(|| panic!("{} has no part {name}", d.name))
}

fn near(a: f64, b: f64, what: &str) {
    assert!(
        (a - b).abs() <= 1e-9 * a.abs().max(b.abs()),
        "{what}: {a} and {b}"
    );
}

#[test]
fn energy_is_that_of_the_counted_events() {
    for design in shipped("designs") {
        let d = one(MACHINE, &design, "gups 64MB", N, &[]);
        let e = energy(&d);
        let all: f64 = e.parts.iter().map(|p| p.total_nj).sum();
        near(all, e.total_nj, &design);
        near(e.dynamic_nj + e.static_nj, e.total_nj, &design);
        near(metric(&d, "energy"), e.total_nj, &design);
        near(metric(&d, "dynamic_energy"), e.dynamic_nj, &design);
        near(metric(&d, "static_energy"), e.static_nj, &design);
        near(metric(&d, "cycles") / 2.9e9, e.seconds, &design);
        // Independently, from the statistics as a reader has them.
        let count = |path: &str, name: &str| sum(&d, name, |p| p == path);
        for p in e
            .parts
            .iter()
            .filter(|p| p.part.starts_with("mmu.l") && p.part != "mmu.l2p")
        {
            let at = format!("core.0.{}", p.part);
            let [lookups, fills] = &p.events[..] else {
                panic!("{} has {} events", p.part, p.events.len())
            };
            assert_eq!(lookups.count, count(&at, "lookups"), "{design} {at}");
            assert_eq!(fills.count, count(&at, "fills"), "{design} {at}");
        }
        let dram = part(&d, "dram");
        let [rows, reads, writes, lines] = &dram.events[..] else {
            panic!("{} events of DRAM", dram.events.len())
        };
        let of_dram = |name| sum(&d, name, |p| p.starts_with("dram."));
        let [read, written] = ["reads", "writes"].map(of_dram);
        assert_eq!((reads.count, writes.count), (read, written), "{design}");
        assert_eq!(lines.count, read + written, "{design}");
        assert_eq!(rows.count, read + written - of_dram("row_hits"), "{design}");
        let retired = count("core.0", "instructions");
        assert_eq!(part(&d, "core").events[0].count, retired, "{design}");
        // Each request to the L2 looks it up, or merges with an outstanding miss.
        let l2 = part(&d, "l2");
        let looked = l2.events[0].count + l2.events[1].count;
        let accesses = ["accesses", "prefetch_accesses", "writebacks", "invalidated"];
        let mut accesses: u64 = accesses.iter().map(|n| count("core.0.l2", n)).sum();
        if d.config.engine.is_some() {
            accesses += count("core.0.l2", "speculative_accesses");
        }
        assert_eq!(looked, accesses, "{design}");
        assert!(
            part(&d, "l2").dynamic_nj > 0.0 && dram.dynamic_nj > 0.0,
            "{design}"
        );
    }
}

#[test]
fn walk_caches_are_filled_with_what_walks_read_on_their_way() {
    for design in ["radix", "radix5", "thp"] {
        let d = one(MACHINE, design, "bfs 64MB", N, &[]);
        // Each read of a walk except its last one fills an array.
        let filled = sum(&d, "fills", |p| p.starts_with("core.0.mmu.pwc"));
        let passed = metric(&d, "walk_reads_per_walk") * metric(&d, "walks") - metric(&d, "walks");
        near(filled as f64, passed, design);
        let paid: u64 = [2, 3, 4, 5]
            .map(|level| part(&d, &format!("mmu.pwc.{level}")).events[1].count)
            .iter()
            .sum();
        assert_eq!(paid, filled, "{design}");
    }
    let d = one(MACHINE, "radix-virtual", "gups 64MB", N, &[]);
    let nested = |name| sum(&d, name, |p| p == "core.0.mmu.nested");
    assert_eq!(nested("host_walks"), nested("lookups") - nested("hits"));
    assert_eq!(
        nested("fills"),
        nested("host_walks"),
        "each walk finds its page"
    );
    assert_eq!(part(&d, "mmu.nested").events[1].count, nested("fills"));
    let d = one(MACHINE, "mehpt", "gups 64MB", N, &[]);
    let cwc = |name| sum(&d, name, |p| p.starts_with("core.0.mmu.cwc"));
    let fetched = sum(&d, "cwt_fetches", |p| p == "core.0.mmu.cuckoo");
    assert!(cwc("fills") > 0 && cwc("fills") <= fetched);
    let probes = sum(&d, "probes", |p| p == "core.0.mmu.cuckoo");
    assert_eq!(part(&d, "mmu.l2p").events[0].count, probes);
}

#[test]
fn a_number_twice_as_large_doubles_its_own_events_and_nothing_else() {
    let base = one(MACHINE, "radix", "gups 64MB", N, &[]);
    let at = |part, event| (part, event);
    for (key, doubled) in [
        (
            "energy.core.instruction_pj=240",
            vec![at("core", 0), at("core", 1), at("core", 2)],
        ),
        ("energy.core.kernel_ipc=2", vec![at("core", 2)]),
        ("energy.dram.activate_nj=6.92", vec![at("dram", 0)]),
        ("energy.dram.read_nj=5.88", vec![at("dram", 1)]),
        ("energy.dram.write_nj=5.12", vec![at("dram", 2)]),
        ("energy.dram.io_nj=3", vec![at("dram", 3)]),
        ("energy.arrays.l1d.read_pj=38", vec![at("l1d", 0)]),
        ("energy.arrays.l1d.write_pj=46", vec![at("l1d", 1)]),
        (
            "energy.arrays={\"mmu.l2.main\"={read_pj=52}}",
            vec![at("mmu.l2.main", 0)],
        ),
        ("energy.arrays={l2={read_pj=684}}", vec![at("l2", 0)]),
    ] {
        let d = one(MACHINE, "radix", "gups 64MB", N, &[key]);
        for (p, q) in energy(&base).parts.iter().zip(&energy(&d).parts) {
            assert_eq!(p.static_nj, q.static_nj, "{key} {}", p.part);
            for (i, (e, f)) in p.events.iter().zip(&q.events).enumerate() {
                let times = if doubled.contains(&(p.part.as_str(), i)) {
                    2.0
                } else {
                    1.0
                };
                assert_eq!(e.count, f.count, "{key}");
                assert_eq!(
                    e.total_nj * times,
                    f.total_nj,
                    "{key} {} {}",
                    p.part,
                    e.event
                );
            }
        }
        assert!(energy(&d).total_nj >= energy(&base).total_nj, "{key}");
    }
    for (key, name) in [
        ("energy.core.static_mw=2000", "core"),
        ("energy.arrays.l3.static_mw=256", "l3"),
    ] {
        let d = one(MACHINE, "radix", "gups 64MB", N, &[key]);
        assert_eq!(energy(&d).dynamic_nj, energy(&base).dynamic_nj);
        for (p, q) in energy(&base).parts.iter().zip(&energy(&d).parts) {
            let times = if p.part == name { 2.0 } else { 1.0 };
            near(p.static_nj * times, q.static_nj, key);
        }
    }
}

#[test]
fn absent_parts_have_no_energy() {
    let d = one(MACHINE, "perfect-tlb", "gups 64MB", N, &[]);
    for p in &energy(&d).parts {
        if matches!(p.group, Group::WalkCaches | Group::Tlbs) {
            assert_eq!(p.total_nj, 0.0, "{}", p.part);
        }
    }
    let has = |d: &DesignResult, group| energy(d).parts.iter().any(|p| p.group == group);
    assert!(!has(&d, Group::Engine));
    let guesses = one(MACHINE, "perfect-speculation", "gups 64MB", N, &[]);
    let engine = part(&guesses, "mmu.engine");
    let expected = 14.7 * energy(&guesses).seconds * 1e6;
    // Energy for a cycle is rounded to attojoules.
    assert!((engine.total_nj / expected - 1.0).abs() < 1e-6);
    let radix = one(MACHINE, "radix", "gups 64MB", N, &[]);
    assert!(part(&radix, "mmu.pwc.2").dynamic_nj > 0.0);
    assert!(part(&radix, "mmu.pwc.4").static_nj > 0.0);
    assert_eq!(part(&radix, "mmu.pwc.5").static_nj, 0.0, "four levels");
    let five = one(MACHINE, "radix5", "gups 64MB", N, &[]);
    assert!(part(&five, "mmu.pwc.5").static_nj > 0.0);
}

#[test]
fn intervals_add_up_to_the_measured_part() {
    let mut s = spec(MACHINE, &["radix", "thp"], "bfs 16MB", N, &[]);
    s.options.interval = Some(10_000);
    for d in run_spec(&s).expect("it runs").designs {
        let intervals = d.intervals.as_ref().expect("requested");
        assert!(intervals.first_instruction.len() > 10);
        for name in ["energy", "dynamic_energy", "static_energy"] {
            let parts: f64 = intervals.values[name].iter().flatten().sum();
            near(parts, metric(&d, name), name);
        }
    }
}

#[test]
fn a_comparison_is_by_instruction_and_against_the_first() {
    let r = run(
        MACHINE,
        &["radix", "thp", "perfect-tlb"],
        "gups 256MB",
        N,
        &[],
    );
    let of = |d: &DesignResult| metric(d, "energy_per_instruction");
    let base = of(&r.designs[0]);
    for d in &r.designs {
        near(d.energy_ratio.expect("it ran"), of(d) / base, &d.name);
    }
    assert_eq!(r.designs[0].energy_ratio, Some(1.0));
    // Less time and fewer reads take less energy.
    assert!(r.designs[2].energy_ratio < Some(1.0));
}

#[test]
fn several_cores_have_each_part_several_times_and_a_directory() {
    let d = one(MACHINE, "radix", "bfs 16MB threads=2", N, &["cores=2"]);
    assert_eq!(part(&d, "core").number, 2);
    assert_eq!(part(&d, "mmu.l1d.main").number, 2);
    assert_eq!(part(&d, "l3").number, 1);
    let directory = part(&d, "l3.directory");
    let requests = |name| sum(&d, name, |p| p == "l3");
    let [met, upgrades] = ["remote_hits", "upgrades"].map(|n| sum(&d, n, |p| p == "l3.directory"));
    let expected = requests("accesses") + requests("prefetch_accesses") + met + upgrades;
    assert_eq!(directory.events[0].count, expected);
    assert!(upgrades > 0);
}

#[test]
fn wrong_numbers_are_refused_with_their_key() {
    for (set, says) in [
        (
            "energy.core.instruction_pj=-1",
            "energy.core.instruction_pj is -1",
        ),
        (
            "energy.core.instructions_pj=1",
            "did you mean `instruction_pj`",
        ),
        ("energy.l1=[]", "energy.l1 has the sizes []"),
        ("energy.tlb=[]", "energy.tlb has the entries and ways []"),
        (
            "energy.l2_l3=[{size_kb=1, read_pj=0, write_pj=1, static_mw=1}]",
            "energy.l2_l3 has 0; expected numbers above 0",
        ),
        (
            "energy.arrays.l4.read_pj=1",
            "energy.arrays.l4 is no array of this machine",
        ),
        ("energy.arrays.l2.reads=1", "did you mean `read_pj`"),
        (
            "energy.dram.refresh_interval_us=0",
            "energy.dram.refresh_interval_us is 0",
        ),
    ] {
        let s = spec(MACHINE, &["radix"], "gups 64MB", N, &[set]);
        let Err(said) = run_spec(&s) else {
            panic!("it is refused");
        };
        let said = said.to_string();
        assert!(said.contains(says), "{set}: {said}");
    }
}

#[test]
fn explain_has_a_source_for_every_number() {
    let data = installation().data;
    let found = pagewalk_machine::explain(&data, "energy").expect("files are there");
    let found = found.expect("the name is known");
    assert_eq!((found[0].kind, found[0].name.as_str()), ("model", "energy"));
    let numbers: Vec<_> = found.iter().filter(|e| e.kind == "number").collect();
    assert_eq!(numbers.len(), 2 + 5 + 9, "each row of the three tables");
    for n in numbers {
        assert!(n.source.contains("CACTI"), "{}: {}", n.name, n.source);
    }
    for key in [
        "energy.core.instruction_pj",
        "energy.dram.activate_nj",
        "energy.engine_mw",
    ] {
        let e = found.iter().find(|e| e.name == key);
        assert!(e.is_some_and(|e| e.text.contains("Default")), "{key}");
    }
}
