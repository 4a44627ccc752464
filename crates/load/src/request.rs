//! Layout of requests: a template for each lane, and the few bytes that differ between its
//! requests, so that the hot path builds nothing.

use std::net::{IpAddr, SocketAddr};

use horolog_time::NtpTimestamp;
use horolog_wire::ethernet::{self, MacAddress};
use horolog_wire::frame::UdpFrameBuilder;
use horolog_wire::ntp::{HEADER_LEN, Header};
use horolog_wire::{ipv4, ipv6, udp};

use crate::clients::SimulatedClientNetwork;
use crate::ptp::{PtpRequestOptions, PtpRequestTemplate};
use crate::token::RequestTokenCodec;

/// Offsets of the checksum in an IPv4 header (RFC 791, section 3.1) and in a UDP header (RFC 768).
const IPV4_CHECKSUM_OFFSET: usize = 10;
const UDP_CHECKSUM_OFFSET: usize = 6;
/// Offsets of the low 32 bits of the source address in an IPv4 and in an IPv6 header.
const IPV4_SOURCE_OFFSET: usize = 12;
const IPV6_SOURCE_LOW_OFFSET: usize = 20;

/// Offset of the timestamps that change with each request: origin, receive and transmit (RFC 5905,
/// figure 8).
const TIMESTAMPS_OFFSET: usize = 24;
const TIMESTAMPS_LEN: usize = HEADER_LEN - TIMESTAMPS_OFFSET;

/// Timestamps of a request, as NTP's 64 bits each.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct RequestTimestamps {
    /// In interleaved mode, the server's receive timestamp in the client's last reply; otherwise 0.
    pub origin: u64,
    /// In interleaved mode, the value that an interleaved reply echoes; otherwise 0.
    pub receive: u64,
    /// Value that a basic reply returns.
    pub transmit: u64,
}

impl RequestTimestamps {
    /// Returns the timestamps of a request in basic mode.
    #[must_use]
    pub const fn basic(transmit: u64) -> Self {
        Self { origin: 0, receive: 0, transmit }
    }

    /// Returns the timestamps of a request in interleaved mode (RFC 9769, section 2). `origin` is
    /// the server's receive timestamp in the client's last reply; 0 for a first request, which is a
    /// basic one.
    #[must_use]
    pub const fn interleaved(origin: u64, transmit: u64) -> Self {
        if origin == 0 {
            return Self::basic(transmit);
        }
        Self { origin, receive: RequestTokenCodec::interleaved_receive(transmit), transmit }
    }

    fn to_bytes(self) -> [u8; TIMESTAMPS_LEN] {
        let mut bytes = [0; TIMESTAMPS_LEN];
        bytes[..8].copy_from_slice(&self.origin.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.receive.to_be_bytes());
        bytes[16..].copy_from_slice(&self.transmit.to_be_bytes());
        bytes
    }

    /// Returns the sum of the 16-bit words, for a checksum.
    const fn checksum_part(self) -> u64 {
        sum_of_quarters(self.origin)
            + sum_of_quarters(self.receive)
            + sum_of_quarters(self.transmit)
    }
}

/// Returns the UDP payload of a request: everything 0 but version, mode 3 and timestamps.
#[must_use]
pub fn ntp_payload(version: u8, timestamps: RequestTimestamps) -> [u8; HEADER_LEN] {
    let mut bytes = [0; HEADER_LEN];
    Header::request(version, NtpTimestamp::UNKNOWN).emit(&mut bytes);
    set_timestamps(&mut bytes, timestamps);
    bytes
}

/// Replaces the timestamps in the payload of a request.
///
/// # Panics
/// When `payload` is shorter than a request.
pub fn set_timestamps(payload: &mut [u8], timestamps: RequestTimestamps) {
    payload[TIMESTAMPS_OFFSET..HEADER_LEN].copy_from_slice(&timestamps.to_bytes());
}

/// Template of the frames of one lane. The low 32 bits of the source address and the timestamps are
/// 0; precomputed sums make the checksums cheap to complete.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LaneFrameTemplate {
    bytes: Box<[u8]>,
    source_at: usize,
    timestamps_at: usize,
    ipv4_checksum_at: Option<usize>,
    udp_checksum_at: usize,
    /// Folded sum of the constant bytes that the IPv4 header checksum covers; `udp_sum` likewise.
    ipv4_sum: u16,
    udp_sum: u16,
}

/// Addresses and content of the request frames of one lane.
#[derive(Clone, Copy, Debug)]
pub struct LaneFrameParameters {
    /// MAC address of the sending interface.
    pub source_mac: MacAddress,
    /// MAC address of the target, of the gateway to it, or of the multicast group of PTP requests.
    pub destination_mac: MacAddress,
    /// Network of the simulated clients.
    pub network: SimulatedClientNetwork,
    /// UDP source port of the lane; for PTP the port of the requests, which all lanes share.
    pub source_port: u16,
    /// Destination of the requests: the target or, for PTP multicast, the group. Of the same
    /// address family as the network.
    pub target: SocketAddr,
    /// NTP version, 1 to 4.
    pub version: u8,
    /// PTP requests; `None` for NTP.
    pub ptp: Option<PtpFrameParameters>,
}

/// PTP part of the frame parameters of one lane.
#[derive(Clone, Copy, Debug)]
pub struct PtpFrameParameters {
    /// Parameters of the requests.
    pub plan: PtpRequestOptions,
    /// Unicast address of the master, also if requests are sent to the multicast address.
    pub master: IpAddr,
    /// Index of the lane.
    pub lane: usize,
    /// Network of the clients of concurrent engines. All engines use the same ports, so only the
    /// network distinguishes their replies.
    pub excluded_network: Option<SimulatedClientNetwork>,
}

impl LaneFrameParameters {
    /// Returns the UDP payload of a request, with 0 in the fields that differ between requests.
    fn request_payload(&self) -> Vec<u8> {
        match &self.ptp {
            None => ntp_payload(self.version, RequestTimestamps::default()).to_vec(),
            Some(ptp) => PtpRequestTemplate::new(&ptp.plan, ptp.lane, ptp.master).bytes().to_vec(),
        }
    }

    /// Returns true if a datagram with these ends can be a reply to the lane.
    #[must_use]
    pub fn is_reply(&self, from: SocketAddr, to: SocketAddr) -> bool {
        match &self.ptp {
            // Compares without the zone of a link-local target, which a frame does not carry.
            None => {
                (from.ip(), from.port()) == (self.target.ip(), self.target.port())
                    && to.port() == self.source_port
            }
            Some(ptp) => {
                let is_excluded =
                    ptp.excluded_network.is_some_and(|apart| apart.prefix().contains(to.ip()));
                !is_excluded && ptp.plan.can_be_reply(ptp.master, from, to)
            }
        }
    }
}

impl LaneFrameTemplate {
    /// Builds the template of a lane's frames, and the checksum sums of their constant parts.
    #[must_use]
    pub fn new(plan: &LaneFrameParameters) -> Self {
        // The address before client 0's is the network address.
        let builder = UdpFrameBuilder {
            destination_mac: plan.destination_mac,
            source_mac: plan.source_mac,
            vlan: None,
            source: SocketAddr::new(plan.network.prefix().address(), plan.source_port),
            destination: plan.target,
        };
        let headers_len = builder.headers_len();
        let payload = plan.request_payload();
        let mut bytes = vec![0; headers_len + payload.len()].into_boxed_slice();
        builder.emit(&payload, &mut bytes);
        let network_at = ethernet::HEADER_LEN;
        let (source_at, ipv4_checksum_at, udp_at) = if plan.target.is_ipv4() {
            let udp_at = network_at + ipv4::HEADER_LEN;
            (network_at + IPV4_SOURCE_OFFSET, Some(network_at + IPV4_CHECKSUM_OFFSET), udp_at)
        } else {
            (network_at + IPV6_SOURCE_LOW_OFFSET, None, network_at + ipv6::HEADER_LEN)
        };
        debug_assert_eq!(udp_at + udp::HEADER_LEN, headers_len);
        let udp_checksum_at = udp_at + UDP_CHECKSUM_OFFSET;
        let base = plan.network.base();
        let constant_sum = |at: usize| {
            let sum = !u16::from_be_bytes([bytes[at], bytes[at + 1]]);
            // One's-complement subtraction is adding the complement.
            fold_carries(u64::from(sum) + sum_of_halves(!base))
        };
        let (ipv4_sum, udp_sum) =
            (ipv4_checksum_at.map_or(0, constant_sum), constant_sum(udp_checksum_at));
        bytes[source_at..source_at + 4].fill(0);
        let timestamps_at = headers_len + TIMESTAMPS_OFFSET;
        Self {
            bytes,
            source_at,
            timestamps_at,
            ipv4_checksum_at,
            udp_checksum_at,
            ipv4_sum,
            udp_sum,
        }
    }

    /// Returns the bytes of the template, from which frames are copied.
    #[must_use]
    pub const fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the sums of the constant parts under the IPv4 header checksum and the UDP checksum,
    /// over 16-bit words in host byte order. The XDP engine adds the changing parts.
    #[must_use]
    pub fn constant_sums(&self) -> (u64, u64) {
        let native = |sum: u16| u64::from(u16::from_ne_bytes(sum.to_be_bytes()));
        (native(self.ipv4_sum), native(self.udp_sum))
    }

    /// Completes the frame of an NTP request, a copy of [`LaneFrameTemplate::bytes`]: sets the low
    /// 32 bits of the source address, the timestamps and both checksums.
    ///
    /// # Panics
    /// When `frame` is shorter than the template, or the template is one of PTP.
    #[inline]
    pub fn complete_frame(&self, frame: &mut [u8], source_low: u32, timestamps: RequestTimestamps) {
        let frame = &mut frame[..self.bytes.len()];
        let source = sum_of_halves(source_low);
        frame[self.source_at..self.source_at + 4].copy_from_slice(&source_low.to_be_bytes());
        frame[self.timestamps_at..self.timestamps_at + TIMESTAMPS_LEN]
            .copy_from_slice(&timestamps.to_bytes());
        if let Some(at) = self.ipv4_checksum_at {
            let checksum = !fold_carries(u64::from(self.ipv4_sum) + source);
            frame[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
        }
        let checksum =
            match !fold_carries(u64::from(self.udp_sum) + source + timestamps.checksum_part()) {
                0 => u16::MAX, // 0 means no checksum (RFC 768)
                checksum => checksum,
            };
        let at = self.udp_checksum_at;
        frame[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
    }
}

/// Returns the sum of the two 16-bit halves.
const fn sum_of_halves(word: u32) -> u64 {
    (word >> 16) as u64 + (word & 0xffff) as u64
}

/// Returns the sum of the four 16-bit quarters.
const fn sum_of_quarters(word: u64) -> u64 {
    sum_of_halves(word as u32) + sum_of_halves((word >> 32) as u32)
}

/// Folds the carries of a one's-complement sum of 16-bit words into 16 bits (RFC 1071).
const fn fold_carries(sum: u64) -> u16 {
    let mut sum = sum;
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use horolog_wire::frame::UdpFrame;
    use horolog_wire::ntp::AssociationMode;
    use proptest::prelude::*;

    fn plan(ipv4: bool) -> LaneFrameParameters {
        let (network, target) =
            if ipv4 { ("10.64.0.0/10", "192.0.2.1") } else { ("fd00::77:0/112", "2001:db8::1") };
        let target = target.parse().unwrap();
        LaneFrameParameters {
            source_mac: MacAddress([2, 0, 0, 0, 0, 1]),
            destination_mac: MacAddress([2, 0, 0, 0, 0, 2]),
            network: SimulatedClientNetwork::new(network.parse().unwrap(), target, &[]).unwrap(),
            source_port: 32_769,
            target: SocketAddr::new(target, 123),
            version: 4,
            ptp: None,
        }
    }

    #[test]
    fn the_payload_is_a_plain_client_request() {
        let bytes = ntp_payload(3, RequestTimestamps::basic(0x0102_0304_0506_0708));
        let (header, _) = Header::parse(&bytes).unwrap();
        assert_eq!((header.version, header.mode), (3, AssociationMode::Client));
        assert_eq!(header.transmit.to_bits(), 0x0102_0304_0506_0708);
        assert!(bytes[1..40].iter().all(|&byte| byte == 0));
    }

    proptest! {
        /// Also when a frame is used again for another client.
        #[test]
        fn completed_frames_are_whole(
            ipv4: bool,
            clients: [u16; 2],
            transmits: [u64; 2],
            origins: [u64; 2],
            interleaved: bool,
        ) {
            let plan = plan(ipv4);
            let template = LaneFrameTemplate::new(&plan);
            let mut frame = template.bytes().to_vec();
            for ((client, transmit), origin) in clients.into_iter().zip(transmits).zip(origins) {
                let stamps = if interleaved {
                    RequestTimestamps::interleaved(origin, transmit)
                } else {
                    RequestTimestamps::basic(transmit)
                };
                let client = u32::from(client) % plan.network.host_count();
                let low = plan.network.base() + 1 + client;
                template.complete_frame(&mut frame, low, stamps);
                let parsed = UdpFrame::parse(&frame).unwrap();
                prop_assert!(parsed.has_valid_checksum());
                prop_assert_eq!(parsed.source.ip(), plan.network.address(client));
                prop_assert_eq!(parsed.source.port(), plan.source_port);
                prop_assert_eq!(parsed.destination, plan.target);
                prop_assert_eq!(parsed.payload, &ntp_payload(4, stamps)[..]);
                let (header, _) = Header::parse(parsed.payload).unwrap();
                prop_assert_eq!(header.transmit.to_bits(), transmit);
                prop_assert_eq!(header.origin.to_bits(), stamps.origin);
                prop_assert_eq!(header.receive.to_bits(), stamps.receive);
            }
        }
    }
}
