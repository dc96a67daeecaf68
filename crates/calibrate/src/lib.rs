//! The host as a machine: geometry by `cpuid`, and micro-benchmarks that run natively.
//!
//! A benchmark is one loop with a fixed number of instructions for each operation. The same
//! operations exist as a simulated program in `python/pagewalk/calibrate/programs.py`. No hardware
//! counter and no privilege is needed: the clock is the processor time of the thread.

mod benchmark;
mod chain;
mod cpuid;
mod memory;

pub use benchmark::{Benchmark, Kind, Measured, measure};
pub use cpuid::{HostCache, HostProcessor, HostTlb, processor};
