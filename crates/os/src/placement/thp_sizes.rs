//! Transparent huge pages below 2 MB, Linux's multi-size THP (Documentation/admin-guide/mm/transhuge.rst).
//!
//! A page fault maps a whole block of 16 KB to 1 MB. Its page-table entries are those of 4 KB pages, and so are the
//! TLBs'. The block is one allocation, zeroed at once, so the area takes fewer page faults.

use pagewalk_tables::Purpose;
use pagewalk_units::{PageSize, VirtAddr};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ThpMode;
use crate::Effects;
use crate::kernel::Kernel;
use crate::space::Space;
use crate::touch::Touch;

/// log2 of the 4 KB pages of the smallest block: `THP_ORDERS_ALL_ANON` of Linux include/linux/huge_mm.h.
const FIRST_ORDER: u8 = 2;
/// Number of sizes, up to 1 MB.
pub(crate) const SIZES: usize = 7;

/// `hugepages-*kB/enabled` of the sizes below 2 MB.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ThpSizes {
    /// Blocks of 16 KB. Default `never`, as in Linux.
    #[serde(rename = "16kb")]
    pub kb16: SizeMode,
    /// Blocks of 32 KB. Default `never`, as in Linux.
    #[serde(rename = "32kb")]
    pub kb32: SizeMode,
    /// Blocks of 64 KB. Default `never`, as in Linux.
    #[serde(rename = "64kb")]
    pub kb64: SizeMode,
    /// Blocks of 128 KB. Default `never`, as in Linux.
    #[serde(rename = "128kb")]
    pub kb128: SizeMode,
    /// Blocks of 256 KB. Default `never`, as in Linux.
    #[serde(rename = "256kb")]
    pub kb256: SizeMode,
    /// Blocks of 512 KB. Default `never`, as in Linux.
    #[serde(rename = "512kb")]
    pub kb512: SizeMode,
    /// Blocks of 1 MB. Default `never`, as in Linux.
    #[serde(rename = "1024kb")]
    pub kb1024: SizeMode,
}

/// Mappings that may have blocks of a size.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SizeMode {
    /// All mappings except those with `madvise(MADV_NOHUGEPAGE)`.
    Always,
    /// As `placement.thp.mode` says.
    Inherit,
    /// Only mappings with `madvise(MADV_HUGEPAGE)`.
    Madvise,
    /// None.
    #[default]
    Never,
}

impl SizeMode {
    /// The mode as Linux spells it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            SizeMode::Always => "always",
            SizeMode::Inherit => "inherit",
            SizeMode::Madvise => "madvise",
            SizeMode::Never => "never",
        }
    }

    fn allows(self, mode: ThpMode, advice: Option<bool>) -> bool {
        match self {
            SizeMode::Always => ThpMode::Always.allows(advice),
            SizeMode::Inherit => mode.allows(advice),
            SizeMode::Madvise => ThpMode::Madvise.allows(advice),
            SizeMode::Never => false,
        }
    }
}

pagewalk_stats::counters! {
    /// Page faults with blocks below 2 MB.
    pub struct ThpSizeStats {
        faults_16kb: "faults", "Page faults that mapped a block of 16 KB by 4 KB pages; included in os.faults_4kb, as are those of the other sizes";
        faults_32kb: "faults", "Page faults that mapped a block of 32 KB by 4 KB pages";
        faults_64kb: "faults", "Page faults that mapped a block of 64 KB by 4 KB pages";
        faults_128kb: "faults", "Page faults that mapped a block of 128 KB by 4 KB pages";
        faults_256kb: "faults", "Page faults that mapped a block of 256 KB by 4 KB pages";
        faults_512kb: "faults", "Page faults that mapped a block of 512 KB by 4 KB pages";
        faults_1mb: "faults", "Page faults that mapped a block of 1 MB by 4 KB pages";
        fallbacks_16kb: "faults", "Page faults for which no block of 16 KB was free";
        fallbacks_32kb: "faults", "Page faults for which no block of 32 KB was free";
        fallbacks_64kb: "faults", "Page faults for which no block of 64 KB was free";
        fallbacks_128kb: "faults", "Page faults for which no block of 128 KB was free";
        fallbacks_256kb: "faults", "Page faults for which no block of 256 KB was free";
        fallbacks_512kb: "faults", "Page faults for which no block of 512 KB was free";
        fallbacks_1mb: "faults", "Page faults for which no block of 1 MB was free";
    }
}

impl ThpSizeStats {
    /// Page faults of a size, and those without a block of it.
    pub(crate) fn of(&mut self, size: usize) -> [&mut u64; 2] {
        match size {
            0 => [&mut self.faults_16kb, &mut self.fallbacks_16kb],
            1 => [&mut self.faults_32kb, &mut self.fallbacks_32kb],
            2 => [&mut self.faults_64kb, &mut self.fallbacks_64kb],
            3 => [&mut self.faults_128kb, &mut self.fallbacks_128kb],
            4 => [&mut self.faults_256kb, &mut self.fallbacks_256kb],
            5 => [&mut self.faults_512kb, &mut self.fallbacks_512kb],
            _ => [&mut self.faults_1mb, &mut self.fallbacks_1mb],
        }
    }
}

impl ThpSizes {
    /// True if no size is enabled.
    pub(crate) fn are_off(&self) -> bool {
        *self == ThpSizes::default()
    }

    fn modes(&self) -> [SizeMode; SIZES] {
        [
            self.kb16,
            self.kb32,
            self.kb64,
            self.kb128,
            self.kb256,
            self.kb512,
            self.kb1024,
        ]
    }

    /// Number of the size of `kb` KB, and its mode.
    pub(crate) fn find(&self, kb: u64) -> Option<(usize, SizeMode)> {
        let at = (0..SIZES).find(|&at| bytes(at) == kb << 10)?;
        Some((at, self.modes()[at]))
    }

    /// Bytes of the sizes that an area with this advice may have, largest first.
    pub(crate) fn allowed(&self, mode: ThpMode, advice: Option<bool>) -> impl Iterator<Item = u64> {
        let modes = self.modes();
        let allowed = (0..SIZES)
            .rev()
            .filter(move |&at| modes[at].allows(mode, advice));
        allowed.map(bytes)
    }

    /// Maps the largest block around the address of `touch` that is allowed, lies in the area, has no page yet, and is
    /// free in memory. False if there is none; nothing has changed then.
    pub(crate) fn map(
        &self,
        mode: ThpMode,
        touch: &Touch<'_>,
        space: &mut Space,
        k: &mut Kernel,
        fx: &mut Effects,
    ) -> bool {
        if self.are_off() || !touch.may_be_large() {
            return false;
        }
        for size in self.allowed(mode, touch.huge) {
            let from = touch.at & !(size - 1);
            let fits = touch.start <= from && touch.end - from >= size;
            if !fits || !is_empty(space, from, size) {
                continue;
            }
            let at = (size.trailing_zeros() - bytes(0).trailing_zeros()) as usize;
            let done = map_block(from, size, touch, space, k, fx);
            let [faults, fallbacks] = k.thp_sizes.of(at);
            *(if done { faults } else { fallbacks }) += 1;
            if done {
                return true;
            }
        }
        false
    }
}

fn bytes(size: usize) -> u64 {
    4096 << (FIRST_ORDER as usize + size)
}

/// True if no page of the block is mapped or swapped out.
fn is_empty(space: &Space, from: u64, size: u64) -> bool {
    let vpns = from >> 12..(from + size) >> 12;
    space.swapped.range(vpns.clone()).next().is_none()
        && !vpns.into_iter().any(|vpn| space.has(vpn << 12))
}

/// Maps a block, whose other pages than that of `touch` are zeroed here. False if memory has none.
fn map_block(
    from: u64,
    size: u64,
    touch: &Touch<'_>,
    space: &mut Space,
    k: &mut Kernel,
    fx: &mut Effects,
) -> bool {
    let vpn = from >> 12;
    let purpose = match touch.purpose(PageSize::K4) {
        Purpose::Guest { of, .. } => Purpose::Guest { vpn, of },
        _ => Purpose::Anonymous { vpn },
    };
    let mut want = space.want(PageSize::K4, purpose);
    want.bytes = size;
    let Ok(frame) = k.frame(want) else {
        return false;
    };
    let pages = size >> 12;
    let page = |i: u64| VirtAddr(from + (i << 12)).page(PageSize::K4);
    for i in 0..pages {
        if space
            .map_page(k, page(i), frame + i, touch.flags, fx)
            .is_err()
        {
            for i in 0..i {
                space.unmap_page(k, page(i), fx);
            }
            k.put_range(frame, frame + pages);
            return false;
        }
    }
    let rest = size - 4096;
    k.stats.zeroed_bytes += rest;
    fx.cycles += k.prices.zero(rest);
    true
}
