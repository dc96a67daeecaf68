//! Dependences from register names: who wrote each register last.
//!
//! Plain instructions are folded into the ops after them. What they compute is
//! kept as "ready so many cycles after that op", which loses nothing while one op
//! is behind it; where two meet, or the chain grows long, a `Compute` op is given.

use pagewalk_stream::{Op, OpClass};

use crate::pump::{Sink, Stop};

/// A chain of folded instructions gets an op of its own at this many cycles, so
/// that a loop-carried chain of arithmetic is a chain of ops.
const LONGEST_CHAIN: u8 = 8;

/// When a value is ready: `latency` after op number `producer` is done.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Ready {
    /// Number of the op, from 1; 0 when no op is known.
    producer: u64,
    latency: u8,
}

/// The registers of a thread, and ops under way.
pub struct Writers {
    written: [Ready; 256],
    ops: u64,
    /// Plain instructions since the last op.
    plain: u16,
}

impl Default for Writers {
    fn default() -> Self {
        Writers {
            written: [Ready::default(); 256],
            ops: 0,
            plain: 0,
        }
    }
}

/// Up to two distinct producers of one instruction.
#[derive(Clone, Copy, Default, Debug)]
pub struct Inputs {
    ready: [Ready; 2],
    /// Longest of the chains that begin with no known op.
    unknown: u8,
}

impl Writers {
    /// When `register` is ready.
    pub fn get(&self, register: u8) -> Ready {
        self.written[usize::from(register)]
    }

    /// `register` is ready at `ready`.
    pub fn set(&mut self, register: u8, ready: Ready) {
        self.written[usize::from(register)] = ready;
    }

    /// The value of the last op, `latency` cycles on.
    pub fn last(&self, latency: u8) -> Ready {
        Ready {
            producer: self.ops,
            latency,
        }
    }

    fn distance(&self, ready: Ready) -> (u16, u8) {
        if ready.producer == 0 {
            return (0, 0);
        }
        // The next op has number `ops + 1`. What is further back than a window
        // holds is ready.
        match u16::try_from(self.ops + 1 - ready.producer) {
            Ok(distance) => (distance, ready.latency),
            Err(_) => (0, 0),
        }
    }

    /// Gives `op` with its producers and the plain instructions before it;
    /// `insns` is 1, or 0 for a second op of an instruction.
    #[inline]
    pub fn give<E>(
        &mut self,
        sink: &mut Sink<E>,
        mut op: Op,
        inputs: Inputs,
        insns: u16,
    ) -> Result<(), Stop> {
        for (k, ready) in inputs.ready.into_iter().enumerate() {
            (op.dep[k], op.dep_latency[k]) = self.distance(ready);
        }
        op.insns = insns + std::mem::take(&mut self.plain);
        self.ops += 1;
        sink.push(op)
    }

    /// The producers behind `sources`; more than two are joined by an op that
    /// takes no time.
    #[inline]
    pub fn inputs<E>(
        &mut self,
        sink: &mut Sink<E>,
        pc: u64,
        sources: impl Iterator<Item = Ready>,
    ) -> Result<Inputs, Stop> {
        let mut found = Inputs::default();
        for ready in sources {
            if ready.producer == 0 {
                found.unknown = found.unknown.max(ready.latency);
                continue;
            }
            let [a, b] = &mut found.ready;
            if a.producer == ready.producer {
                a.latency = a.latency.max(ready.latency);
            } else if b.producer == ready.producer {
                b.latency = b.latency.max(ready.latency);
            } else if a.producer == 0 {
                *a = ready;
            } else if b.producer == 0 {
                *b = ready;
            } else {
                let join = Op {
                    pc,
                    kind: OpClass::Compute,
                    ..Op::default()
                };
                self.give(sink, join, found, 0)?;
                found.ready = [self.last(0), ready];
            }
        }
        // The older first: of a store the newer is more likely the data.
        if found.ready[1].producer != 0 && found.ready[1].producer < found.ready[0].producer {
            found.ready.swap(0, 1);
        }
        Ok(found)
    }

    /// One plain instruction of one cycle; gives when its result is ready.
    #[inline]
    pub fn plain<E>(
        &mut self,
        sink: &mut Sink<E>,
        pc: u64,
        sources: impl Iterator<Item = Ready>,
    ) -> Result<Ready, Stop> {
        let inputs = self.inputs(sink, pc, sources)?;
        let [first, second] = inputs.ready;
        let latency = 1 + if first.producer == 0 {
            inputs.unknown
        } else {
            first.latency
        };
        if second.producer != 0 || latency >= LONGEST_CHAIN {
            let (inputs, latency) = if second.producer != 0 {
                (inputs, 1)
            } else {
                let mut start = inputs;
                start.ready[0].latency = 0;
                (start, latency)
            };
            let op = Op {
                pc,
                latency,
                kind: OpClass::Compute,
                ..Op::default()
            };
            self.give(sink, op, inputs, 1)?;
            return Ok(self.last(0));
        }
        if self.plain == u16::MAX - 1 {
            let op = Op {
                pc,
                latency: 1,
                ..Op::default()
            };
            self.give(sink, op, Inputs::default(), 0)?;
        }
        self.plain += 1;
        Ok(Ready {
            producer: first.producer,
            latency,
        })
    }

    /// Gives the plain instructions after the last op an op of their own.
    pub fn finish<E>(&mut self, sink: &mut Sink<E>, pc: u64) -> Result<(), Stop> {
        if self.plain > 0 {
            let op = Op {
                pc,
                latency: 1,
                ..Op::default()
            };
            self.give(sink, op, Inputs::default(), 0)?;
        }
        Ok(())
    }
}
