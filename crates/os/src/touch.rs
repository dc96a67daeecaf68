//! A first touch, as placement policies see it.

use pagewalk_tables::{Flags, GuestUse, Purpose};
use pagewalk_units::{Backing, Cycle, PageSize};

use crate::vma::Vmas;

/// A range of a guest's memory that its host backs.
#[derive(Clone, Copy, Debug)]
pub struct ForGuest {
    /// First guest-physical address.
    pub from: u64,
    /// What the guest uses the page there for.
    pub of: GuestUse,
    /// What it takes to get into the host's kernel and back for a page of it.
    pub entry: Cycle,
}

/// A first touch.
#[derive(Clone, Copy, Debug)]
pub struct Touch<'a> {
    /// Where.
    pub at: u64,
    /// First address of the area.
    pub start: u64,
    /// Address after the area's last.
    pub end: u64,
    /// Flags of the page to be.
    pub flags: Flags,
    /// What lies behind the area.
    pub backing: Backing,
    /// Of a host: the range that it backs.
    pub guest: Option<&'a ForGuest>,
    /// What `madvise` said of huge pages.
    pub huge: Option<bool>,
}

impl Touch<'_> {
    /// Whether the area covers the aligned block of a page of `size` around the address.
    pub fn covers(&self, size: PageSize) -> bool {
        let base = self.at & !(size.bytes() - 1);
        self.start <= base && self.end - base >= size.bytes()
    }
    /// Whether the area ends within that block, is at least as large, and may grow
    /// over all of it: nothing else is mapped there.
    pub fn may_grow_over(&self, size: PageSize, vmas: &Vmas) -> bool {
        let base = self.at & !(size.bytes() - 1);
        self.start <= base
            && self.end - self.start >= size.bytes()
            && vmas
                .above(self.at)
                .is_none_or(|v| v.start - base >= size.bytes())
    }
    /// What a page of `size` at the address is for.
    #[inline]
    pub fn purpose(&self, size: PageSize) -> Purpose {
        let vpn = (self.at & !(size.bytes() - 1)) >> 12;
        if let Some(&ForGuest { from, of, .. }) = self.guest {
            let of = of.after((self.at - from) >> 12);
            return Purpose::Guest { vpn, of };
        }
        match self.backing {
            Backing::File => Purpose::File { vpn },
            Backing::Shared => Purpose::Shared { vpn },
            Backing::Anonymous | Backing::Stack => Purpose::Anonymous { vpn },
        }
    }
    /// Whether a large page may serve it at all: anonymous, and not forbidden.
    pub fn may_be_large(&self) -> bool {
        self.backing == Backing::Anonymous && self.huge != Some(false)
    }
}
