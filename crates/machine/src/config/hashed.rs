//! Whether an engine that hashes as the kernel does has something to guess.

use pagewalk_mmu::{GuessedLines, Nested, RevelatorSpec, What};
use pagewalk_os::{
    HashOf, HashedTables, PageTableSpec, PlacementSpec, TieredHashSpec, VirtualSpec,
};

use super::Config;

fn expected(sentence: &str) -> Result<(), String> {
    Err(sentence.to_owned())
}

impl Config {
    /// Whether what tiered placement hashes is what its kernel can know, and to frames that it has.
    pub(super) fn check_placement(&self) -> Result<(), String> {
        let whole = self.os.program_mb();
        let machine = self.virtual_machine.as_ref();
        let own = machine.map_or(whole, |v| v.memory_gb.map_or(whole, |gb| gb << 10));
        self.placement.check_memory(own)?;
        if let Some(machine) = machine {
            let host = machine.placement.check_memory(whole);
            host.map_err(|what| format!("virtual.{what}"))?;
        }
        match &self.placement {
            PlacementSpec::TieredHash(hashed) if hashed.hash_of.is_some() => expected(
                "placement.tiered_hash.hash_of is set, which is for hosts; expected it in virtual.placement.tiered_hash",
            ),
            _ => Ok(()),
        }
    }

    /// Whether there are hashes for `engine`, and lines of the kinds that it is to guess.
    pub(super) fn check_hashed(&self, engine: &RevelatorSpec) -> Result<(), String> {
        if let Some(machine) = &self.virtual_machine {
            return self.check_nested(engine, machine);
        }
        if engine.nested.is_some() {
            return expected(
                "engine.revelator.nested is set, and there is no nested walk; expected a design with virtual, or no such key",
            );
        }
        match &self.placement {
            PlacementSpec::TieredHash(hashed)
                if engine.large && hashed.promotion_threshold.is_none() =>
            {
                expected(
                    "engine.revelator.large is true, and the kernel hashes no blocks of 2 MB; expected placement.tiered_hash.promotion_threshold",
                )
            }
            PlacementSpec::TieredHash(_)
                if engine.what != GuessedLines::Data
                    && !matches!(self.page_table, PageTableSpec::Radix(_)) =>
            {
                expected(
                    "engine.revelator.what has page-table entries, and page_table has no last-level frames that are hashed: a walker reads all ways of a hashed table at once, so that a guess knows no more than the walk; expected what = \"data\", or page_table.radix",
                )
            }
            PlacementSpec::TieredHash(_) => Ok(()),
            _ => expected(
                "engine is revelator, which guesses the frames that the kernel's hashes name, and placement has none; expected placement.tiered_hash",
            ),
        }
    }

    fn check_nested(&self, engine: &RevelatorSpec, machine: &VirtualSpec) -> Result<(), String> {
        let PlacementSpec::TieredHash(hashed) = &machine.placement else {
            return expected(
                "engine is revelator, which hashes to physical addresses, and virtual.placement has no hashes; expected virtual.placement.tiered_hash",
            );
        };
        if machine.shadow {
            return expected(
                "engine is revelator and virtual.shadow is true, where no frames of the table that is walked are placed by hash; expected one of the two",
            );
        }
        if engine.large {
            return expected(
                "engine.revelator.large is true, and a host hashes no blocks of 2 MB; expected false",
            );
        }
        let of = hashed.hash_of.unwrap_or_default();
        let wants = |what| engine.what.has(what);
        let Some(nested) = engine.nested else {
            return match (of, engine.what) {
                (HashOf::GuestPhysical, _) => expected(
                    "virtual.placement.tiered_hash.hash_of is guest_physical, and a guest-physical address is known within the walk only; expected guest_virtual or both, or engine.revelator.nested = \"horizontal\"",
                ),
                (_, GuessedLines::Data) => Ok(()),
                _ => expected(
                    "engine.revelator.what has page-table entries, which are guessed in a virtual machine where engine.revelator.nested says which; expected what = \"data\", or nested",
                ),
            };
        };
        if nested.is_diagonal() {
            if of == HashOf::GuestPhysical {
                return expected(
                    "engine.revelator.nested is diagonal or both, and virtual.placement.tiered_hash.hash_of is guest_physical; expected guest_virtual or both, since guesses at the miss hash virtual pages",
                );
            }
            if wants(What::Entry) && !hashed.hashes_leaves_of(&self.page_table) {
                return expected(
                    "engine.revelator.nested is diagonal or both, which guess entries in the guest's last-level frames, and page_table has none that are hashed; expected page_table.radix and page_tables other than none, or nested = \"horizontal\"",
                );
            }
        }
        check_horizontal(self, nested, of, machine, hashed, wants(What::Step))
    }
}

fn check_horizontal(
    config: &Config,
    nested: Nested,
    of: HashOf,
    machine: &VirtualSpec,
    hashed: &TieredHashSpec,
    entries: bool,
) -> Result<(), String> {
    if !nested.is_horizontal() {
        return Ok(());
    }
    let guest_leaves = hashed.hashes_leaves_of(&config.page_table);
    if of == HashOf::Both && !nested.is_diagonal() && guest_leaves {
        return expected(
            "engine.revelator.nested is horizontal and virtual.placement.tiered_hash.hash_of is both, by which the guest's last-level frames are named by virtual pages; expected nested = \"both\", or hash_of = \"guest_physical\"",
        );
    }
    let host = hashed.hashes_leaves_of(&machine.page_table);
    // Other parts of a guest's table are tried with the tiers of page tables.
    let others = hashed.page_tables != HashedTables::None;
    let guest = of == HashOf::GuestPhysical || of == HashOf::Both && others;
    if entries && !host && !guest {
        return expected(
            "engine.revelator.nested is horizontal or both, and neither the host's last-level frames nor the guest's pages are hashed by guest-physical address; expected virtual.page_table.radix, or virtual.placement.tiered_hash.hash_of = \"guest_physical\" or \"both\"",
        );
    }
    Ok(())
}
