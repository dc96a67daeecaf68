//! Placement by a file of recorded frames.

use std::fmt::Write as _;
use std::fs;

use super::{GB, HEAP, World, spec};
use pagewalk_os::{
    FragmentationSpec, FrameContent, Os, OsSpec, PageTableSpec, PlacedFrame, PlacementSpec,
    RecordedSpec, RecordedStats, TieredHashSpec, VirtualSpec,
};
use pagewalk_stats::Tree;
use pagewalk_structures::TieredHash;
use pagewalk_tables::{ElasticCuckooSpec, RadixSpec};
use pagewalk_units::{Access, Asid, Backing, PageSize};

const HEADER: &str =
    "pagewalk-frames version=1 first_frame=0 frames=262144 page_size=4096 tiers=6 seed=9\n";

fn hash() -> TieredHash {
    TieredHash::new(9, &[1, 2, 3, 4, 5, 6], 0..GB >> 12)
}

/// A policy with a file of this text. Tests run at the same time, so each has a `name` of its own.
fn recorded(name: &str, text: &str) -> PlacementSpec {
    let file = format!("{}/{name}.frames", env!("CARGO_TARGET_TMPDIR"));
    fs::write(&file, text).expect("a temporary file");
    PlacementSpec::Recorded(RecordedSpec { file })
}

/// The placement of all processes in the format of files.
fn exported(os: &Os) -> String {
    let hashed = os.hashed_frames().expect("it places by hash");
    let mut text = format!(
        "pagewalk-frames version=1 first_frame={} frames={} page_size=4096 tiers={} seed={}\n",
        hashed.first_frame,
        hashed.frames,
        hashed.tiers,
        hashed.seed.expect("tiers in order"),
    );
    for asid in &hashed.asids {
        for p in hashed.placed.iter().filter(|p| p.asid == *asid) {
            let kind = match p.content {
                FrameContent::Page => "",
                FrameContent::Table => "table ",
                FrameContent::Huge => "huge ",
            };
            writeln!(text, "{kind}{asid} {} {} {}", p.vpn, p.frame, p.tier).expect("text");
        }
    }
    text
}

/// Two processes that touch `pages` pages each. The first one unmaps some at the end.
fn touched(os: &OsSpec, placement: &PlacementSpec, pages: u64) -> World {
    let mut w = World::new(os, placement);
    w.os.log_hashed_frames();
    let other = w.os.spawn(false).expect("a process");
    for pid in [w.pid, other] {
        let all = Backing::Anonymous;
        let done = w.os.map(pid, HEAP, pages << 12, true, all, &mut w.fx);
        done.expect("mmap");
        let done = w.os.populate(pid, HEAP, pages << 12, &mut w.fx);
        done.expect("memory is plenty");
    }
    for (first, count) in [(100, 700), (2000, 5)] {
        let at = HEAP.offset(first << 12);
        let done = w.os.unmap(w.pid, at, count << 12, &mut w.fx);
        done.expect("munmap");
    }
    w
}

fn stats(os: &Os) -> RecordedStats {
    let mut tree = Tree::default();
    os.report("os", &mut tree);
    let of = |name: &str| {
        let is_it =
            |row: &&pagewalk_stats::Row| row.path == "os.recorded" && row.definition.name == name;
        tree.rows.iter().find(is_it).expect(name).value
    };
    RecordedStats {
        pages_as_recorded: of("pages_as_recorded"),
        pages_missing: of("pages_missing"),
        pages_taken: of("pages_taken"),
        tables_as_recorded: of("tables_as_recorded"),
        tables_missing: of("tables_missing"),
        tables_taken: of("tables_taken"),
        huge_as_recorded: of("huge_as_recorded"),
        huge_taken: of("huge_taken"),
    }
}

/// Every page and page table lies where it lay, and the counts by tier are equal, at any pressure.
#[test]
fn an_exported_placement_is_read_back() {
    for (occupied, denied, tiers) in [(0.0, 0.0, 6), (0.5, 0.0, 3), (0.0, 0.8, 6), (0.3, 1.0, 1)] {
        let os = OsSpec {
            occupied,
            ..spec(FragmentationSpec::None)
        };
        let by_hash = PlacementSpec::TieredHash(TieredHashSpec {
            tiers,
            denied,
            ..TieredHashSpec::default()
        });
        let first = touched(&os, &by_hash, 5000);
        let text = exported(&first.os);
        let name = format!("back-{occupied}-{denied}");
        let again = touched(&os, &recorded(&name, &text), 5000);
        assert_eq!(exported(&again.os), text);
        assert_eq!(again.os.mappings(), first.os.mappings());
        let [a, b] = [&first, &again].map(|w| w.os.tiers().expect("both hash"));
        assert_eq!((&a.hash, a.table_tiers), (&b.hash, b.table_tiers));
        // A denied frame may be the one that the buddy allocator returns.
        let differ = a.data.fallbacks.abs_diff(b.data.fallbacks);
        assert!(differ <= if denied > 0.0 { 5 } else { 0 }, "{differ}");
        let s = stats(&again.os);
        assert_eq!((s.pages_as_recorded, s.tables_as_recorded), (10_000, 20));
        let others = [
            s.pages_missing,
            s.pages_taken,
            s.tables_missing,
            s.tables_taken,
        ];
        assert_eq!(others, [0; 4]);
    }
}

#[test]
fn pages_without_a_free_recorded_frame_come_from_the_buddy_allocator() {
    let vpn = HEAP.0 >> 12;
    let frame = hash().frame(1, Asid(1), vpn);
    let tier = 1
        + (0..6)
            .find(|&t| hash().frame(t, Asid(1), vpn) == frame)
            .expect("2");
    // The second page has the frame of the first one, and the third one has no record.
    let of_second = (0..6).find(|&t| hash().frame(t, Asid(1), vpn + 1) == frame);
    assert_eq!(of_second, None);
    let text = format!("{HEADER}1 {vpn} {frame} {tier}\n1 {} {frame} 0\n", vpn + 1);
    let w = &mut World::new(&spec(FragmentationSpec::None), &recorded("taken", &text));
    w.heap(3 << 12);
    for page in 0..3 {
        w.write(HEAP.offset(page << 12));
    }
    let at = |page: u64| w.at(HEAP.offset(page << 12)).expect("mapped").frame.base.0 >> 12;
    assert_eq!(at(0), frame);
    assert!(at(1) != frame && at(2) != frame && at(1) != at(2));
    let s = stats(&w.os);
    assert_eq!(
        [s.pages_as_recorded, s.pages_taken, s.pages_missing],
        [1; 3]
    );
    assert_eq!([s.tables_as_recorded, s.tables_missing], [0, 1]);
    let tiers = w.os.tiers().expect("a hash");
    assert_eq!((tiers.data.hits[tier - 1], tiers.data.fallbacks), (1, 2));
    assert_eq!(tiers.table_tiers, 0, "no page table is recorded");
}

#[test]
fn processes_have_the_address_spaces_of_the_file_in_order() {
    let text = format!("{HEADER}7 5 200000 0\n2 5 200001 0\n7 6 200002 0\n");
    let w = &mut World::new(&spec(FragmentationSpec::None), &recorded("asids", &text));
    let mut spawn = || w.os.spawn(false).expect("a process");
    let [second, third, fourth] = [spawn(), spawn(), spawn()];
    let asids = [w.pid, second, third, fourth].map(|pid| w.os.asid(pid).0);
    assert_eq!(
        asids,
        [7, 2, 1, 3],
        "identifiers of the file are not used twice"
    );
    w.os.exit(second, &mut w.fx);
    let fifth = w.os.spawn(false).expect("a process");
    assert_eq!(w.os.asid(fifth), Asid(2));
}

#[test]
fn a_recorded_2_mb_page_is_mapped_where_its_mapping_covers_it() {
    let first = HEAP.0 >> 12;
    let blocks = TieredHash::new(9, &[7, 8, 9, 10, 11, 12], 0..GB >> 21);
    let block = blocks.frame(0, Asid(1), first >> 9);
    let text = format!(
        "{HEADER}huge 1 {first} {} 1\nhuge 1 {} 201216 0\nhuge 1 {} 201216 0\n",
        block << 9,
        first + 512,
        first + 1024
    );
    assert!(
        (0..6).all(|t| {
            (1..3).all(|n| blocks.frame(t, Asid(1), (first >> 9) + n) != 201_216 >> 9)
        })
    );
    let w = &mut World::new(&spec(FragmentationSpec::None), &recorded("huge", &text));
    w.os.log_hashed_frames();
    w.heap((3 * 512) << 12);
    for (region, access) in [(0, Access::Read), (1, Access::Write), (2, Access::Write)] {
        let at = HEAP.offset((512 * region + 5) << 12);
        w.fault(at, access).expect("it is allowed");
    }
    let found = |region: u64| w.at(HEAP.offset((512 * region + 5) << 12)).expect("mapped");
    assert_eq!(
        (found(0).size, found(0).frame.base.0 >> 21),
        (PageSize::M2, block)
    );
    assert_eq!(
        (found(1).size, found(1).frame.base.0 >> 12),
        (PageSize::M2, 201_216)
    );
    assert_eq!(found(2).size, PageSize::K4, "its block is in use");
    let s = stats(&w.os);
    assert_eq!(
        (s.huge_as_recorded, s.huge_taken, s.pages_missing),
        (2, 1, 1)
    );
    let large =
        w.os.tiers()
            .and_then(|t| t.large.clone())
            .expect("2 MB pages");
    assert_eq!(
        (large.placed.hits[0], large.placed.fallbacks, large.anywhere),
        (1, 2, 1)
    );
    let placed = w.os.hashed_frames().expect("a log").placed;
    let is_huge = |p: &&PlacedFrame| p.content == FrameContent::Huge;
    let tiers: Vec<u8> = placed.iter().filter(is_huge).map(|p| p.tier).collect();
    assert_eq!(tiers, [1, 0]);
}

/// Hashed page tables have no last-level frame for each region.
#[test]
fn hashed_page_tables_take_no_recorded_frame() {
    let text = format!("{HEADER}table 1 {} 200000 0\n", HEAP.0 >> 12);
    let table = PageTableSpec::ElasticCuckoo(ElasticCuckooSpec::default());
    let os = spec(FragmentationSpec::None);
    let w = &mut World::with(&os, &recorded("ecpt", &text), &table);
    w.heap(1 << 12);
    w.write(HEAP);
    let s = stats(&w.os);
    assert_eq!(
        [s.tables_as_recorded, s.tables_missing, s.pages_missing],
        [0, 0, 1]
    );
    assert_eq!(w.os.tiers().expect("a hash").table_tiers, 0);
    assert_eq!(w.os.hashed_frames(), None, "nothing is logged");
}

#[test]
fn what_cannot_be_used_is_refused_with_its_place() {
    let radix = PageTableSpec::Radix(RadixSpec { levels: 4 });
    let new = |placement: &PlacementSpec| {
        let made = Os::new(&spec(FragmentationSpec::None), placement, &radix, 2.0, 1);
        made.err().expect("it is refused").to_string()
    };
    let why = new(&recorded("line", &format!("{HEADER}1 5 200000 1\n")));
    assert!(why.starts_with("placement.recorded.file is '"), "{why}");
    assert!(
        why.contains(".frames', whose line 2 is '1 5 200000 1'; its tier is 1"),
        "{why}"
    );
    let why = new(&recorded("beyond", &HEADER.replace("262144", "262145")));
    assert!(why.contains("expected os.memory_gb of at least 2"), "{why}");
    let file = String::new();
    let none = PlacementSpec::Recorded(RecordedSpec { file });
    let why = none.check().expect_err("no file").to_string();
    assert_eq!(
        why,
        "placement.recorded.file is empty; expected the path of a file"
    );
    let placement = recorded("host", HEADER);
    let host = VirtualSpec {
        page_table: radix,
        placement,
        memory_gb: None,
        fragmentation: FragmentationSpec::None,
        exit_ns: 500.0,
        shadow: false,
    };
    let why = host.check().expect_err("a host").to_string();
    assert!(
        why.starts_with("virtual.placement.recorded names pages of programs"),
        "{why}"
    );
}
