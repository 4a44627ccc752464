//! One packet-device trait, [`Device`], and its devices: UDP sockets, raw Ethernet frames, `AF_XDP`
//! sockets, a pair joined in memory, and a wrapper that damages what passes. Also whom they are to
//! reach, as a person writes it ([`target`]).
//!
//! It knows nothing of what the packets mean, and it has no `unsafe`: system calls stand in
//! `horolog-sys`. A hot loop receives into one [`Batch`], fills another and sends it; both are
//! allocated once.

mod batch;
mod device;
mod faulty;
mod filter;
mod hardware_clock;
mod interface_clock;
mod packet;
mod pcapng;
mod queue;
mod simulated;
mod tap;
pub mod target;
mod udp;
mod xsk;

pub use batch::{Batch, HardwareTime, Packet, PacketMut};
pub use device::Device;
pub use faulty::{FaultCounts, FaultPlan, Faulty};
pub use filter::{Besides, Conversation, End, LaneMark, Sample, UdpFilter};
pub use hardware_clock::{Conversion, Crossing};
pub use horolog_sys::message::TransmitStamp;
pub use interface_clock::{InterfaceClock, InterfaceClockError};
pub use packet::{FrameSelection, PacketDevice, PacketError, PacketOptions};
pub use pcapng::{Captured, Direction, PcapngWriter};
pub use simulated::{Simulated, SimulatedLink};
pub use tap::{Tap, TapControl};
pub use udp::{Endpoints, Link, UdpDevice, UdpError, UdpOptions};
pub use xsk::XskDevice;
