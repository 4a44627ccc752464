//! `AF_XDP` sockets of the receive queues of an interface, to which the XDP program redirects
//! requests.

use horolog_io::XskDevice;
use horolog_sys::ethtool;
use horolog_xdp::{Attachment, Interface, Responder, XdpError, XskDropCounter, XskSocket};

/// Maximum number of receive queues of an interface that get a socket; each takes 5 MB.
const QUEUES_MAX: u32 = 128;

/// `AF_XDP` socket of one receive queue.
#[derive(Debug)]
pub(crate) struct AfXdpQueue {
    /// Device that receives the redirected requests.
    pub(crate) device: XskDevice,
    /// Counter of the packets that the kernel dropped at the socket.
    pub(crate) drops: XskDropCounter,
}

/// Returns the number of receive queues of the interface, at most [`QUEUES_MAX`]; 1 if the driver
/// does not report it.
pub(crate) fn receive_queue_count(interface: &str) -> u32 {
    let channels = ethtool::channels(interface);
    channels.map_or(1, |channels| (channels.rx + channels.combined).clamp(1, QUEUES_MAX))
}

/// Opens an `AF_XDP` socket for each receive queue of an interface and makes the XDP program
/// redirect requests to them; they take the queue numbers of the program's map from `first` on.
pub(crate) fn open_queues(
    responder: &Responder,
    attachment: &Attachment,
    first: u32,
) -> Result<Vec<AfXdpQueue>, XdpError> {
    let interface: &Interface = attachment.interface();
    let count = receive_queue_count(&interface.name);
    let sockets: Vec<XskSocket> =
        (0..count).map(|queue| XskSocket::open(interface, queue)).collect::<Result<_, _>>()?;
    responder.redirect_to(interface, &sockets, first)?;
    let to_queue = |socket: XskSocket| {
        let drops = socket.drop_counter().map_err(XdpError::Map)?;
        Ok(AfXdpQueue { device: XskDevice::new(socket, interface.index), drops })
    };
    sockets.into_iter().map(to_queue).collect()
}
