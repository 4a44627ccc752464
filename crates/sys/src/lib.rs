//! System calls and netlink behind safe functions: what the other crates need of Linux, and
//! no more. Every `unsafe` block says why it is sound. Nothing here knows a time protocol
//! or decides anything.
//!
//! The crate speaks the kernel's 64-bit interfaces, so that is what it builds for.

#![allow(
    unsafe_code,
    reason = "this is the room for system calls; every block says why it is sound"
)]

mod address;
pub mod adjtimex;
pub mod affinity;
pub mod alarm;
pub mod alarm_clock;
pub mod capability;
pub mod clock;
pub mod clock_pair;
pub mod clock_steering;
mod control;
pub mod datagram;
pub mod delay;
mod descriptor;
pub mod dma_latency;
pub mod epoll;
pub mod ethtool;
pub mod expiry;
pub mod external_timestamps;
pub mod filter;
pub mod gpio;
pub mod hardware_timestamps;
pub mod interruption;
pub mod io_uring;
pub mod listen;
pub mod memory;
pub mod message;
pub mod namespace;
pub mod netlink;
pub mod nic;
pub mod packet;
pub mod partner;
pub mod phc;
pub mod posix_clock;
pub mod pps;
pub mod private_file;
pub mod process;
pub mod pseudo_terminal;
pub mod sandbox;
pub mod serial;
pub mod shared_memory;
pub mod shared_region;
pub mod signal;
pub mod sock_diag;
pub mod socket;
pub mod start;
pub mod tap;
pub mod tcp;
pub mod thread_usage;
pub mod undo;
pub mod unix;
