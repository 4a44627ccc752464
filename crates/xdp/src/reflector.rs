//! The bare reflectors: every IPv4 datagram for one UDP port goes back as it came, or every request
//! for PTP's delay or of `NetSync` Monitor with the least that makes an answer of it. What a link
//! and a driver can do at most, for benchmarks to compare the responder with and to hold the
//! generator against.

use std::os::fd::AsRawFd;

use libbpf_rs::{MapCore, MapFlags};

use crate::XdpError;
use crate::attach::{AttachMode, Attachment, Interface};
use crate::object::{self, Loaded};

const NAME: &str = "reflector";
const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/reflector.o"));
const PTP_NAME: &str = "ptp_reflector";
const PTP_OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/ptp_reflector.o"));

/// `PARTS` of `ptp_monitor.bpf.c`.
const MONITOR_PARTS: u32 = 3;
const MONITOR_NAME: &str = "ptp_monitor";
const MONITOR_OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/ptp_monitor.o"));

/// The program, in place on an interface; dropping it takes it off.
pub struct Reflector {
    _attachment: Attachment,
    _loaded: Loaded,
}

impl Reflector {
    /// Loads the program for `port` and attaches it in native mode to the interface.
    pub fn attach(interface: &Interface, port: u16) -> Result<Self, XdpError> {
        let loaded = Loaded::load(NAME, OBJECT, |open| {
            object::set_constants(open, NAME, &port.to_be_bytes())
        })?;
        Self::place(loaded, interface)
    }

    /// Loads the program for PTP and attaches it in native mode to the interface.
    pub fn attach_ptp(interface: &Interface) -> Result<Self, XdpError> {
        Self::place(Loaded::load(PTP_NAME, PTP_OBJECT, |_| Ok(()))?, interface)
    }

    /// Loads the program for `NetSync` Monitor and attaches it in native mode to the interface.
    pub fn attach_monitor(interface: &Interface) -> Result<Self, XdpError> {
        let loaded = Loaded::load(MONITOR_NAME, MONITOR_OBJECT, |_| Ok(()))?;
        let answers = loaded.map("answers")?;
        let program = loaded.program("answer")?.as_raw_fd().cast_unsigned();
        // struct bpf_devmap_val of linux/bpf.h: where a copy leaves by, and what changes it.
        let value = [interface.index, program].map(u32::to_ne_bytes).concat();
        for key in 0..MONITOR_PARTS {
            answers
                .update(&key.to_ne_bytes(), &value, MapFlags::ANY)
                .map_err(|error| XdpError::Map(object::to_io(&error)))?;
        }
        Self::place(loaded, interface)
    }

    fn place(loaded: Loaded, interface: &Interface) -> Result<Self, XdpError> {
        let attachment =
            Attachment::new(loaded.program("reflect")?, interface, AttachMode::Native)?;
        Ok(Self { _attachment: attachment, _loaded: loaded })
    }
}
