//! The bare reflectors: every IPv4 datagram for one UDP port goes back as it came, or every request
//! for PTP's delay with the least that makes an answer of it. What a link and a driver can do at
//! most, for benchmarks to compare the responder with and to hold the generator against.

use crate::XdpError;
use crate::attach::{AttachMode, Attachment, Interface};
use crate::object::{self, Loaded};

const NAME: &str = "reflector";
const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/reflector.o"));
const PTP_NAME: &str = "ptp_reflector";
const PTP_OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/ptp_reflector.o"));

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

    fn place(loaded: Loaded, interface: &Interface) -> Result<Self, XdpError> {
        let attachment =
            Attachment::new(loaded.program("reflect")?, interface, AttachMode::Native)?;
        Ok(Self { _attachment: attachment, _loaded: loaded })
    }
}
