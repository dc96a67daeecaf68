//! The right path beyond a mispredicted branch, where the wrong one may meet it.

/// Ops that are found by name.
const SLOTS: usize = 2048;
const NONE: u16 = u16::MAX;

/// The ops after a branch, by instruction and in order.
pub(crate) struct Ahead {
    /// Name, episode, first op of that name which the wrong path has not come by.
    slots: Box<[(u64, u32, u16)]>,
    /// The op of the same name after each.
    next: Vec<u16>,
    episode: u32,
}

impl Ahead {
    pub fn new() -> Self {
        Ahead {
            slots: vec![(0, 0, NONE); SLOTS].into(),
            next: Vec::new(),
            episode: 0,
        }
    }

    fn slot(name: u64) -> usize {
        super::addresses::hash(name) as usize % SLOTS
    }

    /// The ops after a branch have these names, from the last to the first.
    pub fn set(&mut self, names: &[u64]) {
        self.episode = self.episode.wrapping_add(1);
        self.next.clear();
        self.next.resize(names.len(), NONE);
        for (j, &name) in names.iter().enumerate().rev() {
            let slot = &mut self.slots[Self::slot(name)];
            if (slot.0, slot.1) == (name, self.episode) {
                self.next[j] = slot.2;
            }
            *slot = (name, self.episode, j as u16);
        }
    }

    /// The op of this name that the wrong path comes to next, counted from the
    /// branch: the first, then the second, and so on.
    pub fn take(&mut self, name: u64) -> Option<usize> {
        let slot = &mut self.slots[Self::slot(name)];
        if (slot.0, slot.1) != (name, self.episode) || slot.2 == NONE {
            return None;
        }
        let at = usize::from(slot.2);
        slot.2 = self.next[at];
        Some(at)
    }
}
