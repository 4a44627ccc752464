//! What this host's scheduler does to a thread that is to run at an instant. Each measurement
//! arranges what it is allowed to (real-time scheduling, locked memory, idle states), says so in
//! its record, and leaves the machine as it was.

pub mod all;
pub mod clock;
pub mod delay;
mod figures;
pub mod interrupt;
pub mod nic;
pub mod switch;
pub mod timer;

pub use horolog_conditions::HostError;
