//! Checks that an engine with the kernel's hash functions has something to guess.

use pagewalk_mmu::engine::HashedGuesses;
use pagewalk_mmu::{GuessedLines, Nested, What};
use pagewalk_os::{
    HashOf, HashedTables, PageTableSpec, PlacementSpec, TieredHashSpec, VirtualSpec,
};
use pagewalk_units::{Error, Part, Text, text};

use super::Config;

fn refused(key: impl Into<String>, text: impl Into<Text>) -> Result<(), Error> {
    Err(Error::key(key, text))
}

impl Config {
    /// Checks that the hashed address is known to the kernel that hashes it, and that the hashes give
    /// existing frames.
    pub(super) fn check_placement(&self) -> Result<(), Error> {
        let whole = self.os.program_mb();
        let machine = self.virtual_machine.as_ref();
        let own = machine.map_or(whole, |v| v.memory_gb.map_or(whole, |gb| gb << 10));
        self.placement.check_memory(own)?;
        if let Some(machine) = machine {
            let host = machine.placement.check_memory(whole);
            host.map_err(|what| what.under("virtual"))?;
        }
        match &self.placement {
            PlacementSpec::TieredHash(hashed) if hashed.hash_of.is_some() => refused(
                "placement.tiered_hash.hash_of",
                text![
                    "is set, which is for hosts; expected it in ",
                    Part::key("virtual.placement.tiered_hash")
                ],
            ),
            _ => Ok(()),
        }
    }

    /// Checks that hashes for `engine` exist, and that lines of the kinds that it guesses exist.
    /// `name`: its key below `engine`.
    pub(super) fn check_hashed(&self, name: &str, engine: &HashedGuesses) -> Result<(), Error> {
        let key = |key: &str| format!("engine.{name}.{key}");
        if let Some(machine) = &self.virtual_machine {
            return self.check_nested(name, engine, machine);
        }
        if engine.nested.is_some() {
            return refused(
                key("nested"),
                text![
                    "is set, and there is no nested walk; expected a design with ",
                    Part::key("virtual"),
                    ", or no such key"
                ],
            );
        }
        match &self.placement {
            PlacementSpec::TieredHash(hashed)
                if engine.large && hashed.promotion_threshold.is_none() =>
            {
                refused(
                    key("large"),
                    text![
                        "is true, and the kernel hashes no blocks of 2 MB; expected ",
                        Part::key("placement.tiered_hash.promotion_threshold")
                    ],
                )
            }
            PlacementSpec::TieredHash(_) | PlacementSpec::Recorded(_)
                if engine.what != GuessedLines::Data
                    && !matches!(self.page_table, PageTableSpec::Radix(_)) =>
            {
                refused(
                    key("what"),
                    text![
                        "has page-table entries, and ",
                        Part::key("page_table"),
                        " has no last-level frames that are hashed: a walker reads all ways of a hashed table at once, so that a guess knows no more than the walk; expected what = \"data\", or ",
                        Part::key("page_table.radix")
                    ],
                )
            }
            PlacementSpec::TieredHash(_) | PlacementSpec::Recorded(_) => Ok(()),
            _ => refused(
                "engine",
                text![
                    format!(
                        "is {name}, which guesses the frames that the kernel's hashes name, and "
                    ),
                    Part::key("placement"),
                    " has none; expected ",
                    Part::key("placement.tiered_hash")
                ],
            ),
        }
    }

    fn check_nested(
        &self,
        name: &str,
        engine: &HashedGuesses,
        machine: &VirtualSpec,
    ) -> Result<(), Error> {
        let key = |key: &str| format!("engine.{name}.{key}");
        let PlacementSpec::TieredHash(hashed) = &machine.placement else {
            return refused(
                "engine",
                text![
                    format!("is {name}, which hashes to physical addresses, and "),
                    Part::key("virtual.placement"),
                    " has no hashes; expected ",
                    Part::key("virtual.placement.tiered_hash")
                ],
            );
        };
        if machine.shadow {
            return refused(
                "engine",
                text![
                    format!("is {name} and "),
                    Part::key("virtual.shadow"),
                    " is true, where no frames of the table that is walked are placed by hash; expected one of the two"
                ],
            );
        }
        if engine.large {
            return refused(
                key("large"),
                "is true, and a host hashes no blocks of 2 MB; expected false",
            );
        }
        let of = hashed.hash_of.unwrap_or_default();
        let wants = |what| engine.what.has(what);
        let Some(nested) = engine.nested else {
            return match (of, engine.what) {
                (HashOf::GuestPhysical, _) => refused(
                    "virtual.placement.tiered_hash.hash_of",
                    text![
                        "is guest_physical, and a guest-physical address is known within the walk only; expected guest_virtual or both, or ",
                        Part::key(key("nested")),
                        " = \"horizontal\""
                    ],
                ),
                (_, GuessedLines::Data) => Ok(()),
                _ => refused(
                    key("what"),
                    text![
                        "has page-table entries, which are guessed in a virtual machine where ",
                        Part::key(key("nested")),
                        " says which; expected what = \"data\", or nested"
                    ],
                ),
            };
        };
        if nested.is_diagonal() {
            if of == HashOf::GuestPhysical {
                return refused(
                    key("nested"),
                    text![
                        "is diagonal or both, and ",
                        Part::key("virtual.placement.tiered_hash.hash_of"),
                        " is guest_physical; expected guest_virtual or both, since guesses at the miss hash virtual pages"
                    ],
                );
            }
            if wants(What::Entry) && !hashed.hashes_leaves_of(&self.page_table) {
                return refused(
                    key("nested"),
                    text![
                        "is diagonal or both, which guess entries in the guest's last-level frames, and ",
                        Part::key("page_table"),
                        " has none that are hashed; expected ",
                        Part::key("page_table.radix"),
                        " and page_tables other than none, or nested = \"horizontal\""
                    ],
                );
            }
        }
        check_horizontal(
            self,
            key("nested"),
            (nested, of),
            machine,
            hashed,
            wants(What::Step),
        )
    }
}

fn check_horizontal(
    config: &Config,
    key: String,
    (nested, of): (Nested, HashOf),
    machine: &VirtualSpec,
    hashed: &TieredHashSpec,
    entries: bool,
) -> Result<(), Error> {
    if !nested.is_horizontal() {
        return Ok(());
    }
    let guest_leaves = hashed.hashes_leaves_of(&config.page_table);
    if of == HashOf::Both && !nested.is_diagonal() && guest_leaves {
        return refused(
            key,
            text![
                "is horizontal and ",
                Part::key("virtual.placement.tiered_hash.hash_of"),
                " is both, by which the guest's last-level frames are named by virtual pages; expected nested = \"both\", or hash_of = \"guest_physical\""
            ],
        );
    }
    let host = hashed.hashes_leaves_of(&machine.page_table);
    // Other levels of a guest's table are guessed by the tiers of page tables.
    let others = hashed.page_tables != HashedTables::None;
    let guest = of == HashOf::GuestPhysical || of == HashOf::Both && others;
    if entries && !host && !guest {
        return refused(
            key,
            text![
                "is horizontal or both, and neither the host's last-level frames nor the guest's pages are hashed by guest-physical address; expected ",
                Part::key("virtual.page_table.radix"),
                ", or ",
                Part::key("virtual.placement.tiered_hash.hash_of"),
                " = \"guest_physical\" or \"both\""
            ],
        );
    }
    Ok(())
}
