//! Short random sequences of kernel operations, for property tests.

use pagewalk_tables::{Flags, MapError};
use pagewalk_units::{Asid, Frame, Page, PageSize, PhysAddr, VirtAddr};

use super::tables::Case;
use super::{Oracle, TestFrames, agree, caches, find, overlaps};

/// One kernel operation.
#[derive(Clone, Debug)]
pub enum TableOp {
    Map {
        slot: u16,
        size: u8,
        flags: u8,
        starve: u8,
    },
    Unmap {
        slot: u16,
        size: u8,
    },
    Flags {
        slot: u16,
        size: u8,
        flags: u8,
    },
    Probe {
        slot: u16,
        offset: u32,
    },
}

/// Maps slots to pages, so that neighbours, huge pages over small ones, several
/// nodes and distant regions occur.
fn page(slot: u16, size: u8) -> Page<VirtAddr> {
    let size = PageSize::ALL[usize::from(size % 3)];
    let s = u64::from(slot);
    let va = match s % 4 {
        0 | 1 => 0x7f00_0000_0000 + (s >> 2) * 4096,
        2 => 0x10_0000_0000 + (s >> 2 & 0xff) * 0x20_0000 + (s >> 10) * 0x3000,
        _ => (s >> 2 & 7) * 0x40_0000_0000 + (s >> 5 & 3) * 0x4000_0000,
    };
    VirtAddr(va).page(size)
}

/// Random maps, unmaps and flag changes of all sizes, checked against a reference
/// map. Memory runs out at times.
pub fn random_steps(case: &Case, steps: &[TableOp]) -> u64 {
    let mut source = TestFrames::new();
    let mut table = case.make(Asid(7), &mut source);
    let mut oracle = Oracle::new();
    let mut warm = caches(16);
    for (i, step) in steps.iter().enumerate() {
        match *step {
            TableOp::Map {
                slot,
                size,
                flags,
                starve,
            } => {
                let p = page(slot, size);
                let frame =
                    ((i as u64 + 1) << 30 | (i as u64 & 0x1ff) << 12) & !(p.size.bytes() - 1);
                let flags = Flags(flags);
                let before = (source.owned.clone(), table.bytes());
                source.left = if starve % 3 == 0 {
                    u64::from(starve % 5)
                } else {
                    u64::MAX
                };
                let f = Frame {
                    base: PhysAddr(frame),
                };
                let done = table.map(p, f, flags, &mut source);
                source.left = u64::MAX;
                if overlaps(&oracle, p) {
                    assert_eq!(done, Err(MapError::Occupied));
                }
                match done {
                    Ok(work) => {
                        assert_eq!(before.1 + work.allocated - work.freed, table.bytes());
                        oracle.insert(p.base.0, (p.size, frame, flags));
                    }
                    Err(_) => assert_eq!(before, (source.owned.clone(), table.bytes()), "atomic"),
                }
                agree(&table, case, &oracle, &source, p.base, &mut warm);
            }
            TableOp::Unmap { slot, size } => {
                // Half of the time a mapped page, if there is one nearby.
                let mut p = page(slot, size);
                if let Some((base, size, ..)) = find(&oracle, p.base.0).filter(|_| size & 4 == 0) {
                    p = VirtAddr(base).page(size);
                }
                let exact = oracle.get(&p.base.0).filter(|e| e.0 == p.size).copied();
                let gone = table.unmap(p, &mut source);
                assert_eq!(
                    gone.map(|(frame, flags, _)| (p.size, frame.base.0, flags)),
                    exact
                );
                if exact.is_some() {
                    oracle.remove(&p.base.0);
                    warm.set.invalidate(Asid(7));
                }
                agree(&table, case, &oracle, &source, p.base, &mut warm);
            }
            TableOp::Flags { slot, size, flags } => {
                let p = page(slot, size);
                let e = oracle.get_mut(&p.base.0).filter(|e| e.0 == p.size);
                assert_eq!(table.set_flags(p, Flags(flags)), e.is_some());
                if let Some(e) = e {
                    e.2 = Flags(flags);
                }
                agree(&table, case, &oracle, &source, p.base, &mut warm);
            }
            TableOp::Probe { slot, offset } => {
                let base = page(slot, 0).base;
                agree(
                    &table,
                    case,
                    &oracle,
                    &source,
                    base.offset(u64::from(offset)),
                    &mut warm,
                );
            }
        }
        assert_eq!(table.bytes(), source.bytes(), "bytes() is what it holds");
        assert!(table.largest_contiguous() >= source.owned.values().copied().max().unwrap_or(0));
    }
    let mut listed = Vec::new();
    table.for_each(&mut |p, frame, flags| listed.push((p.base.0, (p.size, frame.base.0, flags))));
    assert_eq!(
        listed,
        oracle.iter().map(|(k, v)| (*k, *v)).collect::<Vec<_>>()
    );
    let mut cold = caches(0);
    for &base in oracle.keys() {
        agree(&table, case, &oracle, &source, VirtAddr(base), &mut cold);
    }
    table.release(&mut source);
    assert_eq!(
        (table.bytes(), source.bytes()),
        (0, 0),
        "everything goes back"
    );
    assert!(
        oracle
            .keys()
            .all(|&va| table.translate(VirtAddr(va)).is_none())
    );
    source.trace
}
