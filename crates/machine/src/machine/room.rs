//! Check of the host memory that a design needs for a program's page tables.

use pagewalk_os::PlacementSpec;
use pagewalk_programs::format_size;
use pagewalk_units::{RunOption, text};

use super::Outcome;
use crate::config::Config;

/// Minimum host bytes for a touched 4 KB page: its page table entry. Designs need more in total, so a
/// refused run could not have succeeded.
const BYTES_A_PAGE: u64 = 8;

/// Host memory that one design may use for the pages of its program.
///
/// All designs of a run check the same share, so they agree at the same point of the program in any
/// order.
pub(crate) struct Room {
    /// Mappings are touched when they are made.
    pub at_once: bool,
    /// Bytes available to all designs together.
    available: u64,
    designs: u64,
    /// Simulated memory in bytes, an upper bound on the touched memory.
    memory: u64,
    name: String,
}

impl Room {
    /// Share of one of `designs` in a run with `available` bytes. None if pages may be larger than 4 KB,
    /// because their number is not known in advance.
    pub(crate) fn of(config: &Config, name: &str, available: u64, designs: usize) -> Option<Self> {
        let at_once = matches!(config.placement, PlacementSpec::Eager(_));
        (at_once || matches!(config.placement, PlacementSpec::Buddy(_))).then(|| Room {
            at_once,
            available,
            designs: designs as u64,
            memory: config.os.memory_gb << 30,
            name: name.to_owned(),
        })
    }

    /// Checks memory for `bytes` more, when the program's processes hold `held` bytes.
    ///
    /// # Errors
    /// The host has too little memory: a sentence with both sizes.
    pub(crate) fn take(&self, held: u64, bytes: u64) -> Result<(), Outcome> {
        let touched = held.saturating_add(bytes).min(self.memory);
        let pages = touched / 4096;
        let needed = (pages * BYTES_A_PAGE).saturating_mul(self.designs);
        if needed <= self.available {
            return Ok(());
        }
        let designs = match self.designs {
            1 => "one design".to_owned(),
            n => format!("{n} designs"),
        };
        Err(Outcome::HostMemory(text![
            format!(
                "{}: {} of host memory are needed at least for {designs} with {} of memory touched, and {} can be had; take a smaller program, fewer designs at a time (the translation cost takes one more) or a larger host (",
                self.name,
                mebibytes(needed),
                mebibytes(touched),
                mebibytes(self.available)
            ),
            RunOption::IgnoreMemory,
            " goes on all the same)"
        ]))
    }
}

/// A size for a message.
fn mebibytes(bytes: u64) -> String {
    format_size((bytes >> 20).max(1) << 20)
}

#[cfg(test)]
mod tests {
    use super::Room;

    fn room(available: u64, designs: u64) -> Room {
        Room {
            at_once: false,
            available,
            designs,
            memory: 1 << 40,
            name: "gups".to_owned(),
        }
    }

    #[test]
    fn page_tables_of_all_designs_together_need_room() {
        // A terabyte has 2^28 pages of 4 KB, whose entries take 2 GiB.
        assert!(room(2 << 30, 1).take(0, 1 << 40).is_ok());
        assert!(room((2 << 30) - 1, 1).take(0, 1 << 40).is_err());
        assert!(room(11 << 30, 6).take(0, 1 << 40).is_err());
        assert!(room(12 << 30, 6).take(0, 1 << 40).is_ok());
    }

    #[test]
    fn needed_room_is_at_most_that_of_the_simulated_memory() {
        room(2 << 30, 1).take(8 << 39, 1 << 39).unwrap();
        let small = room(1 << 30, 1);
        // Programs that end and restart touch the same memory repeatedly.
        for _ in 0..8 {
            small.take(0, 1 << 39).unwrap();
        }
        let said = format!("{:?}", small.take(1 << 39, 1 << 39).unwrap_err());
        assert!(said.contains("2GiB of host memory are needed"), "{said}");
        assert!(said.contains("1GiB can be had"), "{said}");
    }
}
