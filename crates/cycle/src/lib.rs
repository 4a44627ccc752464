//! Periodic real-time tasks: their definition, and the outcome of their periods, on one node and on
//! several. The crate starts only programs that its caller supplies, and prints nothing.

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

pub use horolog_conditions::cores;
