//! The emulator as a child process, and the socket on which its processes say hello.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use memmap2::{MmapOptions, MmapRaw};
use pagewalk_ring::{Control, futex_wake, receive_fd, send_fd};
use pagewalk_stream::ProgramError;

use crate::locate::{find_qemu, resolve_program};
use crate::options::LiveOptions;

/// A process image that has started and brought its memory.
pub(crate) struct Hello {
    pub pid: i32,
    /// Made by fork, not by execve.
    pub forked: bool,
    pub memory: File,
}

#[derive(Default)]
struct State {
    hellos: Vec<Hello>,
    /// How the first process ended.
    status: Option<ExitStatus>,
    failed: Option<String>,
    closing: bool,
    /// Processes that said hello and may live: to end them when we do.
    handles: BTreeMap<i32, Arc<OwnedFd>>,
}

struct Rendezvous {
    control: MmapRaw,
    control_file: File,
    state: Mutex<State>,
    changed: Condvar,
}

impl Rendezvous {
    fn state(&self) -> MutexGuard<'_, State> {
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
}

pub(crate) struct Host {
    shared: Arc<Rendezvous>,
    hellos: BTreeMap<i32, VecDeque<Hello>>,
    socket: String,
    listener: Option<JoinHandle<()>>,
    keeper: Option<JoinHandle<()>>,
}

fn memory_file() -> std::io::Result<File> {
    // SAFETY: a new descriptor, owned here.
    unsafe {
        let fd = libc::memfd_create(c"pagewalk-control".as_ptr(), libc::MFD_CLOEXEC);
        if fd < 0 {
            return Err(std::io::Error::last_os_error());
        }
        Ok(File::from_raw_fd(fd))
    }
}

pub(crate) fn open_process(pid: i32) -> Option<Arc<OwnedFd>> {
    // SAFETY: a new descriptor, owned here.
    unsafe {
        let fd = libc::syscall(libc::SYS_pidfd_open, pid, 0);
        (fd >= 0).then(|| Arc::new(OwnedFd::from_raw_fd(fd as i32)))
    }
}

pub(crate) fn has_died(handle: &OwnedFd) -> bool {
    let mut poll = libc::pollfd {
        fd: handle.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one pollfd, alive over the call, which does not wait.
    unsafe { libc::poll(&mut poll, 1, 0) > 0 }
}

/// Numbers the sockets of one engine's programs.
static PROGRAMS: AtomicU64 = AtomicU64::new(0);

impl Host {
    pub fn start(options: LiveOptions) -> Result<Host, ProgramError> {
        let (program, words) = resolve_program(&options.argv)?;
        let qemu = find_qemu(options.qemu.as_deref())?;
        let plugin = std::fs::canonicalize(&options.plugin).map_err(|e| {
            ProgramError::new(format!(
                "the QEMU plugin is not at {}: {e}; build it with `cargo build --release -p pagewalk-qemu-plugin`",
                options.plugin.display()
            ))
        })?;
        let failed = |what: &str, e: std::io::Error| ProgramError::new(format!("{what}: {e}"));
        let control_file = memory_file()
            .and_then(|f| f.set_len(4096).map(|()| f))
            .map_err(|e| failed("cannot make shared memory", e))?;
        let control = MmapOptions::new()
            .map_raw(&control_file)
            .map_err(|e| failed("cannot map shared memory", e))?;
        // Abstract: no file that could be left over.
        let socket = format!(
            "pagewalk-{}-{}",
            std::process::id(),
            PROGRAMS.fetch_add(1, Relaxed)
        );
        let listener = SocketAddr::from_abstract_name(socket.as_bytes())
            .and_then(|a| UnixListener::bind_addr(&a))
            .map_err(|e| failed("cannot listen for the emulator", e))?;

        let records = match options.ring_bytes {
            0 => 1 << 17,
            n => (n / 8).max(4096).next_power_of_two(),
        };
        let option = |p: &std::path::Path| p.to_string_lossy().replace(',', ",,");
        let (cpu, base) = (qemu.cpu(), qemu.base());
        let mut command = Command::new(&qemu.path);
        for (option, value) in [("-cpu", cpu), ("-B", base)] {
            if !value.is_empty() {
                command.args([option, value]);
            }
        }
        command
            .arg("-plugin")
            .arg(format!(
                "{},socket={socket},qemu={},plugin={},records={records},count={},cpu={},base={base}",
                option(&plugin),
                option(&qemu.path),
                option(&plugin),
                if options.count { "on" } else { "off" },
                cpu.replace(',', ",,"),
            ))
            // The random bytes that a program finds at its start are the same each time.
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
        // The kernel chooses among the addresses from there on. Where it may not be asked
        // for the same ones (some containers), they differ from run to run.
        let fixed_addresses = !base.is_empty();
        // SAFETY: prctl and personality are async-signal-safe. The signal comes when the thread that
        // made the child ends, which below is one that waits for the child: so
        // when this process is killed.
        unsafe {
            command.pre_exec(move || {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
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
        let mut host = Host {
            shared: shared.clone(),
            hellos: BTreeMap::new(),
            socket,
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

    pub fn control(&self) -> &Control {
        self.shared.control()
    }

    /// Waits for the emulator's start.
    pub fn first_hello(&mut self) -> Result<Hello, ProgramError> {
        let mut state = self.shared.state();
        loop {
            if !state.hellos.is_empty() {
                return Ok(state.hellos.remove(0));
            }
            if let Some(why) = &state.failed {
                return Err(ProgramError::new(why.clone()));
            }
            if let Some(status) = state.status {
                return Err(ProgramError::new(format!(
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

    pub fn process_handle(&self, pid: i32) -> Option<Arc<OwnedFd>> {
        self.shared.state().handles.get(&pid).cloned()
    }

    /// Takes what the listener has received.
    pub fn poll_hellos(&mut self) {
        let new = std::mem::take(&mut self.shared.state().hellos);
        for hello in new {
            self.hellos.entry(hello.pid).or_default().push_back(hello);
        }
    }

    pub fn has_hello(&self, pid: i32) -> bool {
        self.hellos.contains_key(&pid)
    }

    /// The oldest message of a process that is of this sort.
    pub fn take_hello(&mut self, pid: i32, forked: bool) -> Option<Hello> {
        self.poll_hellos();
        let queue = self.hellos.get_mut(&pid)?;
        let at = queue.iter().position(|h| h.forked == forked)?;
        let hello = queue.remove(at);
        if queue.is_empty() {
            self.hellos.remove(&pid);
        }
        hello
    }

    /// How the first process ended, as a shell shows it. `soon`: it is about to.
    pub fn status(&self, soon: bool) -> Option<i32> {
        let deadline = Instant::now() + Duration::from_secs(if soon { 2 } else { 0 });
        let mut state = self.shared.state();
        loop {
            if let Some(status) = state.status {
                return status.code().or(status.signal().map(|s| 128 + s));
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
        let handles = {
            let mut state = self.shared.state();
            state.closing = true;
            std::mem::take(&mut state.handles)
        };
        for handle in handles.values() {
            // SAFETY: a signal to the very process that the descriptor stands for.
            unsafe {
                libc::syscall(
                    libc::SYS_pidfd_send_signal,
                    handle.as_raw_fd(),
                    libc::SIGKILL,
                    std::ptr::null::<libc::c_void>(),
                    0,
                )
            };
        }
        // Wakes the listener, which then sees that it is over.
        if let Ok(address) = SocketAddr::from_abstract_name(self.socket.as_bytes()) {
            drop(UnixStream::connect_addr(&address));
        }
        for thread in [self.listener.take(), self.keeper.take()]
            .into_iter()
            .flatten()
        {
            // A panic there has been shown; there is nothing to add to it.
            drop(thread.join());
        }
    }
}

/// Starts the emulator and waits for its end.
fn keep(mut command: Command, shared: &Rendezvous) {
    let outcome = command.spawn().and_then(|mut child| {
        let pid = child.id() as i32;
        if let Some(handle) = open_process(pid) {
            let mut state = shared.state();
            state.handles.insert(pid, handle);
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

fn listen(listener: &UnixListener, shared: &Rendezvous) {
    for stream in listener.incoming() {
        if shared.state().closing {
            return;
        }
        let Ok(stream) = stream else { continue };
        // One that says nothing is not ours, and must not hold up the others.
        drop(stream.set_read_timeout(Some(Duration::from_secs(1))));
        let Some(hello) = receive(&stream) else {
            continue;
        };
        if let Some(handle) = open_process(hello.pid) {
            let handles = &mut shared.state().handles;
            // A program may make more processes than there are descriptors.
            handles.retain(|_, h| !has_died(h));
            handles.insert(hello.pid, handle);
        }
        // First the entry, then the answer: the process runs only when it is known.
        shared.state().hellos.push(hello);
        drop(send_fd(
            stream.as_fd(),
            &[1],
            Some(shared.control_file.as_fd()),
        ));
        shared.ring_bell();
    }
}

fn receive(stream: &UnixStream) -> Option<Hello> {
    let mut kind = [0];
    let (1, Some(memory)) = receive_fd(stream.as_fd(), &mut kind).ok()? else {
        return None;
    };
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
    // SAFETY: only asks.
    let ours = unsafe { libc::geteuid() };
    (answer == 0 && (who.uid == ours || ours == 0)).then(|| Hello {
        pid: who.pid,
        forked: kind[0] != 0,
        memory: File::from(memory),
    })
}
