//! Tests of the operating system. They form one binary, because each binary links
//! the crate again.

mod linux;
mod movers;
mod random;
mod scenarios;
mod stlt;
