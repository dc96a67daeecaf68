//! The simulated time in the program's clocks.
//!
//! No version of QEMU lets a plugin set the result of a system call or of `rdtsc`. The plugin therefore asks the engine
//! before QEMU asks the host, and answers for the host: in QEMU's table of imported functions, and by a trap of the
//! host's own `rdtsc`, which QEMU executes for that of the program.

use std::cell::Cell;
use std::ffi::{c_int, c_uint, c_void};
use std::fs::File;
use std::mem::zeroed;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;

use pagewalk_ring::Producer;
use pagewalk_ring::record::query;

use crate::alignment::replace_import;
use crate::{guest, process};

/// Nanoseconds of a second.
const SECOND: u64 = 1_000_000_000;
/// Simulated age of the system when the program starts. Programs subtract time-outs from it.
const SINCE_BOOT: u64 = 1000 * SECOND;
/// Units of `times` in a second, as on every Linux on x86-64.
const TICKS: u64 = 100;

/// Host memory of QEMU's program.
static PROGRAM: OnceLock<(u64, u64)> = OnceLock::new();
/// QEMU's action at SIGSEGV.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// A system call that asks for the time, or waits for it.
#[derive(Clone, Copy, Default)]
struct Call {
    /// Simulated time.
    time: Option<u64>,
    /// Time on cores.
    on_cores: Option<u64>,
    /// Time before which the call does not end without an event.
    deadline: Option<u64>,
    /// Memory of the program that holds another time during the call.
    replaced: Option<(u64, [u8; 16])>,
}

thread_local! {
    static CALL: Cell<Call> = Cell::default();
    /// Result of the next `rdtsc`.
    static CYCLES: Cell<u64> = const { Cell::new(0) };
}

/// Date of the program's start, in seconds since 1970; `None` if its clocks are the emulator's.
fn start() -> Option<u64> {
    process::settings().clock
}

/// True if the program's clocks show the simulated time.
pub fn is_simulated() -> bool {
    start().is_some()
}

/// Replaces the functions by which QEMU asks for the time, if the clocks show the simulated time.
///
/// # Errors
/// QEMU imports no function of this name.
pub fn install() -> Result<(), &'static str> {
    if !is_simulated() {
        return Ok(());
    }
    let all = [
        (c"clock_gettime", clock_gettime as *const () as usize),
        (c"gettimeofday", gettimeofday as *const () as usize),
        (c"time", time as *const () as usize),
        (c"times", times as *const () as usize),
        (c"getrusage", getrusage as *const () as usize),
    ];
    for (name, replacement) in all {
        // SAFETY: functions of the same types.
        if !unsafe { replace_import(name, replacement) } {
            return Err(name.to_str().unwrap_or_default());
        }
    }
    Ok(())
}

/// Traps the host's `rdtsc` on the calling thread and those that it creates. Called once QEMU has set its actions at
/// signals.
pub fn trap() {
    if !is_simulated() {
        return;
    }
    let mut range = (0u64, 0u64);
    // SAFETY: `program_range` has the type that the function requires. An all-zero action is valid. QEMU's action stays
    // as it is, except for the function. It never changes it later.
    unsafe {
        libc::dl_iterate_phdr(Some(program_range), (&raw mut range).cast());
        PROGRAM.get_or_init(|| range);
        let mut action: libc::sigaction = zeroed();
        libc::sigaction(libc::SIGSEGV, std::ptr::null(), &mut action);
        BEFORE.get_or_init(|| action);
        action.sa_sigaction = on_fault as *const () as usize;
        action.sa_flags |= libc::SA_SIGINFO;
        libc::sigaction(libc::SIGSEGV, &action, std::ptr::null_mut());
    }
    allow_counter(false);
}

/// Lets the calling thread execute `rdtsc`, or traps it.
pub fn allow_counter(allowed: bool) {
    let state = if allowed {
        libc::PR_TSC_ENABLE
    } else {
        libc::PR_TSC_SIGSEGV
    };
    // SAFETY: affects only the instruction on this thread.
    unsafe { libc::prctl(libc::PR_SET_TSC, state) };
}

/// Lets a thread that ends execute `rdtsc`. QEMU then blocks all signals, also that of the trap, and destructors of
/// libraries ask for the time.
pub fn thread_ends() {
    if is_simulated() {
        allow_counter(true);
    }
}

unsafe extern "C" fn program_range(
    info: *mut libc::dl_phdr_info,
    _: libc::size_t,
    range: *mut c_void,
) -> c_int {
    // SAFETY: by the contract of dl_iterate_phdr, and of `trap`. The first object is the program.
    unsafe {
        let info = &*info;
        let headers = std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into());
        let loads = headers.iter().filter(|h| h.p_type == libc::PT_LOAD);
        let end = loads.map(|h| h.p_vaddr + h.p_memsz).max().unwrap_or(0);
        *range.cast::<(u64, u64)>() = (info.dlpi_addr, info.dlpi_addr + end);
    }
    1
}

/// Bytes of a `rdtsc` or `rdtscp`; 0 for another instruction.
///
/// # Safety
/// Three bytes at `code` are readable.
unsafe fn counter_bytes(code: *const u8) -> i64 {
    // SAFETY: by the contract.
    match unsafe { [*code, *code.add(1), *code.add(2)] } {
        [0x0f, 0x31, _] => 2,
        [0x0f, 0x01, 0xf9] => 3,
        _ => 0,
    }
}

/// Action at SIGSEGV: the result of a trapped `rdtsc`.
unsafe extern "C" fn on_fault(
    signal: c_int,
    information: *mut libc::siginfo_t,
    context: *mut c_void,
) {
    const SI_KERNEL: c_int = 0x80;
    // SAFETY: the kernel's arguments. After a trap of the instruction its code is readable.
    unsafe {
        let registers = &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs;
        let at = registers[libc::REG_RIP as usize];
        if (*information).si_code == SI_KERNEL {
            let bytes = counter_bytes(at as *const u8);
            if bytes > 0 {
                let (from, to) = PROGRAM.get().copied().unwrap_or_default();
                let value = if (from..to).contains(&(at as u64)) {
                    CYCLES.get()
                } else {
                    // A function of the host that asks for the host's time.
                    allow_counter(true);
                    let mut processor = 0;
                    let value = std::arch::x86_64::__rdtscp(&mut processor);
                    allow_counter(false);
                    if bytes == 3 {
                        registers[libc::REG_RCX as usize] = i64::from(processor);
                    }
                    value
                };
                registers[libc::REG_RAX as usize] = (value & 0xffff_ffff) as i64;
                registers[libc::REG_RDX as usize] = (value >> 32) as i64;
                registers[libc::REG_RIP as usize] = at + bytes;
                return;
            }
        }
        if let Some(before) = BEFORE.get() {
            let before: unsafe extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) =
                std::mem::transmute(before.sa_sigaction);
            before(signal, information, context);
        }
    }
}

/// `rdtsc` or `rdtscp`, if the instruction is one: the argument of [`reads_counter`].
pub fn counter(bytes: &[u8]) -> Option<*mut c_void> {
    match bytes {
        [0x0f, 0x31] => Some(0 as _),
        [0x0f, 0x01, 0xf9] => Some(1 as _),
        _ => None,
    }
}

/// Called before the program's `rdtsc`.
pub unsafe extern "C" fn reads_counter(vcpu: c_uint, retired: *mut c_void) {
    // SAFETY: QEMU calls this on the thread of the virtual CPU.
    let answer = unsafe {
        let p = process::producer(vcpu as usize);
        p.query(query::CYCLES, retired as u64, 0)
    };
    CYCLES.set(answer.unwrap_or(CYCLES.get()));
}

/// A time in the program's memory, whose second word is in `fractions` of a second, in nanoseconds. `None`: it is not
/// mapped, or no time.
fn read_time(address: u64, fractions: u64) -> Option<u64> {
    let mut bytes = [0; 16];
    guest::read(address, &mut bytes)?;
    let [seconds, rest] = [0, 8].map(|at: usize| {
        let word = bytes[at..at + 8].try_into();
        word.map_or(u64::MAX, u64::from_le_bytes)
    });
    let seconds = seconds.checked_mul(SECOND).filter(|s| *s < 1 << 62)?;
    (rest < fractions).then(|| seconds + rest * (SECOND / fractions))
}

/// Writes the program's memory, also where the program itself may not: constants may hold a time.
fn write(address: u64, bytes: &[u8]) -> Option<()> {
    guest::write(address, bytes).or_else(|| {
        let memory = File::options().write(true).open("/proc/self/mem").ok()?;
        let at = address.wrapping_add(guest::BASE.load(Relaxed));
        memory.write_all_at(bytes, at).ok()
    })
}

fn in_memory(nanoseconds: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&(nanoseconds / SECOND).to_le_bytes());
    bytes[8..].copy_from_slice(&(nanoseconds % SECOND).to_le_bytes());
    bytes
}

/// Time since the program's start that an absolute time of this clock means.
fn since_start(clock: c_int, time: u64) -> u64 {
    let at_start = match clock {
        libc::CLOCK_REALTIME | libc::CLOCK_TAI => start().unwrap_or(0) * SECOND,
        _ => SINCE_BOOT,
    };
    time.saturating_sub(at_start)
}

/// Class of a clock.
enum Kind {
    Time,
    ProcessTime,
    ThreadTime,
    /// The clock of another process, or of a device.
    Other,
}

fn kind(clock: c_int) -> Kind {
    match clock {
        libc::CLOCK_REALTIME
        | libc::CLOCK_MONOTONIC
        | libc::CLOCK_MONOTONIC_RAW
        | libc::CLOCK_REALTIME_COARSE
        | libc::CLOCK_MONOTONIC_COARSE
        | libc::CLOCK_BOOTTIME
        | libc::CLOCK_REALTIME_ALARM
        | libc::CLOCK_BOOTTIME_ALARM
        | libc::CLOCK_TAI => Kind::Time,
        libc::CLOCK_PROCESS_CPUTIME_ID => Kind::ProcessTime,
        libc::CLOCK_THREAD_CPUTIME_ID => Kind::ThreadTime,
        // The complement of a process's or thread's number, and three bits: 4 for a thread; 3 is a device's.
        ..0 if clock & 3 != 3 => {
            let number = !(clock >> 3);
            // SAFETY: the calls have no arguments and cannot fail.
            let (process, thread) = unsafe { (libc::getpid(), libc::gettid()) };
            match clock & 4 {
                0 if number == 0 || number == process => Kind::ProcessTime,
                4 if number == 0 || number == thread => Kind::ThreadTime,
                _ => Kind::Other,
            }
        }
        _ => Kind::Other,
    }
}

/// Asks for the time before a system call that needs it. True if the call does nothing else, and does not block.
///
/// # Safety
/// `p` is the calling thread's producer.
pub unsafe fn enter(p: &Producer, number: i64, a: &[u64; 6]) -> bool {
    if !is_simulated() {
        return false;
    }
    // SAFETY: by the contract.
    let ask = |kind| unsafe { p.query(kind, 0, 0) };
    let mut call = Call::default();
    match number {
        libc::SYS_clock_gettime => match kind(a[0] as c_int) {
            Kind::Time => call.time = ask(query::TIME),
            Kind::ProcessTime => call.on_cores = ask(query::PROCESS_TIME),
            Kind::ThreadTime => call.on_cores = ask(query::THREAD_TIME),
            Kind::Other => {}
        },
        libc::SYS_gettimeofday | libc::SYS_time => call.time = ask(query::TIME),
        libc::SYS_times => {
            call.time = ask(query::TIME);
            call.on_cores = ask(query::PROCESS_TIME);
        }
        libc::SYS_getrusage => match a[0] as c_int {
            libc::RUSAGE_SELF => call.on_cores = ask(query::PROCESS_TIME),
            libc::RUSAGE_THREAD => call.on_cores = ask(query::THREAD_TIME),
            _ => {}
        },
        // Traps do not survive in the new program: its dynamic linker counts cycles.
        libc::SYS_execve | libc::SYS_execveat => allow_counter(true),
        _ => {
            if let Some(wait) = Wait::of(number, a) {
                call = wait.begin(p, ask(query::TIME));
            }
        }
    }
    CALL.set(call);
    call.time.is_some() || call.on_cores.is_some()
}

/// Ends the effect of [`enter`], and waits for a deadline that the call has reached on the host.
///
/// # Safety
/// `p` is the calling thread's producer.
pub unsafe fn leave(p: &Producer, number: i64, result: i64) {
    if !is_simulated() {
        return;
    }
    if matches!(number, libc::SYS_execve | libc::SYS_execveat) {
        allow_counter(false);
    }
    let call = CALL.take();
    if let Some((address, bytes)) = call.replaced {
        // The memory was written before the call, so it can be written.
        let _ = write(address, &bytes);
    }
    let timed_out = match number {
        libc::SYS_futex => -i64::from(libc::ETIMEDOUT),
        _ => 0,
    };
    if let Some(deadline) = call.deadline
        && result == timed_out
    {
        // SAFETY: by the contract.
        unsafe { p.query(query::SLEEP, deadline, 0) };
    }
}

/// A system call that waits for a time.
struct Wait {
    /// The clock of an absolute time; `None` for a duration.
    clock: Option<c_int>,
    nanoseconds: u64,
    /// It waits for nothing else.
    sleeps: bool,
    /// Address of the time in the program's memory.
    address: Option<u64>,
}

impl Wait {
    /// `None`: the call waits for no time, or for one that is not valid.
    fn of(number: i64, a: &[u64; 6]) -> Option<Wait> {
        const EPOLL_PWAIT2: i64 = 441;
        let wait = |address: u64, fractions| {
            let nanoseconds = (address != 0).then(|| read_time(address, fractions))??;
            Some(Wait {
                clock: None,
                nanoseconds,
                sleeps: false,
                address: Some(address),
            })
        };
        let milliseconds = |argument: u64| {
            let time = u64::try_from(argument as i32).ok()?;
            Some(Wait {
                clock: None,
                nanoseconds: time * (SECOND / 1000),
                sleeps: false,
                address: None,
            })
        };
        match number {
            libc::SYS_nanosleep => Some(Wait {
                sleeps: true,
                ..wait(a[0], SECOND)?
            }),
            libc::SYS_clock_nanosleep if matches!(kind(a[0] as c_int), Kind::Time) => Some(Wait {
                sleeps: true,
                clock: (a[1] as c_int & libc::TIMER_ABSTIME != 0).then_some(a[0] as c_int),
                ..wait(a[2], SECOND)?
            }),
            libc::SYS_poll => milliseconds(a[2]),
            libc::SYS_epoll_wait | libc::SYS_epoll_pwait => milliseconds(a[3]),
            EPOLL_PWAIT2 => wait(a[3], SECOND),
            libc::SYS_ppoll => wait(a[2], SECOND),
            libc::SYS_select => wait(a[4], 1_000_000),
            libc::SYS_pselect6 => wait(a[4], SECOND),
            libc::SYS_futex => match a[1] as c_int & !libc::FUTEX_PRIVATE_FLAG {
                libc::FUTEX_WAIT => wait(a[3], SECOND),
                operation if operation & !libc::FUTEX_CLOCK_REALTIME == libc::FUTEX_WAIT_BITSET => {
                    let real = operation & libc::FUTEX_CLOCK_REALTIME != 0;
                    Some(Wait {
                        clock: Some(if real {
                            libc::CLOCK_REALTIME
                        } else {
                            libc::CLOCK_MONOTONIC
                        }),
                        ..wait(a[3], SECOND)?
                    })
                }
                _ => None,
            },
            _ => None,
        }
        .filter(|wait| wait.nanoseconds > 0)
    }

    /// Sleeps if the call does nothing else, and gives QEMU a time of the host's.
    fn begin(self, p: &Producer, now: Option<u64>) -> Call {
        let mut call = Call::default();
        let Some(now) = now else {
            return call;
        };
        let deadline = match self.clock {
            None => now + self.nanoseconds,
            Some(clock) => since_start(clock, self.nanoseconds),
        };
        let mut time = None;
        if self.sleeps {
            // SAFETY: `p` is the calling thread's.
            unsafe { p.query(query::SLEEP, deadline, 0) };
            time = Some(0);
        } else {
            call.deadline = Some(deadline);
            if let Some(clock) = self.clock {
                let mut host = libc::timespec {
                    tv_sec: 0,
                    tv_nsec: 0,
                };
                // SAFETY: the call fills `host`.
                unsafe { libc::clock_gettime(clock, &mut host) };
                let host = host.tv_sec as u64 * SECOND + host.tv_nsec as u64;
                time = Some(host + deadline.saturating_sub(now));
            }
        }
        let mut before = [0; 16];
        if let (Some(address), Some(time)) = (self.address, time)
            && guest::read(address, &mut before).is_some()
            && write(address, &in_memory(time)).is_some()
        {
            call.replaced = Some((address, before));
        }
        call
    }
}

unsafe extern "C" fn clock_gettime(clock: libc::clockid_t, into: *mut libc::timespec) -> c_int {
    let call = CALL.get();
    let at_start = match clock {
        libc::CLOCK_TAI
        | libc::CLOCK_REALTIME
        | libc::CLOCK_REALTIME_COARSE
        | libc::CLOCK_REALTIME_ALARM => start().unwrap_or(0) * SECOND,
        _ => SINCE_BOOT,
    };
    let Some(time) = call.time.map(|time| time + at_start).or(call.on_cores) else {
        // SAFETY: the caller's arguments.
        return unsafe { libc::clock_gettime(clock, into) };
    };
    let time = libc::timespec {
        tv_sec: (time / SECOND) as _,
        tv_nsec: (time % SECOND) as _,
    };
    // SAFETY: the caller's memory.
    unsafe { into.write(time) };
    0
}

fn timeval(nanoseconds: u64) -> libc::timeval {
    libc::timeval {
        tv_sec: (nanoseconds / SECOND) as _,
        tv_usec: (nanoseconds % SECOND / 1000) as _,
    }
}

unsafe extern "C" fn gettimeofday(into: *mut libc::timeval, zone: *mut libc::timezone) -> c_int {
    // SAFETY: the caller's arguments.
    let done = unsafe { libc::gettimeofday(into, zone) };
    if let Some(time) = CALL.get().time.filter(|_| !into.is_null()) {
        // SAFETY: the caller's memory.
        unsafe { into.write(timeval(start().unwrap_or(0) * SECOND + time)) };
    }
    done
}

unsafe extern "C" fn time(into: *mut libc::time_t) -> libc::time_t {
    let Some(time) = CALL.get().time else {
        // SAFETY: the caller's arguments.
        return unsafe { libc::time(into) };
    };
    let seconds = (start().unwrap_or(0) + time / SECOND) as libc::time_t;
    if !into.is_null() {
        // SAFETY: the caller's memory.
        unsafe { into.write(seconds) };
    }
    seconds
}

unsafe extern "C" fn times(into: *mut libc::tms) -> libc::clock_t {
    let call = CALL.get();
    let (Some(time), Some(on_cores)) = (call.time, call.on_cores) else {
        // SAFETY: the caller's arguments.
        return unsafe { libc::times(into) };
    };
    if !into.is_null() {
        let times = libc::tms {
            tms_utime: (on_cores / (SECOND / TICKS)) as _,
            tms_stime: 0,
            tms_cutime: 0,
            tms_cstime: 0,
        };
        // SAFETY: the caller's memory.
        unsafe { into.write(times) };
    }
    ((SINCE_BOOT + time) / (SECOND / TICKS)) as _
}

unsafe extern "C" fn getrusage(who: c_int, into: *mut libc::rusage) -> c_int {
    // SAFETY: the caller's arguments.
    let done = unsafe { libc::getrusage(who as _, into) };
    if let Some(on_cores) = CALL.get().on_cores.filter(|_| done == 0) {
        // SAFETY: the caller's memory, which the call has filled.
        unsafe {
            (*into).ru_utime = timeval(on_cores);
            (*into).ru_stime = timeval(0);
        }
    }
    done
}
