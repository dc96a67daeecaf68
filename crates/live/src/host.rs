//! The emulator as a child process, and the socket to which its processes connect at their start.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, FromRawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use memmap2::{MmapOptions, MmapRaw};
use pagewalk_ring::{Control, Trouble, futex_wake, receive_fd, send_fd};
use pagewalk_stream::Error;

use crate::identity::{Condition, Identity};
use crate::locate::{Emulator, find_qemu, resolve_program};
use crate::options::LiveOptions;
use crate::process::{MappedSegment, image};

/// Message of a process image that has started, with its shared memory.
pub(crate) struct Hello {
    /// The sender.
    pub who: Identity,
    /// Created by fork, not by execve.
    pub forked: bool,
    /// Mapped at once, so that a process does not keep a descriptor open.
    pub memory: Result<MappedSegment, Error>,
    /// The process that forked it has reported it.
    claimed: bool,
}

#[derive(Default)]
struct RendezvousState {
    hellos: Vec<Hello>,
    /// Exit status of the first process.
    status: Option<ExitStatus>,
    failed: Option<String>,
    closing: bool,
    /// Processes that have sent a message and may live; they are killed at the end.
    processes: BTreeMap<i32, Identity>,
    /// File that the first process executes: the emulator, whatever command starts it.
    image: Option<PathBuf>,
    /// Number of entries above which processes that have ended are removed.
    most: usize,
}

impl RendezvousState {
    fn remember(&mut self, who: Identity) {
        self.processes.insert(who.pid, who);
        if self.processes.len() >= self.most {
            self.processes
                .retain(|_, who| !matches!(who.look(), Ok(Condition::Died(_))));
            self.most = 64.max(2 * self.processes.len());
        }
    }
}

struct Rendezvous {
    control: MmapRaw,
    control_file: File,
    state: Mutex<RendezvousState>,
    changed: Condvar,
}

impl Rendezvous {
    fn state(&self) -> MutexGuard<'_, RendezvousState> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }
    fn control(&self) -> &Control {
        // SAFETY: the mapping is a page, aligned, lives as long as self, and
        // `Control` is all atomics.
        unsafe { &*self.control.as_mut_ptr().cast::<Control>() }
    }
    fn ring_bell(&self) {
        let control = self.control();
        control.doorbell.fetch_add(1, Relaxed);
        futex_wake(&control.doorbell);
        self.changed.notify_all();
    }

    /// Gives process `pid` no reply, so that it ends. Reports trouble if the process belongs to the program.
    ///
    /// # Errors
    /// As [`Identity::of`].
    fn turn_away(&self, pid: i32, errno: i32) -> std::io::Result<Option<Hello>> {
        let Some(who) = Identity::of(pid)? else {
            return Ok(None);
        };
        let state = self.state();
        let known = state.processes.get(&pid) == Some(&who);
        // A process that executes another file has found the socket by chance.
        let (first, this) = (state.image.as_ref(), image(pid));
        let stranger = first.is_none_or(|first| this.is_some_and(|this| *first != this));
        drop(state);
        if known {
            self.control().report(Trouble::Image, errno, pid as u32);
        } else if !stranger {
            self.control().report(Trouble::Child, errno, pid as u32);
        }
        Ok(None)
    }
}

/// The emulator that runs a program, and the messages of its processes. Dropping it ends them all.
pub(crate) struct Host {
    shared: Arc<Rendezvous>,
    hellos: BTreeMap<i32, VecDeque<Hello>>,
    socket: String,
    qemu: Emulator,
    cpu: String,
    _room: Room,
    listener: Option<JoinHandle<()>>,
    keeper: Option<JoinHandle<()>>,
}

fn memory_file() -> std::io::Result<File> {
    // SAFETY: the descriptor is new, and owned here.
    unsafe {
        let fd = libc::memfd_create(c"pagewalk-control".as_ptr(), libc::MFD_CLOEXEC);
        if fd < 0 {
            return Err(std::io::Error::last_os_error());
        }
        Ok(File::from_raw_fd(fd))
    }
}

/// Names for the emulator's socket. Random, because engines may have the same process number and still share a network
/// namespace, and with it these names.
fn names() -> impl Iterator<Item = std::io::Result<String>> {
    std::iter::repeat_with(|| {
        let mut drawn = [0u8; 16];
        // SAFETY: the call fills `drawn`. A request of this size is never cut short.
        let n = unsafe { libc::getrandom(drawn.as_mut_ptr().cast(), drawn.len(), 0) };
        if n != drawn.len() as isize {
            return Err(std::io::Error::last_os_error());
        }
        Ok(format!("pagewalk-{:032x}", u128::from_le_bytes(drawn)))
    })
}

/// Listens on the first free one of `names`.
fn listen_on(
    names: impl IntoIterator<Item = std::io::Result<String>>,
) -> std::io::Result<(String, UnixListener)> {
    for name in names {
        let name = name?;
        // An abstract address leaves no file behind.
        let listener = SocketAddr::from_abstract_name(name.as_bytes())
            .and_then(|a| UnixListener::bind_addr(&a));
        match listener {
            Ok(listener) => return Ok((name, listener)),
            Err(e) if e.kind() == std::io::ErrorKind::AddrInUse => {}
            Err(e) => return Err(e),
        }
    }
    Err(std::io::ErrorKind::AddrInUse.into())
}

/// Descriptors that a run opens at the same time.
const DESCRIPTORS: usize = 8;

/// Number of runs of this process, and its limit of descriptors from before if a run has raised it.
static RAISED: Mutex<(usize, Option<libc::rlimit>)> = Mutex::new((0, None));

/// Room for the descriptors of a run. If this process's soft limit leaves too few, it is raised to the hard limit while
/// there are runs. The programs in the runs keep the old limit.
struct Room {
    /// Limit for the program.
    before: libc::rlimit,
}

impl Room {
    /// Raises the limit if needed. Fails if a run would run out of descriptors.
    fn make() -> Result<Room, Error> {
        let mut raised = RAISED.lock().unwrap_or_else(|e| e.into_inner());
        let limit = limit().map_err(|e| Error::refused(format!("getrlimit: {e}")))?;
        let before = raised.1.unwrap_or(limit);
        let mut most = limit.rlim_cur;
        let mut free = free(most);
        if free < DESCRIPTORS && limit.rlim_cur < limit.rlim_max {
            let higher = libc::rlimit {
                rlim_cur: limit.rlim_max,
                ..limit
            };
            if set_limit(&higher).is_ok() {
                raised.1 = Some(before);
                most = higher.rlim_cur;
                free = self::free(most);
            }
        }
        raised.0 += 1;
        let room = Room { before };
        drop(raised);
        if free < DESCRIPTORS {
            return Err(Error::refused(format!(
                "{free} of the {most} file descriptors that this process may have are free: running a program takes {DESCRIPTORS}; raise the limit (ulimit -n {})",
                most + (DESCRIPTORS - free) as u64
            )));
        }
        Ok(room)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let mut raised = RAISED.lock().unwrap_or_else(|e| e.into_inner());
        raised.0 -= 1;
        if raised.0 == 0
            && let Some(before) = raised.1.take()
            // Only if nobody else has changed the limit since.
            && limit().is_ok_and(|now| now.rlim_cur == now.rlim_max)
        {
            // Lowering the limit is always allowed.
            drop(set_limit(&before));
        }
    }
}

/// The limit of this process's descriptors.
fn limit() -> std::io::Result<libc::rlimit> {
    // SAFETY: an all-zero rlimit is valid, and the call fills it.
    unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        match libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) {
            0 => Ok(limit),
            _ => Err(std::io::Error::last_os_error()),
        }
    }
}

fn set_limit(limit: &libc::rlimit) -> std::io::Result<()> {
    // SAFETY: reads `limit` only.
    match unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, limit) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Free descriptors below `most`, counted up to the number that a run needs.
fn free(most: u64) -> usize {
    let most = i32::try_from(most).unwrap_or(i32::MAX);
    // SAFETY: the call returns an error for a closed descriptor.
    let free = (0..most).filter(|&fd| unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0);
    free.take(DESCRIPTORS).count()
}

/// The value of QEMU's option `-plugin`, in which commas are doubled. Paths may hold any bytes.
fn plugin_option(plugin: &Path, settings: &[(&str, &OsStr)]) -> OsString {
    let doubled = |value: &OsStr| -> Vec<u8> {
        let bytes = value.as_bytes().split(|&b| b == b',');
        bytes.collect::<Vec<_>>().join(&b",,"[..])
    };
    let mut option = doubled(plugin.as_os_str());
    for (key, value) in settings {
        option.extend(format!(",{key}=").into_bytes());
        option.extend(doubled(value));
    }
    OsString::from_vec(option)
}

impl Host {
    /// Starts the emulator on the program.
    ///
    /// # Errors
    /// As [`launch`](crate::launch), except for the errors that the emulator itself finds: [`Host::first_hello`]
    /// returns those.
    pub fn start(options: LiveOptions) -> Result<Host, Error> {
        let room = Room::make()?;
        let (program, words) = resolve_program(&options.argv)?;
        let qemu = find_qemu(options.qemu.as_deref())?;
        if let Some(asked) = &options.cpu {
            qemu.check_cpu(asked)?;
        }
        let plugin = std::fs::canonicalize(&options.plugin).map_err(|e| {
            Error::refused(format!(
                "the QEMU plugin is not at {}: {e}; build it with `cargo build --release -p pagewalk-qemu-plugin`",
                options.plugin.display()
            ))
        })?;
        let failed = |what: &str, e: std::io::Error| Error::refused(format!("{what}: {e}"));
        let control_file = memory_file()
            .and_then(|f| f.set_len(4096).map(|()| f))
            .map_err(|e| failed("cannot make shared memory", e))?;
        let control = MmapOptions::new()
            .map_raw(&control_file)
            .map_err(|e| failed("cannot map shared memory", e))?;
        let (socket, listener) = listen_on(names().take(100))
            .map_err(|e| failed("cannot listen for the emulator", e))?;

        let records = match options.ring_bytes {
            0 => 1 << 17,
            n => (n / 8).max(4096).next_power_of_two(),
        };
        let (cpu, base) = (qemu.cpu(options.cpu.as_deref()), qemu.base());
        let mut command = Command::new(&qemu.path);
        for (option, value) in [("-cpu", &cpu[..]), ("-B", base)] {
            if !value.is_empty() {
                command.args([option, value]);
            }
        }
        let [count, roi] =
            [options.count, options.ordered_marks].map(|set| if set { "on" } else { "off" });
        let records = records.to_string();
        let clock = match options.simulated_clock {
            true => date_of_start()?.to_string(),
            false => String::new(),
        };
        let option = plugin_option(
            &plugin,
            &[
                ("socket", OsStr::new(&socket)),
                ("qemu", qemu.path.as_os_str()),
                ("plugin", plugin.as_os_str()),
                ("records", OsStr::new(&records)),
                ("count", OsStr::new(count)),
                ("roi", OsStr::new(roi)),
                ("cpu", OsStr::new(&cpu)),
                ("base", OsStr::new(base)),
                ("clock", OsStr::new(&clock)),
            ],
        );
        command
            .arg("-plugin")
            .arg(option)
            // Fixes the random bytes that a program gets at its start.
            .args(["-seed", "1", "-0"])
            .arg(&words[0])
            .arg("--")
            .arg(&program)
            .args(&words[1..])
            .envs(options.env);
        let [input, output, errors] = options.stdio;
        for (set, file) in [
            (
                Command::stdin as fn(&mut Command, Stdio) -> &mut Command,
                input,
            ),
            (Command::stdout, output),
            (Command::stderr, errors),
        ] {
            if let Some(file) = file {
                set(&mut command, Stdio::from(file));
            }
        }
        // Disables address randomisation. If that is not allowed (in some containers), addresses differ between runs.
        let fixed_addresses = !base.is_empty();
        let limit = room.before;
        // SAFETY: prctl, setrlimit and personality are async-signal-safe. The signal comes when the thread that made
        // the child ends. That thread waits for the child (below), so the signal comes when this process is killed.
        unsafe {
            command.pre_exec(move || {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
                if fixed_addresses {
                    libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong);
                }
                Ok(())
            })
        };

        let shared = Arc::new(Rendezvous {
            control,
            control_file,
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        shared.control().engine.store(std::process::id(), Relaxed);
        shared.control().set_huge_pages(options.huge_pages);
        let mut host = Host {
            shared: shared.clone(),
            hellos: BTreeMap::new(),
            socket,
            qemu,
            cpu,
            _room: room,
            listener: None,
            keeper: None,
        };
        let spawned = |what| move |e| failed(what, e);
        let theirs = shared.clone();
        host.listener = Some(
            std::thread::Builder::new()
                .name("live-listener".into())
                .spawn(move || listen(&listener, &theirs))
                .map_err(spawned("cannot start a thread"))?,
        );
        host.keeper = Some(
            std::thread::Builder::new()
                .name("live-keeper".into())
                .spawn(move || keep(command, &shared))
                .map_err(spawned("cannot start a thread"))?,
        );
        Ok(host)
    }

    /// The control page, which the engine shares with the processes.
    pub fn control(&self) -> &Control {
        self.shared.control()
    }

    /// The program's number of a signal of the host.
    pub(crate) fn signal_of_program(&self, number: u8) -> u8 {
        self.qemu.signal_of_program(number)
    }

    /// The CPU model that the emulator gives the program.
    pub fn cpu(&self) -> &str {
        &self.cpu
    }

    /// Waits until the emulator has started.
    ///
    /// # Errors
    /// It cannot be started, or ended before the program.
    pub fn first_hello(&mut self) -> Result<Hello, Error> {
        let mut state = self.shared.state();
        loop {
            if !state.hellos.is_empty() {
                return Ok(state.hellos.remove(0));
            }
            if let Some(why) = &state.failed {
                return Err(Error::refused(why.clone()));
            }
            if let Some(status) = state.status {
                drop(state);
                // Returns the cause, if it is known.
                self.check()?;
                return Err(Error::refused(format!(
                    "the emulator ended before the program started ({status}); its own message is above"
                )));
            }
            state = self
                .shared
                .changed
                .wait_timeout(state, Duration::from_millis(100))
                .unwrap_or_else(|e| e.into_inner())
                .0;
        }
    }

    /// Checks that the stream is complete.
    ///
    /// # Errors
    /// A process of the program cannot be traced, and the reason.
    #[inline]
    pub fn check(&self) -> Result<(), Error> {
        match self.control().trouble() {
            None => Ok(()),
            Some(trouble) => Err(self.explain(trouble)),
        }
    }

    #[cold]
    fn explain(&self, (trouble, errno, pid): (Trouble, i32, u32)) -> Error {
        let more = match errno {
            libc::EMFILE => "it may have no more file descriptors; raise the limit (ulimit -n)",
            libc::ENFILE => "this host has no more file descriptors (sysctl fs.file-max)",
            libc::EFBIG => {
                "its files may not be as large as the memory that it shares with Pagewalk, 2 GB; raise the limit (ulimit -f)"
            }
            _ => "",
        };
        let why = match more {
            "" => std::io::Error::from_raw_os_error(errno).to_string(),
            more => more.to_owned(),
        };
        Error::refused(match trouble {
            Trouble::Child => {
                format!("process {pid}, which the program forked, cannot be traced: {why}")
            }
            Trouble::Image => format!(
                "what process {pid} of the program executes cannot be traced: to start the emulator for it, {why}"
            ),
            Trouble::Emulator => self.qemu.lacks(errno as usize),
            Trouble::Listener => format!(
                "new processes of the program cannot be traced: process {pid}, which simulates, cannot take what they send: {why}"
            ),
        })
    }

    /// The child with this number that a process of the program has just reported. `None`: it died before its identity
    /// could be read.
    ///
    /// # Errors
    /// As [`Identity::of`].
    pub fn identify(&mut self, pid: i32) -> std::io::Result<Option<Identity>> {
        self.poll_hellos();
        let mut said = self.hellos.get_mut(&pid).into_iter().flatten();
        if let Some(hello) = said.find(|h| h.forked && !h.claimed) {
            hello.claimed = true;
            return Ok(Some(hello.who));
        }
        Identity::of(pid)
    }

    /// Takes the messages that the listener has received.
    pub fn poll_hellos(&mut self) {
        let new = std::mem::take(&mut self.shared.state().hellos);
        for hello in new {
            let of_number = self.hellos.entry(hello.who.pid).or_default();
            of_number.push_back(hello);
        }
    }

    /// True if a message of this process waits to be taken.
    pub fn has_hello(&self, who: Identity) -> bool {
        let of_number = self.hellos.get(&who.pid);
        of_number.is_some_and(|q| q.iter().any(|h| h.who == who))
    }

    /// The oldest message of a process, from after a fork or from after an execve.
    pub fn take_hello(&mut self, who: Identity, forked: bool) -> Option<Hello> {
        self.poll_hellos();
        let queue = self.hellos.get_mut(&who.pid)?;
        let at = queue
            .iter()
            .position(|h| h.who == who && h.forked == forked)?;
        let hello = queue.remove(at);
        if queue.is_empty() {
            self.hellos.remove(&who.pid);
        }
        hello
    }

    /// Exit status of the first process as a shell shows it. `soon`: the process is about to end, so wait for it.
    pub fn status(&self, soon: bool) -> Option<i32> {
        self.wait_status(soon)
            .and_then(|status| self.shell_status(status))
    }

    /// An exit status as a shell shows it that runs the program without an emulator.
    pub(crate) fn shell_status(&self, status: ExitStatus) -> Option<i32> {
        let signal = status.signal().map(|s| self.signal_of_program(s as u8));
        status.code().or(signal.map(|s| 128 + i32::from(s)))
    }

    /// As [`Host::status`], as the kernel gives it.
    pub fn wait_status(&self, soon: bool) -> Option<ExitStatus> {
        let deadline = Instant::now() + Duration::from_secs(if soon { 2 } else { 0 });
        let mut state = self.shared.state();
        loop {
            if let Some(status) = state.status {
                return Some(status);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            state = self
                .shared
                .changed
                .wait_timeout(state, left)
                .unwrap_or_else(|e| e.into_inner())
                .0;
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.shared.control().abort.store(1, Relaxed);
        let processes = {
            let mut state = self.shared.state();
            state.closing = true;
            std::mem::take(&mut state.processes)
        };
        for who in processes.values() {
            who.kill();
        }
        // Wakes the listener, which then finds `closing` set.
        if let Ok(address) = SocketAddr::from_abstract_name(self.socket.as_bytes()) {
            drop(UnixStream::connect_addr(&address));
        }
        for thread in [self.listener.take(), self.keeper.take()]
            .into_iter()
            .flatten()
        {
            // The thread has printed its panic; nothing is left to report.
            drop(thread.join());
        }
    }
}

/// Simulated date at the start of a program, in seconds since 1970: `SOURCE_DATE_EPOCH`, so that runs can be repeated,
/// or the host's.
///
/// # Errors
/// The variable is no number.
fn date_of_start() -> Result<u64, Error> {
    match std::env::var("SOURCE_DATE_EPOCH") {
        Ok(text) => text.parse().map_err(|_| {
            Error::refused(format!(
                "SOURCE_DATE_EPOCH is {text:?}; expected the date of the program's start in seconds since 1970"
            ))
        }),
        Err(_) => {
            let now = SystemTime::now().duration_since(UNIX_EPOCH);
            Ok(now.map_or(0, |since| since.as_secs()))
        }
    }
}

/// Starts the emulator and waits for its end.
fn keep(mut command: Command, shared: &Rendezvous) {
    let outcome = command.spawn().and_then(|mut child| {
        let pid = child.id() as i32;
        {
            let mut state = shared.state();
            if let Ok(Some(who)) = Identity::of(pid) {
                state.remember(who);
            }
            if state.closing {
                drop(child.kill());
            }
        }
        child.wait()
    });
    {
        let mut state = shared.state();
        match outcome {
            Ok(status) => state.status = Some(status),
            Err(e) => {
                state.failed = Some(format!(
                    "cannot start {}: {e}",
                    command.get_program().to_string_lossy()
                ));
            }
        }
    }
    shared.ring_bell();
}

/// Most time that a process may take to send its message.
const PATIENCE: Duration = Duration::from_secs(5);

fn listen(listener: &UnixListener, shared: &Rendezvous) {
    let lost = |e: &std::io::Error| {
        let errno = e.raw_os_error().unwrap_or(0);
        let control = shared.control();
        control.report(Trouble::Listener, errno, std::process::id());
    };
    for stream in listener.incoming() {
        if shared.state().closing {
            return;
        }
        let stream = match stream {
            Ok(stream) => stream,
            Err(e) if e.raw_os_error() == Some(libc::ECONNABORTED) => continue,
            // A process waits for a reply that it cannot get.
            Err(e) => return lost(&e),
        };
        let hello = match receive(&stream, shared, PATIENCE) {
            Ok(Some(hello)) => hello,
            Ok(None) => continue,
            Err(e) => return lost(&e),
        };
        let forked = hello.forked;
        {
            let mut state = shared.state();
            state.remember(hello.who);
            state.image = state.image.take().or_else(|| image(hello.who.pid));
            // The entry comes before the reply: the process runs only once it is known.
            state.hellos.push(hello);
        }
        let page = (!forked).then(|| shared.control_file.as_fd());
        drop(send_fd(stream.as_fd(), &[1], page));
        shared.ring_bell();
    }
}

/// The message of one of the program's processes. `None`: the sender is not one of them, has died, or cannot be traced,
/// which is then reported.
///
/// # Errors
/// The message cannot be received.
fn receive(
    stream: &UnixStream,
    shared: &Rendezvous,
    patience: Duration,
) -> std::io::Result<Option<Hello>> {
    let mut who = libc::ucred {
        pid: 0,
        uid: 0,
        gid: 0,
    };
    let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: `who` and `bytes` are alive and as large as they say.
    let answer = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut who).cast(),
            &mut bytes,
        )
    };
    // SAFETY: the call has no arguments and cannot fail.
    let ours = unsafe { libc::geteuid() };
    if answer != 0 || who.uid != ours && ours != 0 {
        return Ok(None);
    }
    stream.set_read_timeout(Some(patience))?;
    // Set by a fork; then the errno if there is no memory.
    let mut said = [0; 2];
    let memory = match receive_fd(stream.as_fd(), &mut said) {
        Ok((1.., Some(memory))) => File::from(memory),
        Ok((2, None)) => {
            let (errno, pid) = (i32::from(said[1]), who.pid as u32);
            shared.control().report(Trouble::Image, errno, pid);
            return Ok(None);
        }
        // The process has ended, will connect again, or reports the reason itself.
        Ok((0, None)) => return Ok(None),
        Ok(_) => return shared.turn_away(who.pid, libc::EPROTO),
        Err(e) => match e.raw_os_error() {
            Some(libc::EMFILE | libc::ENFILE) => return Err(e),
            Some(libc::EAGAIN) => return shared.turn_away(who.pid, libc::ETIMEDOUT),
            errno => return shared.turn_away(who.pid, errno.unwrap_or(libc::EIO)),
        },
    };
    let Some(who) = Identity::of(who.pid)? else {
        return Ok(None);
    };
    Ok(Some(Hello {
        who,
        forked: said[0] != 0,
        memory: MappedSegment::map(&memory),
        claimed: false,
    }))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    use std::path::PathBuf;
    use std::sync::{Condvar, Mutex};
    use std::time::Duration;

    use memmap2::MmapOptions;
    use pagewalk_ring::Trouble;

    use super::{
        Identity, Rendezvous, RendezvousState, image, listen_on, memory_file, names, receive,
    };

    #[test]
    fn a_socket_has_a_name_that_no_other_engine_draws() {
        let (first, _kept) = listen_on(names()).unwrap();
        let pid = std::process::id();
        assert!(!first.starts_with(&format!("pagewalk-{pid}")), "{first}");
        let (second, _) = listen_on(names()).unwrap();
        assert_ne!(first, second);
        // A name in use stays with its owner; the next one is tried.
        let third = "pagewalk-test-third".to_owned() + &second;
        let drawn = [first.clone(), third.clone()].map(Ok);
        assert_eq!(listen_on(drawn).unwrap().0, third);
        assert!(listen_on([Ok(first)]).is_err());
    }

    /// The trouble reported after this process, as a peer, sends `words`, or nothing in time, to an engine in this
    /// state.
    fn reported(
        state: RendezvousState,
        words: Option<&[u8]>,
        stays: bool,
    ) -> Option<(Trouble, i32, u32)> {
        let control_file = memory_file().unwrap();
        control_file.set_len(4096).unwrap();
        let shared = Rendezvous {
            control: MmapOptions::new().map_raw(&control_file).unwrap(),
            control_file,
            state: Mutex::new(state),
            changed: Condvar::new(),
        };
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        if let Some(words) = words {
            theirs.write_all(words).unwrap();
        }
        let _stays = stays.then_some(theirs);
        let heard = receive(&ours, &shared, Duration::from_millis(20)).unwrap();
        assert!(heard.is_none());
        shared.control().trouble()
    }

    #[test]
    fn a_process_of_the_program_that_is_turned_away_is_not_left_out() {
        let pid = std::process::id();
        let own = Identity::of(pid as i32).unwrap().unwrap();
        let with = |image: Option<PathBuf>| RendezvousState {
            image,
            ..RendezvousState::default()
        };
        let emulator = || image(pid as i32);
        let report = |trouble, errno| Some((trouble, errno, pid));
        let child = |errno| report(Trouble::Child, errno);
        assert_eq!(
            reported(with(emulator()), None, true),
            child(libc::ETIMEDOUT)
        );
        let rest = Some(&b"?"[..]);
        assert_eq!(reported(with(emulator()), rest, true), child(libc::EPROTO));
        // A known process executes another file.
        let mut known = with(emulator());
        known.remember(own);
        assert_eq!(
            reported(known, None, true),
            report(Trouble::Image, libc::ETIMEDOUT)
        );
        // A process that has ended is reported by its parent. Other processes are not the program's.
        assert_eq!(reported(with(emulator()), None, false), None);
        assert_eq!(
            reported(with(Some("/bin/another".into())), rest, true),
            None
        );
        assert_eq!(reported(with(None), rest, true), None);
    }
}
