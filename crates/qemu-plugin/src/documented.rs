//! Table of system calls in docs/limits.md, from the functions by which the plugin acts on a call, and from counts of
//! real programs.

use std::fmt::Write as _;

use crate::calls::{Treatment, treatment};

/// Functions of QEMU, which only QEMU's process has. The tests call none of them.
macro_rules! absent {
    ($($name:ident)*) => {
        $(
            #[unsafe(no_mangle)]
            extern "C" fn $name() {
                unreachable!("the tests run without QEMU");
            }
        )*
    };
}
absent!(
    qemu_plugin_register_vcpu_init_cb
    qemu_plugin_register_vcpu_tb_trans_cb
    qemu_plugin_register_vcpu_tb_exec_cb
    qemu_plugin_register_vcpu_mem_cb
    qemu_plugin_register_vcpu_insn_exec_cb
    qemu_plugin_register_vcpu_syscall_cb
    qemu_plugin_register_vcpu_syscall_ret_cb
    qemu_plugin_tb_n_insns
    qemu_plugin_tb_vaddr
    qemu_plugin_tb_get_insn
    qemu_plugin_insn_size
    qemu_plugin_insn_haddr
    qemu_plugin_mem_is_store
    qemu_plugin_mem_size_shift
);

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/limits.md");
const COUNTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../validation/calls.tsv");
const BEGIN: &str = "<!-- Made from validation/calls.tsv by a test of crates/qemu-plugin/src/documented.rs, which writes it anew if PAGEWALK_WRITE=1 is set. -->\n";
const END: &str = "<!-- End of the calls. -->\n";
/// Calls in the table.
const LISTED: usize = 52;

/// Effect of a call that changes the address space, by the longest label that its own begins with.
const EFFECTS: [(&str, &str); 15] = [
    ("madvise MADV_COLLAPSE", "the pages become huge"),
    ("madvise MADV_DONTFORK", "a child does not get the area"),
    ("madvise MADV_DONTNEED", "the pages go, and fault again"),
    ("madvise MADV_FREE", "the pages go when memory is short"),
    ("madvise MADV_HUGEPAGE", "the area may have huge pages"),
    ("madvise MADV_NOHUGEPAGE", "the area gets no huge pages"),
    ("mmap", "a new area, whose first touches fault"),
    ("munmap", "the area and its pages go"),
    ("mremap", "the pages move with their frames"),
    (
        "mprotect",
        "rights change, and translations are invalidated",
    ),
    ("brk", "the heap grows or shrinks"),
    ("shmat", "a new shared area"),
    ("shmdt", "the area goes"),
    ("ftruncate", "pages beyond the end go"),
    ("fallocate", "the pages of the hole go"),
];

/// The cell that says how a call is simulated; `None`: it does not touch memory.
fn cell(call: &str, number: i64, argument: u64) -> Option<String> {
    let mut arguments = [0; 6];
    let place = match number {
        libc::SYS_mmap | libc::SYS_process_madvise => 3,
        libc::SYS_madvise => 2,
        libc::SYS_fallocate => 1,
        _ => 0,
    };
    arguments[place] = argument;
    Some(match treatment(number, &arguments) {
        Treatment::Changes => {
            let effect = EFFECTS.iter().find(|(label, _)| call.starts_with(label));
            let (_, effect) = effect.unwrap_or_else(|| panic!("{call}: its effect is missing"));
            format!("simulated: {effect}")
        }
        Treatment::Forks => "simulated: a child with the same pages, copied at a write".into(),
        Treatment::Executes => "simulated: a new address space".into(),
        Treatment::Ends => "simulated: the thread or the process ends".into(),
        Treatment::Touches { writes } => {
            let done = if writes { "written" } else { "read" };
            format!("simulated: its buffers are {done}, and fault at their first touch")
        }
        Treatment::NotModelled => "**warned**: ignored, and named once in the result".into(),
        Treatment::Nothing => return None,
    })
}

#[test]
fn the_page_of_limits_has_the_calls_of_real_programs() {
    let counts = std::fs::read_to_string(COUNTS).expect("the counts are there");
    let mut table = String::from("\n| call | programs | calls | here |\n|---|--:|--:|---|\n");
    let mut listed = 0;
    // The file has the calls of most programs first.
    for line in counts.lines().skip(1) {
        let cells: Vec<&str> = line.split('\t').collect();
        let number = cells[0].parse().expect("the number of a call");
        let argument = match cells[1].strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16),
            None => cells[1].parse(),
        };
        let argument = argument.expect("an argument");
        let by_program = cells[3..].iter().map(|n| n.parse().expect("a count"));
        let by_program: Vec<u64> = by_program.collect();
        let callers = by_program.iter().filter(|&&n| n > 0).count();
        let all: u64 = by_program.iter().sum();
        if let Some(cell) = cell(cells[2], number, argument).filter(|_| listed < LISTED) {
            let call = cells[2].replace('|', "\\|");
            writeln!(table, "| `{call}` | {callers} | {all} | {cell} |").expect("a text takes all");
            listed += 1;
        }
    }
    table.push('\n');
    let page = std::fs::read_to_string(PAGE).expect("the page is there");
    let (before, rest) = page.split_once(BEGIN).expect("the table begins");
    let (found, after) = rest.split_once(END).expect("the table ends");
    if std::env::var_os("PAGEWALK_WRITE").is_some() {
        std::fs::write(PAGE, [before, BEGIN, &table, END, after].concat()).expect("written");
    } else {
        assert_eq!(found, table, "set PAGEWALK_WRITE=1 to write docs/limits.md");
    }
}

#[test]
fn treatments_are_those_of_the_calls() {
    let advice = |advice| treatment(libc::SYS_madvise, &[0, 0, advice as u64, 0, 0, 0]);
    assert_eq!(advice(libc::MADV_DONTNEED), Treatment::Changes);
    assert_eq!(advice(libc::MADV_MERGEABLE), Treatment::NotModelled);
    assert_eq!(advice(libc::MADV_DONTDUMP), Treatment::Nothing);
    let call = |number| treatment(number, &[0; 6]);
    assert_eq!(call(libc::SYS_read), Treatment::Touches { writes: true });
    assert_eq!(call(libc::SYS_write), Treatment::Touches { writes: false });
    assert_eq!(call(libc::SYS_fork), Treatment::Forks);
    assert_eq!(call(libc::SYS_close), Treatment::Nothing);
}
