//! Who simulates portions beside this host.

use pagewalk_units::Error;

use crate::session::RunSpec;

/// Other hosts, each of which simulates portions of a run by
/// [`Installation::shard`](crate::Installation::shard).
pub trait RemoteHosts: Sync {
    /// Has the portions with these numbers, of `of` in all, simulated.
    ///
    /// # Errors
    /// They cannot be.
    fn begin(&self, spec: &RunSpec, numbers: &[usize], of: usize) -> Result<(), Error>;

    /// What has happened since it was asked last: about five times a second.
    ///
    /// # Errors
    /// What makes it senseless to go on, such as a trace that is not there.
    fn events(&self) -> Result<Vec<RemoteEvent>, Error>;
}

/// What has become of the portion with a number.
#[derive(Clone, Debug)]
pub enum RemoteEvent {
    /// So much of it is done, from 0 to 1.
    Share(usize, f64),
    /// It has ended: the text that `portion` has given.
    Ended(usize, String),
    /// It cannot be simulated there, and why: this host does.
    Failed(usize, String),
}
