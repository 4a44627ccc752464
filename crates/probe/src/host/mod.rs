//! Measurements of this host: its clocks, its NICs, and its scheduler's effect on a thread that is
//! to run at a planned instant. Each arranges what it is permitted to (real-time scheduling, locked
//! memory, idle states), records that, and restores the previous state.

pub mod all;
pub mod clock;
pub mod delay;
mod figures;
pub mod interrupt;
pub mod nic;
pub mod switch;
pub mod timer;

pub use horolog_conditions::HostError;
