//! This process's segment and virtual CPUs, and its connection to the engine.

use std::cell::{Cell, UnsafeCell};
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::{Path, PathBuf};
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize};
use std::time::Duration;

use pagewalk_ring::{
    Control, Header, Producer, Segment, Trouble, futex_wait, futex_wake, receive_fd, record,
    send_fd,
};

use crate::settings::Settings;
use crate::{answers, api, count, guest, hugetlb, late, numa, touches};

/// Most virtual CPUs; QEMU numbers a new one above the highest living one.
pub const VCPUS: usize = 1 << 16;

/// A system call in progress.
#[derive(Default)]
pub struct Call {
    /// Its arguments.
    pub arguments: [u64; 6],
    /// Its ticket; 0 = none.
    pub ticket: u64,
    /// The thread holds [`lock`].
    pub locked: bool,
    /// The call has created a thread.
    pub spawned: bool,
}

/// A virtual CPU. Only its own thread accesses `producer` and `call`, except that its creator does before it is
/// `alive`.
pub struct Vcpu {
    producer: UnsafeCell<Option<Producer>>,
    call: UnsafeCell<Call>,
    alive: AtomicBool,
}

// SAFETY: see the struct; others only call `poke` after `alive`.
unsafe impl Sync for Vcpu {}

static ALL: [Vcpu; VCPUS] = [const {
    Vcpu {
        producer: UnsafeCell::new(None),
        call: UnsafeCell::new(Call {
            arguments: [0; 6],
            ticket: 0,
            locked: false,
            spawned: false,
        }),
        alive: AtomicBool::new(false),
    }
}; VCPUS];
/// Blocks sent so far. Not in the shared memory: a child needs the number at the fork, and its parent continues at
/// once.
pub static BLOCKS: AtomicU64 = AtomicU64::new(0);
/// Highest number of a virtual CPU so far, plus one.
static HIGHEST: AtomicUsize = AtomicUsize::new(0);
static SEGMENT: AtomicPtr<Segment> = AtomicPtr::new(null_mut());
static CONTROL: AtomicPtr<Control> = AtomicPtr::new(null_mut());
static SETTINGS: OnceLock<Settings> = OnceLock::new();
/// Set before the guest can change its root directory.
static IDENTITIES: OnceLock<[Identity; 3]> = OnceLock::new();
/// Set before the guest can change its directory.
static PROGRAM: OnceLock<Option<PathBuf>> = OnceLock::new();

thread_local! {
    static CURRENT: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// The engine's settings. Ends the process if they are not set yet.
pub fn settings() -> &'static Settings {
    SETTINGS
        .get()
        .unwrap_or_else(|| die("used before installed"))
}

/// Device and number of a file; `None`: it does not exist, or access is denied.
type Identity = Option<(u64, u64)>;

/// The present root directory, emulator and plugin.
fn identities() -> [Identity; 3] {
    let settings = settings();
    [OsStr::new("/"), &settings.qemu, &settings.plugin].map(|path| {
        let status = std::fs::metadata(path).ok()?;
        Some((status.dev(), status.ino()))
    })
}

/// True if this process finds the same emulator and plugin as at its start, which may fail after a change of its root
/// directory.
pub fn is_reachable() -> bool {
    let now = identities();
    IDENTITIES
        .get()
        .is_none_or(|then| then[0] == now[0] || then[1..] == now[1..])
}

/// The program that this image runs.
pub fn program() -> Option<&'static Path> {
    PROGRAM.get()?.as_deref()
}

/// The memory that this process shares with the engine.
pub fn segment() -> &'static Segment {
    // SAFETY: set in `start` before QEMU can call anything, and never freed.
    unsafe { &*SEGMENT.load(Acquire) }
}

/// The page that all processes of the program share with the engine.
pub fn control() -> &'static Control {
    // SAFETY: mapped in `start` before QEMU can call anything, and never unmapped.
    unsafe { &*CONTROL.load(Acquire) }
}

/// The producer of a virtual CPU's ring.
///
/// # Safety
/// The caller runs on that virtual CPU.
#[inline(always)]
pub unsafe fn producer(vcpu: usize) -> &'static Producer {
    // SAFETY: QEMU gives numbers that `new_thread` has checked and filled.
    unsafe {
        (*ALL.get_unchecked(vcpu).producer.get())
            .as_ref()
            .unwrap_unchecked()
    }
}

/// The system call of a virtual CPU.
///
/// # Safety
/// The caller runs on that virtual CPU and holds no other reference to it.
pub unsafe fn call(vcpu: usize) -> &'static mut Call {
    // SAFETY: by the contract.
    unsafe { &mut *ALL[vcpu].call.get() }
}

/// Records that the calling thread runs this virtual CPU.
pub fn entered(vcpu: usize) {
    CURRENT.set(vcpu);
}

/// Prints the reason to standard error and ends the process.
pub fn die(why: &str) -> ! {
    eprintln!("pagewalk: {why}");
    // SAFETY: ends the process without running the guest's or QEMU's handlers.
    unsafe { libc::_exit(125) }
}

/// Ends the process silently if the engine has gone.
fn deserted(control: &Control) -> bool {
    let engine = control.engine.load(Relaxed) as libc::pid_t;
    // SAFETY: signal 0 only checks that the process exists.
    let gone = unsafe { libc::kill(engine, 0) } != 0
        && io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH);
    if gone || control.abort.load(Relaxed) != 0 {
        // SAFETY: ends this process.
        unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    }
    false
}

fn map(descriptor: &OwnedFd, bytes: usize) -> io::Result<*mut u8> {
    // SAFETY: a new mapping at an address of the kernel's choice.
    let base = unsafe {
        libc::mmap(
            null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_NORESERVE,
            descriptor.as_raw_fd(),
            0,
        )
    };
    if base == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    Ok(base.cast())
}

/// An anonymous file of `bytes`, to be mapped.
fn shared_memory(bytes: usize) -> io::Result<OwnedFd> {
    // SAFETY: the descriptor is new and owned here; an all-zero rlimit is valid, and the call fills it; the length is
    // that of our own file.
    unsafe {
        let fd = libc::memfd_create(c"pagewalk".as_ptr(), libc::MFD_CLOEXEC);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        let memory = OwnedFd::from_raw_fd(fd);
        let mut limit: libc::rlimit = std::mem::zeroed();
        // Beyond this limit, a signal would end the process.
        if libc::getrlimit(libc::RLIMIT_FSIZE, &mut limit) == 0 && limit.rlim_cur < bytes as u64 {
            return Err(io::Error::from_raw_os_error(libc::EFBIG));
        }
        if libc::ftruncate(fd, bytes as libc::off_t) != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(memory)
    }
}

/// Creates a segment for this process and sends it to the engine. Descriptors are open only during the call, two at a
/// time, because programs may close or count descriptors.
fn send_hello(settings: &Settings, forked: bool, inherited: u64) -> io::Result<()> {
    let address = SocketAddr::from_abstract_name(settings.socket.as_bytes())?;
    let stream = UnixStream::connect_addr(&address)?;
    let bytes = settings.geometry.bytes().unwrap_or(0);
    let made = shared_memory(bytes).and_then(|memory| Ok((map(&memory, bytes)?, memory)));
    if let (Err(error), false) = (&made, forked) {
        // A child can report it in another way, and may try again.
        let errno = error.raw_os_error().unwrap_or(libc::EIO) as u8;
        send_fd(stream.as_fd(), &[0, errno], None)?;
        // The engine closes the connection after it has noted the reason. If this process ended
        // earlier, the run could end as complete.
        let _ = receive_fd(stream.as_fd(), &mut [0]);
    }
    let (base, memory) = made?;
    // SAFETY: fresh memory of a fresh file. It is unmapped only at the end, or in a child that does not use it.
    let segment = unsafe { Segment::create(base, settings.geometry) };
    let header = segment.header();
    header.inherited.store(inherited, Relaxed);
    // A child has its parent's; of a new image it becomes known with the first instruction.
    header.guest_base.store(guest::BASE.load(Relaxed), Relaxed);
    send_fd(stream.as_fd(), &[u8::from(forked)], Some(memory.as_fd()))?;
    drop(memory);
    let mut answer = [0];
    // A child has its parent's control page, and gets none.
    match (receive_fd(stream.as_fd(), &mut answer)?, forked) {
        ((1, None), true) => {}
        ((1, Some(control)), false) => CONTROL.store(map(&control, 4096)?.cast(), Release),
        _ => return Err(io::Error::other("the engine has gone")),
    }
    SEGMENT.store(Box::into_raw(Box::new(segment)), Release);
    Ok(())
}

/// [`send_hello`] for a child. If the program has used up its descriptors, its soft limit is raised to the hard limit
/// during the call.
fn send_child_hello(inherited: u64) -> io::Result<()> {
    let done = send_hello(settings(), true, inherited);
    let Err(error) = &done else {
        return done;
    };
    // SAFETY: an all-zero rlimit is valid, and the calls read and write only it.
    unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        if error.raw_os_error() != Some(libc::EMFILE)
            || libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) != 0
            || limit.rlim_cur >= limit.rlim_max
        {
            return done;
        }
        let raised = libc::rlimit {
            rlim_cur: limit.rlim_max,
            ..limit
        };
        libc::setrlimit(libc::RLIMIT_NOFILE, &raised);
        let done = send_hello(settings(), true, inherited);
        libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
        done
    }
}

/// Reports to the engine that this process cannot be traced, and ends it. The engine ends the run, because the stream
/// would be incomplete.
pub fn lost(trouble: Trouble, errno: i32) -> ! {
    control().report(trouble, errno, std::process::id());
    // SAFETY: as in `die`.
    unsafe { libc::_exit(125) }
}

/// Connects a new process image to the engine.
pub fn start(settings: Settings) -> io::Result<()> {
    send_hello(&settings, false, 0)?;
    PROGRAM.get_or_init(api::program);
    SETTINGS
        .set(settings)
        .map_err(|_| io::Error::other("installed twice"))?;
    IDENTITIES.get_or_init(identities);
    // SAFETY: registers a handler that stays.
    unsafe {
        libc::pthread_atfork(
            Some(before_fork),
            Some(after_fork_in_parent),
            Some(after_fork),
        )
    };
    Ok(())
}

/// Takes locks that another thread may hold, because the child lacks that thread.
unsafe extern "C" fn before_fork() {
    hugetlb::hold();
    numa::hold();
}

unsafe extern "C" fn after_fork_in_parent() {
    numa::let_go();
    hugetlb::let_go();
}

/// Runs in the child, whose only thread is the one that forked.
unsafe extern "C" fn after_fork() {
    numa::let_go();
    hugetlb::let_go();
    let old = segment();
    let bytes = settings().geometry.bytes().unwrap_or(0);
    let inherited = BLOCKS.load(Relaxed);
    let base = old.base();
    for vcpu in &ALL[..HIGHEST.load(Relaxed)] {
        vcpu.alive.store(false, Relaxed);
    }
    count::restart();
    late::forget();
    touches::forked();
    answers::forked();
    hugetlb::forked();
    if let Err(error) = send_child_hello(inherited) {
        match error.raw_os_error() {
            // The engine has ended, or is about to, and its program ends with it.
            None | Some(libc::ECONNREFUSED | libc::ECONNRESET | libc::EPIPE) => die(&format!(
                "a child process does not reach the engine: {error}"
            )),
            Some(errno) => lost(Trouble::Child, errno),
        }
    }
    let vcpu = CURRENT.get();
    if vcpu != usize::MAX {
        // SAFETY: this is that virtual CPU's thread.
        unsafe { *call(vcpu) = Call::default() };
        claim(vcpu);
        // The child starts inside the fork that created it.
        // SAFETY: as above.
        let p = unsafe { producer(vcpu) };
        // SAFETY: as above.
        unsafe { p.push(record::word(record::ENTER, libc::SYS_fork as u64)) };
        p.publish();
    }
    // SAFETY: the parent's segment is not used here any longer.
    unsafe { libc::munmap(base.cast(), bytes) };
}

fn claim(vcpu: usize) -> usize {
    let (slot, producer) = take_slot();
    settle(vcpu, producer);
    slot
}

/// Takes a ring for a thread of this process.
pub fn take_slot() -> (usize, Producer) {
    loop {
        // SAFETY: segment and control are never unmapped while used; only the thread of this virtual CPU writes the
        // ring.
        let claimed = unsafe { Producer::claim(segment(), CONTROL.load(Acquire), deserted) };
        let Some((slot, producer)) = claimed else {
            let header = segment().header();
            if header.threads.load(Relaxed) >= settings().geometry.slots as u64 {
                header.trouble.store(Header::OUT_OF_SLOTS, Relaxed);
                die("more threads at a time than can be traced (1024)");
            }
            // The engine has not read ended threads to their ends yet.
            std::thread::sleep(Duration::from_millis(1));
            deserted(control());
            continue;
        };
        segment().header().threads.fetch_add(1, Relaxed);
        return (slot, producer);
    }
}

/// Gives a virtual CPU its ring.
fn settle(vcpu: usize, producer: Producer) {
    // SAFETY: the virtual CPU does not run yet, or runs this thread.
    unsafe { *ALL[vcpu].producer.get() = Some(producer) };
    HIGHEST.fetch_max(vcpu + 1, Relaxed);
    // A thread that takes a ticket pokes living ones; a new thread checks for tickets after this store.
    ALL[vcpu].alive.store(true, SeqCst);
}

/// A virtual CPU is created, on its creator's thread or, from QEMU 9 on, on its own.
pub fn new_thread(vcpu: usize) {
    if vcpu >= VCPUS {
        die("QEMU has numbered more than 65536 threads");
    }
    // SAFETY: it does not run yet.
    unsafe { *call(vcpu) = Call::default() };
    let maker = CURRENT.get();
    if maker == usize::MAX && HIGHEST.load(Relaxed) > 0 {
        settle(vcpu, late::wait());
        return entered(vcpu);
    }
    let slot = claim(vcpu);
    if maker != usize::MAX {
        // SAFETY: this is the creator's thread.
        unsafe {
            numa::inherit(vcpu, maker);
            call(maker).spawned = true;
            producer(vcpu).starts_from(producer(maker));
            producer(maker).push(record::word(record::SPAWN, slot as u64));
            // The new thread may run before its creator's call returns, and others may change its memory. The reader
            // must know of it before.
            producer(maker).publish();
        }
    }
}

/// Ends a virtual CPU's thread, and closes its ring with a last record.
///
/// # Safety
/// The caller runs on that virtual CPU, which executes nothing more.
pub unsafe fn end_thread(vcpu: usize, status: u64, process_too: bool) {
    let header = segment().header();
    let last = header.threads.fetch_sub(1, SeqCst) == 1 || process_too;
    header.executed.store(count::executed(), Relaxed);
    // SAFETY: by the contract.
    let p = unsafe { producer(vcpu) };
    let payload = status & 0xff | if last { record::LAST } else { 0 };
    if last {
        hugetlb::end();
        header.exits.store(1, SeqCst);
    }
    // SAFETY: by the contract.
    unsafe { p.push(record::word(record::EXIT, payload)) };
    ALL[vcpu].alive.store(false, Release);
    p.close();
}

/// Takes the next ticket, and makes every other thread meet it at its next block.
pub fn take_ticket(vcpu: usize) -> u64 {
    let ticket = segment().header().tickets.fetch_add(1, SeqCst) + 1;
    // SAFETY: called on the thread of this virtual CPU.
    unsafe { producer(vcpu) }.met(ticket);
    for other in others(vcpu) {
        // SAFETY: alive, so initialised; other threads may call `poke`.
        if let Some(p) = unsafe { &*other.producer.get() } {
            p.poke();
        }
    }
    ticket
}

/// The living virtual CPUs but this one.
fn others(vcpu: usize) -> impl Iterator<Item = &'static Vcpu> {
    let all = ALL[..HIGHEST.load(Relaxed)].iter().enumerate();
    all.filter(move |(i, other)| *i != vcpu && other.alive.load(Acquire))
        .map(|(_, other)| other)
}

/// True if the process has no other thread.
pub fn is_alone(vcpu: usize) -> bool {
    others(vcpu).next().is_none()
}

/// Serialises changes of the address space, so that they happen in ticket order.
pub fn lock() {
    while !lock_soon() {}
}

/// As [`lock`], if that takes less than a second. Returns true then.
pub fn lock_soon() -> bool {
    let word = &segment().header().lock;
    for _ in 0..200 {
        if word.compare_exchange(0, 1, Acquire, Relaxed).is_ok() {
            return true;
        }
        futex_wait(word, 1, Duration::from_millis(5));
    }
    false
}

/// See [`lock`].
pub fn unlock() {
    let word = &segment().header().lock;
    word.store(0, Release);
    futex_wake(word);
}
