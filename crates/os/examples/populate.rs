//! Host time and memory of populating: `populate GB buddy|thp|reservation [OCCUPIED]`.
//! `OCCUPIED` is the share of memory that is occupied at boot.

use std::time::Instant;

use pagewalk_os::{
    BuddySpec, Effects, KhugepagedSpec, Os, OsSpec, PageTableSpec, PlacementSpec, ReservationSpec,
    ThpMode, ThpSizes, ThpSpec,
};
use pagewalk_tables::RadixSpec;
use pagewalk_units::{Backing, VirtAddr};

fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split(' ').nth(1).and_then(|f| f.parse().ok());
    pages.unwrap_or(0u64) << 12
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let gb: u64 = args.next().map_or(Ok(64), |a| a.parse())?;
    let placement = match args.next().as_deref() {
        Some("thp") => PlacementSpec::Thp(ThpSpec {
            mode: ThpMode::Always,
            giant: false,
            sizes: ThpSizes::default(),
            khugepaged: KhugepagedSpec::default(),
        }),
        Some("reservation") => PlacementSpec::Reservation(ReservationSpec {
            promotion_threshold: 1.0,
        }),
        _ => PlacementSpec::Buddy(BuddySpec {}),
    };
    let occupied: f64 = args.next().map_or(Ok(0.0), |a| a.parse())?;
    let spec = OsSpec {
        occupied,
        ..OsSpec::free(((gb + gb / 64 + 1) as f64 / (1.0 - occupied)).ceil() as u64)
    };
    let start = Instant::now();
    let table = PageTableSpec::Radix(RadixSpec { levels: 4 });
    let mut os = Os::new(&spec, &placement, &table, 2.0, 1)?;
    let pid = os.spawn(false)?;
    let mut fx = Effects::default();
    let at = VirtAddr(0x10_0000_0000);
    os.map(pid, at, gb << 30, true, Backing::Anonymous, &mut fx)?;
    println!("boot {:.3} s", start.elapsed().as_secs_f64());
    let start = Instant::now();
    os.populate(pid, at, gb << 30, &mut fx)?;
    let s = os.stats();
    let pages = (gb << 18) as f64;
    let besides_table = resident().saturating_sub(s.page_table_bytes) as f64;
    println!(
        "populate {:.2} s, {:.2} bytes a page besides the table's {:.2}",
        start.elapsed().as_secs_f64(),
        besides_table / pages,
        s.page_table_bytes as f64 / pages,
    );
    let start = Instant::now();
    os.exit(pid, &mut fx);
    println!("exit {:.2} s", start.elapsed().as_secs_f64());
    Ok(())
}
