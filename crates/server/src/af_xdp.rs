//! Redirection of requests longer than a header from the XDP engine to this process: one `AF_XDP`
//! socket for each receive queue of each interface that XDP answers on. Without it such requests
//! pass to the sockets, as does everything else that XDP does not answer.

use horolog_io::XskDevice;
use horolog_sys::ethtool;
use horolog_xdp::{Attachment, Interface, Responder, XdpError, XskDropCounter, XskSocket};

/// Maximum number of receive queues per interface with a socket, 5 MB each.
const QUEUES_MAX: u32 = 128;

/// Device that receives redirected requests.
#[derive(Debug)]
pub(crate) struct AfXdpQueue {
    /// Device.
    pub(crate) device: XskDevice,
    /// Counter of packets dropped for lack of room.
    pub(crate) drops: XskDropCounter,
}

/// Returns the number of receive queues of the interface; 1 if the driver does not report it.
pub(crate) fn queues(interface: &str) -> u32 {
    let channels = ethtool::channels(interface);
    channels.map_or(1, |channels| (channels.rx + channels.combined).clamp(1, QUEUES_MAX))
}

/// Opens the sockets of an interface and makes the program redirect requests to them, in queues
/// from number `first` on.
pub(crate) fn open(
    responder: &Responder,
    attachment: &Attachment,
    first: u32,
) -> Result<Vec<AfXdpQueue>, XdpError> {
    let interface: &Interface = attachment.interface();
    let count = queues(&interface.name);
    let sockets: Vec<XskSocket> =
        (0..count).map(|queue| XskSocket::open(interface, queue)).collect::<Result<_, _>>()?;
    responder.redirect_to(interface, &sockets, first)?;
    let handed = |socket: XskSocket| {
        let drops = socket.drop_counter().map_err(XdpError::Map)?;
        Ok(AfXdpQueue { device: XskDevice::new(socket, interface.index), drops })
    };
    sockets.into_iter().map(handed).collect()
}
