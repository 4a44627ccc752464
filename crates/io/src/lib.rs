//! Packet-device trait [`BatchDevice`] and its devices: UDP sockets, raw Ethernet frames, `AF_XDP`
//! sockets, a pair joined in memory, and a wrapper that injects faults. Also capture sockets with
//! their filters, pcapng files, the PHC of an interface, and the parsing of targets ([`target`]).
//!
//! Packet contents are not interpreted, except by filters and for the headers of `AF_XDP` frames.
//! There is no `unsafe`: system calls are in `horolog-sys`. A hot loop receives into one [`Batch`],
//! fills another and sends it; both are allocated once.

mod batch;
mod capture_socket;
mod device;
mod faulty;
mod filter;
mod interface_phc;
mod packet;
mod pcapng;
mod phc_conversion;
mod queue;
mod simulated;
pub mod target;
mod udp;
mod xsk;

pub use batch::{Batch, BatchPacket, HardwareTimestamp, PacketMut};
pub use capture_socket::{CaptureFilterHandle, CaptureSocket};
pub use device::BatchDevice;
pub use faulty::{FaultCounts, FaultInjectionPlan, FaultyDevice};
pub use filter::{
    LaneNumberFilter, NonReplySamplingRule, PacketSamplingRule, RemoteEnd, RemoteEndSelection,
    UdpFilter,
};
pub use horolog_sys::message::TransmitTimestampSource;
pub use interface_phc::{InterfacePhc, InterfacePhcError};
pub use packet::{FrameSelection, PacketSocketDevice, PacketSocketError, PacketSocketOptions};
pub use pcapng::{CaptureDirection, CapturedPacket, PcapngWriter};
pub use phc_conversion::{CrossTimestamp, PacketTimestampSource, PhcConversion, PhcConversions};
pub use simulated::{SimulatedDevice, SimulatedLink};
pub use udp::{DatagramEndpoints, FrameEndpoints, UdpDevice, UdpDeviceError, UdpDeviceOptions};
pub use xsk::XskDevice;
