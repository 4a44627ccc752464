//! Periodic real-time tasks on one node or several: their definition, their execution and
//! measurement, and the prediction of their response times. The crate starts only programs that its
//! caller supplies, and prints nothing.

pub mod application;
pub mod cluster;
mod entry;
mod gather;
pub mod mark;
pub mod node;
pub mod predict;
pub mod program;
mod ring;
pub mod run;
mod synthetic_load;
pub mod task;

pub use horolog_conditions::select_cores;
