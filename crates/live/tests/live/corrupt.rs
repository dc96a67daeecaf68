//! Memory that our plugin has not written gives an error, never a panic or an endless wait.

use std::io::Write;
use std::sync::atomic::Ordering::Relaxed;

use pagewalk_live::{Live, LiveOptions};
use pagewalk_ring::{Control, Geometry, Producer, Segment, record};
use pagewalk_stream::{Batch, End, Event, Program};
use pagewalk_units::rng;
use rand::RngExt;

use crate::tools::{compile, plugin, present};

/// An emulator that hands over the file named in its environment and ends.
pub const FAKE: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
int main(int c, char **v) {
    (void)c;
    char *name = strstr(v[2], "socket=") + 7;
    size_t n = strcspn(name, ",");
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    memcpy(a.sun_path + 1, name, n);
    int s = socket(AF_UNIX, SOCK_STREAM, 0);
    if (connect(s, (void *)&a, offsetof(struct sockaddr_un, sun_path) + 1 + n)) return 9;
    char kind = 0, room[64] = {0};
    struct iovec io = {&kind, 1};
    struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = room, .msg_controllen = CMSG_SPACE(4)};
    struct cmsghdr *h = CMSG_FIRSTHDR(&m);
    h->cmsg_level = SOL_SOCKET; h->cmsg_type = SCM_RIGHTS; h->cmsg_len = CMSG_LEN(4);
    int f = open(getenv("FAKE_SEGMENT"), O_RDWR);
    memcpy(CMSG_DATA(h), &f, 4);
    if (f < 0 || sendmsg(s, &m, 0) != 1) return 8;
    return read(s, &kind, 1) == 1 ? 5 : 7;
}"#;

fn launch(emulator: &str, memory: &[u8]) -> Result<Live, pagewalk_stream::Error> {
    let (_file, options) = fake_options(emulator, memory);
    Live::launch(options)
}

/// Options that start [`FAKE`] with this memory, which the file holds.
pub fn fake_options(emulator: &str, memory: &[u8]) -> (tempfile::NamedTempFile, LiveOptions) {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(memory).unwrap();
    let options = LiveOptions {
        argv: vec!["true".into()],
        env: vec![("FAKE_SEGMENT".into(), file.path().into())],
        plugin: plugin(),
        qemu: Some(emulator.into()),
        ..LiveOptions::default()
    };
    (file, options)
}

const GEOMETRY: Geometry = Geometry {
    slots: 2,
    records: 4096,
    code_bytes: 4096,
};

#[derive(Clone)]
#[repr(C, align(4096))]
struct Page([u8; 4096]);

/// A segment with these words in the first ring and these in the static part.
pub fn memory(words: &[u64], code: &[u64]) -> Vec<u8> {
    let mut pages = vec![Page([0; 4096]); GEOMETRY.bytes().unwrap() / 4096];
    // SAFETY: zeroed, aligned, long enough, and outlives segment and producer.
    let segment = unsafe { Segment::create(pages.as_mut_ptr().cast(), GEOMETRY) };
    let control = Control::default();
    // SAFETY: segment and control outlive the producer.
    let (_, producer) = unsafe { Producer::claim(&segment, &control, |_| false) }.unwrap();
    for &word in words {
        // SAFETY: the only writer.
        unsafe { producer.push(word) };
    }
    producer.publish();
    for (to, from) in segment.code().iter().zip(code) {
        to.store(*from, Relaxed);
    }
    segment
        .header()
        .code_words
        .store(code.len() as u64, Relaxed);
    pages.iter().flat_map(|p| p.0).collect()
}

#[test]
fn memory_that_is_no_segment_is_refused() {
    if !present() {
        return;
    }
    let fake = compile("fake", FAKE);
    let good = memory(&[], &[]);
    for (bytes, what) in [
        (&[][..], "empty"),
        (&good[..100], "too short"),
        (&[7; 8192][..], "does not start"),
        (&good[..good.len() - 4096], "not what its header says"),
    ] {
        let message = launch(&fake, bytes).err().expect("must fail").to_string();
        assert!(message.contains(what), "{message}");
    }
}

#[test]
fn a_change_may_fall_between_the_accesses_of_a_block() {
    if !present() {
        return;
    }
    let fake = compile("fake-within", FAKE);
    // 20 bytes: address, two instructions of 3 bytes: mov rax,[rdi]; mov rcx,[rax].
    let code = [20, 0x40_0000, 0x8b48_0303_0000_0002, 0x088b_4807];
    let block = record::word(record::BLOCK, 0);
    let access = |i: usize, at: u64| record::memory(i, false) | at;
    let words = [
        block,
        access(0, 0x1000),
        record::word(record::MEET, 1),
        access(1, 0x2000),
        block,
        record::word(record::MEET, 2),
        access(0, 0x3000),
        access(1, 0x4000),
        record::word(record::EXIT, record::LAST),
    ];
    let mut live = launch(&fake, &memory(&words, &code)).unwrap();
    let (mut batch, mut seen) = (Batch::new(), Vec::new());
    loop {
        let end = live.fill(0, &mut batch).unwrap();
        seen.extend(batch.ops.iter().map(|op| op.va));
        match end {
            // Meetings count as numbers, which are no addresses here.
            End::Meet { ticket } => seen.push(ticket),
            End::Exit => break,
            End::Empty => live.wait(),
            _ => {}
        }
    }
    assert_eq!(seen, [0x1000, 1, 0x2000, 2, 0x3000, 0x4000]);
}

#[test]
fn noise_in_the_ring_ends_in_an_error_or_the_end() {
    if !present() {
        return;
    }
    let fake = compile("fake-noise", FAKE);
    let mut random = rng(1, "tests.corrupt");
    let mut errors = 0;
    for round in 0..60 {
        let words: Vec<u64> = (0..round * 8)
            .map(|_| match random.random_range(0..4u32) {
                0 => random.random(),
                1 => random.random_range(0..1 << 50),
                // Records that name a process are left out: the machine runs others, too.
                2 => record::word(
                    [1, 2, 3, 4, 5, 6, 7, 10, 11, 12, 13][random.random_range(0..11usize)],
                    random.random_range(0..4),
                ),
                _ => record::word(record::BLOCK, 0),
            })
            .filter(|w| record::tag(*w) != record::FORK)
            .collect();
        // One valid block (14 bytes: address, one instruction of one byte, a nop), then words that may be none.
        let mut code = vec![14, 0x40_0000, 0x9001 << 32 | 1];
        if round % 3 == 0 {
            code.extend((0..20).map(|_| random.random_range(0..100u64)));
        }
        let Ok(mut live) = launch(&fake, &memory(&words, &code)) else {
            continue;
        };
        let mut batch = Batch::new();
        let mut threads = vec![0];
        let mut over = false;
        for _ in 0..2000 {
            let Some(&thread) = threads.last() else {
                over = true;
                break;
            };
            match live.fill(thread, &mut batch) {
                Err(e) => {
                    assert!(e.to_string().contains("corrupt"), "{e}");
                    errors += 1;
                    over = true;
                    break;
                }
                Ok(End::Exit) => drop(threads.pop()),
                Ok(End::Event {
                    event: Event::Spawn { thread },
                    ..
                }) => threads.push(thread),
                Ok(End::Empty | End::Blocked) => live.wait(),
                Ok(_) => (),
            }
        }
        assert!(over, "round {round} does not end");
    }
    assert!(errors > 10, "{errors}");
}
