//! Geometry of the host's caches and TLBs, as `cpuid` states it.

use schemars::JsonSchema;
use serde::Serialize;

/// A data or unified cache.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct HostCache {
    /// Level, 1 to 3.
    pub level: u32,
    /// Capacity, KB.
    pub size_kb: u32,
    /// Associativity.
    pub ways: u32,
    /// Leaf of `cpuid` that states it.
    pub leaf: String,
}

/// A TLB of data.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct HostTlb {
    /// Level, 1 or 2.
    pub level: u32,
    /// Entries for 4 KB pages.
    pub entries: u32,
    /// Associativity; as many as entries if it is fully associative.
    pub ways: u32,
    /// Leaf of `cpuid` that states it.
    pub leaf: String,
}

/// The host's processor.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct HostProcessor {
    /// Vendor, such as `AuthenticAMD`.
    pub vendor: String,
    /// Name.
    pub name: String,
    /// Family, with the extended family added.
    pub family: u32,
    /// Model, with the extended model above it.
    pub model: u32,
    /// True if a hypervisor is present (leaf 1, ECX bit 31).
    pub hypervisor: bool,
    /// Data and unified caches.
    pub caches: Vec<HostCache>,
    /// Data TLBs.
    pub tlbs: Vec<HostTlb>,
}

/// Ways by AMD's code for associativity in leaf 0x80000006 (AMD64 Architecture Programmer's Manual,
/// volume 3, E.4.5). `None` for a disabled or reserved one.
fn amd_ways(code: u32, entries: u32) -> Option<u32> {
    Some(match code {
        1 => 1,
        2 => 2,
        3 => 3,
        4 => 4,
        5 => 6,
        6 => 8,
        8 => 16,
        0xA => 32,
        0xB => 48,
        0xC => 64,
        0xD => 96,
        0xE => 128,
        0xF => entries,
        _ => return None,
    })
}

/// The L1 TLB of EBX in leaf 0x80000005: entries in bits 23 to 16, ways in bits 31 to 24.
fn amd_l1(ebx: u32) -> Option<HostTlb> {
    let (entries, ways) = (ebx >> 16 & 0xFF, ebx >> 24);
    (entries > 0 && ways > 0).then(|| HostTlb {
        level: 1,
        entries,
        ways: if ways == 0xFF { entries } else { ways },
        leaf: "0x80000005".to_owned(),
    })
}

/// The L2 TLB of EBX in leaf 0x80000006: entries in bits 27 to 16, code of ways in bits 31 to 28.
fn amd_l2(ebx: u32) -> Option<HostTlb> {
    let entries = ebx >> 16 & 0xFFF;
    let ways = amd_ways(ebx >> 28, entries)?;
    (entries > 0).then(|| HostTlb {
        level: 2,
        entries,
        ways,
        leaf: "0x80000006".to_owned(),
    })
}

/// A cache of leaf 4 or 0x8000001D, which have one format. `None` for instructions, and at the end.
fn cache([eax, ebx, ecx, _]: [u32; 4], leaf: u32) -> Option<HostCache> {
    let kind = eax & 31;
    if kind != 1 && kind != 3 {
        return None;
    }
    let ways = (ebx >> 22) + 1;
    let bytes = u64::from(ways)
        * u64::from((ebx >> 12 & 0x3FF) + 1)
        * u64::from((ebx & 0xFFF) + 1)
        * (u64::from(ecx) + 1);
    Some(HostCache {
        level: eax >> 5 & 7,
        size_kb: u32::try_from(bytes / 1024).ok()?,
        ways,
        leaf: format!("{leaf:#x}"),
    })
}

/// A TLB of a subleaf of 0x18: a data, unified or load-only one with entries for 4 KB pages.
fn intel_tlb([_, ebx, ecx, edx]: [u32; 4]) -> Option<HostTlb> {
    let kind = edx & 31;
    if !matches!(kind, 1 | 3 | 4) || ebx & 1 == 0 {
        return None;
    }
    let ways = ebx >> 16;
    let entries = ways * ecx;
    (entries > 0).then(|| HostTlb {
        level: edx >> 5 & 7,
        entries,
        ways: if edx >> 8 & 1 == 1 { entries } else { ways },
        leaf: "0x18".to_owned(),
    })
}

/// The host's processor, or `None` where there is no `cpuid`.
#[cfg(target_arch = "x86_64")]
pub fn processor() -> Option<HostProcessor> {
    use std::arch::x86_64::__cpuid_count;

    let ask = |leaf: u32, sub: u32| {
        let r = __cpuid_count(leaf, sub);
        [r.eax, r.ebx, r.ecx, r.edx]
    };
    let text = |words: &[u32]| {
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        String::from_utf8_lossy(&bytes)
            .trim_matches(['\0', ' '])
            .to_owned()
    };
    let [most, b, c, d] = ask(0, 0);
    let vendor = text(&[b, d, c]);
    let [most_extended, ..] = ask(0x8000_0000, 0);
    let [signature, _, features, _] = ask(1, 0);
    let base = signature >> 8 & 15;
    let family = base
        + if base == 15 {
            signature >> 20 & 0xFF
        } else {
            0
        };
    let extended = if base == 15 || base == 6 {
        signature >> 16 & 15
    } else {
        0
    };
    let name = if most_extended >= 0x8000_0004 {
        let words: Vec<u32> = (0x8000_0002..=0x8000_0004)
            .flat_map(|leaf| ask(leaf, 0))
            .collect();
        text(&words)
    } else {
        String::new()
    };
    let amd = vendor == "AuthenticAMD" || vendor == "HygonGenuine";
    let (leaf, there) = if amd {
        (0x8000_001D, most_extended >= 0x8000_001D)
    } else {
        (4, most >= 4)
    };
    let mut caches = Vec::new();
    let mut sub = 0;
    while there && sub < 16 {
        let registers = ask(leaf, sub);
        if registers[0] & 31 == 0 {
            break;
        }
        caches.extend(cache(registers, leaf));
        sub += 1;
    }
    let tlbs = if amd && most_extended >= 0x8000_0006 {
        let l1 = amd_l1(ask(0x8000_0005, 0)[1]);
        let l2 = amd_l2(ask(0x8000_0006, 0)[1]);
        l1.into_iter().chain(l2).collect()
    } else if !amd && most >= 0x18 {
        let last = ask(0x18, 0)[0].min(31);
        (0..=last)
            .filter_map(|sub| intel_tlb(ask(0x18, sub)))
            .collect()
    } else {
        vec![]
    };
    Some(HostProcessor {
        vendor,
        name,
        family,
        model: (signature >> 4 & 15) + (extended << 4),
        hypervisor: features >> 31 == 1,
        caches,
        tlbs,
    })
}

/// The host's processor, or `None` where there is no `cpuid`.
#[cfg(not(target_arch = "x86_64"))]
pub fn processor() -> Option<HostProcessor> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaves_decode_as_the_manuals_say() {
        // Registers of a Zen 3: 64 entries, fully associative; 2048 entries, 8 ways.
        let l1 = amd_l1(0xFF40_FF40).expect("there");
        assert_eq!((l1.entries, l1.ways), (64, 64));
        let l2 = amd_l2(0x6800_6200).expect("there");
        assert_eq!((l2.entries, l2.ways), (2048, 8));
        assert!(amd_l2(0x0800_0000).is_none(), "disabled");
        // 32 KB, 8 ways, 64 sets of 64 bytes; then 32 MB, 16 ways.
        let l1d = cache([0x0000_0121, 0x01C0_003F, 63, 0], 0x8000_001D).expect("there");
        assert_eq!((l1d.level, l1d.size_kb, l1d.ways), (1, 32, 8));
        let l3 = cache([0x0000_0163, 0x03C0_003F, 32767, 0], 4).expect("there");
        assert_eq!((l3.level, l3.size_kb, l3.ways), (3, 32 << 10, 16));
        assert!(
            cache([0x0000_0122, 0x01C0_003F, 63, 0], 4).is_none(),
            "code"
        );
        // A second-level TLB of Intel: 8 ways, 128 sets, unified, for 4 KB and 2 MB.
        let stlb = intel_tlb([0, 0x0008_0003, 128, 0x0000_0043]).expect("there");
        assert_eq!((stlb.level, stlb.entries, stlb.ways), (2, 1024, 8));
        assert!(
            intel_tlb([0, 0x0008_0003, 128, 0x0000_0022]).is_none(),
            "code"
        );
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn this_host_has_a_vendor_and_a_first_level_cache() {
        let host = processor().expect("x86-64");
        assert!(!host.vendor.is_empty() && host.family > 0);
        assert!(host.caches.iter().any(|c| c.level == 1), "{host:?}");
    }
}
