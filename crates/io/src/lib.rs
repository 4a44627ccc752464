//! One packet-device trait, [`Device`], and its devices: UDP sockets, raw Ethernet frames,
//! `AF_XDP` sockets, a pair joined in memory, and a wrapper that damages what passes.
//!
//! It knows nothing of what the packets mean, and it has no `unsafe`: system calls stand in
//! `horolog-sys`. A hot loop receives into one [`Batch`], fills another and sends it; both are
//! allocated once.

mod batch;
mod device;
mod faulty;
mod filter;
mod packet;
mod pcapng;
mod queue;
mod simulated;
mod tap;
mod udp;
mod xsk;

pub use batch::{Batch, HardwareTime, Packet, PacketMut};
pub use device::Device;
pub use faulty::{FaultCounts, FaultPlan, Faulty};
pub use filter::UdpFilter;
pub use horolog_sys::message::TransmitStamp;
pub use packet::{FrameSelection, PacketDevice, PacketError, PacketOptions};
pub use pcapng::{Captured, Direction, PcapngWriter};
pub use simulated::{Simulated, SimulatedLink};
pub use tap::{Sample, Tap, TapControl};
pub use udp::{Endpoints, Link, UdpDevice, UdpError, UdpOptions};
pub use xsk::XskDevice;
