//! Measurements of this host: clocks, NICs, and the scheduler's effect on threads that must run at
//! a planned instant. Those of interrupts, switches and timers set up conditions as far as
//! permitted (real-time scheduling, locked memory, shallow idle states), record them, and restore
//! the previous state; those of clocks and NICs set nothing.

pub mod all;
pub mod clock;
pub mod delay;
mod figures;
pub mod interrupt;
pub mod nic;
pub mod switch;
pub mod timer;

pub use horolog_conditions::MeasuringThreadError;
