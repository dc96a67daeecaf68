//! Second chance (Corbató, 1968), whose new entries have to prove themselves: the hand stays
//! with one that was put in, so that it goes next unless it is used before.

use pagewalk_units::{Error, Rng};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{HitVisibility, Policy};

/// Second chance, with entries on probation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ClockSpec {
    /// One new entry in so many need not prove itself; 1: none has to, which is plain second
    /// chance. Default 32 (ours).
    pub one_in: u32,
}

impl Default for ClockSpec {
    fn default() -> Self {
        ClockSpec { one_in: 32 }
    }
}

/// Of each way whether it was used since the hand came by, and of each set where the hand is.
#[derive(Clone, Debug)]
pub(crate) struct Clock {
    used: Vec<bool>,
    hands: Vec<usize>,
    ways: usize,
    one_in: u32,
    went: u32,
}

impl Policy for Clock {
    type Spec = ClockSpec;
    const HIT_VISIBILITY: HitVisibility = HitVisibility::FirstUse;

    fn check(spec: &ClockSpec) -> Result<(), Error> {
        match spec.one_in {
            0 => Err(Error::key("one_in", "is 0; expected at least 1")),
            _ => Ok(()),
        }
    }
    fn new(spec: &ClockSpec, sets: usize, ways: usize, _: Rng) -> Self {
        Clock {
            used: vec![false; sets * ways],
            hands: vec![0; sets],
            ways,
            one_in: spec.one_in,
            went: 0,
        }
    }
    fn filled(&mut self, set: usize, way: usize) {
        self.used[set * self.ways + way] = false;
    }
    fn used(&mut self, set: usize, way: usize) {
        self.used[set * self.ways + way] = true;
    }
    fn victim(&mut self, set: usize) -> usize {
        let next = |way| (way + 1) % self.ways;
        let mut way = self.hands[set];
        while std::mem::take(&mut self.used[set * self.ways + way]) {
            way = next(way);
        }
        self.went = (self.went + 1) % self.one_in;
        self.hands[set] = if self.went == 0 { next(way) } else { way };
        way
    }
}
