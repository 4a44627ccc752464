//! Measurements of this host: clocks, NICs, and the scheduler's effect on threads that must run at
//! a planned instant. Each sets up conditions as far as permitted (real-time scheduling, locked
//! memory, shallow idle states), records them, and restores the previous state.

pub mod all;
pub mod clock;
pub mod delay;
mod figures;
pub mod interrupt;
pub mod nic;
pub mod switch;
pub mod timer;

pub use horolog_conditions::HostMeasurementError;
