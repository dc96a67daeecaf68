//! Ends, events and waits between ops, as bytes.

use pagewalk_stream::{
    Advice, Backing, Cause, Counted, Death, End, Event, MappingSource, MemoryObject, Op,
    PopulateAs, ShortcutQuery, ThreadId, Unseen, Why,
};
use pagewalk_units::{PageSize, VirtAddr};

use super::codec::{get_varint, put_varint};
use crate::pump::Stop;

/// An end, event or wait between two ops of a thread.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Mark {
    /// An event, a meeting, a barrier or the thread's end. [`End::More`] only marks the end of a batch that was not
    /// full.
    End(End),
    /// The thread waited here until each of these threads had made this progress: marks, plus counted units.
    Wait(Vec<(ThreadId, u64)>, Counted),
}

/// Takes some ops, or a mark.
pub(crate) type Give<'a> = &'a mut dyn FnMut(&[Op], Option<Mark>) -> Result<(), Stop>;

fn backing_code(backing: Backing) -> u64 {
    match backing {
        Backing::Anonymous => 0,
        Backing::Stack => 1,
        Backing::File => 2,
        Backing::Shared => 3,
    }
}

fn backing(code: u64) -> Option<Backing> {
    Some(match code {
        0 => Backing::Anonymous,
        1 => Backing::Stack,
        2 => Backing::File,
        3 => Backing::Shared,
        _ => return None,
    })
}

/// Kind (bit 2: private, bit 3: has a key), key, page and number of pages. Kinds of pools have bit 4, bit 5 for pages of
/// 1 GB, bit 6 if they reserve pages, and bit 1 for an object. Zeros without a reserve have bit 7.
fn source_code(source: MappingSource) -> [u64; 4] {
    match source {
        MappingSource::Zeros { stack, reserves } => {
            [u64::from(stack) | u64::from(!reserves) << 7, 0, 0, 0]
        }
        MappingSource::Object { object, private } => {
            let kind = 2 + u64::from(object.file);
            let flags = u64::from(private) << 2 | u64::from(object.key.is_some()) << 3;
            let key = object.key.unwrap_or(0);
            [kind | flags, key, object.page, object.pages]
        }
        MappingSource::Pool {
            size,
            reserves,
            object,
            private,
        } => {
            let [kind, key, page, pages] = match object {
                Some(object) => source_code(MappingSource::Object { object, private }),
                None => [u64::from(private) << 2, 0, 0, 0],
            };
            let giant = u64::from(size == PageSize::G1) << 5;
            [
                1 << 4 | giant | u64::from(reserves) << 6 | kind,
                key,
                page,
                pages,
            ]
        }
    }
}

fn source([kind, key, page, pages]: [u64; 4]) -> Option<MappingSource> {
    if kind & 16 != 0 {
        let object = match source([kind & 15, key, page, pages]) {
            Some(MappingSource::Object { object, .. }) => Some(object),
            _ if kind & 11 == 0 => None,
            _ => return None,
        };
        let giant = kind & 32 != 0;
        return (kind < 128).then_some(MappingSource::Pool {
            size: if giant { PageSize::G1 } else { PageSize::M2 },
            reserves: kind & 64 != 0,
            object,
            private: kind & 4 != 0,
        });
    }
    Some(match kind & 3 {
        stack @ (0 | 1) if kind & !128 < 2 => MappingSource::Zeros {
            stack: stack == 1,
            reserves: kind & 128 == 0,
        },
        file @ (2 | 3) if kind < 16 => MappingSource::Object {
            object: MemoryObject {
                key: (kind & 8 != 0).then_some(key),
                file: file == 3,
                page,
                pages,
            },
            private: kind & 4 != 0,
        },
        _ => return None,
    })
}

/// All advice, in the order of its codes.
const ADVICE: [Advice; 10] = [
    Advice::HugePage,
    Advice::NoHugePage,
    Advice::DontNeed,
    Advice::Free,
    Advice::Collapse,
    Advice::Remove,
    Advice::DontFork,
    Advice::WipeOnFork,
    Advice::KeepOnFork,
    Advice::PageOut,
];

/// All ways to populate memory, in the order of their codes.
const POPULATE: [PopulateAs; 3] = [PopulateAs::Read, PopulateAs::Write, PopulateAs::Area];

/// The place of `value` among `all`.
fn code<T: PartialEq>(all: &[T], value: &T) -> u64 {
    let place = all.iter().position(|one| one == value);
    place.expect("the list is complete") as u64
}

fn decoded<T: Copy>(all: &[T], code: u64) -> Option<T> {
    all.get(usize::try_from(code).ok()?).copied()
}

/// Appends the mark after `position` ops of the block.
pub fn put_mark(out: &mut Vec<u8>, position: u64, mark: &Mark) {
    let mut put = |values: &[u64]| {
        put_varint(out, position);
        for value in values {
            put_varint(out, *value);
        }
    };
    match mark {
        Mark::Wait(needs, counted) => {
            let code = match counted {
                Counted::Ops => 1,
                Counted::Instructions => 5,
            };
            let mut values = vec![code, needs.len() as u64];
            values.extend(needs.iter().flat_map(|(t, n)| [u64::from(*t), *n]));
            put(&values);
        }
        Mark::End(End::Exit) => put(&[2]),
        Mark::End(End::Meet { ticket }) => put(&[3, *ticket]),
        Mark::End(End::Barrier { number }) => put(&[4, *number]),
        Mark::End(End::Query(ShortcutQuery::LoadVa { integer })) => put(&[6, *integer]),
        Mark::End(End::Query(ShortcutQuery::InsertVa { integer, va })) => put(&[7, *integer, va.0]),
        Mark::End(End::Query(ShortcutQuery::Alloc { rows })) => put(&[8, *rows]),
        Mark::End(End::Query(ShortcutQuery::Resize { rows })) => put(&[9, *rows]),
        Mark::End(End::Query(ShortcutQuery::Free)) => put(&[10]),
        Mark::End(End::More) => put(&[11]),
        Mark::End(
            End::Blocked | End::Empty | End::ReadKernel(_) | End::Wait { .. } | End::Clock(_),
        ) => {
            unreachable!("says nothing about the program")
        }
        Mark::End(End::Event { event, ticket }) => match event {
            Event::Map {
                at,
                bytes,
                writable,
                backing,
            } => put(&[
                16,
                *ticket,
                at.0,
                *bytes,
                u64::from(*writable),
                backing_code(*backing),
            ]),
            Event::Unmap { at, bytes } => put(&[17, *ticket, at.0, *bytes]),
            Event::Remap {
                from,
                old_bytes,
                to,
                new_bytes,
            } => put(&[18, *ticket, from.0, *old_bytes, to.0, *new_bytes]),
            Event::Protect {
                at,
                bytes,
                writable,
            } => put(&[19, *ticket, at.0, *bytes, u64::from(*writable)]),
            Event::Advise { at, bytes, advice } => {
                put(&[20, *ticket, at.0, *bytes, code(&ADVICE, advice)]);
            }
            Event::Populate { at, bytes } => put(&[21, *ticket, at.0, *bytes]),
            Event::Spawn { thread } => put(&[22, *ticket, u64::from(*thread)]),
            Event::Fork { process, thread } => {
                put(&[23, *ticket, u64::from(*process), u64::from(*thread)]);
            }
            Event::Exec => put(&[24, *ticket]),
            Event::ProcessExit { status } => put(&[25, *ticket, *status as u32 as u64]),
            Event::RoiBegin => put(&[26, *ticket]),
            Event::RoiEnd => put(&[27, *ticket]),
            Event::KernelTouch { at, bytes, writes } => {
                put(&[28, *ticket, at.0, *bytes, u64::from(*writes)]);
            }
            Event::Mmap {
                at,
                bytes,
                writable,
                source,
            } => {
                put(&[31, *ticket, at.0, *bytes, u64::from(*writable)]);
                for value in source_code(*source) {
                    put_varint(out, value);
                }
            }
            Event::KernelPopulate {
                at,
                bytes,
                populate,
            } => put(&[32, *ticket, at.0, *bytes, code(&POPULATE, populate)]),
            Event::PunchHole { key, page, pages } => put(&[33, *ticket, *key, *page, *pages]),
            Event::Truncate { key, pages } => put(&[34, *ticket, *key, *pages]),
            Event::DisableHugePages { disabled } => put(&[35, *ticket, u64::from(*disabled)]),
            Event::Unseen(unseen) => {
                let name = unseen.program.as_bytes();
                let why = unseen.why as u64;
                put(&[29, *ticket, why, name.len() as u64]);
                out.extend(name);
            }
            Event::Died(death) => {
                let (cause, number) = match death.cause {
                    Cause::Unknown => (0, 0),
                    Cause::Signal(number) => (1, number),
                    Cause::Emulator(status) => (2, status),
                };
                let text = death.instruction.as_bytes();
                put(&[
                    30,
                    *ticket,
                    u64::from(death.child),
                    cause,
                    u64::from(number),
                    text.len() as u64,
                ]);
                out.extend(text);
            }
        },
    }
}

/// Reads the output of [`put_mark`]; `None` if it is invalid.
pub fn get_mark(from: &mut &[u8]) -> Option<(u64, Mark)> {
    let position = get_varint(from)?;
    let code = get_varint(from)?;
    Some((position, get_body(code, from)?))
}

/// Reads the rest of a mark.
pub fn get_body(code: u64, from: &mut &[u8]) -> Option<Mark> {
    let mut next = || get_varint(from);
    let mark = match code {
        1 | 5 => {
            let counted = match code {
                1 => Counted::Ops,
                _ => Counted::Instructions,
            };
            let count = next()?;
            let mut needs = Vec::new();
            for _ in 0..count {
                needs.push((u32::try_from(next()?).ok()?, next()?));
            }
            return Some(Mark::Wait(needs, counted));
        }
        2 => End::Exit,
        3 => End::Meet { ticket: next()? },
        4 => End::Barrier { number: next()? },
        6 => End::Query(ShortcutQuery::LoadVa { integer: next()? }),
        7 => End::Query(ShortcutQuery::InsertVa {
            integer: next()?,
            va: VirtAddr(next()?),
        }),
        8 => End::Query(ShortcutQuery::Alloc { rows: next()? }),
        9 => End::Query(ShortcutQuery::Resize { rows: next()? }),
        10 => End::Query(ShortcutQuery::Free),
        11 => End::More,
        _ => {
            let ticket = next()?;
            let event = match code {
                16 => Event::Map {
                    at: VirtAddr(next()?),
                    bytes: next()?,
                    writable: next()? == 1,
                    backing: backing(next()?)?,
                },
                17 => Event::Unmap {
                    at: VirtAddr(next()?),
                    bytes: next()?,
                },
                18 => Event::Remap {
                    from: VirtAddr(next()?),
                    old_bytes: next()?,
                    to: VirtAddr(next()?),
                    new_bytes: next()?,
                },
                19 => Event::Protect {
                    at: VirtAddr(next()?),
                    bytes: next()?,
                    writable: next()? == 1,
                },
                20 => Event::Advise {
                    at: VirtAddr(next()?),
                    bytes: next()?,
                    advice: decoded(&ADVICE, next()?)?,
                },
                21 => Event::Populate {
                    at: VirtAddr(next()?),
                    bytes: next()?,
                },
                22 => Event::Spawn {
                    thread: u32::try_from(next()?).ok()?,
                },
                23 => Event::Fork {
                    process: u32::try_from(next()?).ok()?,
                    thread: u32::try_from(next()?).ok()?,
                },
                24 => Event::Exec,
                25 => Event::ProcessExit {
                    status: u32::try_from(next()?).ok()? as i32,
                },
                26 => Event::RoiBegin,
                27 => Event::RoiEnd,
                28 => Event::KernelTouch {
                    at: VirtAddr(next()?),
                    bytes: next()?,
                    writes: next()? == 1,
                },
                29 => {
                    let (why, length) = (next()?, next()?);
                    let why = *Why::ALL.get(usize::try_from(why).ok()?)?;
                    let name = from.split_off(..usize::try_from(length).ok()?)?;
                    let program = String::from_utf8(name.to_vec()).ok()?;
                    Event::Unseen(Box::new(Unseen { program, why }))
                }
                30 => {
                    let (child, cause, number) = (next()? == 1, next()?, next()?);
                    let number = u8::try_from(number).ok()?;
                    let cause = match cause {
                        0 => Cause::Unknown,
                        1 => Cause::Signal(number),
                        2 => Cause::Emulator(number),
                        _ => return None,
                    };
                    let length = usize::try_from(next()?).ok()?;
                    let instruction = String::from_utf8(from.split_off(..length)?.to_vec()).ok()?;
                    Event::Died(Box::new(Death {
                        child,
                        cause,
                        instruction,
                    }))
                }
                31 => Event::Mmap {
                    at: VirtAddr(next()?),
                    bytes: next()?,
                    writable: next()? == 1,
                    source: source([next()?, next()?, next()?, next()?])?,
                },
                32 => Event::KernelPopulate {
                    at: VirtAddr(next()?),
                    bytes: next()?,
                    populate: decoded(&POPULATE, next()?)?,
                },
                33 => Event::PunchHole {
                    key: next()?,
                    page: next()?,
                    pages: next()?,
                },
                34 => Event::Truncate {
                    key: next()?,
                    pages: next()?,
                },
                35 => Event::DisableHugePages {
                    disabled: next()? == 1,
                },
                _ => return None,
            };
            End::Event { event, ticket }
        }
    };
    Some(Mark::End(mark))
}

#[cfg(test)]
mod tests {
    use pagewalk_stream::{
        Advice, Backing, Cause, Counted, Death, End, Event, MappingSource, MemoryObject,
        PopulateAs, ShortcutQuery, Unseen, Why,
    };
    use pagewalk_units::{PageSize, VirtAddr};
    use proptest::prelude::*;

    use super::{Mark, get_mark, put_mark};

    #[test]
    fn every_mark_comes_back() {
        let (at, bytes) = (VirtAddr(0x7f00_0000_1000), 1 << 40);
        let events = [
            Event::Map {
                at,
                bytes,
                writable: true,
                backing: Backing::Shared,
            },
            Event::Map {
                at,
                bytes,
                writable: false,
                backing: Backing::File,
            },
            Event::Mmap {
                at,
                bytes,
                writable: true,
                source: MappingSource::Zeros {
                    stack: true,
                    reserves: false,
                },
            },
            Event::Mmap {
                at,
                bytes,
                writable: false,
                source: MappingSource::Pool {
                    size: PageSize::G1,
                    reserves: true,
                    object: None,
                    private: true,
                },
            },
            Event::Mmap {
                at,
                bytes,
                writable: true,
                source: MappingSource::Pool {
                    size: PageSize::M2,
                    reserves: false,
                    object: Some(MemoryObject {
                        key: Some(3),
                        file: false,
                        page: 512,
                        pages: 9,
                    }),
                    private: false,
                },
            },
            Event::Mmap {
                at,
                bytes,
                writable: false,
                source: MappingSource::Object {
                    object: MemoryObject {
                        key: Some(1 << 63 | 7),
                        file: true,
                        page: 3,
                        pages: 1 << 40,
                    },
                    private: true,
                },
            },
            Event::Mmap {
                at,
                bytes,
                writable: true,
                source: MappingSource::Object {
                    object: MemoryObject {
                        key: None,
                        file: false,
                        page: 0,
                        pages: u64::MAX,
                    },
                    private: false,
                },
            },
            Event::KernelPopulate {
                at,
                bytes,
                populate: PopulateAs::Area,
            },
            Event::PunchHole {
                key: 7,
                page: 3,
                pages: 1 << 40,
            },
            Event::Truncate { key: 7, pages: 3 },
            Event::DisableHugePages { disabled: true },
            Event::Unmap { at, bytes },
            Event::Remap {
                from: at,
                old_bytes: 4096,
                to: VirtAddr(0),
                new_bytes: bytes,
            },
            Event::Protect {
                at,
                bytes,
                writable: false,
            },
            Event::Advise {
                at,
                bytes,
                advice: Advice::PageOut,
            },
            Event::Populate { at, bytes },
            Event::Spawn { thread: u32::MAX },
            Event::Fork {
                process: 3,
                thread: 9,
            },
            Event::Exec,
            Event::ProcessExit { status: -1 },
            Event::RoiBegin,
            Event::RoiEnd,
            Event::KernelTouch {
                at: VirtAddr(0x7ffc_0123_4567),
                bytes: 3,
                writes: true,
            },
            Event::KernelTouch {
                at,
                bytes,
                writes: false,
            },
            Event::Unseen(Box::new(Unseen {
                program: "ä program".to_owned(),
                why: Why::Refused,
            })),
            Event::Died(Box::new(Death {
                child: true,
                cause: Cause::Unknown,
                instruction: String::new(),
            })),
            Event::Died(Box::new(Death {
                child: false,
                cause: Cause::Signal(4),
                instruction: "0x1000".to_owned(),
            })),
            Event::Died(Box::new(Death {
                child: false,
                cause: Cause::Emulator(125),
                instruction: String::new(),
            })),
        ];
        let mut marks: Vec<Mark> = events
            .into_iter()
            .zip(0..)
            .map(|(event, ticket)| Mark::End(End::Event { event, ticket }))
            .collect();
        marks.push(Mark::End(End::Exit));
        marks.push(Mark::End(End::More));
        marks.push(Mark::End(End::Meet { ticket: u64::MAX }));
        marks.push(Mark::End(End::Query(ShortcutQuery::LoadVa {
            integer: u64::MAX,
        })));
        let integer = 7;
        marks.push(Mark::End(End::Query(ShortcutQuery::InsertVa {
            integer,
            va: at,
        })));
        marks.push(Mark::End(End::Query(ShortcutQuery::Alloc {
            rows: u64::MAX,
        })));
        marks.push(Mark::End(End::Query(ShortcutQuery::Resize { rows: 0 })));
        marks.push(Mark::End(End::Query(ShortcutQuery::Free)));
        let needs = vec![(0, 5), (7, u64::MAX)];
        marks.push(Mark::Wait(needs.clone(), Counted::Ops));
        marks.push(Mark::Wait(needs, Counted::Instructions));
        let mut bytes = Vec::new();
        for (position, mark) in marks.iter().enumerate() {
            put_mark(&mut bytes, position as u64, mark);
        }
        let mut from = &bytes[..];
        for (position, mark) in marks.into_iter().enumerate() {
            assert_eq!(get_mark(&mut from), Some((position as u64, mark)));
        }
        assert!(from.is_empty());
    }

    proptest! {
        #[test]
        fn any_bytes_are_answered(bytes: Vec<u8>) {
            let mut from = &bytes[..];
            while get_mark(&mut from).is_some() {}
        }
    }
}
