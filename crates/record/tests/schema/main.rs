//! The result files as a contract: what is written can be read back and is the same, and the names
//! in it are those of the golden files beside this one. A file that somebody kept must stay
//! readable, so a golden file may grow, but nothing in it may change.

mod golden;
mod round_trip;
mod strategies;
