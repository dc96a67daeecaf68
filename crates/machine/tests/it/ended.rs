//! Ended threads are forgotten, and reported to the program.

use crate::common::forks::Forks;
use crate::common::installation;
use pagewalk_machine::Status;

/// Runs `children` children on `designs`, and checks that all their threads are reported as gone.
fn run(designs: &[&str], children: u32) {
    let (program, seen) = Forks::new(children, false, |_| ());
    let spec = serde_json::from_value(serde_json::json!({
        "machine": "revelator-table1", "designs": designs,
    }))
    .unwrap();
    let result = installation()
        .run_program(&spec, Box::new(program), &mut |_| true)
        .unwrap_or_else(|e| panic!("{e}"));
    for d in &result.designs {
        assert_eq!(d.status, Status::Complete, "{:?}", d.message);
    }
    let mut gone = std::mem::take(&mut seen.lock().unwrap().gone);
    // Both threads of each child, once.
    gone.sort_unstable();
    assert!(gone.into_iter().eq(1..=2 * children), "{designs:?}");
}

#[test]
fn ended_threads_are_not_requested_again() {
    run(&["radix"], 600);
    run(&["radix", "thp"], 300);
}
