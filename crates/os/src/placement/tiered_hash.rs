//! Tiered hash-based placement (Revelator, sections 5.1 and 5.2): the frame of a page is
//! that which a hash of its number names, if it is free, so that hardware can guess it.

use std::ops::Range;

use pagewalk_stats::Tree;
use pagewalk_structures::{HashKey, Hashes, Large, MOST_TIERS, Placed, TieredHash, Tiers};
use pagewalk_tables::{GuestUse, PageTableSpec, Purpose, Refusal, Want};
use pagewalk_units::{Error, PageSize, rng};
use rand::RngExt;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::registry::PolicySpec;
use super::reservation::Reservation;
use super::{Booted, Placement, small};
use crate::Effects;
use crate::choice::FrameChoice;
use crate::drawn::Drawn;
use crate::kernel::Kernel;
use crate::memory::{HUGE_ORDER, Memory};
use crate::space::Space;
use crate::spec::share;
use crate::table::Role;
use crate::touch::Touch;

/// 4 KB pages in frames that hashes of their numbers name. Pages of files and of shared
/// memory are hashed by the process that touches them first, copies by the one that
/// writes; ways of hashed tables and upper levels of trees come from the buddy
/// allocator. No time is charged for a try: the paper measured less than 0.2 % of a page
/// fault (Revelator, section 6.2). A host's are its guest's pages (`hash_of`).
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TieredHashSpec {
    /// Hash functions that are tried in turn before the buddy allocator is asked, 1 to 6.
    /// Default 6 (Revelator, table 1).
    pub tiers: u8,
    /// Which of them are tried for the last-level frames of page tables, which are hashed
    /// by the number of the 2 MB region that they map. Default `all` (our choice: it fits
    /// figure 15 of Revelator and its introduction; section 5.2 has `first`).
    pub page_tables: HashedTables,
    /// Share of the frames that the hash may not take although they are free, 0 to 1:
    /// which ones they are is drawn at random for each. The buddy allocator may, so that
    /// memory pressure can be anything with programs that fill the memory ("the system
    /// allows allocating between 10-20 % (70-80 %) of the total pages", Revelator,
    /// section 6.3). Frames that are really in use are `os.occupied`. Default 0.
    pub denied: f64,
    /// MB at the end of memory whose frames no hash names, so that they stay in large blocks: for the
    /// ways of hashed page tables, since pages that lie where a hash says leave hardly a block
    /// of 2 MB whole elsewhere. Reservations leave them alone; small pages come there when there is nothing
    /// else. At most half of the memory. Default 0 (our choice: no paper has both).
    #[serde(skip_serializing_if = "is_zero")]
    pub contiguous_mb: u64,
    /// Makes it Revelator with huge pages: the first touch of a 2 MB region sets aside the
    /// 2 MB block that a hash of the region's number names, or any free one; its pages go
    /// to their places in it, and it becomes a 2 MB page when more than this share of it,
    /// 0 to 1, is in use, as with `placement.reservation`. Regions without a block have
    /// pages in frames that hashes name. Where a share of the requests for blocks is served
    /// (`os.fragmentation.served_2mb`), that share of all blocks, drawn at random for each, is
    /// theirs: hashes name no others for a region, and no frame of one that is free as a whole
    /// for a 4 KB page. Default: no huge pages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub promotion_threshold: Option<f64>,
    /// Which of the generated seeds each tier takes, 1 for the first: each number up to
    /// `tiers` once. Default: in the order in which they are generated.
    pub order: Vec<u8>,
    /// Of a host (`virtual.placement`): what is hashed of a guest's page. Default
    /// `guest_virtual` (Revelator, section 5.5).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hash_of: Option<HashOf>,
    /// What the seeds are generated from. Default: drawn from the seed of the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
}

/// Tiers that are tried for frames of page tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HashedTables {
    /// As many as for pages.
    #[default]
    All,
    /// The first (Revelator, section 5.2).
    First,
    /// None: the frames come from the buddy allocator.
    None,
}

/// What a host hashes of its guest's pages. Last-level frames of its own page table are hashed
/// by the guest-physical number of the 2 MB region that they map in any case.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HashOf {
    /// Of a page of a guest's program the guest's address space and virtual page number, of a
    /// last-level frame of a guest's page table those of the 2 MB region that it maps
    /// (Revelator, section 5.5; "diagonal" in the second version). The guest tells them when
    /// it puts a page to use. Other pages come from the buddy allocator.
    #[default]
    GuestVirtual,
    /// Of every page the guest-physical page number ("horizontal" in the second version).
    GuestPhysical,
    /// As `guest_virtual`, and of other parts of a guest's page table, upper levels and ways,
    /// the guest-physical page number (ours: what both predictions need together).
    Both,
}

fn is_zero(mb: &u64) -> bool {
    *mb == 0
}

impl From<HashOf> for Hashes {
    fn from(of: HashOf) -> Self {
        match of {
            HashOf::GuestVirtual => Hashes::Virtual,
            HashOf::GuestPhysical => Hashes::GuestPhysical,
            HashOf::Both => Hashes::Both,
        }
    }
}

impl Default for TieredHashSpec {
    fn default() -> Self {
        TieredHashSpec {
            tiers: MOST_TIERS as u8,
            page_tables: HashedTables::default(),
            denied: 0.0,
            contiguous_mb: 0,
            promotion_threshold: None,
            order: Vec::new(),
            hash_of: None,
            seed: None,
        }
    }
}

impl TieredHashSpec {
    /// Numbers of the seeds, a tier each.
    fn order(&self) -> Vec<u8> {
        if self.order.is_empty() {
            (1..=self.tiers).collect()
        } else {
            self.order.clone()
        }
    }

    /// Whether last-level frames of `table` are placed by hash: those of a tree lie in frames of
    /// their own, if any tier is tried for them.
    pub fn hashes_leaves_of(&self, table: &PageTableSpec) -> bool {
        matches!(table, PageTableSpec::Radix(_)) && self.page_tables != HashedTables::None
    }
}

impl PolicySpec for TieredHashSpec {
    fn check(&self) -> Result<(), Error> {
        if !(1..=MOST_TIERS).contains(&usize::from(self.tiers)) {
            return Err(Error::key(
                "tiers",
                format!("is {}; expected 1 to {MOST_TIERS}", self.tiers),
            ));
        }
        let mut numbers = self.order();
        numbers.sort_unstable();
        if !numbers.into_iter().eq(1..=self.tiers) {
            return Err(Error::key(
                "order",
                format!(
                    "is {:?}; expected each number from 1 to tiers ({}) once, or none",
                    self.order, self.tiers
                ),
            ));
        }
        if let Some(threshold) = self.promotion_threshold {
            share("promotion_threshold", threshold)?;
        }
        share("denied", self.denied)
    }
    fn check_memory(&self, mb: u64) -> Result<(), Error> {
        if self.contiguous_mb > mb / 2 {
            return Err(Error::key(
                "contiguous_mb",
                format!(
                    "is {}; expected at most half of the memory, {}",
                    self.contiguous_mb,
                    mb / 2
                ),
            ));
        }
        Ok(())
    }
    fn build(&self) -> Box<dyn Placement> {
        Box::new(Hashed {
            spec: self.clone(),
            reservations: self.promotion_threshold.map(Reservation::new),
        })
    }
}

/// Pages of 4 KB, and reservations if there are huge pages.
struct Hashed {
    spec: TieredHashSpec,
    reservations: Option<Reservation>,
}

impl Placement for Hashed {
    fn place(
        &mut self,
        touch: &Touch<'_>,
        space: &mut Space,
        k: &mut Kernel,
        fx: &mut Effects,
    ) -> Result<PageSize, Refusal> {
        match &mut self.reservations {
            Some(reservations) => reservations.place(touch, space, k, fx),
            None => small(touch, space, k, fx),
        }
    }

    fn reclaim(
        &mut self,
        spaces: &mut [Option<Box<Space>>],
        k: &mut Kernel,
        fx: &mut Effects,
    ) -> bool {
        let reservations = self.reservations.as_mut();
        reservations.is_some_and(|r| r.reclaim(spaces, k, fx))
    }

    fn choice(&self, booted: &Booted<'_>) -> Box<dyn FrameChoice> {
        let kernel = booted.role.name();
        let mut stream = rng(booted.seed, &format!("{kernel}.tiered_hash"));
        let (drawn, denied) = (stream.random(), stream.random());
        let frames = booted.memory.frames();
        let mut hashed = ByHash::new(&self.spec, drawn, denied, frames);
        hashed.apart = hashed.tiers.large.is_some() && booted.memory.refuses_for_good();
        if booted.role == Role::Host {
            hashed.back_guests(&self.spec, booted.page_table);
        } else if !matches!(booted.page_table, PageTableSpec::Radix(_)) {
            // Ways and chunks of hashed tables are no frames of a page's number.
            hashed.tiers.table_tiers = 0;
        }
        Box::new(hashed)
    }
}

/// The frame that a tier names, or what the buddy allocator has.
struct ByHash {
    tiers: Tiers,
    /// Frames that only the hash may not take.
    denied: Drawn,
    /// There are huge pages, and a share of the requests for their blocks is served: pages
    /// of programs leave the blocks alone that such requests may find.
    apart: bool,
    /// It is a host's.
    host: bool,
    /// Frames at the end of memory that it does not name.
    spared: u64,
}

/// Whose account a wish is in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Data,
    Table,
}

impl ByHash {
    /// Seeds are made of `drawn` unless `spec` has another one; `frames` are hashed to but for
    /// those at the end that are to stay contiguous, which are fewer.
    fn new(spec: &TieredHashSpec, drawn: u64, denied: u64, frames: Range<u64>) -> Self {
        let spared = spec.contiguous_mb << 8;
        let frames = frames.start..frames.end - spared;
        let table_tiers = match spec.page_tables {
            HashedTables::All => usize::from(spec.tiers),
            HashedTables::First => 1,
            HashedTables::None => 0,
        };
        let seed = spec.seed.unwrap_or(drawn);
        let large = spec.promotion_threshold.map(|_| {
            // Seeds of their own: a region's page table would else be in its own block.
            let order: Vec<u8> = spec.order().iter().map(|n| n + MOST_TIERS as u8).collect();
            let blocks = frames.start >> HUGE_ORDER..frames.end >> HUGE_ORDER;
            Large {
                hash: TieredHash::new(seed, &order, blocks),
                placed: Placed::default(),
                anywhere: 0,
            }
        });
        let hash = TieredHash::new(seed, &spec.order(), frames);
        ByHash {
            tiers: Tiers {
                large,
                ..Tiers::new(hash, table_tiers)
            },
            denied: Drawn {
                share: spec.denied,
                seed: denied,
            },
            apart: false,
            host: false,
            spared,
        }
    }

    /// It is a host's with page tables of `table`.
    fn back_guests(&mut self, spec: &TieredHashSpec, table: &PageTableSpec) {
        self.host = true;
        self.tiers.of = spec.hash_of.unwrap_or_default().into();
        self.tiers.host_tables = spec.hashes_leaves_of(table);
    }

    /// What is hashed for `want`, if something is.
    fn key(&self, want: &Want) -> Option<(HashKey, Kind)> {
        match want.purpose {
            Purpose::Anonymous { vpn }
            | Purpose::File { vpn }
            | Purpose::Shared { vpn }
            | Purpose::Copy { vpn }
                if want.order() == 0 =>
            {
                Some((HashKey::page(want.asid, vpn), Kind::Data))
            }
            Purpose::Guest { vpn, of } if want.order() == 0 => self.key_of_guest(vpn, of),
            Purpose::Node { level: 1, vpn } if self.host => {
                Some((HashKey::host_table(vpn), Kind::Table))
            }
            Purpose::Node { level: 1, vpn } => Some((HashKey::table(want.asid, vpn), Kind::Table)),
            _ => None,
        }
    }

    /// The same for the page `vpn` of a guest's physical memory, which it uses for `of`.
    fn key_of_guest(&self, vpn: u64, of: GuestUse) -> Option<(HashKey, Kind)> {
        if self.tiers.of == Hashes::GuestPhysical {
            return Some((HashKey::guest_page(vpn), Kind::Data));
        }
        match of {
            GuestUse::Page { asid, vpn } => Some((HashKey::page(asid, vpn), Kind::Data)),
            GuestUse::Node {
                asid,
                level: 1,
                vpn,
            } => Some((HashKey::table(asid, vpn), Kind::Table)),
            GuestUse::Node { .. } | GuestUse::Table { .. } if self.tiers.of == Hashes::Both => {
                Some((HashKey::guest_page(vpn), Kind::Table))
            }
            GuestUse::Node { .. } | GuestUse::Table { .. } | GuestUse::Unknown => None,
        }
    }
}

/// The block that a tier names for the 2 MB region `number`, or any free one but for those
/// in the `spared` frames at the end.
fn block(
    large: &mut Large,
    (denied, spared): (&Drawn, u64),
    want: &Want,
    number: u64,
    memory: &mut Memory,
) -> Option<u64> {
    if !memory.serves_block() {
        return None;
    }
    let Large {
        hash,
        placed,
        anywhere,
    } = large;
    let range = hash.range().clone();
    let free = memory.buddy().available(HUGE_ORDER) as f64 / (range.end - range.start) as f64;
    let hashed = placed.place(hash.tiers(), free, |tier| {
        let frame = hash.frame(tier, want.asid, number) << HUGE_ORDER;
        let may = !denied.has(frame) && memory.serves_from(frame);
        (may && memory.alloc_at(frame, HUGE_ORDER)).then_some(frame)
    });
    hashed.or_else(|| {
        let found = match spared {
            0 => memory.take_block(HUGE_ORDER),
            _ => memory.take_block_below(HUGE_ORDER, range.end << HUGE_ORDER),
        };
        *anywhere += u64::from(found.is_some());
        found
    })
}

impl FrameChoice for ByHash {
    fn take(&mut self, want: &Want, memory: &mut Memory) -> Option<u64> {
        if let (Some(large), Purpose::Reservation { vpn }) = (&mut self.tiers.large, want.purpose) {
            let but_for = (&self.denied, self.spared);
            return block(large, but_for, want, vpn >> 9, memory);
        }
        let Some((key, kind)) = self.key(want) else {
            return memory.take(want);
        };
        let Tiers {
            hash,
            table_tiers,
            data,
            tables,
            ..
        } = &mut self.tiers;
        let (placed, tiers) = match kind {
            Kind::Data => (data, hash.tiers()),
            Kind::Table if *table_tiers > 0 => (tables, *table_tiers),
            Kind::Table => return memory.take(want),
        };
        if kind == Kind::Data {
            // Programs mostly touch their pages in ascending order.
            let number = key.number + 1;
            memory.host_prefetch(hash.of(0, HashKey { number, ..key }));
        }
        let range = hash.range();
        let free = memory.free_frames() as f64 / (range.end - range.start) as f64;
        // Page tables have memory of their own in the released code: no block is broken by them.
        let apart = self.apart && kind == Kind::Data;
        let hashed = placed.place(tiers, free, |tier| {
            let frame = hash.of(tier, key);
            let denied = self.denied.has(frame) || apart && memory.leaves_to_blocks(frame);
            (!denied && memory.alloc_at(frame, 0)).then_some(frame)
        });
        hashed.or_else(|| memory.take(want))
    }

    fn tiers(&self) -> Option<&Tiers> {
        Some(&self.tiers)
    }

    fn report(&self, path: &str, tree: &mut Tree) {
        let Tiers {
            hash,
            table_tiers,
            data,
            tables,
            large,
            ..
        } = &self.tiers;
        let none = Placed::default();
        let blocks = large.as_ref().map_or(&none, |large| &large.placed);
        let path = format!("{path}.tiered_hash");
        let kept = |tier: usize, name: &str| {
            let table = name.starts_with("table_");
            // What the hash has taken is among the frames that it names and is not denied, so
            // the model's p is not the share of frames in use.
            let all = self.denied.share == 0.0 && self.spared == 0;
            // Nor is it where blocks are left alone, which page tables do not do.
            let known = all && (!self.apart || table) || !name.ends_with("_expected");
            let tables = tier < *table_tiers || !table;
            known && tables && (large.is_some() || !name.starts_with("large_"))
        };
        let fallbacks = FallbackStats {
            data_fallbacks: data.fallbacks,
            table_fallbacks: tables.fallbacks,
            large_fallbacks: blocks.fallbacks,
        };
        tree.add_some(&path, &fallbacks, |name| kept(0, name));
        for tier in 0..hash.tiers() {
            let stats = TierStats::of(tier, [data, tables, blocks]);
            let path = format!("{path}.{}", tier + 1);
            tree.add_some(&path, &stats, |name| kept(tier, name));
        }
    }
}

pagewalk_stats::counters! {
    /// What one tier of the hash was asked for and placed.
    pub struct TierStats {
        data_tries: "tries", "Pages of programs for which this tier was asked: no earlier one had a free frame";
        data_hits: "pages", "Pages of programs in the frame that this tier names";
        data_expected: "pages", "Pages of programs that the model places by this tier: the sum of (1 - p) p^(i - 1) over all that were placed, with the share p of frames that was in use at that time (Revelator, section 5.1.1)";
        table_tries: "tries", "Last-level frames of page tables for which this tier was asked";
        table_hits: "frames", "Last-level frames of page tables that this tier names";
        table_expected: "frames", "Last-level frames of page tables that the model places by this tier";
        large_tries: "tries", "2 MB regions for whose block this tier was asked";
        large_hits: "regions", "2 MB regions in the block that this tier names";
        large_expected: "regions", "2 MB regions that the model places by this tier, with the share p of 2 MB blocks that were not free as a whole";
    }
}

pagewalk_stats::counters! {
    /// What no tier placed.
    pub struct FallbackStats {
        data_fallbacks: "pages", "Pages of programs for which no tier had a free frame: the buddy allocator's";
        table_fallbacks: "frames", "Last-level frames of page tables for which no tier that is tried for them had a free frame";
        large_fallbacks: "regions", "2 MB regions for which no tier had a free block, of those for which there may be one";
    }
}

impl TierStats {
    fn of(tier: usize, [data, tables, large]: [&Placed; 3]) -> Self {
        TierStats {
            data_tries: data.tries(tier),
            data_hits: data.hits[tier],
            data_expected: data.expected[tier].round() as u64,
            table_tries: tables.tries(tier),
            table_hits: tables.hits[tier],
            table_expected: tables.expected[tier].round() as u64,
            large_tries: large.tries(tier),
            large_hits: large.hits[tier],
            large_expected: large.expected[tier].round() as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use pagewalk_tables::{Purpose, Want};
    use pagewalk_units::Asid;

    use super::{ByHash, TieredHashSpec};
    use crate::choice::FrameChoice;
    use crate::memory::Memory;
    use crate::placement::HashedTables;
    use crate::spec::OsSpec;

    fn memory() -> Memory {
        let spec = OsSpec::free(1);
        Memory::new(&spec, 1)
    }

    fn want(purpose: Purpose) -> Want {
        Want {
            bytes: 4096,
            asid: Asid(1),
            purpose,
        }
    }

    const VPN: u64 = 0x12345;

    /// Revelator, section 5.4.1, with eight frames and a hash whose seed was looked for:
    /// frame 0 for the page table by the first tier, 2 and 7 for the page, of which 2 is
    /// in use.
    #[test]
    fn the_papers_worked_example() {
        let spec = |seed| TieredHashSpec {
            tiers: 2,
            seed: Some(seed),
            ..TieredHashSpec::default()
        };
        let frames = |c: &ByHash| {
            let of = |tier, number| c.tiers.hash.frame(tier, Asid(1), number);
            [of(0, VPN >> 9), of(0, VPN), of(1, VPN)]
        };
        let mut hashed = (0..)
            .map(|seed| ByHash::new(&spec(seed), 0, 0, 0..8))
            .find(|c| frames(c) == [0, 2, 7])
            .expect("one in 512");
        let mut memory = memory();
        assert!(memory.alloc_at(2, 0), "somebody else's");
        let node = Purpose::Node {
            level: 1,
            vpn: VPN & !511,
        };
        assert_eq!(hashed.take(&want(node), &mut memory), Some(0));
        let page = Purpose::Anonymous { vpn: VPN };
        assert_eq!(hashed.take(&want(page), &mut memory), Some(7));
        let tiers = hashed.tiers().expect("it places by hash");
        assert_eq!(tiers.tables.hits[..2], [1, 0]);
        assert_eq!(tiers.data.hits[..2], [0, 1]);
        assert_eq!([0, 1].map(|tier| tiers.data.tries(tier)), [1, 1]);
        // Again, and both frames are in use: what the buddy allocator has.
        let again = hashed
            .take(&want(page), &mut memory)
            .expect("memory is plenty");
        assert!(![0, 2, 7].contains(&again));
        assert_eq!(hashed.tiers.data.fallbacks, 1);
    }

    #[test]
    fn page_tables_are_tried_with_as_many_tiers_as_they_are_said_to() {
        for (page_tables, most) in [
            (HashedTables::All, 3),
            (HashedTables::First, 1),
            (HashedTables::None, 0),
        ] {
            let spec = TieredHashSpec {
                tiers: 3,
                page_tables,
                ..TieredHashSpec::default()
            };
            let mut hashed = ByHash::new(&spec, 5, 0, 0..1 << 18);
            let mut memory = memory();
            let node = |level| Purpose::Node {
                level,
                vpn: VPN & !511,
            };
            let mut got = Vec::new();
            for _ in 0..4 {
                got.push(hashed.take(&want(node(1)), &mut memory).expect("free"));
            }
            let named: Vec<u64> = (0..most)
                .map(|tier| hashed.tiers.hash.frame(tier, Asid(1), VPN >> 9))
                .collect();
            assert_eq!(got[..most], named);
            assert_eq!(
                hashed.tiers.tables.fallbacks,
                if most > 0 { 4 - most as u64 } else { 0 }
            );
            // Of the levels above nobody asks the hash.
            hashed.take(&want(node(2)), &mut memory).expect("free");
            let tables = &hashed.tiers.tables;
            let tries: u64 = (0..most).map(|tier| tables.tries(tier)).sum();
            assert_eq!(tries, [0, 4, 0, 4 + 3 + 2][most]);
        }
    }

    /// The share is met, whichever they are is always the same, and the buddy allocator
    /// has them all.
    #[test]
    fn denied_frames_are_denied_to_the_hash_only() {
        for share in [0.0, 0.3, 1.0] {
            let spec = TieredHashSpec {
                tiers: 1,
                denied: share,
                ..TieredHashSpec::default()
            };
            let mut hashed = ByHash::new(&spec, 5, 77, 0..1 << 18);
            let denied = (0..1 << 18).filter(|&f| hashed.denied.has(f)).count() as f64;
            let frames = f64::from(1 << 18);
            let deviation = (frames * share * (1.0 - share)).sqrt();
            assert!(
                (denied - share * frames).abs() <= 5.0 * deviation,
                "{share}: {denied}"
            );
            let mut memory = memory();
            for vpn in 0..1 << 18 {
                let page = Purpose::Anonymous { vpn };
                let before = hashed.tiers.data.hits[0];
                let frame = hashed
                    .take(&want(page), &mut memory)
                    .expect("memory is plenty");
                if hashed.tiers.data.hits[0] > before {
                    assert_eq!(frame, hashed.tiers.hash.frame(0, Asid(1), vpn));
                    assert!(!hashed.denied.has(frame));
                }
            }
            assert_eq!(memory.free_frames(), 0, "every one has been handed out");
            let hits = hashed.tiers.data.hits[0];
            assert_eq!(hits == 0, share == 1.0);
        }
    }
}
