//! Remote hosts, as a Python object.

use std::sync::{Mutex, PoisonError};

use pagewalk_machine::{RemoteEvent, RemoteHosts, RunSpec};
use pagewalk_units::Error;
use pyo3::prelude::*;

/// Calls the methods of an object. `begin(spec, numbers, of)` starts shards of a run on other hosts. `events()` returns a
/// list of triples, one for each remote event: `(number, "share", 0.5)`, `(number, "ended", text)` with the result of
/// `run_shard`, or `(number, "failed", why)`.
pub(crate) struct Hosts {
    object: Py<PyAny>,
    /// First exception that a method raised.
    raised: Mutex<Option<PyErr>>,
}

impl Hosts {
    pub(crate) fn new(object: Py<PyAny>) -> Self {
        Hosts {
            object,
            raised: Mutex::new(None),
        }
    }

    /// The first exception of a method. It says more than the error made of it.
    pub(crate) fn raised(self) -> Option<PyErr> {
        self.raised
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn call<T>(
        &self,
        method: impl FnOnce(Python<'_>, &Py<PyAny>) -> PyResult<T>,
    ) -> Result<T, Error> {
        Python::attach(|py| method(py, &self.object)).map_err(|e| {
            let error = Error::failed(e.to_string());
            let mut raised = self.raised.lock().unwrap_or_else(PoisonError::into_inner);
            raised.get_or_insert(e);
            error
        })
    }
}

fn one(item: &Bound<'_, PyAny>) -> PyResult<RemoteEvent> {
    let (number, what, more): (usize, String, Bound<'_, PyAny>) = item.extract()?;
    match what.as_str() {
        "share" => Ok(RemoteEvent::Share(number, more.extract()?)),
        "ended" => Ok(RemoteEvent::Ended(number, more.extract()?)),
        _ => Ok(RemoteEvent::Failed(number, more.extract()?)),
    }
}

impl RemoteHosts for Hosts {
    fn begin(&self, spec: &RunSpec, numbers: &[usize], of: usize) -> Result<(), Error> {
        let text = serde_json::to_string(spec).map_err(|e| Error::failed(e.to_string()))?;
        self.call(|py, object| {
            let begun = object.call_method1(py, "begin", (text, numbers.to_vec(), of));
            begun.map(drop)
        })
    }

    fn events(&self) -> Result<Vec<RemoteEvent>, Error> {
        self.call(|py, object| {
            let list = object.call_method0(py, "events")?;
            list.bind(py).try_iter()?.map(|item| one(&item?)).collect()
        })
    }
}
