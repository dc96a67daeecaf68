//! First touches, as placement policies see them.

use pagewalk_tables::{Flags, GuestUse, Purpose};
use pagewalk_units::{Backing, Cycle, PageSize, VirtAddr};

use crate::vma::{Vma, Vmas};

/// A range of guest memory that the host backs.
#[derive(Clone, Copy, Debug)]
pub struct ForGuest {
    /// First guest-physical address.
    pub from: u64,
    /// The guest's use of the first page.
    pub of: GuestUse,
    /// Cost of entering the host's kernel and returning, for each page.
    pub entry: Cycle,
}

/// A first touch of a page.
#[derive(Clone, Copy, Debug)]
pub struct Touch<'a> {
    /// The touched address.
    pub at: u64,
    /// First address of the area.
    pub start: u64,
    /// Address after the area's last.
    pub end: u64,
    /// Flags of the new page.
    pub flags: Flags,
    /// Backing of the area.
    pub backing: Backing,
    /// In a host: the guest range that it backs.
    pub guest: Option<&'a ForGuest>,
    /// `madvise` advice on huge pages, if any.
    pub huge: Option<bool>,
    /// The area was inferred from an access.
    pub inferred: bool,
}

impl Touch<'_> {
    /// A touch of `at` in `vma`.
    pub fn new(at: VirtAddr, vma: &Vma) -> Self {
        Touch {
            at: at.0,
            start: vma.start,
            end: vma.end,
            flags: if vma.writable {
                Flags::WRITABLE
            } else {
                Flags::default()
            },
            backing: vma.backing,
            guest: None,
            huge: vma.huge,
            inferred: vma.inferred,
        }
    }

    /// True if the area covers the aligned block of a page of `size` around the address.
    pub fn covers(&self, size: PageSize) -> bool {
        let base = self.at & !(size.bytes() - 1);
        self.start <= base && self.end - base >= size.bytes()
    }
    /// True if the area may grow over the aligned block of a page of `size` around the
    /// address. The area must be at least as large as the block, and no other area may
    /// lie in the block.
    pub fn may_grow_over(&self, size: PageSize, vmas: &Vmas) -> bool {
        let base = self.at & !(size.bytes() - 1);
        self.start <= base
            && self.end - self.start >= size.bytes()
            && vmas
                .above(self.at)
                .is_none_or(|v| v.start - base >= size.bytes())
    }
    /// Purpose of a page of `size` at the address.
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
    /// True if a large page is allowed: anonymous memory without contrary advice.
    pub fn may_be_large(&self) -> bool {
        self.backing == Backing::Anonymous && self.huge != Some(false)
    }
}
