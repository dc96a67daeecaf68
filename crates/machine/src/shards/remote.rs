//! Interface to the remote hosts that simulate shards.

use pagewalk_units::Error;

use crate::session::RunSpec;

/// Remote hosts, each of which simulates shards of a run by
/// [`Installation::shard`](crate::Installation::shard).
pub trait RemoteHosts: Sync {
    /// Starts the shards with these numbers, out of `of` shards.
    ///
    /// # Errors
    /// The shards cannot be started.
    fn begin(&self, spec: &RunSpec, numbers: &[usize], of: usize) -> Result<(), Error>;

    /// Events since the last call. Called about five times a second.
    ///
    /// # Errors
    /// An error that makes the run pointless, such as a missing trace.
    fn events(&self) -> Result<Vec<RemoteEvent>, Error>;
}

/// An event of the shard with the given number.
#[derive(Clone, Debug)]
pub enum RemoteEvent {
    /// Completed share of the shard, from 0 to 1.
    Share(usize, f64),
    /// The shard has finished, with the text that `Installation::shard` returned.
    Ended(usize, String),
    /// The shard cannot be simulated there, with the reason. This host simulates it instead.
    Failed(usize, String),
}
