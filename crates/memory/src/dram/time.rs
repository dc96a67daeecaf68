//! Conversion between cycles of the core and picoseconds of the memory.

use pagewalk_units::{Cycle, Error};

/// Fractional bits of a cycle's length in picoseconds.
const PS_BITS: u32 = 24;
/// Fractional bits of a picosecond's length in cycles.
const CYCLE_BITS: u32 = 40;

/// Length of a cycle.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ratio {
    ps_per_cycle: u64,
    cycles_per_ps: u64,
}

impl Ratio {
    /// The ratio for a core of this frequency.
    pub fn new(frequency_ghz: f64) -> Result<Self, Error> {
        if !(0.01..=100.0).contains(&frequency_ghz) {
            return Err(Error::key(
                "frequency_ghz",
                format!("is {frequency_ghz}; it must be 0.01 to 100"),
            ));
        }
        Ok(Ratio {
            ps_per_cycle: (1000.0 / frequency_ghz * f64::from(1u32 << PS_BITS)).round() as u64,
            // Rounded down, so that a whole number of cycles never becomes one more.
            cycles_per_ps: (frequency_ghz / 1000.0 * (1u64 << CYCLE_BITS) as f64) as u64,
        })
    }

    /// Time at which a cycle begins.
    #[inline(always)]
    pub fn to_ps(self, cycle: Cycle) -> u64 {
        ((u128::from(cycle) * u128::from(self.ps_per_cycle)) >> PS_BITS) as u64
    }

    /// Cycles of a duration, rounded up.
    #[inline(always)]
    pub fn to_cycles(self, ps: u64) -> Cycle {
        let exact = u128::from(ps) * u128::from(self.cycles_per_ps);
        ((exact + (1 << CYCLE_BITS) - 1) >> CYCLE_BITS) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::Ratio;

    #[test]
    fn durations_round_up_and_whole_cycles_stay_whole() {
        for ghz in [1.0, 2.0, 2.66, 3.2, 3.7] {
            let r = Ratio::new(ghz).expect("possible");
            for cycles in [1u64, 3, 90, 1234] {
                let ps = (cycles as f64 * 1000.0 / ghz).floor() as u64;
                assert_eq!(r.to_cycles(ps), cycles, "{ghz} GHz");
                assert_eq!(r.to_cycles(ps + 2), cycles + 1, "{ghz} GHz");
            }
            assert_eq!(r.to_cycles(0), 0);
            let far = 1u64 << 44;
            let drift = r.to_ps(far) as f64 / (far as f64 * 1000.0 / ghz) - 1.0;
            assert!(drift.abs() < 1e-6);
        }
        assert!(Ratio::new(0.0).is_err() && Ratio::new(f64::NAN).is_err());
    }
}
