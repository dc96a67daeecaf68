//! Errors in the configuration: place, key, expected value and nearest name.

use std::path::PathBuf;

use crate::common::{installation, shipped};
use pagewalk_machine::config::{Layer, Setting, resolve_layers};
use pagewalk_units::Error;

fn text(kind: &str, name: &str) -> Layer {
    let path = crate::common::root()
        .join(kind)
        .join(format!("{name}.toml"));
    Layer::File {
        text: std::fs::read_to_string(&path).expect("a shipped file"),
        path: PathBuf::from(format!("{name}.toml")),
    }
}

fn place(e: &Error) -> String {
    e.place().map(ToString::to_string).unwrap_or_default()
}

fn key(e: &Error) -> &str {
    e.option_name().unwrap_or_default()
}

/// The sentence without its place.
fn what(e: &Error) -> String {
    format!("{}{}", e.lead(), e.text())
}

/// The name that the sentence suggests.
fn nearest(e: &Error) -> Option<String> {
    let text = e.text().to_string();
    let (_, name) = text.split_once("did you mean `")?;
    name.split_once("`?").map(|(name, _)| name.to_owned())
}

fn with(extra: &str) -> Result<(), Error> {
    let own = Layer::File {
        path: PathBuf::from("mine.toml"),
        text: extra.to_owned(),
    };
    resolve_layers(&[
        text("machines", "revelator-table1"),
        text("designs", "radix"),
        own,
    ])
    .map(|_| ())
}

fn set(setting: &str) -> Result<pagewalk_machine::config::Config, Error> {
    let layers = [
        text("machines", "revelator-table1"),
        text("designs", "radix"),
        Layer::Set(Setting::of_variant(&format!("--set {setting}"), setting)),
    ];
    resolve_layers(&layers).map(|r| r.config)
}

#[test]
fn every_shipped_design_resolves_on_every_shipped_machine() {
    for machine in shipped("machines") {
        for design in shipped("designs") {
            installation()
                .data
                .resolve(&machine, &design, &[])
                .unwrap_or_else(|e| panic!("{design} on {machine}: {e}"));
        }
    }
}

#[test]
fn an_unknown_key_is_refused_with_file_line_and_nearest_name() {
    let e = with("description = \"x\"\n\n[core]\nrobb = 3\n").unwrap_err();
    assert_eq!(place(&e), "mine.toml:4");
    assert_eq!(key(&e), "core.robb");
    assert_eq!(nearest(&e).as_deref(), Some("rob"));
}

#[test]
fn an_unknown_table_is_refused() {
    let e = with("[cores]\nrob = 3\n").unwrap_err();
    assert_eq!((place(&e).as_str(), key(&e)), ("mine.toml:1", "cores"));
    let e = with("[memroy.l3]\nways = 3\n").unwrap_err();
    assert_eq!(nearest(&e).as_deref(), Some("memory"));
}

#[test]
fn a_value_of_the_wrong_kind_is_refused_at_its_place() {
    let e = with("\n\n[core]\nrob = \"many\"\n").unwrap_err();
    assert_eq!((place(&e).as_str(), key(&e)), ("mine.toml:4", "core.rob"));
    assert!(what(&e).contains("expected"), "{e}");
}

#[test]
fn text_that_is_no_toml_is_refused_with_its_line() {
    let e = with("[core]\nrob = \n").unwrap_err();
    assert!(place(&e).starts_with("mine.toml:"), "{e}");
    assert!(what(&e).contains("not TOML"), "{e}");
}

#[test]
fn another_alternative_replaces_the_earlier_one() {
    let c = set("placement.thp.mode=always").unwrap();
    assert!(
        format!("{:?}", c.placement).contains("Thp"),
        "{:?}",
        c.placement
    );
}

#[test]
fn two_alternatives_at_once_are_refused() {
    let e = with("[placement.thp]\n[placement.buddy]\n").unwrap_err();
    assert!(what(&e).contains("alternatives"), "{e}");
}

#[test]
fn settings_are_numbers_words_or_text() {
    assert_eq!(set("core.rob=512").unwrap().core.rob, 512);
    assert_eq!(set("frequency_ghz=3").unwrap().frequency_ghz, 3.0);
    assert!(set("caches.l2.replacement=lru").is_ok());
    assert!(set("caches.l2.replacement=\"lru\"").is_ok());
    assert_eq!(
        set("mmu.l2.main.entries=64").unwrap().mmu.l2["main"].entries,
        64
    );
}

#[test]
fn a_wrong_setting_names_itself() {
    let e = set("core.rbo=512").unwrap_err();
    assert_eq!(
        (place(&e).as_str(), nearest(&e).as_deref()),
        ("--set core.rbo=512", Some("rob"))
    );
    let e = set("core.rob").unwrap_err();
    assert!(what(&e).contains("KEY=VALUE"), "{e}");
    let e = set("core.rob=-1").unwrap_err();
    assert_eq!(
        (place(&e).as_str(), key(&e)),
        ("--set core.rob=-1", "core.rob")
    );
    assert!(
        what(&e).ends_with("expected a whole number from 0 to 4294967295"),
        "{e}"
    );
    let e = set("core.rob=many").unwrap_err();
    assert!(!what(&e).contains("u32"), "{e}");
    let e = set("mmu.perfect=3").unwrap_err();
    assert!(what(&e).ends_with("expected true or false"), "{e}");
    let e = set("caches.l2.replacement=fifo").unwrap_err();
    assert!(
        what(&e).contains("lru") && what(&e).contains("srrip"),
        "{e}"
    );
}

#[test]
fn contradictions_are_refused() {
    let e = set("caches.l2.latency=1").unwrap_err();
    assert!(what(&e).contains("caches.l2.latency"), "{e}");
    let e = with("\n[core]\nwidth = 0\n").unwrap_err();
    assert_eq!(place(&e), "mine.toml:3", "{e}");
    let e = set("mmu.walkers=0").unwrap_err();
    assert_eq!(place(&e), "--set mmu.walkers=0", "{e}");
    assert!(set("cores=0").is_err());
    assert!(set("frequency_ghz=0").is_err());
}

#[test]
fn impossible_sizes_are_refused_with_their_key() {
    for (text, key) in [
        ("[caches.l1d]\nways = 0\n", "caches.l1d.ways"),
        ("[caches.l2]\nsize_kb = 0\n", "caches.l2.size_kb"),
        ("[caches.l2]\nmshrs = 0\n", "caches.l2.mshrs"),
        ("[memory.l3]\nlatency = 0\n", "memory.l3.latency"),
        (
            "[caches.l1d.prefetcher.streamer]\npages = 0\ndegree = 1\nlookahead = 1\n",
            "caches.l1d.prefetcher.streamer.pages",
        ),
        (
            "[memory.dram.ddr]\nchannels = 0\n",
            "memory.dram.ddr.channels",
        ),
        (
            "[memory.dram.ddr]\ntcl_ns = 1e9\n",
            "memory.dram.ddr.tcl_ns",
        ),
        (
            "[memory.dram.ddr]\nrow_bytes = 100\n",
            "memory.dram.ddr.row_bytes",
        ),
        (
            "[memory.dram.fixed]\nlatency_ns = 0.0\n",
            "memory.dram.fixed.latency_ns",
        ),
        (
            "[memory.dram.ddr]\nbus_bytes = 7\n",
            "memory.dram.ddr.bus_bytes",
        ),
        (
            "[os.compaction]\nfails_above_index = 2.0\n",
            "os.compaction.fails_above_index",
        ),
        (
            "[os.prices]\nallocation_index = 0.0\n",
            "os.prices.allocation_index",
        ),
        ("[mmu.l1d.main]\nways = 0\n", "mmu.l1d.main.ways"),
        ("[mmu.l2.main]\nentries = 0\n", "mmu.l2.main.entries"),
        ("[mmu.walk_caches]\nways = 5\n", "mmu.walk_caches.ways"),
        ("[os]\nkernel_reserved = 0.99999999\n", "os.kernel_reserved"),
    ] {
        let e = with(text).expect_err(text);
        assert_eq!(place(&e), "mine.toml:2", "{e}");
        assert!(what(&e).starts_with(key), "{e}");
        assert!(what(&e).contains("expected"), "{e}");
    }
}

#[test]
fn of_two_keys_that_contradict_each_other_the_one_set_last_is_named() {
    let e = set("caches.l1d.latency=1000").unwrap_err();
    assert_eq!(place(&e), "--set caches.l1d.latency=1000", "{e}");
    let e = with("[caches.l2]\nlatency = 2000\n").unwrap_err();
    assert_eq!(place(&e), "mine.toml:2", "{e}");
    let e = with("cores = 2\n[memory]\nremote_latency = 1\n").unwrap_err();
    assert_eq!(place(&e), "mine.toml:3", "{e}");
}

#[test]
fn an_unknown_design_or_machine_gets_the_nearest_name() {
    let data = installation().data;
    let e = data.resolve("revelator-table1", "radixx", &[]).unwrap_err();
    assert_eq!(nearest(&e).as_deref(), Some("radix"));
    let e = data.resolve("epyc-millan", "radix", &[]).unwrap_err();
    assert_eq!(nearest(&e).as_deref(), Some("epyc-milan"));
    let e = data.resolve("./nowhere.toml", "radix", &[]).unwrap_err();
    assert!(place(&e).contains("nowhere.toml"), "{e}");
}

#[test]
fn every_key_has_a_comment() {
    for key in pagewalk_machine::config::keys() {
        assert!(key.text.len() > 5, "{} has no comment", key.path);
    }
}

#[test]
fn a_setting_may_not_exchange_or_add_a_part_of_a_design_that_keeps_its_name() {
    let data = installation().data;
    let at = |design: &str, setting: &str| {
        data.resolve("epyc-milan", design, &[setting.to_owned()])
            .map(|r| r.config)
            .map_err(|e| e.to_string())
    };
    let giant = "placement.thp.giant=true";
    let e = at("radix", giant).unwrap_err();
    assert!(e.contains("--set placement.thp.giant=true: the design radix has placement.buddy, and with placement.thp in its place"), "{e}");
    assert!(e.contains("--set NAME:placement.thp.giant=true"), "{e}");
    assert!(e.contains("radix[placement.thp.giant=true]"), "{e}");
    let e = at("radix", "radix:placement.thp.giant=true").unwrap_err();
    assert!(
        !e.contains("NAME:") && e.contains("radix[placement.thp"),
        "{e}"
    );
    let e = at("radix", "engine.perfect.what=both").unwrap_err();
    assert!(
        e.contains("the design radix has no engine, and with one"),
        "{e}"
    );
    let e = at("radix", "virtual.placement.buddy={}").unwrap_err();
    assert!(e.contains("has no virtual"), "{e}");
    assert!(at("radix-virtual", "virtual.placement.thp.giant=true").is_err());
    assert!(at("radix", "page_table.elastic_cuckoo={}").is_err());
    // Values of a design's own parts may change, and so may the machine's alternatives.
    assert!(at("thp", giant).is_ok());
    assert!(at("radix", "page_table.radix.levels=5").is_ok());
    assert!(at("radix", "os.fragmentation.available_2mb=0.5").is_ok());
    // A setting for another design has no effect.
    let other = at("radix", "thp:placement.thp.giant=true").unwrap();
    assert_eq!(
        other,
        data.resolve("epyc-milan", "radix", &[]).unwrap().config
    );
}

#[test]
fn a_variant_may_be_another_design_since_its_name_says_so() {
    let data = installation().data;
    let at = |design: &str| data.resolve("epyc-milan", design, &[]).map(|r| r.config);
    assert_eq!(
        at("radix[placement.thp.giant=true]").unwrap(),
        at("thp-1g").unwrap()
    );
    let e = at("thp[placement.thp.gaint=true]").unwrap_err();
    assert_eq!(place(&e), "thp[placement.thp.gaint=true]");
    assert_eq!(nearest(&e).as_deref(), Some("giant"));
}

#[test]
fn a_design_file_is_based_on_a_shipped_one_or_on_a_file_beside_it() {
    let data = installation().data;
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("bases");
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let at = |path: &str| data.resolve("epyc-milan", path, &[]);
    write(
        "lower/a.toml",
        "description = \"a\"\nbase = \"thp\"\n[mmu]\nwalkers = 3\n",
    );
    let b = write(
        "b.toml",
        "base = \"lower/a.toml\"\n[placement.thp]\ngiant = true\n",
    );
    let found = at(&b).unwrap();
    assert_eq!(found.config.mmu.walkers, 3);
    let mut same = data.resolve("epyc-milan", "thp-1g", &[]).unwrap().config;
    same.mmu.walkers = 3;
    assert_eq!(found.config, same);
    // A file may exchange a part, because it has its own name.
    let c = write("c.toml", "base = \"b.toml\"\n[placement.buddy]\n");
    assert_eq!(
        at(&c).unwrap().config.placement,
        data.resolve("epyc-milan", "radix", &[])
            .unwrap()
            .config
            .placement
    );
    for (text, line, said) in [
        ("\nbase = \"tph\"\n", 2, "did you mean `thp`?"),
        ("base = \"./none.toml\"\n", 1, "./none.toml: cannot be read"),
        ("base = 3\n", 1, "expected the name of a shipped design"),
        ("base = \"circle.toml\"\n", 1, "circle on wrong is a circle"),
    ] {
        let wrong = write("wrong.toml", text);
        write("circle.toml", "base = \"wrong.toml\"\n");
        let e = at(&wrong).unwrap_err();
        assert!(e.to_string().contains(said), "{e}");
        if !said.contains("circle") {
            assert_eq!(place(&e), format!("{wrong}:{line}"));
        }
        assert_eq!(key(&e), "base");
    }
    let machine = write("machine.toml", "base = \"epyc-milan\"\n");
    let e = data.resolve(&machine, "radix", &[]).unwrap_err();
    assert!(e.to_string().contains("belongs to a design"), "{e}");
}
