//! The hardware against the simulator.

mod generated;
mod l2p;
mod random;
mod runs;
mod stlt;

use pagewalk_machine::{Installation, RunSpec, Status};

/// Simulates a design to its end. Its external part compares the hardware.
fn simulate(machine: &str, design: &str, workload: &str, size: &str, instructions: u64) {
    let spec: RunSpec = serde_json::from_value(serde_json::json!({
        "machine": machine, "designs": [design],
        "source": {"workload": {"name": workload, "size": size}},
        "limits": {"instructions": instructions},
    }))
    .expect("the specification is well formed");
    let result = Installation::at(&pagewalk_rtl::root())
        .run(&spec, &mut |_| true)
        .unwrap_or_else(|error| panic!("{workload}: {error}"));
    let design = &result.designs[0];
    assert_eq!(design.status, Status::Complete, "{:?}", design.message);
}
