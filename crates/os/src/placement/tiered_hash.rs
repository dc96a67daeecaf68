//! Tiered hash-based placement (Revelator, sections 5.1 and 5.2). A page takes the frame that a hash of its
//! number selects, if that is free, so that hardware can guess it.

use std::ops::Range;

use pagewalk_stats::Tree;
use pagewalk_structures::{
    HashKey, Hashes, Large, MOST_TIERS, Placed, TierFunction, TieredHash, Tiers,
};
use pagewalk_tables::{GuestUse, PageTableSpec, Purpose, Refusal, Want};
use pagewalk_units::{Error, PageSize, rng};
use rand::RngExt;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::registry::PolicySpec;
use super::reservation::Reservation;
use super::{Booted, Placement, ThpMode, ThpSizes, small};
use crate::Effects;
use crate::choice::FrameChoice;
use crate::drawn::Drawn;
use crate::hashed_frames::FrameContent;
use crate::kernel::Kernel;
use crate::memory::{HUGE_ORDER, Memory};
use crate::space::Space;
use crate::spec::share;
use crate::table::Role;
use crate::touch::Touch;

/// 4 KB pages in frames selected by hashes of their numbers. Pages of files and of shared memory are hashed
/// for the process that touches them first, copies for the process that writes. Ways of hashed tables and
/// upper levels of trees come from the buddy allocator. Tries cost no time: the paper measured less than
/// 0.2 % of a page fault (Revelator, section 6.2). In a host, the pages are the guest's (`hash_of`).
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TieredHashSpec {
    /// Hash functions that are tried in turn before the buddy allocator, 1 to 6. Default 6 (Revelator,
    /// table 1).
    pub tiers: u8,
    /// The hash function of all tiers, which the engine computes too. Default `murmur`.
    #[serde(skip_serializing_if = "is_default")]
    pub function: TierFunction,
    /// Tiers that are tried for last-level frames of page tables, which are hashed by the number of the 2
    /// MB region that they map. Default `all` (our choice: it fits figure 15 of Revelator and its
    /// introduction; section 5.2 has `first`).
    pub page_tables: HashedTables,
    /// Share of the frames that the hash may not take even if they are free, 0 to 1, drawn at random for
    /// each frame. The buddy allocator may take them. Any memory pressure is thus possible with programs
    /// that fill the memory ("the system allows allocating between 10-20 % (70-80 %) of the total pages",
    /// Revelator, section 6.3). Frames that are really in use are `os.occupied`. Default 0.
    pub denied: f64,
    /// MB at the end of memory that the hash does not use, so that they stay in large blocks for the ways
    /// of hashed page tables. Hash-based placement leaves hardly an entire 2 MB block elsewhere.
    /// Reservations do not use this part, and small pages only if nothing else is free. At most half of the
    /// memory. Default 0 (our choice: no paper has both).
    #[serde(skip_serializing_if = "is_default")]
    pub contiguous_mb: u64,
    /// Enables Revelator with huge pages. The first touch of a 2 MB region reserves the 2 MB block that a
    /// hash of the region's number selects, or any free one. Pages take their places in it. It becomes a 2
    /// MB page when more than this share of it, 0 to 1, is in use, as with `placement.reservation`. Pages
    /// of regions without a block are placed by hash. If only a share of the requests for blocks succeeds
    /// (`os.fragmentation.served_2mb`), the same share of all blocks, drawn at random for each, belongs to
    /// them. Hashes then select only these blocks for regions, and no frame of such a block for a 4 KB page
    /// while the block is entirely free. Default: no huge pages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub promotion_threshold: Option<f64>,
    /// The generated seed that each tier uses, 1 for the first: each number up to `tiers` once. Default: in
    /// the order of generation.
    pub order: Vec<u8>,
    /// In a host (`virtual.placement`): the hashed number of a guest's page. Default `guest_virtual`
    /// (Revelator, section 5.5).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hash_of: Option<HashOf>,
    /// The value from which the seeds are generated. Default: drawn from the seed of the run.
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
    /// The first tier (Revelator, section 5.2).
    First,
    /// No tier: the frames come from the buddy allocator.
    None,
}

/// The number that a host hashes for its guest's pages. Last-level frames of its own page table are always
/// hashed by the guest-physical number of the 2 MB region that they map.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HashOf {
    /// For pages of programs, the guest's address space and virtual page number; for last-level frames of a
    /// guest's page table, those of the 2 MB region that they map (Revelator, section 5.5; "diagonal" in
    /// the second version). The guest passes them when a page comes into use. Other pages come from the
    /// buddy allocator.
    #[default]
    GuestVirtual,
    /// For every page, the guest-physical page number ("horizontal" in the second version).
    GuestPhysical,
    /// As `guest_virtual`, and for upper levels and ways of a guest's page table the guest-physical page
    /// number (ours: both predictions together need it).
    Both,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
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
            function: TierFunction::default(),
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
    /// Numbers of the tiers' seeds.
    fn order(&self) -> Vec<u8> {
        if self.order.is_empty() {
            (1..=self.tiers).collect()
        } else {
            self.order.clone()
        }
    }

    /// True if last-level frames of `table` are placed by hash. In a radix tree each leaf node has its own
    /// frame; at least one tier must be tried for it.
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
    fn thp(&self) -> Option<(ThpMode, ThpSizes)> {
        let always = (ThpMode::Always, ThpSizes::default());
        self.promotion_threshold.map(|_| always)
    }
    fn build(&self, _frames: u64) -> Result<Box<dyn Placement>, Error> {
        Ok(Box::new(Hashed {
            spec: self.clone(),
            reservations: self.promotion_threshold.map(Reservation::new),
        }))
    }
}

/// Places 4 KB pages, and reservations if huge pages are enabled.
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

    fn zero_page(&self, touch: &Touch<'_>, space: &Space) -> Option<PageSize> {
        match &self.reservations {
            Some(reservations) => reservations.zero_page(touch, space),
            None => Some(PageSize::K4),
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
            // Ways and chunks of hashed tables have no page number to hash.
            hashed.tiers.table_tiers = 0;
        }
        Box::new(hashed)
    }
}

/// Takes the frame that a tier selects, or one from the buddy allocator.
struct ByHash {
    tiers: Tiers,
    /// Frames that only the hash may not take.
    denied: Drawn,
    /// True if huge pages are enabled and only a share of the requests for blocks succeeds. Program pages
    /// then avoid the blocks that successful requests may get.
    apart: bool,
    /// True in a host.
    host: bool,
    /// Number of frames at the end of memory that the hash does not use.
    spared: u64,
}

/// The counters that a request belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum HashedUse {
    Data,
    Table,
}

impl ByHash {
    /// Derives the seeds from `drawn` unless `spec` has a seed. The hash covers `frames`, except those at
    /// the end that must stay contiguous.
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
            // Separate seeds: with shared ones, a region's page table would fall into the region's own
            // block.
            let order: Vec<u8> = spec.order().iter().map(|n| n + MOST_TIERS as u8).collect();
            let blocks = frames.start >> HUGE_ORDER..frames.end >> HUGE_ORDER;
            Large {
                hash: TieredHash::with(spec.function, seed, &order, blocks),
                placed: Placed::default(),
                anywhere: 0,
            }
        });
        let hash = TieredHash::with(spec.function, seed, &spec.order(), frames);
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

    /// Configures the policy for a host with page tables of `table`.
    fn back_guests(&mut self, spec: &TieredHashSpec, table: &PageTableSpec) {
        self.host = true;
        self.tiers.of = spec.hash_of.unwrap_or_default().into();
        self.tiers.host_tables = spec.hashes_leaves_of(table);
    }

    /// The hash key for `want`, if it is placed by hash.
    fn key(&self, want: &Want) -> Option<(HashKey, HashedUse)> {
        match want.purpose {
            Purpose::Guest { vpn, of } if want.order() == 0 => self.key_of_guest(vpn, of),
            Purpose::Node { level: 1, vpn } if self.host => {
                Some((HashKey::host_table(vpn), HashedUse::Table))
            }
            _ => {
                let (content, vpn) = FrameContent::of(want)?;
                let of = match content {
                    FrameContent::Page => HashedUse::Data,
                    FrameContent::Table => HashedUse::Table,
                    FrameContent::Huge => return None,
                };
                Some((content.key(want.asid, vpn), of))
            }
        }
    }

    /// The hash key for page `vpn` of a guest's physical memory, which the guest uses for `of`.
    fn key_of_guest(&self, vpn: u64, of: GuestUse) -> Option<(HashKey, HashedUse)> {
        if self.tiers.of == Hashes::GuestPhysical {
            return Some((HashKey::guest_page(vpn), HashedUse::Data));
        }
        match of {
            GuestUse::Page { asid, vpn } => Some((HashKey::page(asid, vpn), HashedUse::Data)),
            GuestUse::Node {
                asid,
                level: 1,
                vpn,
            } => Some((HashKey::table(asid, vpn), HashedUse::Table)),
            GuestUse::Node { .. } | GuestUse::Table { .. } if self.tiers.of == Hashes::Both => {
                Some((HashKey::guest_page(vpn), HashedUse::Table))
            }
            GuestUse::Node { .. } | GuestUse::Table { .. } | GuestUse::Unknown => None,
        }
    }
}

/// The block that a tier selects for the 2 MB region `number`, or any free block except those in the
/// `spared` frames at the end.
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
            HashedUse::Data => (data, hash.tiers()),
            HashedUse::Table if *table_tiers > 0 => (tables, *table_tiers),
            HashedUse::Table => return memory.take(want),
        };
        if kind == HashedUse::Data {
            // Programs mostly touch their pages in ascending order.
            let number = key.number + 1;
            memory.host_prefetch(hash.of(0, HashKey { number, ..key }));
        }
        let range = hash.range();
        let free = memory.free_frames() as f64 / (range.end - range.start) as f64;
        // Page tables have separate memory in the released code, so they break no block.
        let apart = self.apart && kind == HashedUse::Data;
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
            // Frames that the hash has taken are among those that it may use, so with denied frames the
            // model's p differs from the share of frames in use.
            let all = self.denied.share == 0.0 && self.spared == 0;
            // Where blocks are avoided, the model does not apply either. Page tables do not avoid them.
            let known = all && (!self.apart || table) || !name.ends_with("_expected");
            let tables = tier < *table_tiers || !table;
            known && tables && (large.is_some() || !name.starts_with("large_"))
        };
        let fallbacks = FallbackStats::of([data, tables, blocks]);
        tree.add_some(&path, &fallbacks, |name| kept(0, name));
        for tier in 0..hash.tiers() {
            let stats = TierStats::of(tier, [data, tables, blocks]);
            let path = format!("{path}.{}", tier + 1);
            tree.add_some(&path, &stats, |name| kept(tier, name));
        }
    }
}

pagewalk_stats::counters! {
    /// Counters of one tier of the hash.
    pub struct TierStats {
        data_tries: "tries", "Pages of programs for which this tier was tried because no earlier tier had a free frame";
        data_hits: "pages", "Pages of programs placed in the frame of this tier";
        data_expected: "pages", "Pages of programs that the model expects in this tier: the sum of (1 - p) p^(i - 1) over all placed pages, where p is the share of frames in use at the placement (Revelator, section 5.1.1)";
        table_tries: "tries", "Last-level frames of page tables for which this tier was tried";
        table_hits: "frames", "Last-level frames of page tables placed in the frame of this tier";
        table_expected: "frames", "Last-level frames of page tables that the model expects in this tier";
        large_tries: "tries", "2 MB regions for which this tier was tried";
        large_hits: "regions", "2 MB regions placed in the block of this tier";
        large_expected: "regions", "2 MB regions that the model expects in this tier, where p is the share of 2 MB blocks that are not entirely free";
    }
}

pagewalk_stats::counters! {
    /// Counters of requests that no tier placed.
    pub struct FallbackStats {
        data_fallbacks: "pages", "Pages of programs for which no tier had a free frame; the buddy allocator places them";
        table_fallbacks: "frames", "Last-level frames of page tables for which none of the tiers for page tables had a free frame";
        large_fallbacks: "regions", "2 MB regions that may have a 2 MB block, but for which no tier had a free one";
    }
}

impl FallbackStats {
    /// Counters of pages, page tables and blocks.
    pub(super) fn of([data, tables, large]: [&Placed; 3]) -> Self {
        FallbackStats {
            data_fallbacks: data.fallbacks,
            table_fallbacks: tables.fallbacks,
            large_fallbacks: large.fallbacks,
        }
    }
}

impl TierStats {
    /// Counters of `tier`, from 0 on, for pages, page tables and blocks.
    pub(super) fn of(tier: usize, [data, tables, large]: [&Placed; 3]) -> Self {
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

    /// Revelator, section 5.4.1, with eight frames and a suitable seed: the first tier selects frame 0 for
    /// the page table. For the page the tiers select 2 and 7, and 2 is in use.
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
        // Again: both frames are in use, so the buddy allocator places the page.
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
            // Frames of upper levels are not placed by hash.
            hashed.take(&want(node(2)), &mut memory).expect("free");
            let tables = &hashed.tiers.tables;
            let tries: u64 = (0..most).map(|tier| tables.tries(tier)).sum();
            assert_eq!(tries, [0, 4, 0, 4 + 3 + 2][most]);
        }
    }

    /// The share of denied frames is as configured, the same frames are always denied, and the buddy
    /// allocator can use all.
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
