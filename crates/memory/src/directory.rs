//! The directory: which private caches hold each line, for machines with several cores. It holds a
//! line as long as any core does, so its size is bounded by that of the private caches.

mod table;

use pagewalk_units::{Cycle, PhysAddr};

use self::table::{Holders, Table};
use crate::stats::DirectoryStats;

/// Most cores: one bit each.
pub(crate) const MOST_CORES: u8 = 64;

/// State of a line in other cores, as a request finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DirectoryResponse {
    /// No other core has to act.
    Free,
    /// Another core has it dirty and can supply it from this cycle on.
    Dirty(Cycle),
    /// The core already holds it and writes. `others`: other cores had to invalidate it.
    Upgrade { others: bool },
    /// Other cores hold it clean and invalidate it for a write.
    Invalidated,
}

/// The directory, and the snoops that cores have still to serve.
#[derive(Clone, Debug)]
pub(crate) struct Directory {
    lines: Table,
    snoops: Vec<Vec<(PhysAddr, bool)>>,
    /// Counters, without the gauge.
    pub stats: DirectoryStats,
}

impl Directory {
    /// An empty directory of a machine with `cores` cores.
    pub fn new(cores: u8) -> Self {
        Directory {
            lines: Table::new(),
            snoops: vec![vec![]; usize::from(cores)],
            stats: DirectoryStats::default(),
        }
    }

    /// Prefetches the slot of `line` into the host's caches.
    #[inline(always)]
    pub fn host_prefetch(&self, line: u64) {
        self.lines.host_prefetch(line);
    }

    /// Core `core` reads `line` and becomes a holder; a writer becomes a reader. `counted` is false
    /// in functional warming.
    pub fn read(&mut self, line: u64, core: u8, counted: bool) -> DirectoryResponse {
        let me = 1u64 << core;
        let (at, holders) = self.lines.entry(line);
        let (writer, ready) = match holders {
            Holders::Clean(cores) => {
                self.lines.set(at, line, Holders::Clean(cores | me));
                return DirectoryResponse::Free;
            }
            Holders::Writer(writer, _) if writer == core => return DirectoryResponse::Free,
            Holders::Writer(writer, ready) => (writer, ready),
        };
        let both = Holders::Clean(me | 1 << writer);
        self.lines.set(at, line, both);
        self.stats.remote_hits += u64::from(counted);
        self.snoops[usize::from(writer)]
            .push((PhysAddr(line << pagewalk_units::LINE_SHIFT), false));
        DirectoryResponse::Dirty(ready)
    }

    /// Core `core` writes `line`: all other copies are invalidated.
    pub fn write(&mut self, line: u64, core: u8, counted: bool) -> DirectoryResponse {
        let me = 1u64 << core;
        let (at, before) = self.lines.entry(line);
        let ready = match before {
            Holders::Writer(_, ready) => ready,
            // Set later by `written`; in functional warming it stays 0.
            Holders::Clean(_) => 0,
        };
        self.lines.set(at, line, Holders::Writer(core, ready));
        let mut others = before.cores() & !me;
        let any = others != 0;
        while others != 0 {
            let other = others.trailing_zeros() as usize;
            others &= others - 1;
            self.snoops[other].push((PhysAddr(line << pagewalk_units::LINE_SHIFT), true));
            self.stats.invalidations_sent += u64::from(counted);
        }
        if matches!(before, Holders::Writer(writer, _) if writer != core) {
            self.stats.remote_hits += u64::from(counted);
            DirectoryResponse::Dirty(ready)
        } else if before.cores() & me != 0 {
            self.stats.upgrades += u64::from(counted);
            DirectoryResponse::Upgrade { others: any }
        } else if any {
            DirectoryResponse::Invalidated
        } else {
            DirectoryResponse::Free
        }
    }

    /// Core `core`, whose caches have done so, removes `line` from all caches, or has it cleaned
    /// (`keeps`). Returns true if others had to act, and the cycle from which another core could
    /// supply a dirty line.
    pub fn flush(
        &mut self,
        line: u64,
        core: u8,
        keeps: bool,
        counted: bool,
    ) -> (bool, Option<Cycle>) {
        let Some((at, before)) = self.lines.get(line) else {
            return (false, None);
        };
        let dirty = match before {
            Holders::Writer(writer, ready) => (writer != core).then_some(ready),
            Holders::Clean(_) if keeps => return (false, None),
            Holders::Clean(_) => None,
        };
        if keeps {
            self.lines.set(at, line, Holders::Clean(before.cores()));
        } else {
            self.lines.remove(at);
        }
        let mut others = before.cores() & !(1 << core);
        let any = others != 0;
        while others != 0 {
            let other = others.trailing_zeros() as usize;
            others &= others - 1;
            self.snoops[other].push((PhysAddr(line << pagewalk_units::LINE_SHIFT), !keeps));
            self.stats.invalidations_sent += u64::from(counted && !keeps);
        }
        (any, dirty)
    }

    /// Sets the cycle from which the writer of `line` has the data.
    pub fn written(&mut self, line: u64, ready: Cycle) {
        if let Some((at, Holders::Writer(writer, _))) = self.lines.get(line) {
            self.lines.set(at, line, Holders::Writer(writer, ready));
        }
    }

    /// The core has written its dirty data back. It may still hold the line.
    pub fn cleaned(&mut self, line: u64, core: u8) {
        if let Some((at, Holders::Writer(writer, _))) = self.lines.get(line)
            && writer == core
        {
            self.lines.set(at, line, Holders::Clean(1 << core));
        }
    }

    /// The core no longer holds the line.
    pub fn dropped(&mut self, line: u64, core: u8) {
        let Some((at, holders)) = self.lines.get(line) else {
            return;
        };
        let rest = holders.cores() & !(1 << core);
        if rest == 0 {
            self.lines.remove(at);
        } else if let Holders::Clean(_) = holders {
            self.lines.set(at, line, Holders::Clean(rest));
        }
    }

    /// True if there are snoops for `core`.
    #[inline(always)]
    pub fn has_snoops(&self, core: u8) -> bool {
        !self.snoops[usize::from(core)].is_empty()
    }

    /// Appends the snoops for `core`, oldest first, to `into`.
    pub fn take_snoops(&mut self, core: u8, into: &mut Vec<(PhysAddr, bool)>) {
        into.append(&mut self.snoops[usize::from(core)]);
    }

    /// The counters, with the current value of the gauge.
    pub fn stats(&self) -> DirectoryStats {
        DirectoryStats {
            lines: self.lines.len() as u64,
            ..self.stats
        }
    }

    /// Cores that hold each line, as bits.
    #[cfg(test)]
    pub fn holders(&self) -> std::collections::BTreeMap<u64, u64> {
        self.lines.iter().map(|(l, h)| (l, h.cores())).collect()
    }

    /// The writer of each dirty line, as a bit.
    #[cfg(test)]
    pub fn writers(&self) -> std::collections::BTreeMap<u64, u64> {
        let dirty = |h| matches!(h, Holders::Writer(..));
        let all = self.lines.iter().filter(|&(_, h)| dirty(h));
        all.map(|(l, h)| (l, h.cores())).collect()
    }
}
