//! A YCSB client for a Redis server behind a Unix socket.
//!
//! Loads `keys` records, then sends `operations` requests for them, like those of the built-in program
//! kv-redis: the same generators, drawn in the same order. It reports the duration of both phases, and fails
//! on a wrong reply. `mark=true` frames the second phase with the commands of
//! `validation/programs/redis_roi.c`. `stop=true` shuts the server down afterwards.

use std::error::Error;
use std::io::{BufReader, BufWriter, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use pagewalk_programs::ycsb::{Chooser, fnv64, text};
use rand::RngExt as _;

const USAGE: &str = "usage: ycsb_redis SOCKET [keys=100000] [operations=200000] [distribution=zipfian] \
    [sets=PERCENT: 0, 5 with latest] [value=64] [order=hashed] [pipeline=1] [load_pipeline=64] [seed=1] \
    [wait=SECONDS for the socket: 60] [mark=false] [stop=false]";

/// Options. The names are those of kv-redis's parameters.
struct Work {
    socket: String,
    keys: u64,
    operations: u64,
    distribution: String,
    sets: f64,
    value: usize,
    ordered: bool,
    pipeline: u64,
    load_pipeline: u64,
    seed: u64,
    wait: Duration,
    mark: bool,
    stop: bool,
}

impl Work {
    fn read(mut arguments: impl Iterator<Item = String>) -> Result<Self, Box<dyn Error>> {
        let socket = arguments.next().ok_or(USAGE)?;
        let mut work = Work {
            socket,
            keys: 100_000,
            operations: 200_000,
            distribution: "zipfian".into(),
            sets: f64::NAN,
            value: 64,
            ordered: false,
            pipeline: 1,
            load_pipeline: 64,
            seed: 1,
            wait: Duration::from_secs(60),
            mark: false,
            stop: false,
        };
        for argument in arguments {
            let (name, value) = argument.split_once('=').ok_or(USAGE)?;
            match name {
                "keys" => work.keys = value.parse()?,
                "operations" => work.operations = value.parse()?,
                "distribution" => work.distribution = value.into(),
                "sets" => work.sets = value.parse()?,
                "value" => work.value = value.parse()?,
                "order" => {
                    work.ordered = match value {
                        "ordered" => true,
                        "hashed" => false,
                        _ => return Err("order is hashed or ordered".into()),
                    }
                }
                "pipeline" => work.pipeline = value.parse()?,
                "load_pipeline" => work.load_pipeline = value.parse()?,
                "seed" => work.seed = value.parse()?,
                "wait" => work.wait = Duration::from_secs(value.parse()?),
                "mark" => work.mark = value.parse()?,
                "stop" => work.stop = value.parse()?,
                _ => return Err(format!("'{name}' is not a parameter\n{USAGE}").into()),
            }
        }
        if work.keys < 2 || work.pipeline == 0 || work.load_pipeline == 0 {
            return Err("at least 2 keys and a pipeline of 1".into());
        }
        if work.sets.is_nan() {
            work.sets = if work.latest() { 5.0 } else { 0.0 };
        }
        Ok(work)
    }

    fn latest(&self) -> bool {
        self.distribution == "latest"
    }

    /// The number in the `n`-th inserted key.
    fn number(&self, n: u64) -> u64 {
        if self.ordered { n } else { fnv64(n) }
    }

    /// The byte that fills a value of key `n`.
    fn filling(n: u64) -> u8 {
        b'a' + (n % 26) as u8
    }
}

/// Expected reply to a request.
enum Answer {
    Ok,
    Value(u8),
}

/// A connection that batches requests and checks their replies.
struct Client {
    to: BufWriter<UnixStream>,
    from: BufReader<UnixStream>,
    owed: Vec<Answer>,
    value: Vec<u8>,
}

impl Client {
    fn connect(work: &Work) -> Result<Self, Box<dyn Error>> {
        let began = Instant::now();
        let socket = loop {
            match UnixStream::connect(&work.socket) {
                Ok(socket) => break socket,
                Err(e) if began.elapsed() > work.wait => {
                    return Err(format!("{}: {e}", work.socket).into());
                }
                Err(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        };
        Ok(Client {
            to: BufWriter::with_capacity(1 << 16, socket.try_clone()?),
            from: BufReader::new(socket),
            owed: Vec::new(),
            value: vec![0; work.value],
        })
    }

    fn request(&mut self, words: &[&[u8]]) -> std::io::Result<()> {
        write!(self.to, "*{}\r\n", words.len())?;
        for word in words {
            write!(self.to, "${}\r\n", word.len())?;
            self.to.write_all(word)?;
            self.to.write_all(b"\r\n")?;
        }
        Ok(())
    }

    fn set(&mut self, key: &[u8], filling: u8) -> std::io::Result<()> {
        let value = vec![filling; self.value.len()];
        self.owed.push(Answer::Ok);
        self.request(&[b"SET", key, &value])
    }

    fn get(&mut self, key: &[u8], filling: u8) -> std::io::Result<()> {
        self.owed.push(Answer::Value(filling));
        self.request(&[b"GET", key])
    }

    /// Sends the batched requests and reads all replies.
    fn settle(&mut self) -> Result<(), Box<dyn Error>> {
        self.to.flush()?;
        for answer in std::mem::take(&mut self.owed) {
            match answer {
                Answer::Ok => self.expect(b"+OK\r\n")?,
                Answer::Value(filling) => {
                    let head = format!("${}\r\n", self.value.len());
                    self.expect(head.as_bytes())?;
                    self.from.read_exact(&mut self.value)?;
                    if self.value.iter().any(|b| *b != filling) {
                        return Err("another key's value".into());
                    }
                    self.expect(b"\r\n")?;
                }
            }
        }
        Ok(())
    }

    fn expect(&mut self, wanted: &[u8]) -> Result<(), Box<dyn Error>> {
        let mut got = vec![0; wanted.len()];
        self.from.read_exact(&mut got)?;
        if got != wanted {
            let (got, wanted) = (got.escape_ascii(), wanted.escape_ascii());
            return Err(format!("the server answers '{got}' instead of '{wanted}'").into());
        }
        Ok(())
    }

    fn command(&mut self, name: &str) -> Result<(), Box<dyn Error>> {
        self.owed.push(Answer::Ok);
        self.request(&[name.as_bytes()])?;
        self.settle()
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let work = Work::read(std::env::args().skip(1))?;
    let mut chooser = Chooser::new(&work.distribution, work.keys)
        .ok_or("distribution is zipfian, scrambled, latest or uniform")?;
    let mut client = Client::connect(&work)?;

    let began = Instant::now();
    for n in 0..work.keys {
        client.set(&text(work.number(n)), Work::filling(n))?;
        if client.owed.len() as u64 == work.load_pipeline {
            client.settle()?;
        }
    }
    client.settle()?;
    let loaded = began.elapsed();

    if work.mark {
        client.command("PAGEWALK.BEGIN")?;
    }
    let mut rng = pagewalk_units::rng(work.seed, "workload.kv");
    let (mut keys, mut sets) = (work.keys, 0u64);
    let began = Instant::now();
    for _ in 0..work.operations {
        let is_set = work.sets > 0.0 && rng.random::<f64>() < work.sets / 100.0;
        let n = if is_set && work.latest() {
            keys += 1;
            keys - 1
        } else {
            chooser.next(&mut rng, keys)
        };
        let key = text(work.number(n));
        if is_set {
            sets += 1;
            client.set(&key, Work::filling(n))?;
        } else {
            client.get(&key, Work::filling(n))?;
        }
        if client.owed.len() as u64 == work.pipeline {
            client.settle()?;
        }
    }
    client.settle()?;
    let ran = began.elapsed();
    if work.mark {
        client.command("PAGEWALK.END")?;
    }
    if work.stop {
        // The server closes the connection without a reply.
        client.request(&[b"SHUTDOWN", b"NOSAVE"])?;
        client.to.flush()?;
    }
    println!(
        "loaded {} keys in {:.2} s; {} GETs and {sets} SETs in {:.2} s",
        work.keys,
        loaded.as_secs_f64(),
        work.operations - sets,
        ran.as_secs_f64(),
    );
    Ok(())
}
