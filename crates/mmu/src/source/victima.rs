//! Victima (Kanellopoulos et al., MICRO 2023): blocks of the L2 cache that hold translations.
//!
//! A block holds the translations of eight consecutive pages: a line of page-table entries under the
//! tag of its virtual pages. After a miss of the last TLB the L2 is probed while the walk begins, and
//! a hit ends the walk. Blocks are filled after walks, and when the last TLB evicts an entry, if the
//! page's walks were costly, or if the L2 has few hits anyway. While the last TLB misses often, the
//! L2 prefers blocks to lines.

use std::collections::BTreeMap;

use pagewalk_memory::L2Use;
use pagewalk_stats::Tree;
use pagewalk_tables::Invalidation;
use pagewalk_units::{Access, Asid, Error, PageSize, PhysAddr, VirtAddr};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::registry::{Built, Context, Reserved, SourceKind};
use super::{Extent, Found, Hit, LINE_ENTRIES, Place, Ports, Probed, TranslationSource};
use crate::Lookup;

/// Blocks of translations in the L2.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct VictimaSpec {
    /// Walks of a page, up to 7, from which on its translation may be worth a block. Default 1.
    pub least_walks: u8,
    /// Walks of a page that read from DRAM, up to 15, from which on they are costly. 0: each
    /// translation is worth a block. Default 1.
    pub least_costly: u8,
    /// Fill a block when the second-level TLB evicts an entry. Default true.
    pub on_eviction: bool,
    /// Misses of the L2 by the program in 1,000 instructions above which each translation is worth a
    /// block. Default 5 (the paper's). 0: never.
    pub bypass_mpki: u32,
    /// Misses of the last TLB in 1,000 instructions above which the L2 prefers blocks to lines.
    /// Default 5 (the paper's). 0: never.
    pub pressure_mpki: u32,
    /// Instructions over which both rates are taken, at least. Default 10,000 (our choice).
    pub window: u32,
}

impl Default for VictimaSpec {
    fn default() -> Self {
        VictimaSpec {
            least_walks: 1,
            least_costly: 1,
            on_eviction: true,
            bypass_mpki: 5,
            pressure_mpki: 5,
            window: 10_000,
        }
    }
}

/// Largest counts of the two counters of a page-table entry: three and four bits.
const MOST_WALKS: u8 = 7;
const MOST_COSTLY: u8 = 15;

pagewalk_stats::counters! {
    /// Counters of one core's blocks of translations. lookups = hits + misses.
    pub struct VictimaStats {
        lookups: "lookups", "Lookups of the L2 for a block, for translations that missed all TLBs of the core";
        hits: "lookups", "Lookups that found the translation";
        misses: "lookups", "Lookups that found no block with the translation";
        fills: "blocks", "Blocks filled after walks, those of evicted entries included";
        fills_evicted: "blocks", "Blocks filled for an entry that the second-level TLB had evicted";
        bypassed: "translations", "Translations that were worth a block only because the L2 missed often";
        refused: "translations", "Translations that were not worth a block: their walks were rare or cheap";
        gone: "blocks", "Blocks that a later lookup or fill found to be replaced in the L2";
        windows: "windows", "Windows over which the rates of misses were taken";
        windows_bypassed: "windows", "Windows after which each translation was worth a block, because the L2 had missed often";
        windows_preferred: "windows", "Windows after which the L2 preferred blocks to lines, because the last TLB had missed often";
    }
}

impl SourceKind for VictimaSpec {
    fn check(&self) -> Result<(), Error> {
        for (key, value, most) in [
            ("least_walks", self.least_walks, MOST_WALKS),
            ("least_costly", self.least_costly, MOST_COSTLY),
        ] {
            if value > most {
                return Err(Error::key(
                    key,
                    format!("is {value}; expected at most {most}"),
                ));
            }
        }
        if self.window == 0 {
            return Err(Error::key("window", "is 0; expected at least 1"));
        }
        Ok(())
    }

    fn place(&self) -> Place {
        Place::WithWalk
    }

    fn blocks_in_l2(&self) -> Option<&'static str> {
        Some(NAME)
    }

    fn build(&self, context: &Context<'_>, _: &Reserved) -> Built {
        Built::separate(context, || Victima {
            spec: *self,
            tags: BTreeMap::new(),
            blocks: BTreeMap::new(),
            walks: BTreeMap::new(),
            began: L2Use::default(),
            tlb_misses: 0,
            bypasses: false,
            stats: VictimaStats::default(),
        })
    }
}

const NAME: &str = "victima";

/// Low bits of a block's number that are those of its pages. They select the set.
const INDEX_BITS: u32 = 20;
/// Page sizes that blocks hold. A page of 1 GB is held in pieces.
const SIZES: [PageSize; 2] = [PageSize::K4, PageSize::M2];

/// The translations of a block: frame, with bit 0 = writable, of each page that it has.
type Block = [Option<u64>; LINE_ENTRIES];

/// A core's blocks.
struct Victima {
    spec: VictimaSpec,
    /// Numbers of the upper bits of block addresses: address space, page size, upper bits.
    tags: BTreeMap<(Asid, PageSize, u64), u64>,
    /// Contents of the blocks, by number. The L2 knows which of them it still has.
    blocks: BTreeMap<u64, Block>,
    /// Walks of the pages of a block, and those that read from DRAM. The kernel's entries have bits
    /// for them.
    walks: BTreeMap<u64, [(u8, u8); LINE_ENTRIES]>,
    /// The program's misses of the L2 when the current window began.
    began: L2Use,
    /// Misses of the last TLB since then.
    tlb_misses: u64,
    /// Each translation is worth a block.
    bypasses: bool,
    stats: VictimaStats,
}

impl Victima {
    /// Number of the block of `va` as a page of `size`, and of the page in the block.
    fn number(&mut self, asid: Asid, size: PageSize, va: VirtAddr) -> (u64, usize) {
        let page = va.0 >> size.shift();
        let block = page / LINE_ENTRIES as u64;
        let next = self.tags.len() as u64;
        let upper = (asid, size, block >> INDEX_BITS);
        let tag = *self.tags.entry(upper).or_insert(next);
        let number = tag << INDEX_BITS | block & ((1 << INDEX_BITS) - 1);
        (number, (page % LINE_ENTRIES as u64) as usize)
    }

    /// True if the translation is worth a block, by the walks of its page so far.
    fn is_costly(&self, (number, page): (u64, usize)) -> bool {
        let (walks, costly) = self.walks.get(&number).map_or((0, 0), |block| block[page]);
        walks >= self.spec.least_walks && costly >= self.spec.least_costly
    }

    /// True if the translation gets a block. `counted`: count it.
    fn is_worth_a_block(&mut self, place: (u64, usize), counted: u64) -> bool {
        let costly = self.is_costly(place);
        self.stats.bypassed += u64::from(!costly && self.bypasses) * counted;
        costly || self.bypasses
    }

    /// Counts a miss of the last TLB. Ends the window if it is long enough.
    fn observe(&mut self, ports: &mut Ports<'_>) {
        self.tlb_misses += 1;
        let now = ports.l2_use();
        let instructions = now.instructions.saturating_sub(self.began.instructions);
        if instructions < u64::from(self.spec.window) {
            return;
        }
        let above = |misses: u64, most: u32| {
            most > 0 && misses.saturating_mul(1000) > u64::from(most) * instructions
        };
        self.bypasses = above(now.misses - self.began.misses, self.spec.bypass_mpki);
        let prefers = above(self.tlb_misses, self.spec.pressure_mpki);
        ports.prefer_blocks(prefers);
        self.stats.windows += ports.count();
        self.stats.windows_bypassed += u64::from(self.bypasses) * ports.count();
        self.stats.windows_preferred += u64::from(prefers) * ports.count();
        (self.began, self.tlb_misses) = (now, 0);
    }

    /// Drops the pages from `first` to `last` of one size.
    fn drop_pages(&mut self, asid: Asid, size: PageSize, first: VirtAddr, last: VirtAddr) {
        let shift = size.shift() + LINE_ENTRIES.trailing_zeros();
        let (from, to) = (first.0 >> shift, last.0 >> shift);
        let tags = (asid, size, from >> INDEX_BITS)..=(asid, size, to >> INDEX_BITS);
        for (&(.., upper), &tag) in self.tags.range(tags) {
            let low = |at: u64| at & ((1 << INDEX_BITS) - 1);
            let least = if upper == from >> INDEX_BITS {
                low(from)
            } else {
                0
            };
            let most = if upper == to >> INDEX_BITS {
                low(to)
            } else {
                low(u64::MAX)
            };
            let numbers = tag << INDEX_BITS | least..=tag << INDEX_BITS | most;
            for (&number, block) in self.blocks.range_mut(numbers) {
                let base = (upper << INDEX_BITS | low(number)) << shift;
                for (n, page) in block.iter_mut().enumerate() {
                    let at = base + ((n as u64) << size.shift());
                    if at <= last.0 && first.0 <= at + (size.bytes() - 1) {
                        *page = None;
                    }
                }
            }
        }
    }
}

impl TranslationSource for Victima {
    fn name(&self) -> &'static str {
        NAME
    }

    fn probe(&mut self, lookup: &Lookup, ports: &mut Ports<'_>) -> Probed {
        let &Lookup { asid, va, now, .. } = lookup;
        self.observe(ports);
        self.stats.lookups += ports.count();
        let mut hit = None;
        // Both sizes are looked up in parallel. A page is in a block of one size.
        for size in SIZES {
            let (number, page) = self.number(asid, size, va);
            let Some(block) = self.blocks.get(&number) else {
                continue;
            };
            let held = block[page];
            if !ports.has_block(number) {
                self.blocks.remove(&number);
                self.stats.gone += ports.count();
                continue;
            }
            let Some(at) = ports.probe_block(number, now) else {
                continue;
            };
            let may = |frame: &u64| frame & 1 != 0 || lookup.access != Access::Write;
            if let Some(frame) = held.filter(may) {
                let extent = Extent::page(va, size, PhysAddr(frame & !1), frame & 1 != 0);
                hit = Some(Hit {
                    extent,
                    largest: size,
                    at,
                    memory: false,
                });
            }
        }
        match hit {
            Some(hit) => {
                self.stats.hits += ports.count();
                Probed::Hit(hit)
            }
            None => {
                self.stats.misses += ports.count();
                Probed::Miss { at: now }
            }
        }
    }

    fn fill(&mut self, found: &Found<'_>, ports: &mut Ports<'_>) {
        let &Lookup { asid, va, .. } = found.lookup;
        let size = found.walked.size.min(PageSize::M2);
        let place @ (number, page) = self.number(asid, size, va);
        if !found.after_eviction {
            let (walks, costly) = &mut self.walks.entry(number).or_default()[page];
            *walks = (*walks + 1).min(MOST_WALKS);
            *costly = (*costly + u8::from(found.read_memory)).min(MOST_COSTLY);
        }
        if !self.is_worth_a_block(place, ports.count()) {
            self.stats.refused += ports.count();
            return;
        }
        let mut block = Block::default();
        let frame = |e: &Extent| e.pa.0 | u64::from(e.writable);
        for e in found.line().iter().filter(|e| e.bytes == size.bytes()) {
            block[(e.va.0 >> size.shift()) as usize % LINE_ENTRIES] = Some(frame(e));
        }
        let own = found.extent();
        let piece = VirtAddr(va.0 & !(size.bytes() - 1));
        block[page] = Some(own.pa(piece).0 | u64::from(own.writable));
        if let Some(old) = self.blocks.insert(number, block)
            && ports.has_block(number)
        {
            // The block is there: its translations are renewed. Other lines may have held some.
            let kept = &mut self.blocks.get_mut(&number).expect("inserted above");
            for (page, old) in kept.iter_mut().zip(old) {
                *page = page.or(old);
            }
            return;
        }
        self.stats.fills += ports.count();
        self.stats.fills_evicted += u64::from(found.after_eviction) * ports.count();
        ports.insert_block(number, found.at);
    }

    fn wants_evictions(&self) -> bool {
        self.spec.on_eviction
    }

    fn evicted(&mut self, asid: Asid, page: &Extent, ports: &mut Ports<'_>) -> bool {
        let size = if page.bytes >= PageSize::M2.bytes() {
            PageSize::M2
        } else {
            PageSize::K4
        };
        let place = self.number(asid, size, page.va);
        if !self.is_costly(place) && !self.bypasses {
            return false;
        }
        let known = self.blocks.contains_key(&place.0);
        if known && !ports.has_block(place.0) {
            self.blocks.remove(&place.0);
            self.stats.gone += ports.count();
            return true;
        }
        !known
    }

    fn invalidate(&mut self, what: &Invalidation) {
        let (asid, first, last) = what.span();
        for size in SIZES {
            self.drop_pages(asid, size, first, last);
        }
    }

    fn report(&self, path: &str, tree: &mut Tree) {
        tree.add(path, &self.stats);
    }
}
