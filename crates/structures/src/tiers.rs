//! Success counts of tiered hash-based placement, which the kernel passes to the hardware.

use crate::{MOST_TIERS, TieredHash};

/// The numbers that are hashed to select frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Hashes {
    /// Virtual page numbers, and the regions of last-level page tables, of the kernel's own
    /// programs or, in a host, of the guests' programs.
    #[default]
    Virtual,
    /// In a host: guest-physical page numbers, whatever the guest's use.
    GuestPhysical,
    /// In a host: virtual page numbers for guest programs and last-level page tables, and
    /// guest-physical page numbers for other parts of guest page tables.
    Both,
}

/// The registers of tiered placement: the kernel maintains them, and speculation engines read
/// them.
#[derive(Clone, PartialEq, Debug)]
pub struct Tiers {
    /// The hash of 4 KB pages and of page-table frames.
    pub hash: TieredHash,
    /// Number of tiers that are tried for a frame of a page table.
    pub table_tiers: usize,
    /// The numbers that are hashed.
    pub of: Hashes,
    /// In a host: true if its own page table is a tree whose last level is placed by hash.
    pub host_tables: bool,
    /// Placement counts of 4 KB program pages; of all pages if guest-physical numbers are
    /// hashed.
    pub data: Placed,
    /// Placement counts of last-level frames of page tables, of a guest and of the host. If
    /// both numbers are hashed, other parts of guest page tables are included.
    pub tables: Placed,
    /// The hash of 2 MB regions to 2 MB blocks, if blocks are placed by hash.
    pub large: Option<Large>,
}

/// Placement of 2 MB blocks by hash.
#[derive(Clone, PartialEq, Debug)]
pub struct Large {
    /// Maps the number of a 2 MB region to that of a 2 MB block.
    pub hash: TieredHash,
    /// Placement counts of regions.
    pub placed: Placed,
    /// Number of regions in a block that no tier selected.
    pub anywhere: u64,
}

impl Tiers {
    /// Registers with all counts zero.
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

    /// Number of 2 MB blocks of programs, placed by hash or not.
    pub fn blocks(&self) -> u64 {
        let of = |large: &Large| large.placed.hits.iter().sum::<u64>() + large.anywhere;
        self.large.as_ref().map_or(0, of)
    }

    /// Tiers of 2 MB blocks that hold at least `share` of all program pages, a bit each. A
    /// block counts as 512 pages, however many are in use.
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

/// Tiers with `placed` of at least `least`, a bit each.
#[inline]
fn at_least(least: f64, placed: [u64; MOST_TIERS]) -> u32 {
    let bit = |(tier, n): (usize, u64)| u32::from(n as f64 >= least) << tier;
    placed.into_iter().enumerate().map(bit).sum()
}

/// Outcome of hash-based frame requests. Tiers count from 0.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Placed {
    /// Number of requests that got the frame of each tier.
    pub hits: [u64; MOST_TIERS],
    /// Hits that the model expects for each tier: the sum of (1 - p) p^i over all requests,
    /// where p is the share of occupied frames at that time (Revelator, section 5.1.1).
    pub expected: [f64; MOST_TIERS],
    /// Number of requests for which no tier had a free frame.
    pub fallbacks: u64,
}

impl Placed {
    /// Tries the first `tiers` tiers in turn until `take` gets a frame. `free` is the share of
    /// free frames.
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

    /// Number of requests that reached `tier`, because no earlier tier had a free frame. Only
    /// valid for tiers that are tried.
    pub fn tries(&self, tier: usize) -> u64 {
        self.hits[tier..].iter().sum::<u64>() + self.fallbacks
    }

    /// Tiers that served at least `share` of the requests, a bit each.
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
    fn each_request_is_a_hit_of_one_tier_or_a_fallback() {
        let mut p = Placed::default();
        let mut tries = [0; 3];
        for n in 0..4 {
            let got = p.place(3, 0.75, |tier| {
                tries[tier] += 1;
                (tier == n).then_some(10 + n as u64)
            });
            assert_eq!(got, (n < 3).then_some(10 + n as u64));
        }
        assert_eq!(tries, [4, 3, 2]);
        assert_eq!([0, 1, 2].map(|tier| p.tries(tier)), tries);
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
        // With as many other pages again, 2,560 of 10,240 are a quarter.
        tiers.data.hits = [5000, 100, 0, 0, 0, 0];
        tiers.data.fallbacks = 20;
        assert_eq!(tiers.blocks_serving(0.25), 0b1);
        assert_eq!(tiers.blocks_serving(0.2501), 0);
        assert_eq!(tiers.blocks_serving(0.1), 0b11);
    }
}
