//! Netlink socket: sends a request and collects the response. The other modules interpret the
//! messages.

use std::io;

use netlink_packet_core::{
    DefaultNla, ErrorMessage, NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NLMSG_ALIGNTO,
    NetlinkHeader, NetlinkMessage, NetlinkPayload, Nla, NlasIterator, Parseable,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use super::error::{KernelRefusal, NetlinkError};

/// Attribute of an extended acknowledgement with the text (`NLMSGERR_ATTR_MSG`).
const EXPLANATION_ATTRIBUTE: u16 = 1;
/// Length of `struct nlmsghdr`, the part of a request that the kernel repeats under
/// `NETLINK_CAP_ACK`.
const HEADER_LEN: usize = 16;
/// Attempts of a dump if the table changes during it (`NLM_F_DUMP_INTR`).
const DUMP_ATTEMPTS: usize = 8;

/// rtnetlink socket of one network namespace.
///
/// Opened in the calling thread's network namespace and bound to it. Reading needs no privilege;
/// changes need `CAP_NET_ADMIN` in the namespace.
#[derive(Debug)]
pub struct Netlink {
    socket: Socket,
    sequence: u32,
}

/// Received message, by what it means to the pending request: item, nothing or end.
enum ClassifiedNetlinkMessage {
    Item(RouteNetlinkMessage),
    Skip,
    End(Result<(), KernelRefusal>),
}

impl Netlink {
    /// Opens a socket in the calling thread's network namespace.
    pub fn open() -> Result<Self, NetlinkError> {
        Self::open_socket().map(|socket| Self { socket, sequence: 0 }).map_err(NetlinkError::Socket)
    }

    fn open_socket() -> io::Result<Socket> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        socket.set_ext_ack(true)?;
        socket.set_cap_ack(true)?;
        Ok(socket)
    }

    /// Sends a change with an acknowledgement; `flags` such as `NLM_F_CREATE` are added.
    pub(super) fn change(
        &mut self,
        action: &str,
        message: RouteNetlinkMessage,
        flags: u16,
    ) -> Result<(), NetlinkError> {
        self.exchange(action, message, flags | NLM_F_ACK).map(drop)
    }

    /// Requests one object; `None` if the kernel acknowledges without one.
    pub(super) fn get(
        &mut self,
        action: &str,
        message: RouteNetlinkMessage,
    ) -> Result<Option<RouteNetlinkMessage>, NetlinkError> {
        Ok(self.exchange(action, message, NLM_F_ACK)?.items.into_iter().next())
    }

    /// Requests a whole table, repeatedly if it changes during the dump.
    pub(super) fn dump(
        &mut self,
        action: &str,
        message: &RouteNetlinkMessage,
    ) -> Result<Vec<RouteNetlinkMessage>, NetlinkError> {
        for _ in 0..DUMP_ATTEMPTS {
            let answer = self.exchange(action, message.clone(), NLM_F_DUMP)?;
            if !answer.interrupted {
                return Ok(answer.items);
            }
        }
        let busy = KernelRefusal { errno: libc::EAGAIN, explanation: None };
        Err(NetlinkError::refused(action, busy))
    }

    fn exchange(
        &mut self,
        action: &str,
        message: RouteNetlinkMessage,
        flags: u16,
    ) -> Result<NetlinkResponse, NetlinkError> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | flags;
        header.sequence_number = self.sequence;
        let mut request = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(message));
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        self.socket.send(&bytes, 0).map_err(NetlinkError::Socket)?;

        let mut answer = NetlinkResponse::default();
        loop {
            let (datagram, _) = self.socket.recv_from_full().map_err(NetlinkError::Socket)?;
            if let Some(end) = answer.add_datagram(action, self.sequence, &datagram)? {
                return end
                    .map(|()| answer)
                    .map_err(|refusal| NetlinkError::refused(action, refusal));
            }
        }
    }
}

/// Response to one request.
#[derive(Default)]
struct NetlinkResponse {
    items: Vec<RouteNetlinkMessage>,
    /// True if the table changed during the dump, so that `items` may be incomplete.
    interrupted: bool,
}

impl NetlinkResponse {
    /// Adds the messages of a datagram; returns `Some` with the result when the response is
    /// complete.
    fn add_datagram(
        &mut self,
        action: &str,
        sequence: u32,
        mut datagram: &[u8],
    ) -> Result<Option<Result<(), KernelRefusal>>, NetlinkError> {
        while !datagram.is_empty() {
            let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(datagram)
                .map_err(|error| NetlinkError::malformed(action, error))?;
            let length = (message.header.length as usize)
                .next_multiple_of(usize::from(NLMSG_ALIGNTO))
                .clamp(HEADER_LEN, datagram.len().max(HEADER_LEN));
            datagram = datagram.get(length..).unwrap_or_default();
            if message.header.sequence_number != sequence {
                continue; // remains of an earlier request that failed halfway
            }
            self.interrupted |= message.header.flags & NLM_F_DUMP_INTR != 0;
            match message_effect(message.payload) {
                ClassifiedNetlinkMessage::Item(item) => self.items.push(item),
                ClassifiedNetlinkMessage::Skip => {}
                ClassifiedNetlinkMessage::End(end) => return Ok(Some(end)),
            }
        }
        Ok(None)
    }
}

fn message_effect(payload: NetlinkPayload<RouteNetlinkMessage>) -> ClassifiedNetlinkMessage {
    match payload {
        NetlinkPayload::InnerMessage(item) => ClassifiedNetlinkMessage::Item(item),
        NetlinkPayload::Done(done) if done.code < 0 => {
            ClassifiedNetlinkMessage::End(Err(KernelRefusal {
                errno: -done.code,
                explanation: None,
            }))
        }
        NetlinkPayload::Done(_) => ClassifiedNetlinkMessage::End(Ok(())),
        NetlinkPayload::Error(error) => ClassifiedNetlinkMessage::End(error_result(&error)),
        NetlinkPayload::Overrun(_) => ClassifiedNetlinkMessage::End(Err(KernelRefusal {
            errno: libc::ENOBUFS,
            explanation: None,
        })),
        _ => ClassifiedNetlinkMessage::Skip,
    }
}

fn error_result(error: &ErrorMessage) -> Result<(), KernelRefusal> {
    match error.code {
        None => Ok(()),
        Some(code) => Err(KernelRefusal {
            errno: code.get().saturating_neg(),
            explanation: explanation(error),
        }),
    }
}

/// Returns the text of the extended acknowledgement, which follows the repeated request header.
fn explanation(error: &ErrorMessage) -> Option<String> {
    let attributes = error.header.get(HEADER_LEN..)?;
    let text = NlasIterator::new(attributes)
        .filter_map(Result::ok)
        .find(|attribute| attribute.kind() == EXPLANATION_ATTRIBUTE)?;
    let text = DefaultNla::parse(&text).ok()?;
    let mut bytes = vec![0; text.value_len()];
    text.emit_value(&mut bytes);
    let text = String::from_utf8_lossy(&bytes).trim_end_matches('\0').to_owned();
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn netlink_message(kind: u16, sequence: u32, payload: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend((u32::try_from(HEADER_LEN + payload.len()).unwrap()).to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(0u16.to_ne_bytes());
        bytes.extend(sequence.to_ne_bytes());
        bytes.extend(0u32.to_ne_bytes());
        bytes.extend(payload);
        bytes
    }

    fn error_payload(errno: i32, text: &str) -> Vec<u8> {
        let mut payload = (-errno).to_ne_bytes().to_vec();
        payload.extend([0; HEADER_LEN]);
        payload.extend(u16::try_from(4 + text.len() + 1).unwrap().to_ne_bytes());
        payload.extend(EXPLANATION_ATTRIBUTE.to_ne_bytes());
        payload.extend(text.as_bytes());
        payload.push(0);
        payload.resize(payload.len().next_multiple_of(4), 0);
        payload
    }

    #[test]
    fn an_error_ends_the_exchange_with_errno_and_explanation() {
        let datagram = netlink_message(2, 9, &error_payload(libc::EEXIST, "already there"));
        let end = NetlinkResponse::default().add_datagram("test", 9, &datagram).unwrap().unwrap();
        let refusal = end.unwrap_err();
        assert_eq!(refusal.errno, libc::EEXIST);
        assert_eq!(refusal.explanation.as_deref(), Some("already there"));
    }

    #[test]
    fn an_answer_to_an_earlier_request_is_passed_over() {
        let mut datagram = netlink_message(2, 8, &error_payload(libc::EEXIST, "stale"));
        datagram.extend(netlink_message(3, 9, &0i32.to_ne_bytes()));
        let end = NetlinkResponse::default().add_datagram("test", 9, &datagram).unwrap();
        assert!(matches!(end, Some(Ok(()))));
    }

    #[test]
    fn a_truncated_message_is_an_error_and_not_a_panic() {
        let datagram = netlink_message(2, 9, &error_payload(libc::EEXIST, "text"));
        for length in 1..datagram.len() {
            let error = NetlinkResponse::default().add_datagram("test", 9, &datagram[..length]);
            assert!(matches!(error, Err(NetlinkError::Malformed { .. })), "{length} bytes");
        }
    }
}
