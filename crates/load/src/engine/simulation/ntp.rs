//! Replies of the simulated NTP server.

use super::*;

/// Returns the replies to the `n`-th request, received at `at`; none for other packets.
pub(super) fn replies(
    (behaviour, number): (ServerBehaviour, u64),
    payload: &[u8],
    at: Timestamp<Utc>,
    departures: Option<&mut HashMap<u64, NtpTimestamp>>,
) -> Vec<(Span, Vec<u8>)> {
    let Ok((request, [])) = Header::parse(payload) else { return Vec::new() };
    let receive = NtpTimestamp::from_utc(at);
    let mut reply = Header {
        mode: AssociationMode::Server,
        stratum: 1,
        origin: request.transmit,
        receive,
        transmit: receive.wrapping_add(Span::from_ns(700)),
        ..request
    };
    if let Some(departures) = departures {
        departures.insert(receive.to_bits(), reply.transmit);
        if let Some(transmit) = departures.get(&request.origin.to_bits()) {
            reply = Header { origin: request.receive, transmit: *transmit, ..reply };
        }
    }
    let bytes = |reply: Header| {
        let mut bytes = vec![0; HEADER_LEN];
        reply.emit(&mut bytes);
        bytes
    };
    behaviour(number, reply).into_iter().map(|(after, reply)| (after, bytes(reply))).collect()
}
