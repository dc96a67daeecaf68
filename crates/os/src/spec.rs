//! Parameters of the operating system: physical memory, its state at boot, and prices of kernel work.

use pagewalk_units::Error;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::hugetlb::HugetlbSpec;
use crate::mover::{MigrationSpec, SwapSpec};

/// Physical memory, and the prices of kernel work.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OsSpec {
    /// Physical memory, GB (2^30 bytes).
    pub memory_gb: u64,
    /// Share of physical memory that the kernel reserves for itself, 0 to below 1. Default 0 (our choice: the
    /// papers' tables give none).
    #[serde(default)]
    pub kernel_reserved: f64,
    /// Share of the frames, without the kernel's, that other programs hold since boot, 0 to below 1. Exactly
    /// this share is held, each frame with equal probability. Like pages of simulated programs, these frames
    /// are not movable for compaction, so even a small share leaves hardly a free 2 MB block. `fragmentation`
    /// includes them: it breaks up only the missing blocks, and none if memory is already that fragmented.
    /// Default 0 (our choice: a fresh machine).
    #[serde(default)]
    pub occupied: f64,
    /// State of physical memory at boot. Default: none (our choice: a fresh machine).
    #[serde(default)]
    pub fragmentation: FragmentationSpec,
    /// Limits of compaction for contiguous blocks.
    #[serde(default)]
    pub compaction: CompactionSpec,
    /// Treatment of pages whose mappings are inferred, because their source has no mapping information
    /// (ChampSim's format, lackey's text, addresses from Python), and of pages that a live program has mapped
    /// in unobserved ways. Default: `mapped_before` (our choice: such a source shows a section of a program,
    /// and most of its pages existed before).
    #[serde(default)]
    pub inferred_pages: InferredPages,
    /// Cycles that the first timed walk for such a page takes longer, with `mapped_before`. Nothing else
    /// waits for it. Default 0. ChampSim's `minor_fault_penalty` is 200 by default.
    #[serde(default, skip_serializing_if = "no_cycles")]
    pub inferred_touch_cycles: u64,
    /// Pools of huge pages that are reserved at boot; in a virtual machine those of the guest. Default: none.
    #[serde(default, skip_serializing_if = "HugetlbSpec::is_empty")]
    pub hugetlb: HugetlbSpec,
    /// Page migration by the kernel; in a virtual machine by the host's kernel. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub migration: Option<MigrationSpec>,
    /// Swapping by the kernel; in a virtual machine by the host's kernel. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swap: Option<SwapSpec>,
    /// Prices of kernel work.
    #[serde(default)]
    pub prices: PriceSpec,
}

/// True for a key that results leave out.
fn no_cycles(n: &u64) -> bool {
    *n == 0
}

/// The time at which pages with inferred mappings are mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum InferredPages {
    /// Before the program starts: without page faults and time. Frames are still chosen in the order of first
    /// touches.
    #[default]
    MappedBefore,
    /// At their first touch, with a page fault.
    FirstTouch,
}

/// Fragmentation of physical memory: externally tagged, `fragmentation.available_2mb = 0.75`.
///
/// The pages that fragment memory are movable. A contiguous request of a page table migrates them, at the
/// price of [`PriceSpec::allocation_ns`]. A page fault never does (Linux's `defrag` setting `never`).
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FragmentationSpec {
    /// No fragmentation.
    #[default]
    None,
    /// Share of the 2 MB blocks that are entirely free, 0 to 1. In every other block one 4 KB page is in use.
    #[serde(rename = "available_2mb")]
    Available2mb(f64),
    /// Gorman's unusable-free index at order 9, 0 to 1: the share of free memory outside free 2 MB blocks
    /// (Linux mm/vmstat.c, `unusable_free_index`). The FMFI of ME-HPT, section III.
    UnusableFreeIndex(f64),
    /// Share of the requests for 2 MB pages that succeed, 0 to 1, drawn at random for each: "the system
    /// provides between 10-20 % (70-80 %) of the total allocated memory as 2 MB pages" (Revelator, section
    /// 6.3). It holds even for programs that are small relative to memory. If hashes select blocks
    /// (`placement.tiered_hash.promotion_threshold`), it is also the share of blocks that they may use.
    #[serde(rename = "served_2mb")]
    Served2mb(f64),
}

/// Limits of compaction: a page table gets no block of this size or more if memory is more fragmented than
/// this.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CompactionSpec {
    /// Size from which a request fails, MB. Default 64 (ME-HPT, section III).
    pub fails_from_mb: u64,
    /// Unusable-free index above which it fails, 0 to 1. Default 0.7 (ME-HPT, section III).
    pub fails_above_index: f64,
}

impl Default for CompactionSpec {
    fn default() -> Self {
        CompactionSpec {
            fails_from_mb: 64,
            fails_above_index: 0.7,
        }
    }
}

/// Prices in nanoseconds of kernel time, because they were measured on machines of different clock rates.
/// They are converted to cycles at the simulated core's frequency.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PriceSpec {
    /// A page fault from the trap to the return, without zeroing and allocation of blocks. Default 500. A
    /// first touch of 4 KB takes 1,013 ns in the median on an 11th-generation Core with Linux 6.6
    /// (ddumbying.vercel.app, "Page fault latency measurement"). It takes 925 ns in a loop on a Zen 3 with
    /// Linux 6.18 (our measurement). Zeroing is 512 ns of it at the default below.
    pub trap_ns: f64,
    /// A page that the kernel populates in a call (`MAP_POPULATE`, `mlock`), without zeroing. Default 250: such a page
    /// takes 246 ns less than a first touch, which traps (1,340 and 1,586 ns in the median of 41 times 4,096 pages, on
    /// a busy Zen 3 with Linux 6.18, our measurement).
    pub populate_ns: f64,
    /// Zeroing, for each byte. Default 0.125 (our choice: a quarter cycle at 2 GHz, 8 GB/s to uncached
    /// memory).
    pub zero_ns_per_byte: f64,
    /// Copying, for each byte (copy-on-write, khugepaged). Default 0.25 (our choice: twice the zeroing,
    /// because it reads as much as it writes).
    pub copy_ns_per_byte: f64,
    /// Searching the rows of an STLT whose array of invalid pages is full, for each byte. Default 0.125 (our
    /// choice: 8 GB/s, as zeroing). Each corrected row also costs `moved_entry_ns`.
    pub search_ns_per_byte: f64,
    /// Scanning one page-table entry and the kernel's data of its page (khugepaged). Default 10 (our choice:
    /// the entry's line serves eight entries, and the line of the page's data comes from a cache).
    pub scan_pte_ns: f64,
    /// Allocating and zeroing a contiguous block for a page table at an unusable-free index of
    /// `allocation_index`: pairs of bytes and nanoseconds, ascending, interpolated log-log. Default: 4 KB
    /// 2,000, 8 KB 2,500, 1 MB 375,000, 8 MB 6.5 million, 64 MB 60 million (ME-HPT, section III: 4 K, 5 K,
    /// 750 K, 13 M and 120 M cycles at 2 GHz). At a lower index the part beyond zeroing shrinks with the
    /// square of the index (our choice: unpublished).
    pub allocation_ns: Vec<[f64; 2]>,
    /// Unusable-free index at which `allocation_ns` holds, above 0 and up to 1.
    /// Default 0.7 (ME-HPT, section III).
    pub allocation_index: f64,
    /// Moving or re-inserting a page-table entry or cluster, or correcting a row of an STLT. Default 100 (our
    /// choice: one access to memory).
    pub moved_entry_ns: f64,
    /// Looking up the chunk of a re-inserted cluster, in tables whose ways use chunks. Default 2 (ME-HPT,
    /// table III: 4 cycles at 2 GHz; only here is the access to the L2P table not hidden, section V-D).
    pub l2p_access_ns: f64,
    /// Saving or restoring one register of a page table (an L2P entry in use, a rehash pointer) when a core
    /// switches processes. Default 1 (our choice: a load or store that hits the first-level cache; the paper
    /// calls it modest, ME-HPT, section V-C).
    pub register_ns: f64,
    /// A system call that changes the address space, without the change itself. Default 56: `getppid` on a
    /// Zen 3 with Linux 6.18 (our measurement).
    pub syscall_ns: f64,
    /// A context switch between threads on a core. Default 700: half a round trip of a byte through two pipes
    /// between two processes on one core, less a pipe's write and read within one (914 - 206 ns on a Zen 3
    /// with Linux 6.18, our measurement).
    pub context_switch_ns: f64,
    /// A TLB shootdown, for the initiator, once. Default 1,000 (unseel.com, "TLB Shootdown": base cost of the
    /// inter-processor interrupt; Amit, USENIX ATC 2017: "can take microseconds").
    pub shootdown_ns: f64,
    /// A TLB shootdown, for the initiator, for each core that must respond. Default 200 (same source).
    pub shootdown_per_core_ns: f64,
    /// A TLB shootdown, on each interrupted core. Default 500 (our choice: the trap of a page fault).
    pub shootdown_remote_ns: f64,
}

impl Default for PriceSpec {
    fn default() -> Self {
        PriceSpec {
            trap_ns: 500.0,
            populate_ns: 250.0,
            zero_ns_per_byte: 0.125,
            copy_ns_per_byte: 0.25,
            search_ns_per_byte: 0.125,
            allocation_ns: vec![
                [4096.0, 2e3],
                [8192.0, 2.5e3],
                [1048576.0, 375e3],
                [8388608.0, 6.5e6],
                [67108864.0, 60e6],
            ],
            allocation_index: 0.7,
            scan_pte_ns: 10.0,
            moved_entry_ns: 100.0,
            l2p_access_ns: 2.0,
            register_ns: 1.0,
            syscall_ns: 56.0,
            context_switch_ns: 700.0,
            shootdown_ns: 1000.0,
            shootdown_per_core_ns: 200.0,
            shootdown_remote_ns: 500.0,
        }
    }
}

impl FragmentationSpec {
    /// Checks the values. An error names the key.
    pub(crate) fn check(&self) -> Result<(), Error> {
        match *self {
            FragmentationSpec::None => Ok(()),
            FragmentationSpec::Available2mb(a) => share("fragmentation.available_2mb", a),
            FragmentationSpec::UnusableFreeIndex(f) => {
                share("fragmentation.unusable_free_index", f)
            }
            FragmentationSpec::Served2mb(a) => share("fragmentation.served_2mb", a),
        }
    }
}

/// Checks that `value` is a share. An error begins with `key`.
pub(crate) fn share(key: &str, value: f64) -> Result<(), Error> {
    if (0.0..=1.0).contains(&value) {
        Ok(())
    } else {
        Err(Error::key(
            key,
            format!("is {value}; expected a share from 0 to 1"),
        ))
    }
}

impl OsSpec {
    /// Entirely free, unfragmented memory without a kernel share, at the default prices.
    pub fn free(memory_gb: u64) -> Self {
        OsSpec {
            memory_gb,
            kernel_reserved: 0.0,
            occupied: 0.0,
            fragmentation: FragmentationSpec::None,
            compaction: CompactionSpec::default(),
            inferred_pages: InferredPages::default(),
            inferred_touch_cycles: 0,
            hugetlb: HugetlbSpec::default(),
            migration: None,
            swap: None,
            prices: PriceSpec::default(),
        }
    }
    /// Maximum physical memory, GB: frame numbers have 32 bits.
    pub const MAX_GB: u64 = 16 << 10;

    /// 2 MB blocks that the kernel reserves: whole blocks, so that its share fragments nothing.
    pub(crate) fn kernel_blocks(&self) -> u64 {
        ((self.memory_gb << 9) as f64 * self.kernel_reserved).round() as u64
    }

    /// Memory without the kernel's share, MB (2^20 bytes).
    pub fn program_mb(&self) -> u64 {
        ((self.memory_gb << 9).saturating_sub(self.kernel_blocks())) << 1
    }

    /// 4 KB frames held by other programs.
    pub(crate) fn occupied_frames(&self) -> u64 {
        let frames = ((self.memory_gb << 9) - self.kernel_blocks()) << 9;
        (frames as f64 * self.occupied).round() as u64
    }

    /// Validates the values. An error names the key and the expected values.
    pub fn check(&self) -> Result<(), Error> {
        if !(1..=Self::MAX_GB).contains(&self.memory_gb) {
            let (gb, max) = (self.memory_gb, Self::MAX_GB);
            return Err(Error::key(
                "os.memory_gb",
                format!("is {gb}; expected 1 to {max}"),
            ));
        }
        let k = self.kernel_reserved;
        if !(0.0..1.0).contains(&k) || self.kernel_blocks() >= self.memory_gb << 9 {
            return Err(Error::key(
                "os.kernel_reserved",
                format!("is {k}; expected a share from 0 to below 1 that leaves 2 MB to programs"),
            ));
        }
        let o = self.occupied;
        let user = ((self.memory_gb << 9) - self.kernel_blocks()) << 9;
        if !(0.0..1.0).contains(&o) || user - self.occupied_frames() < 512 {
            return Err(Error::key(
                "os.occupied",
                format!("is {o}; expected a share from 0 to below 1 that leaves 2 MB to programs"),
            ));
        }
        let (touch, most) = (self.inferred_touch_cycles, 1_000_000);
        if touch > most {
            return Err(Error::key(
                "os.inferred_touch_cycles",
                format!("is {touch}; expected 0 to {most}"),
            ));
        }
        if touch > 0 && self.inferred_pages == InferredPages::FirstTouch {
            return Err(Error::key(
                "os.inferred_touch_cycles",
                "is for pages without faults; leave it out, or set os.inferred_pages = \"mapped_before\"",
            ));
        }
        let pools = self.hugetlb.bytes() >> 21;
        if pools >= (user - self.occupied_frames()) >> 9 {
            return Err(Error::key(
                "os.hugetlb",
                format!(
                    "has pages of {pools} times 2 MB; expected less than the memory that programs have"
                ),
            ));
        }
        self.fragmentation.check().map_err(|e| e.under("os"))?;
        share(
            "os.compaction.fails_above_index",
            self.compaction.fails_above_index,
        )?;
        if let Some(migration) = &self.migration {
            migration.check()?;
        }
        if let Some(swap) = &self.swap {
            swap.check()?;
        }
        self.prices.check()
    }
}

impl PriceSpec {
    fn check(&self) -> Result<(), Error> {
        let single = [
            ("trap_ns", self.trap_ns),
            ("populate_ns", self.populate_ns),
            ("zero_ns_per_byte", self.zero_ns_per_byte),
            ("copy_ns_per_byte", self.copy_ns_per_byte),
            ("search_ns_per_byte", self.search_ns_per_byte),
            ("scan_pte_ns", self.scan_pte_ns),
            ("moved_entry_ns", self.moved_entry_ns),
            ("l2p_access_ns", self.l2p_access_ns),
            ("register_ns", self.register_ns),
            ("syscall_ns", self.syscall_ns),
            ("context_switch_ns", self.context_switch_ns),
            ("shootdown_ns", self.shootdown_ns),
            ("shootdown_per_core_ns", self.shootdown_per_core_ns),
            ("shootdown_remote_ns", self.shootdown_remote_ns),
        ];
        for (key, value) in single {
            let most = if key.ends_with("_per_byte") {
                100.0
            } else {
                1e9
            };
            if !(0.0..=most).contains(&value) {
                return Err(Error::key(
                    format!("os.prices.{key}"),
                    format!("is {value}; expected nanoseconds from 0 to {most}"),
                ));
            }
        }
        let index = self.allocation_index;
        if !(index > 0.0 && index <= 1.0) {
            return Err(Error::key(
                "os.prices.allocation_index",
                format!("is {index}; expected a share above 0 and up to 1"),
            ));
        }
        let points = &self.allocation_ns;
        let positive = points.iter().flatten().all(|&v| v > 0.0 && v <= 1e12);
        if !positive || points.is_empty() || !points.is_sorted_by(|a, b| a[0] < b[0]) {
            return Err(Error::key(
                "os.prices.allocation_ns",
                format!(
                    "is {points:?}; expected pairs of bytes and nanoseconds above 0 and up to 1e12, ascending by bytes"
                ),
            ));
        }
        Ok(())
    }
}
