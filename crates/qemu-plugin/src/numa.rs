//! The calls of NUMA, as Linux answers them on a machine of one node (mm/mempolicy.c and mm/migrate.c). QEMU knows
//! none of them.

use std::cell::RefCell;
use std::ffi::c_int;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard};

use crate::guest;
use crate::process::VCPUS;
use crate::ranges::Ranges;

/// A policy: its mode with flags, and [`NODE`] if its nodes are node 0.
type Policy = u32;

/// Bit of a [`Policy`].
const NODE: Policy = 1 << 16;
/// Flags of modes (`MPOL_F_STATIC_NODES`, `MPOL_F_RELATIVE_NODES`, `MPOL_F_NUMA_BALANCING`).
const STATIC_NODES: Policy = 1 << 15;
const RELATIVE_NODES: Policy = 1 << 14;
const BALANCING: Policy = 1 << 13;
/// Number of modes (`MPOL_MAX`), since Linux 6.9.
const MODES: Policy = 7;
/// Most nodes of a usual kernel for x86-64 (`MAX_NUMNODES`).
const MOST_NODES: u64 = 1024;

/// Policies of threads by virtual CPU.
static OF_THREADS: [AtomicU32; VCPUS] = [const { AtomicU32::new(0) }; VCPUS];
/// Policies of areas, from `mbind`.
static OF_AREAS: Mutex<Ranges<Policy>> = Mutex::new(Ranges::new());

thread_local! {
    static HELD: RefCell<Option<MutexGuard<'static, Ranges<Policy>>>> = const { RefCell::new(None) };
}

/// Locks the state for a fork.
pub fn hold() {
    HELD.set(Some(of_areas()));
}

/// Ends the effect of [`hold`].
pub fn let_go() {
    HELD.take();
}

fn of_areas() -> MutexGuard<'static, Ranges<Policy>> {
    OF_AREAS.lock().unwrap_or_else(|e| e.into_inner())
}

/// A thread has the policy of the one that makes it.
pub fn inherit(made: usize, maker: usize) {
    OF_THREADS[made].store(OF_THREADS[maker].load(Relaxed), Relaxed);
}

/// The areas in a range are gone.
pub fn unmapped(from: u64, bytes: u64) {
    of_areas().remove(from, from.saturating_add(bytes));
}

/// The result of the call in Linux; `None`: QEMU's result stays. `Err` has the kernel's error.
pub fn answer(vcpu: usize, number: i64, a: &[u64; 6]) -> Option<Result<i64, c_int>> {
    match number {
        libc::SYS_set_mempolicy => Some(set_policy(vcpu, a)),
        libc::SYS_mbind => Some(bind(a)),
        libc::SYS_get_mempolicy => Some(policy(vcpu, a)),
        libc::SYS_migrate_pages if is_own(a[0]) => Some(migrate(a)),
        libc::SYS_move_pages if is_own(a[0]) => Some(move_pages(a)),
        // The host's processor may be on another node.
        libc::SYS_getcpu if a[1] != 0 => {
            let written = guest::write(a[1], &[0; 4]);
            written.is_none().then_some(Err(libc::EFAULT))
        }
        _ => None,
    }
}

/// True if a process number names the calling process.
fn is_own(pid: u64) -> bool {
    pid as u32 == 0 || pid as u32 == std::process::id()
}

fn may_move_all() -> bool {
    // SAFETY: the call has no arguments.
    unsafe { libc::geteuid() == 0 }
}

/// The nodes of a mask: true if node 0 is among them, true if any other is.
fn nodes(mask: u64, maxnode: u64) -> Result<(bool, bool), c_int> {
    let bits = maxnode.wrapping_sub(1);
    if bits == 0 || mask == 0 {
        return Ok((false, false));
    }
    if bits > 4096 * 8 {
        return Err(libc::EINVAL);
    }
    let mut bytes = vec![0; bits.div_ceil(64) as usize * 8];
    guest::read(mask, &mut bytes).ok_or(libc::EFAULT)?;
    let has = |bit: u64| bytes[(bit / 8) as usize] >> (bit % 8) & 1 != 0;
    if (MOST_NODES..bits).any(has) {
        return Err(libc::EINVAL);
    }
    Ok((has(0), (1..bits.min(MOST_NODES)).any(has)))
}

/// The policy of these arguments (`sanitize_mpol_flags`, `mpol_new`, `mpol_set_nodemask`).
fn new_policy(mode: u64, mask: u64, maxnode: u64) -> Result<Policy, c_int> {
    const FLAGS: Policy = STATIC_NODES | RELATIVE_NODES | BALANCING;
    let (flags, mode) = (mode as Policy & FLAGS, mode as Policy & !FLAGS);
    let (here, elsewhere) = nodes(mask, maxnode)?;
    let empty = !here && !elsewhere;
    let exclusive = STATIC_NODES | RELATIVE_NODES;
    // Preferred with any of several nodes, and bind, may be balanced.
    let wrong = mode >= MODES
        || flags & exclusive == exclusive
        || flags & BALANCING != 0 && !matches!(mode as c_int, libc::MPOL_BIND | 5);
    if wrong {
        return Err(libc::EINVAL);
    }
    match mode as c_int {
        libc::MPOL_DEFAULT if empty => Ok(0),
        libc::MPOL_PREFERRED if empty && flags & exclusive == 0 => Ok(libc::MPOL_LOCAL as Policy),
        libc::MPOL_LOCAL if empty && flags & exclusive == 0 => Ok(libc::MPOL_LOCAL as Policy),
        libc::MPOL_DEFAULT | libc::MPOL_LOCAL => Err(libc::EINVAL),
        // Relative nodes are folded onto those that exist.
        _ if here || elsewhere && flags & RELATIVE_NODES != 0 => Ok(mode | flags | NODE),
        _ => Err(libc::EINVAL),
    }
}

fn set_policy(vcpu: usize, &[mode, mask, maxnode, ..]: &[u64; 6]) -> Result<i64, c_int> {
    OF_THREADS[vcpu].store(new_policy(mode, mask, maxnode)?, Relaxed);
    Ok(0)
}

fn bind(&[at, bytes, mode, mask, maxnode, flags]: &[u64; 6]) -> Result<i64, c_int> {
    const STRICT: u64 = 1;
    const MOVE: u64 = 2;
    const MOVE_ALL: u64 = 4;
    let policy = new_policy(mode, mask, maxnode)?;
    if flags & !(STRICT | MOVE | MOVE_ALL) != 0 || at & 4095 != 0 {
        return Err(libc::EINVAL);
    }
    if flags & MOVE_ALL != 0 && !may_move_all() {
        return Err(libc::EPERM);
    }
    let whole = bytes.wrapping_add(4095) & !4095;
    let end = at.checked_add(whole).ok_or(libc::EINVAL)?;
    if whole == 0 {
        return Ok(0);
    }
    if !guest::is_mapped(at, whole) {
        return Err(libc::EFAULT);
    }
    of_areas().set(at, end, policy);
    Ok(0)
}

fn policy(vcpu: usize, &[mode, mask, maxnode, at, flags, _]: &[u64; 6]) -> Result<i64, c_int> {
    const OF_NODE: u64 = 1;
    const OF_ADDRESS: u64 = 2;
    const ALLOWED: u64 = 4;
    let has = |flag| flags & flag != 0;
    let wrong = flags & !(OF_NODE | OF_ADDRESS | ALLOWED) != 0
        || mask != 0 && maxnode < 1
        || has(ALLOWED) && has(OF_NODE | OF_ADDRESS)
        || at != 0 && !has(OF_ADDRESS) && !has(ALLOWED);
    if wrong {
        return Err(libc::EINVAL);
    }
    let found = if has(ALLOWED) {
        NODE
    } else if has(OF_ADDRESS) {
        if !guest::is_mapped(at & !4095, 4096) {
            return Err(libc::EFAULT);
        }
        of_areas().find(at).map_or(0, |found| found.2)
    } else {
        OF_THREADS[vcpu].load(Relaxed)
    };
    // The node of a page, or the next one to interleave on, is node 0.
    let interleaves = found & 0xff == libc::MPOL_INTERLEAVE as Policy;
    if has(OF_NODE) && !has(OF_ADDRESS) && !interleaves {
        return Err(libc::EINVAL);
    }
    let shown = if has(OF_NODE) { 0 } else { found & 0xffff };
    if mode != 0 {
        guest::write(mode, &shown.to_le_bytes()).ok_or(libc::EFAULT)?;
    }
    if mask != 0 {
        let bytes = (maxnode - 1).next_multiple_of(64) / 8;
        if bytes > 4096 {
            return Err(libc::EINVAL);
        }
        let mut written = vec![0; bytes as usize];
        if let Some(first) = written.first_mut() {
            *first = u8::from(found & NODE != 0);
        }
        guest::write(mask, &written).ok_or(libc::EFAULT)?;
    }
    Ok(0)
}

fn migrate(&[_, maxnode, old, new, ..]: &[u64; 6]) -> Result<i64, c_int> {
    nodes(old, maxnode)?;
    match nodes(new, maxnode)? {
        (true, _) => Ok(0),
        (false, _) => Err(libc::EINVAL),
    }
}

fn move_pages(&[_, count, pages, to, status, flags]: &[u64; 6]) -> Result<i64, c_int> {
    const MOVE: u64 = 2;
    const MOVE_ALL: u64 = 4;
    if flags & !(MOVE | MOVE_ALL) != 0 {
        return Err(libc::EINVAL);
    }
    if flags & MOVE_ALL != 0 && !may_move_all() {
        return Err(libc::EPERM);
    }
    let element = |array: u64, n: u64, bytes: u64| array.wrapping_add(n.wrapping_mul(bytes));
    for n in 0..count {
        let (mut page, mut node) = ([0; 8], [0; 4]);
        guest::read(element(pages, n, 8), &mut page).ok_or(libc::EFAULT)?;
        if to != 0 {
            guest::read(element(to, n, 4), &mut node).ok_or(libc::EFAULT)?;
            if node != [0; 4] {
                return Err(libc::ENODEV);
            }
        }
        let here = match guest::is_resident(u64::from_le_bytes(page) & !4095) {
            Some(true) => 0,
            Some(false) => -libc::ENOENT,
            None => -libc::EFAULT,
        };
        guest::write(element(status, n, 4), &here.to_le_bytes()).ok_or(libc::EFAULT)?;
    }
    Ok(0)
}
