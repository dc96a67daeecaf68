//! DDR memory: channels, banks with a row buffer, and a data bus, each busy for known times.
//!
//! An access occupies its bank for the burst if the row is open. If no row is open, it also
//! occupies the bank for the activation, and if another row is open, for precharge and activation.
//! Data crosses the channel's bus a column access later. A read's latency is tCL, tRCD + tCL, or
//! tRP + tRCD + tCL, then the time of the line on the bus, then that of the controller. Writes use
//! bank and bus as reads do.
//!
//! With a `row_hit_cap`, a bank serves open rows first ([`rows`](super::rows)). Without, it opens and
//! closes rows in the order in which requests are made.
//!
//! Not modelled: refresh, tFAW and tRRD, the longer column distance within a bank group, and the
//! turnaround between reads and writes. Together they take a few percent of the peak bandwidth.

use pagewalk_structures::{FreeIntervals, XorFold};
use pagewalk_units::{Error, LINE_BYTES};

use super::rows::{OpenRow, OpenRows};
use crate::stats::DramStats;
use crate::{AddressHash, DramSpec};

#[derive(Clone, Debug)]
struct Bank {
    rows: OpenRows,
    /// Time at which a row was last used.
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
    address_hash: AddressHash,
    /// Row hits that overtake a waiting activation, at most.
    row_hit_cap: u32,
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
    /// The row of this number among those of the bank.
    Hit(usize),
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
    fold: XorFold,
}

impl Divisor {
    const ODD: u32 = u32::MAX;

    fn new(by: u64) -> Self {
        let shift = if by.is_power_of_two() {
            by.trailing_zeros()
        } else {
            Self::ODD
        };
        let fold = XorFold::new(if shift == Self::ODD { 0 } else { shift });
        Divisor { by, shift, fold }
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

    /// The remainder `digit`, moved by all digits of `above`: by XOR, or by their sum if the divisor
    /// is no power of two. For one `above` it is a permutation.
    #[inline(always)]
    fn hash(self, digit: u64, mut above: u64) -> u64 {
        if self.shift != Self::ODD {
            return digit ^ self.fold.of(above);
        }
        let mut sum = digit;
        while above != 0 {
            let (rest, next) = self.split(above);
            sum += next;
            above = rest;
        }
        sum % self.by
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
            address_hash,
            row_hit_cap,
        } = spec
        else {
            return Err(Error::key("memory.dram", "is not a ddr memory"));
        };
        let ps = |ns: f64| (ns * 1000.0).round() as u64;
        let rate = u64::from(data_rate_mts);
        let per_channel = ranks * bank_groups * banks;
        let bank = Bank {
            rows: OpenRows::default(),
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
            address_hash,
            row_hit_cap,
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
    /// different channels and to one row. The bank is hashed with the row, so that strides of a
    /// row's size use all banks. Low bits alone leave streams in one bank that are a multiple of
    /// banks squared rows apart ([`AddressHash`]).
    #[inline(always)]
    fn place(&self, line: u64) -> Coordinates {
        let (rest, channel) = self.by_channel.split(line);
        let (above, _column) = self.by_column.split(rest);
        let (row, bank) = self.by_bank.split(above);
        let (channel, bank) = match self.address_hash {
            AddressHash::AllBits => (
                self.by_channel.hash(channel, rest),
                self.by_bank.hash(bank, row),
            ),
            AddressHash::LowRowBits if self.by_bank.shift == Divisor::ODD => {
                (channel, self.by_bank.split(bank + row).1)
            }
            AddressHash::LowRowBits => (channel, self.by_bank.split(bank ^ row).1),
        };
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
        if bank.rows.is_empty() || timed_out {
            return BankAccess {
                row: Row::Miss,
                from: at,
                busy: self.trcd + self.line_time,
                lead: self.trcd + self.tcl,
            };
        }
        if let Some(n) = bank.rows.joins(place.row, at, self.row_hit_cap) {
            return BankAccess {
                row: Row::Hit(n),
                from: at,
                busy: self.line_time,
                lead: self.tcl,
            };
        }
        // Requests do not arrive in order of time: an activation after this request does not delay
        // it.
        let activated = bank.rows.activated(at);
        BankAccess {
            row: Row::Conflict,
            from: activated.map_or(at, |activated| at.max(activated + self.tras)),
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
        bank.used = bank.used.max(data);
        let opened = |activated| OpenRow::new(place.row, at, start, activated);
        let stats = &mut channel.stats;
        match plan.row {
            Row::Hit(n) => {
                stats.row_hits += 1;
                bank.rows.join(n, at);
            }
            Row::Miss => {
                stats.row_misses += 1;
                bank.rows.replace(opened(start));
            }
            Row::Conflict => {
                stats.row_conflicts += 1;
                let row = opened(start + self.trp);
                if self.row_hit_cap == 0 {
                    bank.rows.replace(row);
                } else {
                    bank.rows.insert(row);
                }
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
        bank.rows.warm(place.row);
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::{Coordinates, Ddr};
    use crate::{AddressHash, DramSpec};

    fn memory(channels: u32, banks: u32, hash: AddressHash) -> Ddr {
        let mut spec = crate::common::ddr(channels);
        if let DramSpec::Ddr {
            ranks,
            bank_groups,
            banks: of_group,
            row_bytes,
            address_hash,
            ..
        } = &mut spec
        {
            (*ranks, *bank_groups, *of_group) = (1, 1, banks);
            (*row_bytes, *address_hash) = (512, hash);
        }
        Ddr::new(&spec).expect("possible")
    }

    fn bank(d: &Ddr, line: u64) -> (usize, usize) {
        let place = d.place(line);
        (place.channel, place.bank)
    }

    proptest! {
        #[test]
        fn distinct_lines_have_distinct_places(
            channels in prop::sample::select(vec![1u32, 2, 3, 8]),
            banks in prop::sample::select(vec![1u32, 4, 5, 32]),
            low in any::<bool>(),
            high in 0u64..1 << 30,
        ) {
            let hash = if low { AddressHash::LowRowBits } else { AddressHash::AllBits };
            let d = memory(channels, banks, hash);
            // All lines of some rows.
            let columns = 512 / 64;
            let row = u64::from(channels) * columns * u64::from(banks);
            let lines = high * row..(high + 4) * row;
            let places: BTreeSet<_> = lines.map(|line| {
                let Coordinates { channel, bank, row } = d.place(line);
                assert!(channel < channels as usize && bank < banks as usize);
                (channel, bank, row, line / u64::from(channels) % columns)
            }).collect();
            prop_assert_eq!(places.len() as u64, 4 * row);
        }
    }

    /// Each channel, and at least half of the banks: the low bits of a stride reach either the
    /// column, the channel or the bank.
    #[test]
    fn a_stream_at_any_power_of_two_spreads_over_the_banks() {
        let d = memory(8, 32, AddressHash::AllBits);
        for shift in 0..32 {
            let banks: BTreeSet<_> = (0..1 << 13).map(|n| bank(&d, n << shift)).collect();
            let channels: BTreeSet<_> = banks.iter().map(|place| place.0).collect();
            assert_eq!(channels.len(), 8, "stride 2^{shift} lines");
            assert!(
                banks.len() >= 128,
                "stride 2^{shift} lines: {}",
                banks.len()
            );
        }
        // With the low bits of the row, a stream of one bank is left.
        let low = memory(8, 32, AddressHash::LowRowBits);
        let banks: BTreeSet<_> = (0..1 << 10).map(|n| bank(&low, n << 20)).collect();
        assert_eq!(banks.len(), 1);
    }

    /// Streams of which one copies the other.
    #[test]
    fn two_streams_a_power_of_two_apart_rarely_meet_in_a_bank() {
        let meet = |hash, shift: u32| {
            let d = memory(8, 32, hash);
            let both = |&line: &u64| bank(&d, line) == bank(&d, line + (1 << shift));
            (0..1u64 << 16).filter(both).count()
        };
        for shift in 11..32 {
            let most = 1 << 12;
            let lines = meet(AddressHash::AllBits, shift);
            assert!(lines < most, "2^{shift} lines apart: {lines}");
        }
        assert_eq!(meet(AddressHash::LowRowBits, 20), 1 << 16);
    }
}
