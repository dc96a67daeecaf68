//! The owner of a page table.

use pagewalk_units::{Asid, Rng, rng};

/// The owner of a page table, and the source of its random streams.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Owner {
    /// The address space.
    pub asid: Asid,
    /// The run's seed.
    pub seed: u64,
    /// Prefix that separates the tables of different kernels in one run, such as
    /// guest and host.
    pub kernel: &'static str,
}

impl Owner {
    /// The owner for address space `asid` of a machine with a single kernel.
    pub fn new(asid: Asid, seed: u64) -> Self {
        Owner {
            asid,
            seed,
            kernel: "page_table",
        }
    }

    /// The random stream of the owner's table `name`.
    pub fn rng(&self, name: &str) -> Rng {
        rng(
            self.seed,
            &format!("{}.{}.{name}", self.kernel, self.asid.0),
        )
    }
}

#[cfg(test)]
mod tests {
    use pagewalk_units::Asid;
    use rand::RngExt;

    use super::Owner;

    #[test]
    fn streams_differ_by_seed_space_kernel_and_name_and_by_nothing_else() {
        let draw = |owner: Owner, name| owner.rng(name).random::<u64>();
        let one = Owner::new(Asid(1), 1);
        let host = Owner {
            kernel: "host.page_table",
            ..one
        };
        let mut all = [
            draw(one, "a"),
            draw(one, "b"),
            draw(Owner::new(Asid(2), 1), "a"),
            draw(Owner::new(Asid(1), 2), "a"),
            draw(host, "a"),
        ];
        assert_eq!(all[0], draw(one, "a"));
        all.sort_unstable();
        assert!(all.windows(2).all(|w| w[0] != w[1]), "{all:?}");
    }
}
