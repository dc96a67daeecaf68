//! System calls: which ones change the address space, create threads and processes, or end them. The plugin reports
//! each call when it begins, because any may block. `touches` reports the memory that the kernel reads and writes in
//! them.

use std::ffi::c_uint;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};

use pagewalk_ring::Producer;
use pagewalk_ring::record::{self, call_arguments, query};

use crate::{
    alignment, answers, api, clock, exec, files, guest, hugetlb, kernel_files, late, numa, process,
    touches,
};

/// End of the heap after the last brk; 0: not known yet. Changed under the process's lock only, and inherited by a
/// child.
static BREAK: AtomicU64 = AtomicU64::new(0);

/// Class of a system call, by the record that the engine needs.
enum Sort {
    /// Arguments and result, in the order of the process's changes.
    Memory,
    /// A copy of the process.
    Fork,
    /// Several changes, each with its ticket, after the call.
    Several,
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
        | libc::SYS_shmdt
        | libc::SYS_ftruncate
        | libc::SYS_truncate => Sort::Memory,
        libc::SYS_fallocate if punches(a) => Sort::Memory,
        libc::SYS_prctl if disables_huge_pages(a) => Sort::Memory,
        libc::SYS_madvise if is_modelled_advice(a[2] as libc::c_int) => Sort::Memory,
        libc::SYS_process_madvise if advises_itself(a) => Sort::Several,
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

/// True for the advice that the engine acts on.
fn is_modelled_advice(advice: libc::c_int) -> bool {
    matches!(
        advice,
        libc::MADV_DONTNEED
            | libc::MADV_FREE
            | libc::MADV_HUGEPAGE
            | libc::MADV_NOHUGEPAGE
            | libc::MADV_COLLAPSE
            | libc::MADV_REMOVE
            | libc::MADV_PAGEOUT
            | libc::MADV_DONTFORK
            | libc::MADV_DOFORK
            | libc::MADV_WIPEONFORK
            | libc::MADV_KEEPONFORK
    )
}

/// True for advice that changes nothing that is simulated. MADV_COLD only orders pages for a later reclaim.
fn is_without_effect(advice: libc::c_int) -> bool {
    matches!(
        advice,
        libc::MADV_NORMAL
            | libc::MADV_RANDOM
            | libc::MADV_SEQUENTIAL
            | libc::MADV_WILLNEED
            | libc::MADV_COLD
            | libc::MADV_UNMERGEABLE
            | libc::MADV_DONTDUMP
            | libc::MADV_DODUMP
    )
}

/// True for the arguments of a `process_madvise` on the calling process, with advice that the engine knows.
fn advises_itself(a: &[u64; 6]) -> bool {
    // PIDFD_SELF_THREAD and PIDFD_SELF_THREAD_GROUP, since Linux 6.14.
    const ITSELF: [i32; 2] = [-10000, -10001];
    let own = || {
        let about = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", a[0] as i32)).ok()?;
        let pid = about.lines().find_map(|l| l.strip_prefix("Pid:"))?;
        Some(pid.trim() == std::process::id().to_string())
    };
    let advice = a[3] as libc::c_int;
    (is_modelled_advice(advice) || is_without_effect(advice))
        && (ITSELF.contains(&(a[0] as i32)) || own() == Some(true))
}

/// The ranges that `process_madvise` has advised, with the advice, and the result: the advised bytes, or an error if
/// the first range is wrong.
fn advise_ranges(&[_, vectors, count, advice, flags, _]: &[u64; 6]) -> (Vec<[u64; 6]>, i64) {
    let mut done = Vec::new();
    if flags != 0 || count > libc::UIO_MAXIOV as u64 {
        return (done, -i64::from(libc::EINVAL));
    }
    let mut bytes = 0;
    for n in 0..count {
        let mut vector = [0; 16];
        let read = guest::read(vectors.wrapping_add(n * 16), &mut vector);
        let both = u128::from_le_bytes(vector);
        let (at, length) = (both as u64, (both >> 64) as u64);
        let error = if read.is_none() {
            libc::EFAULT
        } else if at & 4095 != 0 {
            libc::EINVAL
        } else if !guest::is_mapped(at, length) {
            libc::ENOMEM
        } else {
            0
        };
        if error != 0 {
            let result = if bytes > 0 { bytes } else { -i64::from(error) };
            return (done, result);
        }
        // Other advice has no effect on contents.
        if matches!(
            advice as libc::c_int,
            libc::MADV_DONTNEED
                | libc::MADV_REMOVE
                | libc::MADV_DONTFORK
                | libc::MADV_DOFORK
                | libc::MADV_WIPEONFORK
                | libc::MADV_KEEPONFORK
        ) {
            guest::advise(at, length, advice as libc::c_int);
        }
        done.push([at, length, advice, 0, 0, 0]);
        bytes += length as i64;
    }
    (done, bytes)
}

/// True for the arguments of a `fallocate` that makes a hole.
fn punches(a: &[u64; 6]) -> bool {
    a[1] & libc::FALLOC_FL_PUNCH_HOLE as u64 != 0
}

/// True for the arguments of `prctl(PR_SET_THP_DISABLE)` without flags (they came with Linux 6.18).
fn disables_huge_pages(a: &[u64; 6]) -> bool {
    a[0] as libc::c_int == libc::PR_SET_THP_DISABLE && a[2..5].iter().all(|&rest| rest == 0)
}

/// True for a memory call that the engine does not act on, although it may change the simulated memory.
fn is_not_modelled(number: i64, a: &[u64; 6]) -> bool {
    const MEMFD_SECRET: i64 = 447;
    const PROCESS_MRELEASE: i64 = 448;
    const SET_MEMPOLICY_HOME_NODE: i64 = 450;
    const MAP_SHADOW_STACK: i64 = 453;
    let has = |value: u64, flag: u64| value & flag != 0;
    match number {
        libc::SYS_madvise => {
            let advice = a[2] as libc::c_int;
            let populates = matches!(advice, libc::MADV_POPULATE_READ | libc::MADV_POPULATE_WRITE);
            !is_modelled_advice(advice) && !is_without_effect(advice) && !populates
        }
        libc::SYS_prctl => {
            let thp = a[0] as libc::c_int == libc::PR_SET_THP_DISABLE;
            thp && !disables_huge_pages(a) || a[0] == PR_SET_MEMORY_MERGE && a[1] != 0
        }
        libc::SYS_fallocate => has(a[1], !(libc::FALLOC_FL_KEEP_SIZE as u64)) && !punches(a),
        libc::SYS_remap_file_pages
        | libc::SYS_pkey_mprotect
        | libc::SYS_userfaultfd
        | libc::SYS_process_madvise
        | MEMFD_SECRET
        | PROCESS_MRELEASE
        | SET_MEMPOLICY_HOME_NODE
        | MAP_SHADOW_STACK => true,
        _ => false,
    }
}

/// Simulation of a call, for the table of docs/limits.md.
#[cfg(test)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Treatment {
    /// It changes the address space.
    Changes,
    Forks,
    Executes,
    Ends,
    /// The kernel reads or writes the program's memory.
    Touches {
        writes: bool,
    },
    /// It may change memory, but is ignored.
    NotModelled,
    /// It does nothing to memory.
    Nothing,
}

/// Simulation of a call with these arguments.
#[cfg(test)]
pub fn treatment(number: i64, a: &[u64; 6]) -> Treatment {
    match (sort(number, a), number) {
        _ if is_not_modelled(number, a) => Treatment::NotModelled,
        (Sort::Memory, _) => Treatment::Changes,
        (Sort::Fork, _) => Treatment::Forks,
        (_, libc::SYS_execve | libc::SYS_execveat) => Treatment::Executes,
        (_, libc::SYS_exit | libc::SYS_exit_group) => Treatment::Ends,
        _ => touches::kernel_writes(number)
            .map_or(Treatment::Nothing, |writes| Treatment::Touches { writes }),
    }
}

/// Merging of equal pages for the whole process, and its state.
const PR_SET_MEMORY_MERGE: u64 = 67;
const PR_GET_MEMORY_MERGE: u64 = 68;

/// State of the process that its calls of `prctl` have set, which QEMU refuses.
static NO_HUGE_PAGES: AtomicBool = AtomicBool::new(false);
static MERGES: AtomicBool = AtomicBool::new(false);

/// The result that Linux gives, where QEMU refuses or ignores a call.
fn result_of_linux(vcpu: usize, number: i64, result: i64, a: &[u64; 6]) -> i64 {
    if let Some(answer) = numa::answer(vcpu, number, a) {
        return answer.unwrap_or_else(|error| -i64::from(error));
    }
    let get = |state: &AtomicBool| match a[1..5] {
        [0, 0, 0, 0] => i64::from(state.load(Relaxed)),
        _ => result,
    };
    match number {
        libc::SYS_prctl if disables_huge_pages(a) => {
            NO_HUGE_PAGES.store(a[1] != 0, Relaxed);
            0
        }
        libc::SYS_prctl if a[0] as libc::c_int == libc::PR_GET_THP_DISABLE => get(&NO_HUGE_PAGES),
        libc::SYS_prctl if a[0] == PR_SET_MEMORY_MERGE && a[2..5] == [0; 3] => {
            MERGES.store(a[1] != 0, Relaxed);
            0
        }
        libc::SYS_prctl if a[0] == PR_GET_MEMORY_MERGE => get(&MERGES),
        libc::SYS_madvise if result == 0 => match a[2] as libc::c_int {
            advice @ (libc::MADV_REMOVE | libc::MADV_DONTFORK | libc::MADV_DOFORK) => {
                guest::advise(a[0], a[1], advice)
            }
            _ => result,
        },
        _ => result,
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
        libc::SYS_exit => {
            clock::thread_ends();
            // SAFETY: as above; no record comes after an exit.
            return unsafe { process::end_thread(vcpu, a0, false) };
        }
        // SAFETY: as above.
        libc::SYS_exit_group => return unsafe { process::end_thread(vcpu, a0, true) },
        _ => {}
    }
    // SAFETY: as above.
    if unsafe { clock::enter(p, number, &call.arguments) } {
        return;
    }
    // SAFETY: as above.
    unsafe { p.push(record::word(record::ENTER, number as u64 & 0xffff_ffff)) };
    p.publish();
    if number != libc::SYS_rt_sigreturn {
        answers::forget();
    }
    hugetlb::enter(number, &call.arguments);
    alignment::enter(number, &call.arguments);
    match sort(number, &call.arguments) {
        Sort::Memory => {
            process::lock();
            call.locked = true;
            call.ticket = process::take_ticket(vcpu);
        }
        Sort::Several | Sort::Fork => {
            // The ticket comes afterwards. To fork, QEMU stops all threads, and a thread that the engine holds at the
            // ticket would not stop.
            process::lock();
            call.locked = true;
        }
        Sort::Other => match number {
            libc::SYS_execve => exec::replace(vcpu, None, a0, a1, a2, 0),
            libc::SYS_execveat => exec::replace(vcpu, Some(a0 as i32), a1, a2, a3, a4),
            libc::SYS_kill | libc::SYS_rt_sigqueueinfo => sends(a0, a1),
            libc::SYS_tgkill | libc::SYS_rt_tgsigqueueinfo => sends(a0, a2),
            libc::SYS_pidfd_send_signal => process::control().sends(a1),
            // The kernel sends this signal when the parent ends.
            libc::SYS_prctl if a0 as i32 == libc::PR_SET_PDEATHSIG => process::control().sends(a1),
            // SAFETY: as above.
            _ => unsafe { kernel_files::before_read(p, number, &call.arguments) },
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
    unsafe { clock::leave(p, number, result) };
    // SAFETY: as above.
    let push = |word| unsafe { p.push(word) };
    match number {
        libc::SYS_wait4 if result > 0 => killed_by(call.arguments[1], result),
        libc::SYS_waitid if result == 0 => killed_by_information(call.arguments[2]),
        _ => {}
    }
    let thread = number == libc::SYS_clone && !call.locked && result > 0;
    if thread && !call.spawned {
        // SAFETY: as above.
        unsafe { late::promise(vcpu, result as i32) };
    }
    if call.spawned && result < 0 {
        push(record::word(record::SPAWN_FAILED, 0));
    }
    let several = number == libc::SYS_process_madvise && call.locked;
    let not_modelled = is_not_modelled(number, &call.arguments) && !several;
    let given = call.arguments;
    let of_linux = hugetlb::leave(number, result, &mut call.arguments);
    let of_linux = result_of_linux(vcpu, number, of_linux, &call.arguments);
    let (ranges, of_linux) = match number {
        libc::SYS_process_madvise if call.locked => advise_ranges(&given),
        _ => (Vec::new(), of_linux),
    };
    answers::replace(&given, result, of_linux);
    let result = of_linux;
    if number == libc::SYS_munmap && result == 0 {
        numa::unmapped(call.arguments[0], call.arguments[1]);
    }
    if call.ticket != 0 && call.locked {
        push(record::word(record::CALL, number as u64));
        push(result as u64);
        push(call.ticket);
        let mut arguments = call.arguments;
        match number {
            libc::SYS_mmap => {
                let file = match arguments[3] & libc::MAP_ANONYMOUS as u64 {
                    0 => files::of_descriptor(arguments[4] as i32),
                    _ => None,
                };
                let file = file.unwrap_or_default();
                arguments[call_arguments::KEY] = file.key;
                arguments[call_arguments::PAGES] = file.pages << 1 | u64::from(file.cached);
            }
            libc::SYS_ftruncate | libc::SYS_fallocate => {
                let file = files::of_descriptor(arguments[0] as i32);
                arguments[call_arguments::KEY] = file.unwrap_or_default().key;
            }
            libc::SYS_truncate => {
                let file = guest::string(arguments[0]).and_then(|path| files::at_path(&path));
                arguments[call_arguments::KEY] = file.unwrap_or_default();
            }
            libc::SYS_shmat if result >= 0 => {
                arguments[call_arguments::SEGMENT] = shared_bytes(arguments[0] as i32);
            }
            libc::SYS_brk => {
                arguments[call_arguments::BREAK] = BREAK.swap(result as u64, Relaxed);
            }
            _ => {}
        }
        arguments.into_iter().for_each(push);
        // SAFETY: as above.
        unsafe { touches::report(p, number, result, &arguments) };
    } else if call.locked && number == libc::SYS_process_madvise {
        for advised in ranges {
            push(record::word(record::CALL, libc::SYS_madvise as u64));
            push(0);
            push(process::take_ticket(vcpu));
            advised.into_iter().for_each(push);
        }
        push(record::word(record::RETURN, number as u64 & 0xffff_ffff));
    } else if call.locked && result > 0 {
        let ticket = process::take_ticket(vcpu);
        push(record::word(record::FORK, result as u64 & 0xffff_ffff));
        push(ticket);
    } else {
        // Sent before the return: the reader attributes later records to the program.
        // SAFETY: as above.
        unsafe { touches::report(p, number, result, &call.arguments) };
        // SAFETY: as above.
        unsafe { kernel_files::opened(p, number, &call.arguments, result) };
        push(record::word(record::RETURN, number as u64 & 0xffff_ffff));
    }
    if not_modelled {
        push(record::word(record::UNMODELLED, number as u64));
        push(result as u64);
        call.arguments.into_iter().for_each(push);
    }
    // To the reader, a thread in the kernel is waiting, and changes by others do not wait for it. The reader must know
    // of the return before the thread continues, and before another change is numbered.
    p.publish();
    if call.locked {
        process::unlock();
    }
    *call = process::Call::default();
}

/// Notes a signal to another process: the death that follows is the program's own doing.
fn sends(target: u64, signal: u64) {
    if target as u32 != std::process::id() {
        process::control().sends(signal);
    }
}

/// Notes the signal that killed the child `pid`, from its status at `address`.
fn killed_by(address: u64, pid: i64) {
    let mut status = [0; 4];
    if guest::read(address, &mut status).is_some() {
        let signal = status[0] & 0x7f;
        if signal != 0 && signal != 0x7f {
            process::control().was_killed(pid as u32, signal);
        }
    }
}

/// As [`killed_by`], from a `siginfo_t`: code, process ID and status at 8, 16 and 24.
fn killed_by_information(address: u64) {
    let mut information = [0; 28];
    if guest::read(address, &mut information).is_some() {
        let word = |at: usize| {
            information[at..at + 4]
                .try_into()
                .map_or(0, u32::from_le_bytes)
        };
        if matches!(word(8) as i32, libc::CLD_KILLED | libc::CLD_DUMPED) {
            process::control().was_killed(word(16), word(24) as u8);
        }
    }
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
