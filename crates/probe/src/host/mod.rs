//! What this host's scheduler does to a thread that is to run at an instant. Each measurement
//! arranges what it is allowed to (real-time scheduling, locked memory, idle states), says so in
//! its record, and leaves the machine as it was.

pub mod all;
pub mod clock;
mod conditions;
pub mod delay;
mod error;
mod figures;
pub mod interrupt;
pub mod nic;
pub mod switch;
pub mod timer;

pub use error::HostError;
