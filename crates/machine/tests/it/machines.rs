//! Designs on several machines in parallel, with one program.

use pagewalk_machine::{DesignResult, RunResult, WorkUnit};
use pagewalk_units::Error;
use serde_json::{Value, json};

use crate::common::{metric, run_spec};

/// Machines with different clocks, cores and caches.
const TWO: [&str; 2] = ["revelator-table1", "mehpt-table3"];

fn gups() -> Value {
    json!({"workload": {"name": "gups", "size": "64MB", "threads": 2, "params": {}}})
}

fn compare(machine: Value, designs: &[&str], more: Value) -> Result<RunResult, Error> {
    let mut spec = json!({
        "machine": machine, "designs": designs, "source": gups(),
        "limits": {"instructions": 60_000, "warmup": 10_000},
    });
    let into = spec.as_object_mut().unwrap();
    into.extend(more.as_object().cloned().unwrap_or_default());
    run_spec(&serde_json::from_value(spec).unwrap())
}

fn pairs(result: &RunResult) -> Vec<(String, String)> {
    let on = result.designs.iter().map(|d| d.on.clone().unwrap());
    on.map(|on| (on.machine, on.design)).collect()
}

/// CPI divided by the clock.
fn nanoseconds(d: &DesignResult) -> f64 {
    metric(d, "cycles") / metric(d, "instructions") / d.config.frequency_ghz
}

fn close(a: Option<f64>, b: f64) -> bool {
    a.is_some_and(|a| (a / b - 1.0).abs() < 1e-12)
}

#[test]
fn every_design_does_on_each_machine_what_it_does_there_alone() {
    let both = compare(json!(TWO), &["radix", "thp"], json!({})).unwrap();
    let expected = [(0, "radix"), (0, "thp"), (1, "radix"), (1, "thp")];
    let expected = expected.map(|(m, d): (usize, &str)| (TWO[m].to_owned(), d.to_owned()));
    assert_eq!(pairs(&both), expected);
    assert_eq!(both.designs[3].name, "thp on mehpt-table3");
    let json = serde_json::to_value(&both).unwrap();
    assert_eq!(json["machine"], json!(TWO));
    assert_eq!(json["designs"][2]["machine"], TWO[1]);
    for (i, machine) in TWO.into_iter().enumerate() {
        let single = compare(json!(machine), &["radix", "thp"], json!({})).unwrap();
        let text = serde_json::to_value(&single).unwrap();
        assert_eq!(text["machine"], machine);
        for of_several in ["machine", "design", "speedup_in_time"] {
            assert!(text["designs"][0].get(of_several).is_none(), "{of_several}");
        }
        for (here, alone) in both.designs[2 * i..].iter().zip(&single.designs) {
            let stats = |d: &DesignResult| serde_json::to_value(&d.stats).unwrap();
            assert_eq!(stats(here), stats(alone), "{}", here.name);
            assert_eq!(
                here.speedup, alone.speedup,
                "over the first on the same machine"
            );
            assert_eq!(here.energy_ratio, alone.energy_ratio);
            let seconds = metric(here, "cycles") / (here.config.frequency_ghz * 1e9);
            assert!((metric(here, "seconds") / seconds - 1.0).abs() < 1e-12);
            let walks = metric(here, "walks") * metric(here, "walk_cycles_mean");
            let own = metric(here, "walk_cycles_per_instruction");
            assert!((own * metric(here, "instructions") / walks - 1.0).abs() < 1e-9);
            assert!(alone.summary.iter().all(|m| m.name != "seconds"));
            let ratio = nanoseconds(&both.designs[0]) / nanoseconds(here);
            assert!(close(here.speedup_in_time, ratio), "{}", here.name);
        }
    }
    // Clocks differ, so cycles are not comparable.
    let [a, b] = [&both.designs[0], &both.designs[2]];
    assert!(a.config.frequency_ghz > 1.2 * b.config.frequency_ghz);
    assert_eq!((a.speedup, b.speedup), (Some(1.0), Some(1.0)));
    assert!(b.speedup_in_time.unwrap() != 1.0);
}

#[test]
fn each_machine_has_its_own_perfect_tlb_reference() {
    let more = json!({"translation_cost": true});
    let both = compare(json!(TWO), &["radix"], more.clone()).unwrap();
    assert_eq!(both.designs.len(), 2, "what ran beside is no result");
    assert!(both.translation_reference.is_none());
    for (i, machine) in TWO.into_iter().enumerate() {
        let single = compare(json!(machine), &["radix"], more.clone()).unwrap();
        let (own, alone) = (&both.designs[i], &single.designs[0]);
        assert!(own.translation_cost.is_some());
        assert_eq!(own.translation_cost, alone.translation_cost);
        let reference = &both.translation_references[i];
        assert_eq!(reference.on.as_ref().unwrap().machine, machine);
        assert_eq!(
            reference.cycles,
            single.translation_reference.unwrap().cycles
        );
    }
}

#[test]
fn designs_that_reply_have_a_stream_of_their_own_on_each_machine() {
    let more = json!({
        "source": {"workload": {"name": "kv-map", "size": "16MB", "threads": 1, "params": {}}},
        "limits": {"requests": 200, "warmup_requests": 50},
    });
    let both = compare(json!(TWO), &["radix", "stlt"], more.clone()).unwrap();
    for (i, machine) in TWO.into_iter().enumerate() {
        let single = compare(json!(machine), &["radix", "stlt"], more.clone()).unwrap();
        for (here, alone) in both.designs[2 * i..].iter().zip(&single.designs) {
            assert_eq!(
                (here.speedup_by, here.speedup),
                (WorkUnit::Request, alone.speedup)
            );
            assert_eq!(metric(here, "requests"), 200.0);
            let time = |d| metric(d, "cycles") / metric(d, "requests") / d.config.frequency_ghz;
            assert!(close(
                here.speedup_in_time,
                time(&both.designs[0]) / time(here)
            ));
        }
    }
}

#[test]
fn programs_of_a_mix_are_compared_with_themselves_alone_on_each_machine() {
    let one = |name: &str| json!({"workload": {"name": name, "size": "64MB", "threads": 1, "params": {}}});
    let more = json!({
        "source": {"mix": {"programs": [one("gups"), one("sysbench")]}}, "set": ["cores=2"],
        "limits": {"instructions": 20_000, "warmup": 10_000},
    });
    let both = compare(json!(TWO), &["radix", "thp"], more.clone()).unwrap();
    for (i, machine) in TWO.into_iter().enumerate() {
        let single = compare(json!(machine), &["radix", "thp"], more.clone()).unwrap();
        for (here, alone) in both.designs[2 * i..].iter().zip(&single.designs) {
            assert_eq!(here.weighted_speedup, alone.weighted_speedup);
            assert_eq!((here.speedup, here.speedup_in_time), (alone.speedup, None));
            for (n, (p, q)) in here.programs.iter().zip(&alone.programs).enumerate() {
                assert_eq!(
                    (p.ipc, p.ipc_alone, p.speedup),
                    (q.ipc, q.ipc_alone, q.speedup)
                );
                assert_eq!(q.speedup_in_time, None);
                let first = &both.designs[0];
                let a_second =
                    |d: &DesignResult| d.programs[n].ipc.unwrap() * d.config.frequency_ghz;
                assert!(close(p.speedup_in_time, a_second(here) / a_second(first)));
            }
        }
    }
}

#[test]
fn a_setting_is_for_all_machines_or_for_the_one_that_it_names() {
    let more = |set: Value| json!({"set": set, "limits": {"instructions": 2000}});
    let set = json!(["mmu.walkers=3", "mehpt-table3:cores=2", "thp:core.rob=100"]);
    let both = compare(json!(TWO), &["radix", "thp"], more(set)).unwrap();
    let of =
        |value: fn(&DesignResult) -> u64| -> Vec<u64> { both.designs.iter().map(value).collect() };
    assert_eq!(of(|d| u64::from(d.config.mmu.walkers)), [3; 4]);
    assert_eq!(of(|d| u64::from(d.config.cores)), [1, 1, 2, 2]);
    let rob = of(|d| u64::from(d.config.core.rob));
    assert_eq!((rob[1], rob[3]), (100, 100));
    assert!(rob[0] != 100 && rob[2] != 100);
    for (machines, set, what) in [
        (
            json!(TWO),
            "mehpt-tabel3:cores=2",
            "did you mean `mehpt-table3`?",
        ),
        (
            json!(TWO),
            "epyc-milan:cores=2",
            "or of the machines revelator-table1, mehpt-table3",
        ),
        (
            json!([TWO[0], TWO[0]]),
            "cores=2",
            "both called revelator-table1",
        ),
        (json!([TWO[0], "no-such"]), "cores=2", "--machine no-such: "),
    ] {
        let error = compare(machines, &["radix"], more(json!([set]))).unwrap_err();
        assert!(error.to_string().contains(what), "{error}");
    }
    // A setting for a part that the design lacks is refused, whatever its target.
    let part = more(json!(["mehpt-table3:page_table.radix.levels=5"]));
    assert!(compare(json!(TWO), &["ecpt"], part).is_err());
}
