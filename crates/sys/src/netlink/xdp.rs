//! XDP at an interface: mode of the attached program, and XDP features of the driver as reported by
//! the generic netlink family `netdev` (`linux/netdev.h`, Linux 6.3).

use std::io;

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkAttribute, LinkMessage, LinkXdp, XdpAttached};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_GENERIC};

use super::{Netlink, NetlinkError};

const HEADER_LEN: usize = 16;
const GENERIC_HEADER_LEN: usize = 4;
const ATTRIBUTE_HEADER_LEN: usize = 4;
const NLM_F_REQUEST: u16 = 1;
const NLMSG_ERROR: u16 = 2;
/// Family that resolves the numbers of other families (`linux/genetlink.h`).
const CONTROL: u16 = 16;
const CONTROL_GET_FAMILY: u8 = 3;
const CONTROL_FAMILY_ID: u16 = 1;
const CONTROL_FAMILY_NAME: u16 = 2;
const NETDEV: &[u8] = b"netdev\0";
const NETDEV_DEV_GET: u8 = 1;
const NETDEV_IFINDEX: u16 = 1;
const NETDEV_XDP_FEATURES: u16 = 3;
const NETDEV_RX_METADATA: u16 = 5;
/// Mask of the attribute type, without its flag bits.
const KIND_MASK: u16 = 0x3fff;

/// Attachment mode of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum XdpAttachmentMode {
    /// In the driver (native mode).
    Driver,
    /// After the driver, on socket buffers (generic mode).
    Generic,
    /// In the NIC (offload mode).
    Hardware,
    /// In several modes at once.
    Several,
}

/// XDP features of a driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct XdpFeatures {
    /// Bits of `netdev_xdp_act`, from bit 0: basic actions (abort, drop, pass, transmit); redirect;
    /// being a redirect target; zero-copy `AF_XDP`; offload to the NIC; multi-buffer packets;
    /// redirect of multi-buffer packets.
    pub acts: u64,
    /// Receive metadata that a program can read: bit 0 the hardware timestamp, bit 1 the hash.
    pub metadata: u64,
}

impl Netlink {
    /// Returns the mode in which a program is attached to the interface; `None` without a program.
    pub fn xdp_attachment(
        &mut self,
        index: u32,
    ) -> Result<Option<XdpAttachmentMode>, NetlinkError> {
        let action = "read the XDP program";
        let mut message = LinkMessage::default();
        message.header.index = index;
        match self.get(action, RouteNetlinkMessage::GetLink(message))? {
            Some(RouteNetlinkMessage::NewLink(found)) => Ok(attachment(&found)),
            _ => Err(NetlinkError::malformed(action, "no interface in the answer")),
        }
    }
}

fn attachment(link: &LinkMessage) -> Option<XdpAttachmentMode> {
    let parts = link.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::Xdp(parts) => Some(parts),
        _ => None,
    })?;
    parts.iter().find_map(|part| match part {
        LinkXdp::Attached(XdpAttached::Driver) => Some(XdpAttachmentMode::Driver),
        LinkXdp::Attached(XdpAttached::SocketBuffer) => Some(XdpAttachmentMode::Generic),
        LinkXdp::Attached(XdpAttached::Hardware) => Some(XdpAttachmentMode::Hardware),
        LinkXdp::Attached(XdpAttached::Multiple) => Some(XdpAttachmentMode::Several),
        _ => None,
    })
}

/// Returns the XDP features of the driver of an interface in the calling thread's network
/// namespace.
///
/// # Errors
///
/// `Unsupported` if the kernel does not report them (before Linux 6.3).
pub fn xdp_features(index: u32) -> io::Result<XdpFeatures> {
    let mut socket = Socket::new(NETLINK_GENERIC)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    let family = query(&socket, CONTROL, CONTROL_GET_FAMILY, CONTROL_FAMILY_NAME, NETDEV)?;
    let number = |value: &[u8]| Some(u16::from_ne_bytes(value.try_into().ok()?));
    let family = attribute(&family, CONTROL_FAMILY_ID).and_then(number);
    let family = family.ok_or(io::ErrorKind::InvalidData)?;
    let index = index.to_ne_bytes();
    let answer = query(&socket, family, NETDEV_DEV_GET, NETDEV_IFINDEX, &index)?;
    let bits = |kind| {
        let value = attribute(&answer, kind)?;
        Some(u64::from_ne_bytes(value.try_into().ok()?))
    };
    let acts = bits(NETDEV_XDP_FEATURES).ok_or(io::ErrorKind::InvalidData)?;
    Ok(XdpFeatures { acts, metadata: bits(NETDEV_RX_METADATA).unwrap_or(0) })
}

/// Sends a request with one attribute; returns the attributes of the response.
fn query(
    socket: &Socket,
    family: u16,
    command: u8,
    kind: u16,
    value: &[u8],
) -> io::Result<Vec<u8>> {
    socket.send(&request(family, command, kind, value), 0)?;
    let (answer, _) = socket.recv_from_full()?;
    payload(&answer)
}

fn request(family: u16, command: u8, kind: u16, value: &[u8]) -> Vec<u8> {
    let attribute = ATTRIBUTE_HEADER_LEN + value.len();
    let length = HEADER_LEN + GENERIC_HEADER_LEN + attribute.next_multiple_of(4);
    let mut bytes = Vec::with_capacity(length);
    bytes.extend((length as u32).to_ne_bytes());
    bytes.extend(family.to_ne_bytes());
    bytes.extend(NLM_F_REQUEST.to_ne_bytes());
    // Only one request is pending at a time, so it needs no sequence number.
    bytes.extend([0; 8]);
    bytes.extend([command, 1, 0, 0]);
    bytes.extend((attribute as u16).to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(length, 0);
    bytes
}

/// Returns the payload of a response after its headers, or the error in it.
fn payload(answer: &[u8]) -> io::Result<Vec<u8>> {
    let bad = || io::Error::from(io::ErrorKind::InvalidData);
    let kind = answer.get(4..6).and_then(|bytes| bytes.try_into().ok()).map(u16::from_ne_bytes);
    let body = answer.get(HEADER_LEN..).ok_or_else(bad)?;
    if kind == Some(NLMSG_ERROR) {
        let code = body.get(..4).and_then(|bytes| bytes.try_into().ok()).map(i32::from_ne_bytes);
        return Err(match code {
            // No such family.
            Some(code) if code == -libc::ENOENT => io::ErrorKind::Unsupported.into(),
            Some(code) => io::Error::from_raw_os_error(code.saturating_neg()),
            None => bad(),
        });
    }
    Ok(body.get(GENERIC_HEADER_LEN..).ok_or_else(bad)?.to_vec())
}

/// Returns the value of the first attribute of the type `wanted`.
fn attribute(mut bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let half = |at: usize| Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
        let (length, kind) = (usize::from(half(0)?), half(2)? & KIND_MASK);
        let value = bytes.get(ATTRIBUTE_HEADER_LEN..length)?;
        if kind == wanted {
            return Some(value);
        }
        bytes = bytes.get(length.next_multiple_of(4)..)?;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn loopback_has_no_program() {
        let mut netlink = Netlink::open().unwrap();
        let loopback = netlink.link_by_name("lo").unwrap();
        assert_eq!(netlink.xdp_attachment(loopback.index).unwrap(), None);
        match xdp_features(loopback.index) {
            Ok(features) => assert_eq!(features.metadata, 0),
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::Unsupported),
        }
        assert!(xdp_features(u32::MAX).is_err());
    }

    #[test]
    fn the_attributes_of_a_request_are_found_again() {
        let bytes = request(28, 1, 1, &7_u32.to_ne_bytes());
        assert_eq!(bytes.len(), 28);
        assert_eq!(attribute(&payload(&bytes).unwrap(), 1), Some(&7_u32.to_ne_bytes()[..]));
        assert_eq!(attribute(&payload(&bytes).unwrap(), 2), None);
    }

    proptest! {
        #[test]
        fn no_answer_is_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..80), kind: u16) {
            if let Ok(rest) = payload(&bytes) {
                let _ = attribute(&rest, kind & KIND_MASK);
            }
            let _ = attribute(&bytes, kind & KIND_MASK);
        }
    }
}
