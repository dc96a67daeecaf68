//! Runs a program to its end, for tests.

use std::collections::VecDeque;

use pagewalk_stream::{Batch, End, Event, Program};

/// Calls `each` with every batch of `program`. Its threads run in turn, until the last has exited.
pub(crate) fn drain(program: &mut impl Program, mut each: impl FnMut(&Batch)) {
    let mut live = VecDeque::from([0]);
    let mut batch = Batch::new();
    while let Some(thread) = live.pop_front() {
        let end = program.fill(thread, &mut batch).unwrap();
        each(&batch);
        if let End::Event {
            event: Event::Spawn { thread },
            ..
        } = end
        {
            live.push_back(thread);
        }
        if end != End::Exit {
            live.push_back(thread);
        }
    }
}
