//! The bindings: JSON in, JSON out, the interpreter's lock released.

mod answers;
mod custom;
mod memory;
mod remote;

use std::path::{Path, PathBuf};
use std::sync::RwLock;
use std::time::{Duration, Instant};

use pagewalk_calibrate::Benchmark;
use pagewalk_machine::config::{Config, Shipped, keys, root_schema};
use pagewalk_machine::{
    Installation, Progress as RunProgress, RunSpec, explain as explain_name, metrics,
    program_metrics, statistics as all_statistics, topics as all_topics,
};
use pagewalk_trace::{OpenOptions, convert_trace};
use pagewalk_units::{Error, ErrorKind, RunOption};
use pyo3::create_exception;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;

use crate::answers::{
    Answer, Definitions, Emulator, Explanation, Installed, Plugin, Progress, Resolved,
    ShortcutBuffers,
};

create_exception!(
    _native,
    UserError,
    PyException,
    "A mistake that the user can mend; one sentence."
);
create_exception!(
    _native,
    Failure,
    PyException,
    "Something failed that the user cannot mend."
);

/// Time between two calls of a callback.
const REPORTS: Duration = Duration::from_millis(200);

static DATA: RwLock<Option<PathBuf>> = RwLock::new(None);

fn installation() -> PyResult<Installation> {
    let data = DATA
        .read()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    match data.as_ref() {
        Some(folder) => Ok(Installation::at(folder)),
        None => Err(raise(Error::failed(
            "the data folder is not set: call set_data_dir first",
        ))),
    }
}

/// The exception of an error. Its `fields` are the error as JSON.
fn raise(e: impl Into<Error>) -> PyErr {
    let e = e.into();
    let fields = match serde_json::to_string(&e) {
        Ok(fields) => fields,
        Err(other) => return Failure::new_err(other.to_string()),
    };
    let raised = match e.kind() {
        ErrorKind::Refused => UserError::new_err(e.to_string()),
        ErrorKind::Failed => Failure::new_err(e.to_string()),
    };
    match Python::attach(|py| raised.value(py).setattr("fields", fields)) {
        Ok(()) => raised,
        Err(other) => other,
    }
}

/// The exception of an error in the installation, which no other input of the user can avoid.
fn raise_failed(e: Error) -> PyErr {
    raise(e.into_failed())
}

fn dump(value: &impl Answer) -> PyResult<String> {
    serde_json::to_string(value).map_err(|e| Failure::new_err(e.to_string()))
}

fn parse<T: serde::de::DeserializeOwned>(text: &str) -> PyResult<T> {
    serde_json::from_str(text).map_err(|e| {
        raise(Error::refused(format!(
            "the specification is not understood: {e}"
        )))
    })
}

/// A callback from a thread without the interpreter's lock. An exception in it (for example Ctrl-C) stops the run, and
/// is raised when the run has ended.
struct Callback {
    function: Option<Py<PyAny>>,
    error: Option<PyErr>,
}

impl Callback {
    fn call(&mut self, progress: impl FnOnce() -> Progress) -> bool {
        if self.error.is_some() {
            return false;
        }
        Python::attach(|py| {
            // Without a callback, a Ctrl-C must still be seen.
            let answer = match &self.function {
                Some(f) => dump(&progress())
                    .and_then(|text| f.call1(py, (text,)))
                    .and_then(|a| a.is_truthy(py)),
                None => py.check_signals().map(|()| true),
            };
            match answer {
                Ok(go_on) => go_on,
                Err(e) => {
                    self.error = Some(e);
                    false
                }
            }
        })
    }
}

/// Sets the folder of `machines/`, `designs/` and the plugin.
#[pyfunction]
fn set_data_dir(path: PathBuf) {
    *DATA
        .write()
        .unwrap_or_else(std::sync::PoisonError::into_inner) = Some(path);
}

/// Version of the engine.
#[pyfunction]
fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

/// Version of the model; it changes whenever results do.
#[pyfunction]
fn model_version() -> u32 {
    pagewalk_machine::MODEL_VERSION
}

/// Runs a specification, and calls `progress(json) -> bool` about five times a second. `hosts` may simulate shards of
/// the run: see `remote::Hosts`.
#[pyfunction]
#[pyo3(signature = (spec, progress = None, hosts = None))]
fn run(
    py: Python<'_>,
    spec: &str,
    progress: Option<Py<PyAny>>,
    hosts: Option<Py<PyAny>>,
) -> PyResult<String> {
    let hosts = hosts.map(remote::Hosts::new);
    let result = simulate(py, spec, progress, |installation, spec, progress| {
        let hosts = hosts
            .as_ref()
            .map(|h| h as &dyn pagewalk_machine::RemoteHosts);
        installation.run_with(spec, hosts, progress)
    });
    match hosts.and_then(remote::Hosts::raised) {
        Some(e) => Err(e),
        None => dump(&result?),
    }
}

/// Simulates one of the shards that a run has requested from `hosts`.
#[pyfunction]
#[pyo3(signature = (spec, number, of, progress = None))]
fn run_shard(
    py: Python<'_>,
    spec: &str,
    number: usize,
    of: usize,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    simulate(py, spec, progress, |installation, spec, progress| {
        installation.shard(spec, (number, of), progress)
    })
}

/// Runs a specification on a program of the caller's own.
#[pyfunction]
#[pyo3(signature = (spec, streams, progress = None))]
fn run_custom(
    py: Python<'_>,
    spec: &str,
    streams: custom::Streams,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let program = custom::Custom::new(streams);
    let result = simulate(py, spec, progress, move |installation, spec, progress| {
        installation.run_program(spec, Box::new(program), progress)
    });
    dump(&result?)
}

/// Progress callback of a run.
type Watch<'a> = &'a mut dyn FnMut(&RunProgress) -> bool;

fn simulate<T: Send>(
    py: Python<'_>,
    spec: &str,
    progress: Option<Py<PyAny>>,
    run: impl FnOnce(&Installation, &RunSpec, Watch<'_>) -> Result<T, Error> + Send,
) -> PyResult<T> {
    let installation = installation()?;
    let spec: RunSpec = parse(spec)?;
    let mut callback = Callback {
        function: progress,
        error: None,
    };
    let result = py.detach(|| {
        run(&installation, &spec, &mut |p| {
            callback.call(|| Progress {
                design_instructions: Some(p.design_instructions.iter().cloned().collect()),
                done: p.done,
                total: p.total,
                phase: p.phase,
                seconds: p.seconds,
            })
        })
    });
    if let Some(e) = callback.error {
        return Err(e);
    }
    result.map_err(raise)
}

/// The resolved configuration of each design.
#[pyfunction]
fn resolve(spec: &str) -> PyResult<String> {
    let spec: RunSpec = parse(spec)?;
    let designs = installation()?.resolve(&spec).map_err(raise)?;
    let resolved = |d: pagewalk_machine::Design| {
        serde_json::to_value(&d.config).map(|config| Resolved {
            config,
            description: d.description,
            name: d.name,
        })
    };
    let list: Result<Vec<_>, _> = designs.into_iter().map(resolved).collect();
    dump(&list.map_err(|e| Failure::new_err(e.to_string()))?)
}

fn shipped(kind: Shipped) -> PyResult<String> {
    let files = installation()?.data.list(kind).map_err(raise_failed)?;
    let shipped = files.into_iter().map(|f| answers::Shipped {
        description: f.description,
        name: f.name,
        path: shown(&f.path),
        source: f.source,
    });
    dump(&shipped.collect::<Vec<_>>())
}

/// The shipped machines.
#[pyfunction]
fn machines() -> PyResult<String> {
    shipped(Shipped::Machine)
}

/// The shipped designs.
#[pyfunction]
fn designs() -> PyResult<String> {
    shipped(Shipped::Design)
}

/// The built-in programs.
#[pyfunction]
fn workloads() -> PyResult<String> {
    dump(&pagewalk_programs::workloads().collect::<Vec<_>>())
}

/// Entries of a core's buffers for a shortcut.
#[pyfunction]
fn shortcut_buffers() -> PyResult<String> {
    dump(&ShortcutBuffers {
        insertion_buffer: pagewalk_machine::INSERTIONS,
        invalid_page_buffer: pagewalk_machine::INVALID_PAGES,
        stb: pagewalk_machine::STB_ENTRIES,
    })
}

/// The flags of all run options that an error can name, by the options' names.
#[pyfunction]
fn run_options() -> PyResult<String> {
    let options = RunOption::ALL.iter().map(|o| (o.name(), o.flag()));
    dump(&options.collect::<std::collections::BTreeMap<_, _>>())
}

/// JSON schema of the configuration.
#[pyfunction]
fn schema() -> String {
    root_schema().to_string()
}

/// JSON schema of a run's result, with all other answers among its definitions.
#[pyfunction]
fn result_schema() -> String {
    answers::schema().to_value().to_string()
}

/// Refuses a whole configuration in JSON that no machine can have.
#[pyfunction]
fn check_config(config: &str) -> PyResult<()> {
    let config: Config =
        serde_json::from_str(config).map_err(|e| raise(Error::refused(e.to_string())))?;
    config.validate().map_err(raise)
}

/// Every configuration key: path, comment, expected form.
#[pyfunction]
fn config_keys() -> PyResult<String> {
    dump(&keys())
}

/// Every statistic and metric with unit and definition.
#[pyfunction]
fn statistics() -> PyResult<String> {
    dump(&Definitions {
        metrics: metrics().map(Into::into).collect(),
        programs: program_metrics(),
        statistics: all_statistics(&installation()?.data).map_err(raise_failed)?,
    })
}

/// All meanings of a name, or near names if it has none.
#[pyfunction]
fn explain(name: &str) -> PyResult<String> {
    let (found, nearest) = match explain_name(&installation()?.data, name).map_err(raise_failed)? {
        Ok(found) => (Some(found), None),
        Err(nearest) => (None, Some(nearest)),
    };
    dump(&Explanation { found, nearest })
}

/// Names that can be explained by their kind: `{"term": [...], "design": [...], ...}`.
#[pyfunction]
fn topics() -> PyResult<String> {
    dump(&all_topics(&installation()?.data).map_err(raise_failed)?)
}

/// The name nearest to a misspelt one, if any is near.
#[pyfunction]
fn nearest(given: &str, names: Vec<String>) -> Option<String> {
    let names = names.iter().map(String::as_str);
    pagewalk_units::nearest(given, names).map(str::to_owned)
}

/// Records a program into a `.pwt` file.
#[pyfunction]
#[pyo3(signature = (spec, path, progress = None))]
fn record(
    py: Python<'_>,
    spec: &str,
    path: PathBuf,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let installation = installation()?;
    let spec: pagewalk_machine::RecordSpec = parse(spec)?;
    let mut callback = Callback {
        function: progress,
        error: None,
    };
    let result = py.detach(|| {
        installation.record(&spec, &path, &mut |done, seconds| {
            callback.call(|| Progress {
                design_instructions: None,
                done,
                total: spec.instructions,
                phase: "record",
                seconds,
            })
        })
    });
    if let Some(e) = callback.error {
        return Err(e);
    }
    dump(&result.map_err(raise)?)
}

/// Contents of a trace.
#[pyfunction]
fn trace_info(py: Python<'_>, path: PathBuf) -> PyResult<String> {
    dump(
        &py.detach(|| pagewalk_trace::trace_info(&path, &OpenOptions::default()))
            .map_err(raise)?,
    )
}

/// Checks every block of a trace.
#[pyfunction]
fn trace_check(py: Python<'_>, path: PathBuf) -> PyResult<String> {
    dump(
        &py.detach(|| pagewalk_trace::check_trace(&path, None))
            .map_err(raise)?,
    )
}

/// Converts a trace to the format that the target's name ends in. With `keep_good`, converts a damaged source up to the
/// damage.
#[pyfunction]
#[pyo3(signature = (source, target, keep_good = false))]
fn trace_convert(
    py: Python<'_>,
    source: PathBuf,
    target: PathBuf,
    keep_good: bool,
) -> PyResult<String> {
    let options = OpenOptions {
        recover: keep_good,
        ..OpenOptions::default()
    };
    let done = py.detach(|| convert_trace(&source, &options, &target, keep_good));
    dump(&done.map_err(raise)?)
}

/// Basic-block vectors of a trace, one for each stretch of `length` instructions; `null` if `progress` returns false.
#[pyfunction]
#[pyo3(signature = (path, length, seed, progress = None))]
fn block_vectors(
    py: Python<'_>,
    path: PathBuf,
    length: u64,
    seed: u64,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    if length == 0 {
        return Err(raise(Error::refused(
            "a stretch of 0 instructions; expected 1 or more",
        )));
    }
    let mut callback = Callback {
        function: progress,
        error: None,
    };
    let start = Instant::now();
    let mut next_report = start + REPORTS;
    let result = py.detach(|| {
        let options = OpenOptions::default();
        pagewalk_trace::block_vectors(&path, &options, length, seed, &mut |done, total| {
            let now = Instant::now();
            if now < next_report {
                return true;
            }
            next_report = now + REPORTS;
            let seconds = (now - start).as_secs_f64();
            callback.call(|| Progress {
                design_instructions: None,
                done,
                total,
                phase: "read",
                seconds,
            })
        })
    });
    if let Some(e) = callback.error {
        return Err(e);
    }
    dump(&result.map_err(raise)?)
}

/// The host's processor as `cpuid` describes it; `null` where there is none.
#[pyfunction]
fn host_processor() -> PyResult<String> {
    dump(&pagewalk_calibrate::processor())
}

/// Runs micro-benchmarks on this host, `rounds` times all of them; `null` if `progress` returns false.
#[pyfunction]
#[pyo3(signature = (benchmarks, rounds, progress = None))]
fn measure_host(
    py: Python<'_>,
    benchmarks: &str,
    rounds: u32,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let benchmarks: Vec<Benchmark> = parse(benchmarks)?;
    let mut callback = Callback {
        function: progress,
        error: None,
    };
    let start = Instant::now();
    let mut next_report = start;
    let result = py.detach(|| {
        pagewalk_calibrate::measure(&benchmarks, rounds, &mut |share| {
            let now = Instant::now();
            if now < next_report && share < 1.0 {
                return true;
            }
            next_report = now + REPORTS;
            callback.call(|| Progress {
                design_instructions: None,
                done: (share * 1000.0) as u64,
                total: Some(1000),
                phase: "measure",
                seconds: (now - start).as_secs_f64(),
            })
        })
    });
    if let Some(e) = callback.error {
        return Err(e);
    }
    dump(&result.map_err(raise)?)
}

/// A path as text, because JSON has no other form.
fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// Components present on this host.
#[pyfunction]
fn doctor() -> PyResult<String> {
    let installation = installation()?;
    let found = pagewalk_live::find_qemu(None);
    let cpu = found.as_ref().ok().map(|e| e.cpu(None));
    let qemu = Emulator {
        ok: found.as_ref().ok().map(|e| shown(&e.path)),
        err: found.err().map(|e| e.to_string()),
    };
    dump(&Installed {
        cores: pagewalk_machine::host_cores(),
        data: shown(&installation.data.0),
        plugin: Plugin {
            path: shown(&installation.plugin),
            present: installation.plugin.is_file(),
        },
        qemu,
        cpu,
    })
}

#[cfg(feature = "module")]
#[pymodule]
fn _native(m: &Bound<'_, PyModule>) -> PyResult<()> {
    fill_module(m)
}

/// Fills the module `_native` of an engine. A crate that extends the engine calls this in its own
/// module, after it has registered what it adds.
///
/// # Errors
/// Those of Python.
pub fn fill_module(m: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = m.py();
    m.add("UserError", py.get_type::<UserError>())?;
    m.add("Failure", py.get_type::<Failure>())?;
    macro_rules! functions {
        ($($f:ident)*) => { $(m.add_function(wrap_pyfunction!($f, m)?)?;)* };
    }
    functions! {
        set_data_dir version model_version host_processor measure_host run run_custom run_shard resolve machines designs workloads shortcut_buffers schema check_config result_schema config_keys statistics
        explain topics nearest record trace_info trace_check trace_convert block_vectors doctor run_options
    }
    Ok(())
}
