//! DDR memory: channels, banks with a row buffer, and a data bus, each busy for known times.
//!
//! An access occupies its bank for the burst if the row is open. If no row is open, it also
//! occupies the bank for the activation, and if another row is open, for precharge and activation.
//! Data crosses the channel's bus a column access later. A read's latency is tCL, tRCD + tCL, or
//! tRP + tRCD + tCL, then the time of the line on the bus, then that of the controller. Writes use
//! bank and bus as reads do.
//!
//! Each bank serves requests in order of time. A controller that serves open rows first would lose
//! less time if streams meet in a bank. Not modelled: refresh, tFAW and tRRD, the longer column
//! distance within a bank group, and the turnaround between reads and writes. Together they take a
//! few percent of the peak bandwidth.

use pagewalk_structures::FreeIntervals;
use pagewalk_units::{Error, LINE_BYTES};

use crate::DramSpec;
use crate::stats::DramStats;

/// No row is open.
const CLOSED: u64 = u64::MAX;

#[derive(Clone, Debug)]
struct Bank {
    row: u64,
    /// Time at which the open row was activated.
    activated: u64,
    /// Time at which the row was last used.
    used: u64,
    busy: FreeIntervals<8>,
    /// The round of [`Ddr::warm_all`] that last opened a row here.
    round: u64,
}

#[derive(Clone, Debug)]
struct Channel {
    bus: FreeIntervals<64>,
    banks: Vec<Bank>,
    stats: DramStats,
}

/// Times in picoseconds.
#[derive(Clone, Debug)]
pub(crate) struct Ddr {
    channels: Vec<Channel>,
    by_channel: Divisor,
    by_column: Divisor,
    by_bank: Divisor,
    line_time: u64,
    tcl: u64,
    trcd: u64,
    trp: u64,
    tras: u64,
    controller: u64,
    /// Time after which an idle row is closed; 0: it stays open.
    keep_open: u64,
    /// Latest time of a request. Functional warming happens at this time.
    latest: u64,
    /// Number of calls of [`Ddr::warm_all`].
    round: u64,
}

#[derive(Clone, Copy)]
struct Coordinates {
    channel: usize,
    bank: usize,
    row: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Row {
    Hit,
    Miss,
    Conflict,
}

/// Effect of an access on its bank.
struct BankAccess {
    row: Row,
    /// Earliest time at which the bank can start.
    from: u64,
    /// Time for which the bank is busy.
    busy: u64,
    /// Time from the bank's start to the first data on the bus.
    lead: u64,
}

/// A divisor that is fixed when the memory is built: division is a shift and a mask if possible.
#[derive(Clone, Copy, Debug)]
struct Divisor {
    by: u64,
    /// `by` is 1 << `shift`; [`Divisor::ODD`] if it is no power of two.
    shift: u32,
}

impl Divisor {
    const ODD: u32 = u32::MAX;

    fn new(by: u64) -> Self {
        let shift = if by.is_power_of_two() {
            by.trailing_zeros()
        } else {
            Self::ODD
        };
        Divisor { by, shift }
    }

    /// Quotient and remainder.
    #[inline(always)]
    fn split(self, value: u64) -> (u64, u64) {
        if self.shift == Self::ODD {
            (value / self.by, value % self.by)
        } else {
            (value >> self.shift, value & (self.by - 1))
        }
    }
}

impl Ddr {
    /// Creates the memory of a checked [`DramSpec::Ddr`].
    ///
    /// # Errors
    /// Another kind of memory.
    pub fn new(spec: &DramSpec) -> Result<Self, Error> {
        let &DramSpec::Ddr {
            data_rate_mts,
            bus_bytes,
            channels,
            ranks,
            bank_groups,
            banks,
            row_bytes,
            tcl_ns,
            trcd_ns,
            trp_ns,
            tras_ns,
            controller_ns,
            keep_open_ns,
        } = spec
        else {
            return Err(Error::key("memory.dram", "is not a ddr memory"));
        };
        let ps = |ns: f64| (ns * 1000.0).round() as u64;
        let rate = u64::from(data_rate_mts);
        let per_channel = ranks * bank_groups * banks;
        let bank = Bank {
            row: CLOSED,
            activated: 0,
            used: 0,
            busy: FreeIntervals::new(),
            round: 0,
        };
        let channel = Channel {
            bus: FreeIntervals::new(),
            banks: vec![bank; per_channel as usize],
            stats: DramStats::default(),
        };
        Ok(Ddr {
            channels: vec![channel; channels as usize],
            by_channel: Divisor::new(u64::from(channels)),
            by_column: Divisor::new(u64::from(row_bytes) / LINE_BYTES),
            by_bank: Divisor::new(u64::from(per_channel)),
            // Mega-transfers a second are transfers per million picoseconds.
            line_time: (LINE_BYTES / u64::from(bus_bytes) * 1_000_000 + rate / 2) / rate,
            tcl: ps(tcl_ns),
            trcd: ps(trcd_ns),
            trp: ps(trp_ns),
            tras: ps(tras_ns),
            controller: ps(controller_ns),
            keep_open: ps(keep_open_ns),
            latest: 0,
            round: 0,
        })
    }

    /// Address mapping row : bank : column : channel, from high to low: neighbouring lines go to
    /// different channels and to one row. The bank is hashed with the row (permutation-based
    /// interleaving, Zhang, Zhu and Zhang, MICRO 2000), so that strides of a row's size use all
    /// banks.
    #[inline(always)]
    fn place(&self, line: u64) -> Coordinates {
        let (rest, channel) = self.by_channel.split(line);
        let (rest, _column) = self.by_column.split(rest);
        let (row, bank) = self.by_bank.split(rest);
        let hashed = if self.by_bank.shift == Divisor::ODD {
            bank + row
        } else {
            bank ^ row
        };
        let (_, bank) = self.by_bank.split(hashed);
        Coordinates {
            channel: channel as usize,
            bank: bank as usize,
            row,
        }
    }

    /// Effect on its bank of an access at `at`.
    #[inline(always)]
    fn plan(&self, place: Coordinates, at: u64) -> BankAccess {
        let bank = &self.channels[place.channel].banks[place.bank];
        let timed_out = self.keep_open != 0 && at > bank.used + self.keep_open;
        if bank.row == CLOSED || timed_out {
            return BankAccess {
                row: Row::Miss,
                from: at,
                busy: self.trcd + self.line_time,
                lead: self.trcd + self.tcl,
            };
        }
        if bank.row == place.row {
            return BankAccess {
                row: Row::Hit,
                from: at,
                busy: self.line_time,
                lead: self.tcl,
            };
        }
        // Requests do not arrive in order of time: an activation after this request does not delay
        // it.
        let closes = bank.activated + self.tras;
        BankAccess {
            row: Row::Conflict,
            from: if bank.activated <= at {
                at.max(closes)
            } else {
                at
            },
            busy: self.trp + self.trcd + self.line_time,
            lead: self.trp + self.trcd + self.tcl,
        }
    }

    /// Reads or writes a line, requested at `at`. Returns when the data is back (for a read), and
    /// how long it waited for its bank and the bus.
    pub fn access(&mut self, line: u64, at: u64, write: bool) -> (u64, u64) {
        let place = self.place(line);
        let plan = self.plan(place, at);
        self.latest = self.latest.max(at);
        let channel = &mut self.channels[place.channel];
        let bank = &mut channel.banks[place.bank];
        let start = bank.busy.take(plan.from, plan.busy);
        let bus_request = start + plan.lead;
        let data = channel.bus.take(bus_request, self.line_time);
        let end = data + self.line_time;
        bank.row = place.row;
        bank.used = bank.used.max(data);
        let stats = &mut channel.stats;
        match plan.row {
            Row::Hit => stats.row_hits += 1,
            Row::Miss => {
                stats.row_misses += 1;
                bank.activated = start;
            }
            Row::Conflict => {
                stats.row_conflicts += 1;
                bank.activated = start + self.trp;
            }
        }
        stats.bus_busy_ps += self.line_time;
        let waits = [start - at, data - bus_request];
        stats.bank_wait_ps += waits[0];
        stats.bus_wait_ps += waits[1];
        let back = end + self.controller;
        if write {
            stats.writes += 1;
        } else {
            stats.reads += 1;
            stats.latency_ps += back - at;
        }
        (back, waits[0] + waits[1])
    }

    /// An access of another tenant: it takes bank and bus as others do, and is not counted.
    pub fn occupy(&mut self, line: u64, at: u64) {
        let channel = self.place(line).channel;
        let counted = self.channels[channel].stats;
        self.access(line, at, false);
        self.channels[channel].stats = counted;
    }

    /// Time that an access would wait for the bus of its channel and occupy it, as if its bank were
    /// free and its row had to be opened.
    pub fn bus_time(&self, line: u64, at: u64) -> u64 {
        let channel = &self.channels[self.place(line).channel];
        let bus_request = at + self.trcd + self.tcl;
        channel.bus.earliest(bus_request, self.line_time) - bus_request + self.line_time
    }

    /// Opens the line's row, for functional warming.
    pub fn warm(&mut self, line: u64) {
        let place = self.place(line);
        let bank = &mut self.channels[place.channel].banks[place.bank];
        bank.row = place.row;
        bank.used = bank.used.max(self.latest);
    }

    /// As [`Ddr::warm`] for each line. Only the last row of each bank stays open, so earlier lines
    /// are skipped once every bank has its row.
    pub fn warm_all(&mut self, lines: &[u64]) {
        self.round += 1;
        let mut left: usize = self.channels.iter().map(|c| c.banks.len()).sum();
        for &line in lines.iter().rev() {
            let place = self.place(line);
            let bank = &mut self.channels[place.channel].banks[place.bank];
            if bank.round != self.round {
                bank.round = self.round;
                self.warm(line);
                left -= 1;
                if left == 0 {
                    break;
                }
            }
        }
    }

    /// Counters of the channels, in order.
    pub fn stats(&self) -> impl Iterator<Item = &DramStats> {
        self.channels.iter().map(|c| &c.stats)
    }
}
