//! Decompression in parallel with the reader: a thread reads ahead through a bounded channel.

use std::io::{BufRead, Error, ErrorKind, Read, Result};
use std::panic::resume_unwind;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

/// Bytes of a buffer, the most that one call of the decompressor fills. A reader that waits for a large buffer sleeps
/// long enough for the host to run another thread on its core. With three threads on two cores, buffers of a quarter of
/// this size were 8 % slower.
const BUFFER: usize = 1 << 20;
/// Most buffers that wait; with those in use and on their way back, less than 10 MB.
const AHEAD: usize = 6;

/// Reads ahead. The first buffer is filled on the caller's thread, so that peeking at a file starts no thread.
pub(crate) struct Ahead {
    source: ReadAheadState,
    buffer: Vec<u8>,
    /// Bytes of `buffer` that have been consumed.
    at: usize,
}

enum ReadAheadState {
    /// Nothing has been read.
    New(Box<dyn Read + Send>),
    /// The first buffer has been read.
    Begun(Box<dyn Read + Send>),
    /// The thread reads the rest.
    Thread(Worker),
    /// The end.
    Over,
    /// The error, kept for later calls.
    Failed(ErrorKind, String),
}

impl Ahead {
    pub(crate) fn new(reader: impl Read + Send + 'static) -> Self {
        Ahead {
            source: ReadAheadState::New(Box::new(reader)),
            buffer: Vec::new(),
            at: 0,
        }
    }

    /// The buffer after `used`; empty at the end.
    fn next(&mut self, used: Vec<u8>) -> Result<Vec<u8>> {
        if let ReadAheadState::Thread(worker) = &mut self.source {
            return worker.next(used);
        }
        match std::mem::replace(&mut self.source, ReadAheadState::Over) {
            ReadAheadState::New(mut reader) => {
                let first = fill(reader.as_mut(), used);
                self.source = ReadAheadState::Begun(reader);
                first
            }
            ReadAheadState::Begun(reader) => {
                let mut worker = Worker::start(reader)?;
                let next = worker.next(used);
                self.source = ReadAheadState::Thread(worker);
                next
            }
            ReadAheadState::Failed(kind, what) => Err(Error::new(kind, what)),
            ReadAheadState::Thread(_) | ReadAheadState::Over => Ok(Vec::new()),
        }
    }
}

impl BufRead for Ahead {
    fn fill_buf(&mut self) -> Result<&[u8]> {
        if self.at == self.buffer.len() {
            let used = std::mem::take(&mut self.buffer);
            self.at = 0;
            match self.next(used) {
                Ok(buffer) if buffer.is_empty() => self.source = ReadAheadState::Over,
                Ok(buffer) => self.buffer = buffer,
                Err(error) => {
                    self.source = ReadAheadState::Failed(error.kind(), error.to_string());
                    return Err(error);
                }
            }
        }
        Ok(&self.buffer[self.at..])
    }

    fn consume(&mut self, bytes: usize) {
        self.at += bytes;
    }
}

impl Read for Ahead {
    fn read(&mut self, into: &mut [u8]) -> Result<usize> {
        let there = self.fill_buf()?;
        let bytes = there.len().min(into.len());
        into[..bytes].copy_from_slice(&there[..bytes]);
        self.consume(bytes);
        Ok(bytes)
    }
}

/// Fills `buffer` by one call of `reader`.
fn fill(reader: &mut dyn Read, mut buffer: Vec<u8>) -> Result<Vec<u8>> {
    buffer.resize(BUFFER, 0);
    loop {
        match reader.read(&mut buffer) {
            Ok(bytes) => {
                buffer.truncate(bytes);
                return Ok(buffer);
            }
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

struct Worker {
    /// An empty buffer marks the end. Taken by drop.
    full: Option<Receiver<Result<Vec<u8>>>>,
    used: SyncSender<Vec<u8>>,
    /// Taken at the end.
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    fn start(mut reader: Box<dyn Read + Send>) -> Result<Self> {
        let (send, full) = sync_channel(AHEAD);
        let (used, reuse) = sync_channel::<Vec<u8>>(AHEAD + 2);
        let work = move || {
            loop {
                let filled = fill(reader.as_mut(), reuse.try_recv().unwrap_or_default());
                let last = filled.as_ref().map_or(true, Vec::is_empty);
                if send.send(filled).is_err() || last {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("decompress".into());
        Ok(Worker {
            full: Some(full),
            used,
            thread: Some(thread.spawn(work)?),
        })
    }

    /// The next buffer; the thread fills `used` again.
    fn next(&mut self, used: Vec<u8>) -> Result<Vec<u8>> {
        let _ = self.used.try_send(used);
        let next = self.full.as_ref().and_then(|full| full.recv().ok());
        next.unwrap_or_else(|| {
            // The thread marks the end, unless it panicked.
            if let Some(Err(panic)) = self.thread.take().map(JoinHandle::join) {
                resume_unwind(panic);
            }
            Ok(Vec::new())
        })
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Closing the channel ends the thread at its next buffer.
        self.full = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, Error, ErrorKind, Read, Result};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::{AHEAD, Ahead, BUFFER};

    /// Gives `buffers` full buffers, then the result of `then`. Counts the buffers in `given`, and holds that count
    /// while it lives.
    struct CountedReader {
        buffers: u64,
        given: Arc<AtomicU64>,
        then: fn() -> Result<usize>,
    }

    impl Read for CountedReader {
        fn read(&mut self, into: &mut [u8]) -> Result<usize> {
            let number = self.given.load(Ordering::SeqCst);
            if number == self.buffers {
                return (self.then)();
            }
            into.fill(number as u8);
            self.given.fetch_add(1, Ordering::SeqCst);
            Ok(into.len())
        }
    }

    fn source(buffers: u64, then: fn() -> Result<usize>) -> (Ahead, Arc<AtomicU64>) {
        let given = Arc::new(AtomicU64::new(0));
        let reader = CountedReader {
            buffers,
            given: Arc::clone(&given),
            then,
        };
        (Ahead::new(reader), given)
    }

    #[test]
    fn all_comes_in_order() {
        let (mut ahead, _) = source(100, || Ok(0));
        let mut all = Vec::new();
        ahead.read_to_end(&mut all).unwrap();
        assert_eq!(all.len(), 100 * BUFFER);
        for (number, part) in all.chunks(BUFFER).enumerate() {
            assert!(part.iter().all(|b| *b == number as u8), "{number}");
        }
        assert!(ahead.fill_buf().unwrap().is_empty());
    }

    #[test]
    fn an_error_comes_after_what_is_good_and_stays() {
        for good in [0, 1, 2, 30] {
            let (mut ahead, _) = source(good, || Err(Error::new(ErrorKind::InvalidData, "bad")));
            let mut all = Vec::new();
            let error = ahead.read_to_end(&mut all).unwrap_err();
            assert_eq!(all.len() as u64, good * BUFFER as u64);
            for error in [error, ahead.fill_buf().unwrap_err()] {
                assert_eq!(
                    (error.kind(), error.to_string().as_str()),
                    (ErrorKind::InvalidData, "bad")
                );
            }
        }
    }

    #[test]
    fn a_panic_is_the_readers() {
        for good in [1, 20] {
            let (mut ahead, _) = source(good, || panic!("a defect"));
            let read = move || ahead.read_to_end(&mut Vec::new()).map(drop);
            let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(read)).unwrap_err();
            assert_eq!(panic.downcast_ref(), Some(&"a defect"));
        }
    }

    #[test]
    fn a_look_at_the_beginning_reads_one_buffer_and_starts_no_thread() {
        let (mut ahead, given) = source(100, || Ok(0));
        assert_eq!(ahead.fill_buf().unwrap().len(), BUFFER);
        drop(ahead);
        assert_eq!(given.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn it_reads_ahead_within_its_limit_and_stops_when_dropped() {
        let (mut ahead, given) = source(u64::MAX, || Ok(0));
        for _ in 0..50 {
            let there = ahead.fill_buf().unwrap().len();
            ahead.consume(there);
        }
        drop(ahead);
        // 50 were used, `AHEAD` wait, and one was being filled. The thread has ended, so it holds its source no longer.
        let given = Arc::try_unwrap(given)
            .expect("the thread is gone")
            .into_inner();
        assert!(given <= 50 + AHEAD as u64 + 1, "{given}");
    }
}
