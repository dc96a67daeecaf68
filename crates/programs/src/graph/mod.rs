//! Graph kernels: breadth-first search and its kin, over graphs from several
//! sources, laid out in memory in several ways.
//!
//! | folder | what |
//! |---|---|
//! | `source` | which edges there are |
//! | `layout` | where vertices, edges and properties lie, and the instructions that reach them |
//! | `params` | what all kernels can be told |
//! | `kernel` | a kernel's threads and the memory they share |
//! | `gap_bfs` | the breadth-first search over compressed sparse rows, GAP's own |
//! | `containers` | the C++ containers of their work lists |
//! | `level_sync` | the search by levels of several threads |

pub mod bc;
pub mod bfs;
pub mod cc;
pub mod containers;
pub mod dc;
pub mod dfs;
mod gap_bfs;
pub mod gc;
pub mod kernel;
pub mod layout;
pub mod level_sync;
pub mod params;
pub mod pr;
pub mod search;
pub mod source;
pub mod sssp;
pub mod tc;
#[cfg(test)]
mod test;
