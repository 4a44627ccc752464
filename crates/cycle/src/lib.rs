//! Periodic real-time tasks: what a task is, and what becomes of its periods, on one node and on
//! several. It starts nothing that it was not given, and prints nothing.

pub mod application;
pub mod cluster;
mod entry;
mod gather;
mod load;
pub mod mark;
pub mod node;
pub mod predict;
pub mod program;
mod ring;
pub mod run;
pub mod task;

pub use horolog_conditions::cores;
