//! Any Linux x86-64 program as a stream. It runs under QEMU's user-mode emulator with our plugin, which sends the
//! executed blocks and accesses through shared memory.

mod ahead;
mod calls;
mod death;
mod host;
mod identity;
mod image;
mod living;
mod locate;
mod memory;
mod options;
mod process;
mod program;
mod read;
mod record;
mod sink;
mod thread;

pub use locate::{Emulator, find_qemu, resolve_program};
pub use options::LiveOptions;
pub use program::Live;
pub use record::LiveRecording;

use pagewalk_stream::{Error, Program};

/// Starts a program. A host thread reads its stream while the engine simulates.
///
/// # Errors
/// One sentence for the user: no QEMU, no plugin, no such program, not an x86-64
/// program, or the emulator did not start.
pub fn launch(options: LiveOptions) -> Result<Box<dyn Program>, Error> {
    Ok(Box::new(ahead::Ahead::start(Live::launch(options)?)?))
}
