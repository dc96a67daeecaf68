#![doc = include_str!("../README.md")]
#![cfg_attr(not(feature = "std"), no_std)]
#![warn(missing_docs)]

extern crate alloc;

mod entry;
mod iter;
mod map;
pub mod raw;
#[cfg(feature = "serde")]
mod serde;

pub use entry::{Entry, OccupiedEntry, VacantEntry};
pub use iter::{Drain, IntoIter, IntoKeys, IntoValues, Iter, IterMut, Keys, Values, ValuesMut};
pub use map::{DefaultHashBuilder, HashMap, InsertError};
pub use raw::TryReserveError;
