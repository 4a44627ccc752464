//! Network namespace identifiers: numbers by which a namespace refers to others, such as that of
//! the peer of a veth (`Link::peer_nsid`).

use std::os::fd::{AsRawFd, BorrowedFd};

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::nsid::{NsidAttribute, NsidMessage};

use super::{Netlink, NetlinkError};

impl Netlink {
    /// Returns the identifier of `namespace` in this connection's namespace; `None` if none is
    /// assigned. The kernel assigns one when it needs it, for example to report a veth whose peer
    /// is there.
    pub fn nsid_of(&mut self, namespace: BorrowedFd<'_>) -> Result<Option<i32>, NetlinkError> {
        let action = "look up the identifier of a network namespace";
        let mut message = NsidMessage::default();
        message.attributes.push(NsidAttribute::Fd(namespace.as_raw_fd().cast_unsigned()));
        match self.get(action, RouteNetlinkMessage::GetNsId(message))? {
            Some(RouteNetlinkMessage::NewNsId(answer)) => Ok(parse(&answer)),
            _ => Err(NetlinkError::malformed(action, "no identifier in the answer")),
        }
    }
}

fn parse(answer: &NsidMessage) -> Option<i32> {
    answer.attributes.iter().find_map(|attribute| match attribute {
        // A negative number (NETNSA_NSID_NOT_ASSIGNED) means that none is assigned.
        NsidAttribute::Id(id) => (*id >= 0).then_some(*id),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minus_one_is_no_identifier() {
        let mut message = NsidMessage::default();
        message.attributes = vec![NsidAttribute::Id(-1)];
        assert_eq!(parse(&message), None);
        message.attributes = vec![NsidAttribute::Id(0)];
        assert_eq!(parse(&message), Some(0));
    }
}
