//! Properties of the global hashed table: as many reads as chains take in theory, each dependent on
//! the one before, and memory that belongs to no address space.

use crate::common::{Table, TestFrames, caches, walk};
use pagewalk_stats::Tree;
use pagewalk_tables::{
    BootingKernel, Flags, FrameSource, GlobalHashedSpec, KernelTables, NoBlock, NoFrames,
    PageTableSpec, Want,
};
use pagewalk_units::{Asid, Frame, PageSize, PhysAddr, Rng, VirtAddr, rng};
use rand::RngExt;

type Kernel = Box<dyn KernelTables<VirtAddr, PhysAddr>>;

fn boot(spec: GlobalHashedSpec, memory: u64, source: &mut TestFrames) -> Kernel {
    let kernel = BootingKernel {
        name: "page_table",
        seed: 1,
        memory,
    };
    let made = PageTableSpec::GlobalHashed(spec).boot(kernel, source);
    made.expect("a valid table").expect("memory is plenty")
}

fn map(table: &mut Table, source: &mut TestFrames, va: u64, size: PageSize) {
    let page = VirtAddr(va).page(size);
    let base = PhysAddr(1 << 30);
    table
        .map(page, Frame { base }, Flags::WRITABLE, source)
        .expect("memory is plenty");
}

fn anywhere(rng: &mut Rng) -> u64 {
    rng.random_range(0..1u64 << 35) << 12
}

/// Knuth, The Art of Computer Programming, vol. 3, 6.4: with n entries in chains of m buckets, a
/// successful search takes 1 + (n - 1) / 2m probes. An unsuccessful one reads all entries of its
/// bucket, and an empty bucket: n / m and exp(-n / m).
#[test]
fn walks_read_as_many_entries_as_chains_have() {
    let buckets = 1 << 16;
    let spec = GlobalHashedSpec {
        entries_per_frame: 1.0,
        ..GlobalHashedSpec::default()
    };
    let mut source = TestFrames::new();
    let kernel = boot(spec, buckets << 12, &mut source);
    let mut spaces = [1, 2].map(|asid| kernel.of_space(Asid(asid)));
    let mut rng = rng(1, "chains");
    let mut mapped = Vec::new();
    let mut set = caches(0);
    for load in [0.25, 0.5, 1.0, 2.0] {
        while (mapped.len() as f64) < load * buckets as f64 {
            let (space, va) = (mapped.len() % 2, anywhere(&mut rng));
            if spaces[space].translate(VirtAddr(va)).is_none() {
                map(&mut spaces[space], &mut source, va, PageSize::K4);
                mapped.push((space, va));
            }
        }
        let mut reads = |space: usize, va: u64| {
            let (reads, found) = walk(&*spaces[space], VirtAddr(va), &mut set);
            assert!(reads.iter().all(|group| group.len() == 1));
            (reads.len() as f64, found.is_some())
        };
        let n = mapped.len() as f64;
        let m = buckets as f64;
        let mut hits = 0.0;
        for &(space, va) in &mapped {
            let (read, found) = reads(space, va);
            assert!(found);
            hits += read;
        }
        let misses = 100_000;
        let mut missed = 0.0;
        for i in 0..misses {
            // The other half of the addresses.
            let (read, found) = reads(i % 2, u64::MAX << 47 | anywhere(&mut rng));
            missed += read;
            assert!(!found);
        }
        let a = n / m;
        let (hit, miss) = (hits / n, missed / misses as f64);
        let expected_hit = 1.0 + (n - 1.0) / (2.0 * m);
        let expected_miss = a + (-a).exp();
        println!("{load}: {hit} of {expected_hit}, {miss} of {expected_miss}");
        // Four standard deviations: of the number of colliding pairs, and of the sample and the
        // number of empty buckets.
        let pairs = n * n / (2.0 * m);
        assert!((hit - expected_hit).abs() < 4.0 * pairs.sqrt() / n);
        let deviation = (a / misses as f64 + 1.0 / m).sqrt();
        assert!((miss - expected_miss).abs() < 4.0 * deviation);
    }
}

#[test]
fn physical_memory_determines_the_size_and_it_belongs_to_no_address_space() {
    for (memory, per_frame, buckets) in [
        (1u64 << 30, 2.0, [1 << 19, 1 << 10, 256]),
        (1 << 30, 0.5, [1 << 17, 256, 256]),
        (3 << 30, 1.0, [1 << 20, 1 << 11, 256]),
    ] {
        let spec = GlobalHashedSpec {
            entries_per_frame: per_frame,
            ..GlobalHashedSpec::default()
        };
        let mut source = TestFrames::new();
        let kernel = boot(spec, memory, &mut source);
        let bytes = 16 * buckets.iter().sum::<u64>();
        assert_eq!((kernel.shared_bytes(), source.bytes()), (bytes, bytes));
        let mut spaces = [1, 2].map(|asid| kernel.of_space(Asid(asid)));
        for space in &mut spaces {
            map(space, &mut source, 0x1234_5000, PageSize::K4);
            assert_eq!((space.bytes(), space.registers()), (0, 0));
            assert_eq!(space.largest_contiguous(), 16 * buckets[0]);
        }
        assert_eq!((kernel.shared_bytes(), source.bytes()), (bytes, bytes));
        let mut tree = Tree::default();
        kernel.report("page_table", &mut tree);
        let value = |path: &str, name: &str| tree.get(path, name).expect("reported");
        assert_eq!(value("page_table.global.4kb", "entries"), 2);
        assert_eq!(value("page_table.global.4kb", "buckets"), buckets[0]);
        assert_eq!(value("page_table.global.2mb", "entries"), 0);
        let mut own = Tree::default();
        spaces[0].report("page_table", &mut own);
        assert!(own.rows.is_empty(), "counted once");
    }
}

#[test]
fn sizes_that_were_ever_mapped_are_read_in_parallel() {
    let mut source = TestFrames::new();
    let kernel = boot(GlobalHashedSpec::default(), 1 << 30, &mut source);
    let [mut one, mut two] = [1, 2].map(|asid| kernel.of_space(Asid(asid)));
    let mut set = caches(0);
    let (small, large) = (0x7000_0000, 0x4000_0000);
    map(&mut one, &mut source, small, PageSize::K4);
    let reads = |table: &Table, va, set: &mut _| walk(&**table, VirtAddr(va), set).0.concat().len();
    assert_eq!(reads(&one, small, &mut set), 1);
    // Another address space's page is enough: the hardware knows no spaces.
    map(&mut two, &mut source, large, PageSize::M2);
    assert_eq!(reads(&one, small, &mut set), 2);
    assert_eq!(reads(&two, large, &mut set), 2);
    two.release(&mut source);
    assert_eq!(reads(&one, small, &mut set), 2);
}

/// A kernel with this many bytes of memory in one piece.
struct Pieces(u64);

impl FrameSource<PhysAddr> for Pieces {
    fn alloc(&mut self, want: Want) -> Result<Frame<PhysAddr>, NoFrames> {
        if want.bytes > self.0 {
            return Err(NoFrames { bytes: want.bytes });
        }
        let base = PhysAddr(1 << 30);
        Ok(Frame { base })
    }
    fn free(&mut self, _: Frame<PhysAddr>, _: u64) {}
}

#[test]
fn wrong_values_and_too_little_memory_are_refused() {
    let kernel = BootingKernel {
        name: "page_table",
        seed: 1,
        memory: 1 << 30,
    };
    let spec = PageTableSpec::GlobalHashed(GlobalHashedSpec::default());
    for (largest, fits) in [(4 << 20, true), (2 << 20, false)] {
        let made = spec.boot::<VirtAddr, PhysAddr>(kernel, &mut Pieces(largest));
        let refused = made.expect("valid").err();
        assert_eq!(
            refused,
            (!fits).then_some(NoBlock {
                bytes: 4 << 20,
                key: "entries_per_frame"
            })
        );
    }
    let with = |f: fn(&mut GlobalHashedSpec)| {
        let mut spec = GlobalHashedSpec::default();
        f(&mut spec);
        let refused = PageTableSpec::GlobalHashed(spec).check().unwrap_err();
        refused.to_string()
    };
    let few = with(|s| s.entries_per_frame = 0.0);
    assert!(
        few.starts_with("page_table.global_hashed.entries_per_frame is 0; expected 0.01 to 16")
    );
    assert!(with(|s| s.entries_per_frame = f64::NAN).contains("entries_per_frame is NaN"));
    assert!(with(|s| s.address_bits = 50).contains("address_bits is 50; expected 48 or 57"));
    assert!(with(|s| s.hash_latency = 1 << 30).contains("hash_latency"));
}
