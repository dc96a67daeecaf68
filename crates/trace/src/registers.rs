//! Dependences from register names: tracks the last writer of each register.
//!
//! Simple instructions are folded into the ops after them. A folded result is "ready some cycles after that op". This
//! is exact while it depends on one op. If it depends on two, or the chain grows long, a `Compute` op is made.

use pagewalk_stream::{Op, OpClass};

use crate::pump::{Stop, TakesOps};

/// Cycles at which a chain of folded instructions gets an op of its own. A loop-carried chain of arithmetic thus
/// becomes a chain of ops.
const LONGEST_CHAIN: u8 = 8;

/// Time when a value is ready: `latency` cycles after op number `producer` is done.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Ready {
    /// Number of the op, from 1; 0 if unknown.
    producer: u64,
    latency: u8,
}

/// Last writers of a thread's registers, and the op count.
pub struct Writers {
    written: [Ready; 256],
    ops: u64,
    /// Simple instructions since the last op.
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

/// At most two distinct producers of one instruction.
#[derive(Clone, Copy, Default, Debug)]
pub struct Inputs {
    ready: [Ready; 2],
    /// Longest of the chains that begin with no known op.
    unknown: u8,
}

impl Writers {
    /// Time when `register` is ready.
    pub fn get(&self, register: u8) -> Ready {
        self.written[usize::from(register)]
    }

    /// Sets the time when `register` is ready.
    pub fn set(&mut self, register: u8, ready: Ready) {
        self.written[usize::from(register)] = ready;
    }

    /// The result of the last op, `latency` cycles later.
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
        // The next op has number `ops + 1`. A producer farther back than a window is done.
        match u16::try_from(self.ops + 1 - ready.producer) {
            Ok(distance) => (distance, ready.latency),
            Err(_) => (0, 0),
        }
    }

    /// Gives `op` with its producers and the simple instructions before it. `insns` is 1, or 0 for a second op of an
    /// instruction.
    #[inline]
    pub fn give(
        &mut self,
        sink: &mut impl TakesOps,
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

    /// The producers of `sources`. If there are more than two, ops without latency join them.
    #[inline]
    pub fn inputs(
        &mut self,
        sink: &mut impl TakesOps,
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
        // The older one first: the newer one is more likely a store's data.
        if found.ready[1].producer != 0 && found.ready[1].producer < found.ready[0].producer {
            found.ready.swap(0, 1);
        }
        Ok(found)
    }

    /// Folds a simple instruction of one cycle. Returns the time when its result is ready.
    #[inline]
    pub fn plain(
        &mut self,
        sink: &mut impl TakesOps,
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

    /// Gives the simple instructions after the last op an op of their own.
    pub fn finish(&mut self, sink: &mut impl TakesOps, pc: u64) -> Result<(), Stop> {
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
