//! Safe functions for the system calls and netlink operations of Linux that the other crates need.
//! Every `unsafe` block states why it is sound. No time protocol and no policy is implemented here.
//!
//! The crate uses the kernel's 64-bit interfaces, so it builds for 64-bit targets only.

#![allow(
    unsafe_code,
    reason = "this is the room for system calls; every block says why it is sound"
)]

mod address;
pub mod adjtimex;
pub mod affinity;
pub mod alarm;
pub mod alarm_clock;
mod ancillary;
pub mod capability;
pub mod clock;
pub mod clock_pair;
pub mod clock_steering;
pub mod datagram;
pub mod delay;
mod descriptor;
pub mod dma_latency;
pub mod epoll;
pub mod ethtool;
pub mod expiry;
pub mod explain;
pub mod external_timestamps;
pub mod filter;
pub mod gpio;
pub mod hardware_timestamps;
pub mod listen;
pub mod memfd_shared_memory;
pub mod memory;
pub mod message;
pub mod namespace;
pub mod netlink;
pub mod nic;
pub mod packet;
pub mod phc;
pub mod ping_pong;
pub mod posix_clock;
pub mod pps;
pub mod private_file;
pub mod process;
pub mod pseudo_terminal;
pub mod sandbox;
pub mod serial;
mod shared_mapping;
pub mod signal;
pub mod sock_diag;
pub mod socket;
pub mod spawn;
pub mod sysv_shared_memory;
pub mod tap;
pub mod tcp;
pub mod thread_usage;
pub mod undo;
pub mod unix;
pub mod wake_signal;
pub mod zone;
