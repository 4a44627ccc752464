//! Minimal reflectors for benchmarks: they return every IPv4 datagram to one UDP port unchanged, or
//! answer every PTP delay or `NetSync` Monitor request with the shortest valid reply. They show the
//! upper limit of a link and its driver.

use std::os::fd::AsRawFd;

use libbpf_rs::{MapCore, MapFlags};

use crate::XdpError;
use crate::attach::{AttachMode, Attachment, Interface};
use crate::object::{self, LoadedBpfObject};

const NAME: &str = "reflector";
const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/reflector.o"));
const PTP_NAME: &str = "ptp_reflector";
const PTP_OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/ptp_reflector.o"));

/// `PARTS` of `ptp_monitor.bpf.c`: packets of one reply to `NetSync` Monitor.
const MONITOR_PARTS: u32 = 3;
const MONITOR_NAME: &str = "ptp_monitor";
const MONITOR_OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/ptp_monitor.o"));

/// Reflector program attached to an interface; dropping it detaches the program.
pub struct XdpReflector {
    _attachment: Attachment,
    _loaded: LoadedBpfObject,
}

impl XdpReflector {
    /// Loads the program for IPv4 datagrams to the UDP port `port` and attaches it in native mode
    /// to the interface.
    pub fn attach(interface: &Interface, port: u16) -> Result<Self, XdpError> {
        let loaded = LoadedBpfObject::load(NAME, OBJECT, |open| {
            object::set_constants(open, NAME, &port.to_be_bytes())
        })?;
        Self::attach_program(loaded, interface)
    }

    /// Loads the program for PTP delay requests and attaches it in native mode to the interface.
    pub fn attach_ptp(interface: &Interface) -> Result<Self, XdpError> {
        Self::attach_program(LoadedBpfObject::load(PTP_NAME, PTP_OBJECT, |_| Ok(()))?, interface)
    }

    /// Loads the program for `NetSync` Monitor and attaches it in native mode to the interface.
    pub fn attach_monitor(interface: &Interface) -> Result<Self, XdpError> {
        let loaded = LoadedBpfObject::load(MONITOR_NAME, MONITOR_OBJECT, |_| Ok(()))?;
        let copies = loaded.map("copies")?;
        let program = loaded.program("finish_copy")?.as_raw_fd().cast_unsigned();
        // struct bpf_devmap_val of linux/bpf.h: a copy's egress interface, and the program that
        // changes it.
        let value = [interface.index, program].map(u32::to_ne_bytes).concat();
        for key in 0..MONITOR_PARTS {
            copies
                .update(&key.to_ne_bytes(), &value, MapFlags::ANY)
                .map_err(|error| XdpError::Map(object::to_io_error(&error)))?;
        }
        Self::attach_program(loaded, interface)
    }

    fn attach_program(loaded: LoadedBpfObject, interface: &Interface) -> Result<Self, XdpError> {
        let attachment =
            Attachment::new(loaded.program("reflect")?, interface, AttachMode::Native)?;
        Ok(Self { _attachment: attachment, _loaded: loaded })
    }
}
