//! System calls: which ones change the address space, create threads and processes, or end them. The plugin reports
//! each call when it begins, because any may block. `touches` reports the memory that the kernel reads and writes in
//! them.

use std::ffi::c_uint;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use pagewalk_ring::Producer;
use pagewalk_ring::record::{self, query};

use crate::{alignment, api, exec, guest, late, process, touches};

/// End of the heap after the last brk; 0: not known yet. Changed under the process's lock only, and inherited by a
/// child.
static BREAK: AtomicU64 = AtomicU64::new(0);

/// Class of a system call, by the record that the engine needs.
enum Sort {
    /// Arguments and result, in the order of the process's changes.
    Memory,
    /// A copy of the process.
    Fork,
    Other,
}

fn sort(number: i64, a: &[u64; 6]) -> Sort {
    match number {
        libc::SYS_mmap
        | libc::SYS_munmap
        | libc::SYS_mremap
        | libc::SYS_mprotect
        | libc::SYS_brk
        | libc::SYS_shmat
        | libc::SYS_shmdt => Sort::Memory,
        libc::SYS_madvise => match a[2] as libc::c_int {
            libc::MADV_DONTNEED | libc::MADV_FREE | libc::MADV_HUGEPAGE | libc::MADV_NOHUGEPAGE => {
                Sort::Memory
            }
            _ => Sort::Other,
        },
        libc::SYS_fork | libc::SYS_vfork => Sort::Fork,
        // QEMU creates a process for vfork as for fork.
        libc::SYS_clone
            if a[0] & libc::CLONE_VM as u64 == 0 || a[0] & libc::CLONE_VFORK as u64 != 0 =>
        {
            Sort::Fork
        }
        _ => Sort::Other,
    }
}

/// Callback before a system call.
#[allow(clippy::too_many_arguments, reason = "the signature is QEMU's")]
pub unsafe extern "C" fn enter(
    _id: api::Id,
    vcpu: c_uint,
    number: i64,
    a0: u64,
    a1: u64,
    a2: u64,
    a3: u64,
    a4: u64,
    a5: u64,
    _a6: u64,
    _a7: u64,
) {
    let vcpu = vcpu as usize;
    process::entered(vcpu);
    // SAFETY: QEMU calls this on the thread of the virtual CPU.
    let (p, call) = unsafe { (process::producer(vcpu), process::call(vcpu)) };
    *call = process::Call {
        arguments: [a0, a1, a2, a3, a4, a5],
        ..Default::default()
    };
    match number {
        // Not reported as a call that may block: the thread continues with the result.
        query::NUMBER => {
            // SAFETY: as above.
            return unsafe { shortcut_query(p, a0, a1, a2, a3) };
        }
        // SAFETY: as above; no record comes after an exit.
        libc::SYS_exit => return unsafe { process::end_thread(vcpu, a0, false) },
        // SAFETY: as above.
        libc::SYS_exit_group => return unsafe { process::end_thread(vcpu, a0, true) },
        _ => {}
    }
    // SAFETY: as above.
    unsafe { p.push(record::word(record::ENTER, number as u64 & 0xffff_ffff)) };
    p.publish();
    alignment::enter(number, &call.arguments);
    match sort(number, &call.arguments) {
        Sort::Memory => {
            process::lock();
            call.locked = true;
            call.ticket = process::take_ticket(vcpu);
        }
        Sort::Fork => {
            // The ticket comes afterwards. To fork, QEMU stops all threads, and a thread that the engine holds at the
            // ticket would not stop.
            process::lock();
            call.locked = true;
        }
        Sort::Other => match number {
            libc::SYS_execve => exec::replace(vcpu, None, a0, a1, a2, 0),
            libc::SYS_execveat => exec::replace(vcpu, Some(a0 as i32), a1, a2, a3, a4),
            _ => {}
        },
    }
}

/// Callback after a system call.
pub unsafe extern "C" fn leave(_id: api::Id, vcpu: c_uint, number: i64, result: i64) {
    let vcpu = vcpu as usize;
    alignment::leave();
    // SAFETY: QEMU calls this on the thread of the virtual CPU.
    let (p, call) = unsafe { (process::producer(vcpu), process::call(vcpu)) };
    // SAFETY: as above.
    let push = |word| unsafe { p.push(word) };
    let thread = number == libc::SYS_clone && !call.locked && result > 0;
    if thread && !call.spawned {
        // SAFETY: as above.
        unsafe { late::promise(vcpu, result as i32) };
    }
    if call.spawned && result < 0 {
        push(record::word(record::SPAWN_FAILED, 0));
    }
    if call.ticket != 0 && call.locked {
        push(record::word(record::CALL, number as u64));
        push(result as u64);
        push(call.ticket);
        let mut arguments = call.arguments;
        if number == libc::SYS_shmat && result >= 0 {
            arguments[5] = shared_bytes(arguments[0] as i32);
        }
        if number == libc::SYS_brk {
            arguments[1] = BREAK.swap(result as u64, Relaxed);
        }
        arguments.into_iter().for_each(push);
        // SAFETY: as above.
        unsafe { touches::report(p, number, result, &call.arguments) };
    } else if call.locked && result > 0 {
        let ticket = process::take_ticket(vcpu);
        push(record::word(record::FORK, result as u64 & 0xffff_ffff));
        push(ticket);
    } else {
        // Sent before the return: the reader attributes later records to the program.
        // SAFETY: as above.
        unsafe { touches::report(p, number, result, &call.arguments) };
        push(record::word(record::RETURN, number as u64 & 0xffff_ffff));
    }
    // To the reader, a thread in the kernel is waiting, and changes by others do not wait for it. The reader must know
    // of the return before the thread continues, and before another change is numbered.
    p.publish();
    if call.locked {
        process::unlock();
    }
    *call = process::Call::default();
}

/// A system call that is a query. QEMU, like Linux, fails this number; the result is in the guest's memory before.
/// Signals wait until then, as in any call that is not interrupted.
///
/// # Safety
/// `p` is the calling thread's producer.
#[cold]
unsafe fn shortcut_query(p: &Producer, question: u64, integer: u64, address: u64, reply: u64) {
    if question > query::FREE {
        return;
    }
    // SAFETY: by the contract.
    let Some(value) = (unsafe { p.query(question, integer, address) }) else {
        return;
    };
    let mut words = [0; 16];
    words[0] = 1;
    words[8..].copy_from_slice(&value.to_le_bytes());
    // If the result cannot be written, there is none: the program searches by itself.
    let _ = guest::write(reply, &words);
}

/// Bytes of a System V shared memory segment; 0 if the kernel does not say.
fn shared_bytes(id: i32) -> u64 {
    // SAFETY: an all-zero shmid_ds is valid, and IPC_STAT only fills it.
    unsafe {
        let mut status: libc::shmid_ds = std::mem::zeroed();
        if libc::shmctl(id, libc::IPC_STAT, &mut status) == 0 {
            status.shm_segsz as u64
        } else {
            0
        }
    }
}
