//! Graph kernels: breadth-first search and others, over graphs from several sources and in several memory
//! layouts.
//!
//! | module | contents |
//! |---|---|
//! | `source` | the edges of a graph |
//! | `layout` | addresses of vertices, edges and properties, and the instructions that access them |
//! | `params` | parameters of all kernels |
//! | `kernel` | threads of a kernel, and the memory that they share |
//! | `gap_bfs` | GAP's breadth-first search over compressed sparse rows |
//! | `containers` | the C++ containers of their work lists |
//! | `level_sync` | level-synchronous search with several threads |

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
