//! Shards on remote hosts: their counts, and the handling of failures.

use std::path::Path;
use std::sync::Mutex;

use crate::common::{installation, spec};
use pagewalk_machine::{RecordSpec, RemoteEvent, RemoteHosts, RunResult, RunSpec, SourceSpec};
use pagewalk_units::Error;
use serde_json::{Value, json};

/// Changes the report of a shard.
type Spoil = fn(&mut Value);

/// A remote host: this process, with failures.
#[derive(Default)]
struct Other {
    /// Shards that it does not simulate.
    fails: Vec<usize>,
    /// Changes the text of each shard.
    spoils: Option<Spoil>,
    spec: Mutex<Option<(RunSpec, Vec<usize>, usize)>>,
    done: Mutex<Vec<usize>>,
}

impl RemoteHosts for Other {
    fn begin(&self, spec: &RunSpec, numbers: &[usize], of: usize) -> Result<(), Error> {
        // As it arrives at a host: as text.
        let text = serde_json::to_string(spec).unwrap();
        let spec = serde_json::from_str(&text).unwrap();
        *self.spec.lock().unwrap() = Some((spec, numbers.to_vec(), of));
        Ok(())
    }

    /// One shard at a time, the last one first.
    fn events(&self) -> Result<Vec<RemoteEvent>, Error> {
        let mut begun = self.spec.lock().unwrap();
        let Some((spec, numbers, of)) = begun.as_mut() else {
            return Ok(Vec::new());
        };
        let Some(number) = numbers.pop() else {
            return Ok(Vec::new());
        };
        if self.fails.contains(&number) {
            return Ok(vec![RemoteEvent::Failed(number, "it has died".to_owned())]);
        }
        let text = installation().shard(spec, (number, *of), &mut |_| true)?;
        let mut report: Value = serde_json::from_str(&text).unwrap();
        if let Some(spoil) = self.spoils {
            spoil(&mut report);
        }
        self.done.lock().unwrap().push(number);
        Ok(vec![
            RemoteEvent::Share(number, 0.5),
            RemoteEvent::Ended(number, report.to_string()),
        ])
    }
}

fn recorded(folder: &Path, name: &str) -> SourceSpec {
    let path = folder.join(format!("{name}.pwt"));
    let source = json!({"workload": {"name": name, "size": "16MiB"}});
    let recording = RecordSpec {
        source: serde_json::from_value(source).unwrap(),
        instructions: Some(1_500_000),
        seed: 1,
        memory: false,
    };
    installation()
        .record(&recording, &path, &mut |_, _| true)
        .unwrap();
    SourceSpec::Trace { path }
}

fn sampled(source: SourceSpec, designs: &[&str]) -> RunSpec {
    let mut run = spec("epyc-milan", designs, "gups", 1_200_000, &[]);
    run.source = Some(source);
    let sample =
        json!({"length": 2000, "period": 40_000, "warming": {"filtered": 8000, "warmed": 4000}});
    run.options.limits.sample = serde_json::from_value(sample).unwrap();
    run.options.translation_cost = true;
    run
}

fn with(run: &RunSpec, hosts: Option<&dyn RemoteHosts>) -> Result<RunResult, Error> {
    installation().run_with(run, hosts, &mut |_| true)
}

/// The result without the host's data.
fn counted(result: &RunResult) -> Value {
    let mut all = serde_json::to_value(result).unwrap();
    all.as_object_mut().unwrap().remove("host");
    all
}

#[test]
fn others_count_what_this_host_counts() {
    let folder = tempfile::tempdir().unwrap();
    let run = sampled(recorded(folder.path(), "gups"), &["radix", "thp"]);
    let alone = with(&run, None).unwrap();
    assert_eq!(alone.host.remote_shards, 0);
    let other = Other::default();
    let shared = with(&run, Some(&other)).unwrap();
    assert_eq!(counted(&alone), counted(&shared));
    // This host simulates the last of the three shards.
    assert_eq!(*other.done.lock().unwrap(), [1, 0]);
    assert_eq!(shared.host.remote_shards, 2);
    assert_eq!(shared.designs[0].sampling.as_ref().unwrap().samples, 30);
}

#[test]
fn this_host_simulates_failed_remote_shards_and_warns() {
    let folder = tempfile::tempdir().unwrap();
    let run = sampled(recorded(folder.path(), "gups"), &["radix"]);
    let mut alone = counted(&with(&run, None).unwrap());
    let other = Other {
        fails: vec![0, 1],
        ..Other::default()
    };
    let result = with(&run, Some(&other)).unwrap();
    assert_eq!(result.host.remote_shards, 0);
    let warning = "--cluster: of 3 shards this host simulated 1, 2, which another host did not return: it has died";
    alone["warnings"]
        .as_array_mut()
        .unwrap()
        .push(json!(warning));
    assert_eq!(alone, counted(&result));
}

#[test]
fn reports_of_other_models_recordings_or_counters_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let run = sampled(recorded(folder.path(), "gups"), &["radix"]);
    let cases: [(Spoil, &str); 6] = [
        (|r| r["model"] = json!(0), "has model version 0 there"),
        (
            |r| r["instructions"] = json!(5),
            "(5 instructions), the one here",
        ),
        (
            |r| r["designs"] = json!([]),
            "0 designs were simulated there of 2",
        ),
        (
            |r| r["designs"][0]["counters"]["names"][0][1] = json!("nonsense"),
            "counts other things",
        ),
        (
            |r| r["designs"][0]["samples"][0]["values"] = json!([1]),
            "counts other things",
        ),
        (
            |r| r["designs"][0]["counters"]["distributions"][0]["buckets"] = json!([[9000, 1]]),
            "is not understood",
        ),
    ];
    for (spoil, said) in cases {
        let other = Other {
            spoils: Some(spoil),
            ..Other::default()
        };
        let refused = with(&run, Some(&other)).unwrap_err().to_string();
        assert!(refused.contains(said), "{refused}");
    }
}

#[test]
fn a_stopped_shard_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let run = sampled(recorded(folder.path(), "gups"), &["radix"]);
    let refused = installation().shard(&run, (1, 3), &mut |_| false);
    assert_eq!(
        refused.unwrap_err().to_string(),
        "it was stopped before its end"
    );
}

#[test]
fn a_recording_that_is_another_there_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let run = sampled(recorded(folder.path(), "gups"), &["radix"]);
    let mut shorter = run.clone();
    shorter.options.limits.instructions = Some(700_000);
    let refused = installation().shard(&shorter, (0, 3), &mut |_| true);
    let refused = refused.unwrap_err().to_string();
    assert!(
        refused.contains("has 2 shards here, and 3 there"),
        "{refused}"
    );
}

#[test]
fn a_run_without_shards_gives_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let trace = || recorded(folder.path(), "gups");
    let other = Other::default();
    let refused = |run: &RunSpec| with(run, Some(&other)).unwrap_err().to_string();
    let built_in = sampled(
        spec("epyc-milan", &["radix"], "gups", 1, &[])
            .source
            .unwrap(),
        &["radix"],
    );
    assert!(refused(&built_in).contains("record it first"));
    let mut whole = sampled(trace(), &["radix"]);
    whole.options.limits.sample = None;
    assert!(refused(&whole).contains("has to be bounded"));
    let mut short = sampled(trace(), &["radix"]);
    short.options.limits.instructions = Some(400_000);
    assert!(refused(&short).contains("fewer than 16 samples"));
    let mut intervals = sampled(trace(), &["radix"]);
    intervals.options.interval = Some(1000);
    assert!(refused(&intervals).contains("--interval"));
}
