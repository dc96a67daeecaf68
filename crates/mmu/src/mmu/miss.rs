//! Past the filter: the levels of TLBs, and the walk.

use super::*;

impl Mmu {
    /// Past the page of the last access.
    #[inline(never)]
    pub(super) fn look_up<B: Below>(
        &mut self,
        wanted: &Wanted,
        view: &View<'_>,
        private: &mut Private,
        below: &mut B,
    ) -> Result<Answer, Fault> {
        let &Wanted {
            asid,
            va,
            access,
            now,
            ..
        } = wanted;
        let s = side(access);
        self.settle(s);
        if self.perfect {
            self.perfect_translations += 1;
            let (pa, _) = self.know(asid, va, access, now, view)?;
            return Ok(Answer {
                pa,
                at: now,
                from: From::L1,
            });
        }
        let level = &mut self.l1[s];
        level.lookups += 1;
        let place = level.find(asid, va.0);
        if let Some((a, slot)) = place {
            let array = &mut level.arrays[a];
            let e = array.entry(slot);
            if e.ready <= now {
                array.hits += 1;
                array.touch(slot);
                let at = now + self.exceeds[s];
                if access == Access::Write && !e.writable() {
                    return Err(self.refuse(asid, va, access, at));
                }
                let pa = level.address(a, slot, va);
                self.watch(s, key(asid, PageSize::K4, va.0), pa, e, a);
                return Ok(Answer {
                    pa,
                    at,
                    from: From::L1,
                });
            }
            if let Some(i) = self.flight_of(wanted, (a, slot)) {
                return self.wait(i.0, i.1, slot, wanted);
            }
        }
        self.miss(wanted, Presence::of(place), view, private, below)
    }

    /// Past the first level, where it is absent or on its way (`first`).
    #[inline(never)]
    fn miss<B: Below>(
        &mut self,
        wanted: &Wanted,
        first: Presence,
        view: &View<'_>,
        private: &mut Private,
        below: &mut B,
    ) -> Result<Answer, Fault> {
        let &Wanted {
            asid,
            va,
            access,
            now,
            ..
        } = wanted;
        let s = side(access);
        let own = s & usize::from(self.l2[1].is_some());
        let mut asked = now;
        let mut presence = [first, Presence::ABSENT];
        if let Some(level) = &mut self.l2[own] {
            level.lookups += 1;
            asked += level.latency;
            let place = level.find(asid, va.0);
            presence[1] = Presence::of(place);
            if let Some((a, slot)) = place
                && level.arrays[a].entry(slot).ready <= now
            {
                let array = &mut level.arrays[a];
                array.hits += 1;
                array.touch(slot);
                let at = now + array.latency;
                let found = array.found(slot);
                self.stats.l2_hits += 1;
                if access == Access::Write && !found.writable {
                    return Err(self.refuse(asid, va, access, at));
                }
                let pa = found.pa(va);
                self.fill_l1(s, asid, va, found, at, true, first);
                return Ok(Answer {
                    pa,
                    at,
                    from: From::L2,
                });
            }
        }
        if let Some(i) = self.flight(wanted) {
            return self.join(i, wanted, asked, presence);
        }

        if let Some(level) = &self.l2[own] {
            level.announce_fill(asid, va.0);
        }
        let walker = self.walkers.admit(asked);
        let start = walker.start;
        let mut record = self.records.as_ref().map(|_| Vec::new());
        let mut port = Physical {
            private,
            below,
            core: self.core,
            served: &mut self.walk_reads,
            record: record.as_mut(),
        };
        let (end, found) = match *view {
            View::Native(table) => {
                walk(table, va, asid, &mut self.pwc, &mut port, start, Found::of)
            }
            View::Nested { guest, host } => {
                let nesting = self.nesting.get_or_insert_with(|| {
                    Box::new(Nesting::new(&self.nested_tlb, self.nested_pwc.clone()))
                });
                let (end, found) = walk_nested(
                    guest,
                    host,
                    va,
                    asid,
                    &mut self.pwc,
                    nesting,
                    &mut port,
                    start,
                );
                (end, found.map(|t| Found::of(&t)))
            }
        };
        self.walkers.hold(walker, end);
        self.latest = self.latest.max(end);
        let st = &mut self.stats;
        st.walks += 1;
        st.walk_cycles += end - start;
        st.walker_wait_cycles += start - asked;
        let outcome = match found {
            Ok(found) => {
                self.fill(s, asid, va, found, end, true, presence);
                let i = self.next_flight;
                self.next_flight = (i + 1) % IN_FLIGHT;
                self.flight_keys[i] = key(asid, PageSize::K4, va.0);
                self.flight_prints[i / 16][i % 16] = print(self.flight_keys[i]);
                self.flights[i] = Flight { asked, end, found };
                if access == Access::Write && !found.writable {
                    Err(self.refuse(asid, va, access, end))
                } else {
                    Ok(Answer {
                        pa: found.pa(va),
                        at: end,
                        from: From::Walk,
                    })
                }
            }
            Err(missing) => {
                let mut fault = self.refuse(asid, va, access, end);
                if let Missing::Host(gpa) = missing {
                    fault.host = Some(gpa);
                }
                Err(fault)
            }
        };
        if let Some(reads) = record {
            self.record(wanted, start, end, false, outcome.is_err(), reads);
        }
        outcome
    }

    /// The walk to the same 4 KB page that has not ended yet.
    #[inline(always)]
    fn flight(&self, wanted: &Wanted) -> Option<usize> {
        if self.latest <= wanted.now {
            return None;
        }
        let page = key(wanted.asid, PageSize::K4, wanted.va.0);
        // A byte of the key a walk: sixteen are compared at once.
        let mut same = 0u64;
        for (n, prints) in self.flight_prints.iter().enumerate() {
            same |= u64::from(equal_bytes(prints, print(page))) << (n * 16);
        }
        while same != 0 {
            let i = same.trailing_zeros() as usize;
            if self.flight_keys[i] == page && self.flights[i].end > wanted.now {
                return Some(i);
            }
            same &= same - 1;
        }
        None
    }

    /// The walk that brings a 4 KB page which both levels already have on its
    /// way, as for the store of a read-modify-write: the walk, and the slot in
    /// the second level. `first`: array and slot in the first.
    #[inline(always)]
    fn flight_of(&mut self, wanted: &Wanted, first: (usize, usize)) -> Option<(usize, usize)> {
        let s = side(wanted.access);
        let own = s & usize::from(self.l2[1].is_some());
        let second = self.l2[own].as_deref_mut()?;
        let page = key(wanted.asid, PageSize::K4, wanted.va.0);
        let (a, slot) = second.find(wanted.asid, wanted.va.0)?;
        let small = self.l1[s].holds_small(first, page) && second.holds_small((a, slot), page);
        if !small || second.arrays[a].entry(slot).ready <= wanted.now || self.records.is_some() {
            return None;
        }
        let i = self.flight(wanted)?;
        (self.flights[i].found.size == PageSize::K4).then_some((i, slot))
    }

    /// [`Mmu::join`] as [`Mmu::flight_of`] found it: `first` and `second` are the
    /// page's slots.
    #[inline(always)]
    fn wait(
        &mut self,
        i: usize,
        second: usize,
        first: usize,
        wanted: &Wanted,
    ) -> Result<Answer, Fault> {
        let &Wanted {
            asid,
            va,
            access,
            now,
            ..
        } = wanted;
        let s = side(access);
        let own = s & usize::from(self.l2[1].is_some());
        let mut asked = now;
        if let Some(level) = &mut self.l2[own] {
            level.lookups += 1;
            asked += level.latency;
        }
        let (at, found) = self.merge(i, asked);
        let entry = Entry::new(found.frame, found.writable, at);
        if let Some(level) = &mut self.l2[own] {
            // The first level has the page on its way: the second is not asked
            // for it again.
            level.small().refill(second, entry, true, false);
        }
        let pa = found.pa(va);
        let array = self.l1[s].small_array();
        let entry = self.l1[s].small().refill(first, entry, true, true);
        self.watch(s, key(asid, PageSize::K4, va.0), pa, entry, array);
        if access == Access::Write && !found.writable {
            return Err(self.refuse(asid, va, access, at));
        }
        Ok(Answer {
            pa,
            at,
            from: From::Walk,
        })
    }

    /// A request from `asked` on merges with the walk `i`: when that one has
    /// ended for it, and with what.
    #[inline(always)]
    fn merge(&mut self, i: usize, asked: Cycle) -> (Cycle, Found) {
        let flight = &mut self.flights[i];
        if flight.asked > asked {
            // Older in the program, later in time: had this request been seen
            // first, its walk would have served the other.
            flight.end = asked + (flight.end - flight.asked);
            flight.asked = asked;
        }
        self.stats.walks_merged += 1;
        (flight.end.max(asked), flight.found)
    }

    /// Waits for the walk `i`.
    #[inline(never)]
    fn join(
        &mut self,
        i: usize,
        wanted: &Wanted,
        asked: Cycle,
        presence: [Presence; 2],
    ) -> Result<Answer, Fault> {
        let &Wanted {
            asid, va, access, ..
        } = wanted;
        let (at, found) = self.merge(i, asked);
        let s = side(access);
        self.fill(s, asid, va, found, at, true, presence);
        if self.records.is_some() {
            let faulted = access == Access::Write && !found.writable;
            self.record(wanted, asked, at, true, faulted, Vec::new());
        }
        if access == Access::Write && !found.writable {
            return Err(self.refuse(asid, va, access, at));
        }
        Ok(Answer {
            pa: found.pa(va),
            at,
            from: From::Walk,
        })
    }

    /// Keeps a record of a walk, or of waiting for one.
    #[cold]
    #[inline(never)]
    fn record(
        &mut self,
        wanted: &Wanted,
        start: Cycle,
        end: Cycle,
        merged: bool,
        faulted: bool,
        reads: Vec<ReadRecord>,
    ) {
        let record = WalkRecord {
            asid: wanted.asid,
            va: wanted.va,
            pc: wanted.pc,
            access: wanted.access,
            start,
            end,
            merged,
            faulted,
            reads,
        };
        self.records.get_or_insert_default().push(record);
    }

    /// Puts a translation into the first level of side `s`. `counted`: in the
    /// statistics; `presence`: of `va` there.
    #[inline]
    #[allow(
        clippy::too_many_arguments,
        reason = "the parts of a machine are lent one by one"
    )]
    pub(super) fn fill_l1(
        &mut self,
        s: usize,
        asid: Asid,
        va: VirtAddr,
        f: Found,
        ready: Cycle,
        counted: bool,
        presence: Presence,
    ) {
        if let Some((a, e)) = self.l1[s].fill(asid, va.0, f, ready, counted, presence, true) {
            self.watch(s, key(asid, PageSize::K4, va.0), f.pa(va), e, a);
        } else {
            self.filter[s] = NO_PAGE;
        }
    }

    /// The same for both levels; `presence` in the first and the second.
    #[inline]
    #[allow(
        clippy::too_many_arguments,
        reason = "the parts of a machine are lent one by one"
    )]
    pub(super) fn fill(
        &mut self,
        s: usize,
        asid: Asid,
        va: VirtAddr,
        f: Found,
        ready: Cycle,
        counted: bool,
        presence: [Presence; 2],
    ) {
        let own = s & usize::from(self.l2[1].is_some());
        if let Some(level) = &mut self.l2[own] {
            let used = presence[0] == Presence::ABSENT;
            level.fill(asid, va.0, f, ready, counted, presence[1], used);
        }
        self.fill_l1(s, asid, va, f, ready, counted, presence[0]);
    }
}
