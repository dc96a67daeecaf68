//! Costs of kernel work, in cycles of the simulated core.

use pagewalk_tables::MapWork;
use pagewalk_units::Cycle;

use crate::spec::PriceSpec;

/// The prices of a machine.
#[derive(Clone, Debug)]
pub struct Prices {
    spec: PriceSpec,
    ghz: f64,
    /// A page fault from the trap to the return, cycles.
    pub trap: Cycle,
    /// A page that a call populates, without zeroing, cycles.
    pub populate: Cycle,
    /// A system call that changes the address space, without the change itself,
    /// cycles.
    pub syscall: Cycle,
    /// A context switch, cycles.
    pub context_switch: Cycle,
    /// A TLB shootdown on each interrupted core, cycles.
    pub shootdown_remote: Cycle,
}

impl Prices {
    /// The prices of `spec` on a core of `ghz`.
    pub fn new(spec: &PriceSpec, ghz: f64) -> Self {
        let cycles = |ns: f64| (ns * ghz).round() as Cycle;
        Prices {
            trap: cycles(spec.trap_ns),
            populate: cycles(spec.populate_ns),
            syscall: cycles(spec.syscall_ns),
            context_switch: cycles(spec.context_switch_ns),
            shootdown_remote: cycles(spec.shootdown_remote_ns),
            spec: spec.clone(),
            ghz,
        }
    }

    fn cycles(&self, ns: f64) -> Cycle {
        (ns * self.ghz).round() as Cycle
    }

    /// Cost of zeroing `bytes`.
    pub fn zero(&self, bytes: u64) -> Cycle {
        self.cycles(self.spec.zero_ns_per_byte * bytes as f64)
    }

    /// Cost of copying `bytes`.
    pub fn copy(&self, bytes: u64) -> Cycle {
        self.cycles(self.spec.copy_ns_per_byte * bytes as f64)
    }

    /// Cost of scanning `entries` of a page table (khugepaged).
    pub fn scan(&self, entries: u64) -> Cycle {
        self.cycles(self.spec.scan_pte_ns * entries as f64)
    }

    /// Cost of searching `bytes` of an STLT.
    pub fn search(&self, bytes: u64) -> Cycle {
        self.cycles(self.spec.search_ns_per_byte * bytes as f64)
    }

    /// Cost of correcting `entries` of an STLT.
    pub fn moved(&self, entries: u64) -> Cycle {
        self.cycles(self.spec.moved_entry_ns * entries as f64)
    }

    /// Cost of allocating and zeroing a contiguous block of `bytes` for a table, at an
    /// unusable-free index `index` for order 9. Never below the cost of zeroing.
    pub fn allocation(&self, bytes: u64, index: f64) -> Cycle {
        let floor = self.spec.zero_ns_per_byte * bytes as f64;
        let rest = (self.measured(bytes as f64) - floor).max(0.0);
        let scale = (index / self.spec.allocation_index).clamp(0.0, 1.0).powi(2);
        self.cycles(floor + rest * scale)
    }

    /// Nanoseconds at the index of the prices. Interpolates log-log between the
    /// points, extrapolates from the last two, and is constant with a single point.
    fn measured(&self, bytes: f64) -> f64 {
        let points = &self.spec.allocation_ns;
        let [first, second] = match points
            .windows(2)
            .find(|w| bytes <= w[1][0])
            .or(points.windows(2).last())
        {
            Some(w) => [w[0], w[1]],
            None => return points[0][1],
        };
        let slope = (second[1] / first[1]).ln() / (second[0] / first[0]).ln();
        first[1] * (slope * (bytes / first[0]).ln()).exp()
    }

    /// Cost of the moves of a table change. Allocations are charged separately.
    pub fn moves(&self, work: &MapWork) -> Cycle {
        let entries = f64::from(work.moved) + f64::from(work.kicks);
        let chunks = f64::from(work.lookups);
        self.cycles(self.spec.moved_entry_ns * entries + self.spec.l2p_access_ns * chunks)
    }

    /// Cost of saving or restoring `registers` of a page table.
    pub fn registers(&self, registers: u64) -> Cycle {
        self.cycles(self.spec.register_ns * registers as f64)
    }

    /// Cost of a TLB shootdown of `cores` other cores, for its initiator. Zero without
    /// other cores.
    pub fn shootdown(&self, cores: u32) -> Cycle {
        if cores == 0 {
            return 0;
        }
        let per_core = self.spec.shootdown_per_core_ns * f64::from(cores);
        self.cycles(self.spec.shootdown_ns + per_core)
    }
}

#[cfg(test)]
mod tests {
    use pagewalk_tables::MapWork;

    use super::Prices;
    use crate::spec::PriceSpec;

    #[test]
    fn the_measured_points_come_out_as_published() {
        let p = Prices::new(&PriceSpec::default(), 2.0);
        let published = [
            (4 << 10, 4_000),
            (8 << 10, 5_000),
            (1 << 20, 750_000),
            (8 << 20, 13_000_000),
            (64 << 20, 120_000_000),
        ];
        for (bytes, cycles) in published {
            assert_eq!(p.allocation(bytes, 0.7), cycles);
            assert_eq!(p.allocation(bytes, 0.0), bytes / 4, "only the zeroing");
            let half = bytes / 4 + (cycles - bytes / 4) / 4;
            assert!(p.allocation(bytes, 0.35).abs_diff(half) <= 1);
        }
    }

    #[test]
    fn the_index_of_the_measurement_is_where_it_holds() {
        let p = Prices::new(
            &PriceSpec {
                allocation_index: 0.35,
                ..PriceSpec::default()
            },
            2.0,
        );
        assert_eq!(p.allocation(1 << 20, 0.35), 750_000);
        assert_eq!(p.allocation(1 << 20, 0.7), 750_000, "no more above it");
    }

    #[test]
    fn between_the_points_the_logarithms_are_linear() {
        let p = Prices::new(&PriceSpec::default(), 2.0);
        // Halfway between 1 MB and 4 MB on the line from 1 MB to 8 MB.
        let two = p.allocation(2 << 20, 0.7) as f64;
        let one = p.allocation(1 << 20, 0.7) as f64;
        let four = p.allocation(4 << 20, 0.7) as f64;
        assert!((two / one - four / two).abs() < 1e-3);
        assert!((two / one - (13.0f64 / 0.75).powf(1.0 / 3.0)).abs() < 1e-3);
    }

    #[test]
    fn a_reinsertion_looks_up_its_chunk_on_top_of_its_move() {
        let p = Prices::new(&PriceSpec::default(), 2.0);
        let work = MapWork {
            moved: 2,
            kicks: 3,
            lookups: 3,
            ..MapWork::default()
        };
        // 200 cycles for an entry, 4 for an access to the L2P table (ME-HPT, table
        // III).
        assert_eq!(p.moves(&work), 5 * 200 + 3 * 4);
        assert_eq!(p.registers(53), 106);
    }

    #[test]
    fn a_shootdown_of_nobody_is_free() {
        let p = Prices::new(&PriceSpec::default(), 2.0);
        assert_eq!(p.shootdown(0), 0);
        assert_eq!(p.shootdown(3), 2_000 + 3 * 400);
    }
}
