//! The way by which requests with more than a header get from the XDP body to this process: one
//! `AF_XDP` socket for each receive queue of each interface that XDP answers on. Without one such
//! requests go up to the sockets, as everything else does that XDP does not answer.

use horolog_io::XskDevice;
use horolog_sys::ethtool;
use horolog_xdp::{Attachment, Interface, Responder, XdpError, XskDrops, XskSocket};

/// The most receive queues of one interface that get a socket, 5 MB each.
const QUEUES_MAX: u32 = 128;

/// A device that requests are handed over by.
#[derive(Debug)]
pub(crate) struct HandedOver {
    /// The device.
    pub(crate) device: XskDevice,
    /// Tells what it had no room for.
    pub(crate) drops: XskDrops,
}

/// How many receive queues the interface has; 1 where the driver does not tell.
pub(crate) fn queues(interface: &str) -> u32 {
    let channels = ethtool::channels(interface);
    channels.map_or(1, |channels| (channels.rx + channels.combined).clamp(1, QUEUES_MAX))
}

/// Opens the sockets of an interface and has the program hand requests over to them, in queues from
/// the number `first` on.
pub(crate) fn open(
    responder: &Responder,
    attachment: &Attachment,
    first: u32,
) -> Result<Vec<HandedOver>, XdpError> {
    let interface: &Interface = attachment.interface();
    let count = queues(&interface.name);
    let sockets: Vec<XskSocket> =
        (0..count).map(|queue| XskSocket::open(interface, queue)).collect::<Result<_, _>>()?;
    responder.hand_over(interface, &sockets, first)?;
    let handed = |socket: XskSocket| {
        let drops = socket.drops().map_err(XdpError::Map)?;
        Ok(HandedOver { device: XskDevice::new(socket, interface.index), drops })
    };
    sockets.into_iter().map(handed).collect()
}
