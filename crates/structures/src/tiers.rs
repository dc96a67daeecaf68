//! Which tier placed how much: what a kernel that places by hash tells the hardware.

use crate::{MOST_TIERS, TieredHash};

/// What the kernel hashes that frames are chosen by.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Hashes {
    /// Virtual pages, and the regions of last-level page tables: those of its programs, or a
    /// host those of its guests' programs.
    #[default]
    Virtual,
    /// A host: guest-physical pages, whatever the guest uses them for.
    GuestPhysical,
    /// A host: of guests' programs and last-level page tables the virtual pages, of other
    /// parts of guests' page tables the guest-physical ones.
    Both,
}

/// The registers of tiered placement: kept by the kernel, read by speculation engines.
#[derive(Clone, PartialEq, Debug)]
pub struct Tiers {
    /// The hash of 4 KB pages and of page-table frames.
    pub hash: TieredHash,
    /// How many of its tiers are tried for a frame of a page table.
    pub table_tiers: usize,
    /// What it is a hash of.
    pub of: Hashes,
    /// Of a host: its own page table is a tree, whose last level is placed by hash.
    pub host_tables: bool,
    /// How the 4 KB pages of programs were placed; by guest-physical address all pages.
    pub data: Placed,
    /// How the last-level frames of page tables were placed, a guest's and the host's own; by
    /// both addresses other parts of a guest's tables, too.
    pub tables: Placed,
    /// The hash of 2 MB regions to 2 MB blocks, where those are hashed too.
    pub large: Option<Large>,
}

/// Blocks by hash.
#[derive(Clone, PartialEq, Debug)]
pub struct Large {
    /// From the number of a 2 MB region to that of a 2 MB block.
    pub hash: TieredHash,
    /// How regions were placed.
    pub placed: Placed,
    /// Regions in a block that no tier names.
    pub anywhere: u64,
}

impl Tiers {
    /// Nothing is placed yet.
    pub fn new(hash: TieredHash, table_tiers: usize) -> Self {
        Tiers {
            hash,
            table_tiers,
            of: Hashes::default(),
            host_tables: false,
            data: Placed::default(),
            tables: Placed::default(),
            large: None,
        }
    }

    /// 2 MB blocks that programs have got, by hash or not.
    pub fn blocks(&self) -> u64 {
        let of = |large: &Large| large.placed.hits.iter().sum::<u64>() + large.anywhere;
        self.large.as_ref().map_or(0, of)
    }

    /// Tiers of 2 MB blocks that hold at least `share` of all pages of programs, a bit each:
    /// a block is 512 of them, however many are in use.
    pub fn blocks_serving(&self, share: f64) -> u32 {
        let Some(large) = &self.large else {
            return 0;
        };
        let all = self.data.tries(0) + BLOCK * self.blocks();
        at_least(share * all as f64, large.placed.hits.map(|n| BLOCK * n))
    }
}

/// Pages in a 2 MB block.
const BLOCK: u64 = 512;

/// Which of `placed` are not below `least`, a bit each.
#[inline]
fn at_least(least: f64, placed: [u64; MOST_TIERS]) -> u32 {
    let bit = |(tier, n): (usize, u64)| u32::from(n as f64 >= least) << tier;
    placed.into_iter().enumerate().map(bit).sum()
}

/// What became of wishes that were hashed; tiers from 0 on.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Placed {
    /// Times that the frame of each tier was free.
    pub hits: [u64; MOST_TIERS],
    /// Hits that the model expects of it: (1 - p) p^i at each wish, with the share of
    /// frames that was occupied then for p (Revelator, section 5.1.1).
    pub expected: [f64; MOST_TIERS],
    /// Wishes that no tier had a frame for.
    pub fallbacks: u64,
}

impl Placed {
    /// Tries the first `tiers` of them in turn until `take` gets the frame that one has;
    /// `free` is the share of frames that are free.
    #[inline]
    pub fn place(
        &mut self,
        tiers: usize,
        free: f64,
        mut take: impl FnMut(usize) -> Option<u64>,
    ) -> Option<u64> {
        let mut here = free;
        for expected in &mut self.expected[..tiers] {
            *expected += here;
            here *= 1.0 - free;
        }
        for tier in 0..tiers {
            if let Some(frame) = take(tier) {
                self.hits[tier] += 1;
                return Some(frame);
            }
        }
        self.fallbacks += 1;
        None
    }

    /// Times that `tier` was asked, if it is one of those that are tried: no earlier one had a
    /// frame.
    pub fn tries(&self, tier: usize) -> u64 {
        self.hits[tier..].iter().sum::<u64>() + self.fallbacks
    }

    /// Tiers that placed at least `share` of what was to be placed, a bit each.
    #[inline]
    pub fn serving(&self, share: f64) -> u32 {
        at_least(share * self.tries(0) as f64, self.hits)
    }
}

#[cfg(test)]
mod tests {
    use super::{Large, Placed, Tiers};
    use crate::TieredHash;

    #[test]
    fn each_wish_is_a_hit_of_one_tier_or_a_fallback() {
        let mut p = Placed::default();
        let mut asked = [0; 3];
        for n in 0..4 {
            let got = p.place(3, 0.75, |tier| {
                asked[tier] += 1;
                (tier == n).then_some(10 + n as u64)
            });
            assert_eq!(got, (n < 3).then_some(10 + n as u64));
        }
        assert_eq!(asked, [4, 3, 2]);
        assert_eq!([0, 1, 2].map(|tier| p.tries(tier)), asked);
        assert_eq!(p.hits[..4], [1, 1, 1, 0]);
        assert_eq!(p.fallbacks, 1);
        assert_eq!(p.expected[..4], [3.0, 0.75, 0.1875, 0.0]);
    }

    #[test]
    fn a_tier_serves_its_share_of_all_that_was_placed() {
        let p = Placed {
            hits: [90, 9, 1, 0, 0, 0],
            fallbacks: 100,
            ..Placed::default()
        };
        assert_eq!(p.serving(0.1), 0b1);
        assert_eq!(p.serving(0.045), 0b11);
        assert_eq!(p.serving(0.046), 0b1);
        assert_eq!(p.serving(0.0), 0b11_1111);
        assert_eq!(
            Placed::default().serving(0.1),
            0b11_1111,
            "nothing is placed yet"
        );
    }

    #[test]
    fn a_tier_of_blocks_serves_its_share_of_the_pages_of_both_sizes() {
        let hash = TieredHash::new(1, &[1, 2, 3], 0..1 << 20);
        let mut tiers = Tiers::new(hash.clone(), 3);
        assert_eq!(tiers.blocks_serving(0.0), 0, "no blocks are hashed");
        // 10 blocks, 7 of them by hash, are 5,120 pages.
        tiers.large = Some(Large {
            hash,
            placed: Placed {
                hits: [5, 2, 0, 0, 0, 0],
                fallbacks: 4,
                ..Placed::default()
            },
            anywhere: 3,
        });
        assert_eq!(tiers.blocks_serving(0.5), 0b1, "5 of 10");
        assert_eq!(tiers.blocks_serving(0.2), 0b11, "2 of 10");
        // As many again, and 2,560 of 10,240 are a quarter.
        tiers.data.hits = [5000, 100, 0, 0, 0, 0];
        tiers.data.fallbacks = 20;
        assert_eq!(tiers.blocks_serving(0.25), 0b1);
        assert_eq!(tiers.blocks_serving(0.2501), 0);
        assert_eq!(tiers.blocks_serving(0.1), 0b11);
    }
}
