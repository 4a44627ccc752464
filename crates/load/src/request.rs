//! What a request looks like: a template once for each lane, and the few bytes that change with
//! each request. Nothing is built anew on the hot path.

use std::net::{IpAddr, SocketAddr};

use horolog_time::NtpTimestamp;
use horolog_wire::ethernet::{self, MacAddress};
use horolog_wire::frame::Builder;
use horolog_wire::ntp::{HEADER_LEN, Header};
use horolog_wire::{ipv4, ipv6, udp};

use crate::clients::SourceNetwork;
use crate::ptp::{PtpPlan, Template};
use crate::token::Token;

/// Where the checksum stands in an IPv4 header (RFC 791, section 3.1) and in a
/// UDP header (RFC 768).
const IPV4_CHECKSUM_OFFSET: usize = 10;
const UDP_CHECKSUM_OFFSET: usize = 6;
/// Where the low 32 bits of the source address stand in an IPv4 and in an IPv6 header.
const IPV4_SOURCE_OFFSET: usize = 12;
const IPV6_SOURCE_LOW_OFFSET: usize = 20;

/// Where the timestamps of a request begin that change with it: origin, receive and transmit (RFC
/// 5905, figure 8).
const STAMPS_OFFSET: usize = 24;
const STAMPS_LEN: usize = HEADER_LEN - STAMPS_OFFSET;

/// The timestamps that a request carries, as NTP's 64 bits each.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Stamps {
    /// 0 in basic mode; in interleaved mode the receive timestamp of the client's last reply.
    pub origin: u64,
    /// 0 in basic mode; in interleaved mode what an interleaved reply brings back.
    pub receive: u64,
    /// What a basic reply brings back.
    pub transmit: u64,
}

impl Stamps {
    /// Those of a request in basic mode.
    #[must_use]
    pub const fn basic(transmit: u64) -> Self {
        Self { origin: 0, receive: 0, transmit }
    }

    /// Those of a request in interleaved mode (RFC 9769, section 2) of a client whose last reply
    /// was received by the server at `origin`; 0 where it had none: a first request is a basic one,
    /// with no receive timestamp either.
    #[must_use]
    pub const fn interleaved(origin: u64, transmit: u64) -> Self {
        if origin == 0 {
            return Self::basic(transmit);
        }
        Self { origin, receive: Token::receive_of(transmit), transmit }
    }

    fn to_bytes(self) -> [u8; STAMPS_LEN] {
        let mut bytes = [0; STAMPS_LEN];
        bytes[..8].copy_from_slice(&self.origin.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.receive.to_be_bytes());
        bytes[16..].copy_from_slice(&self.transmit.to_be_bytes());
        bytes
    }

    /// The sum of their 16-bit halves.
    const fn sum(self) -> u64 {
        words(self.origin) + words(self.receive) + words(self.transmit)
    }
}

/// The UDP payload of a request: everything 0 but version, mode 3 and timestamps.
#[must_use]
pub fn payload(version: u8, stamps: Stamps) -> [u8; HEADER_LEN] {
    let mut bytes = [0; HEADER_LEN];
    Header::request(version, NtpTimestamp::UNKNOWN).emit(&mut bytes);
    set_stamps(&mut bytes, stamps);
    bytes
}

/// Puts other timestamps into a payload.
///
/// # Panics
/// When `payload` is shorter than a request.
pub fn set_stamps(payload: &mut [u8], stamps: Stamps) {
    payload[STAMPS_OFFSET..HEADER_LEN].copy_from_slice(&stamps.to_bytes());
}

/// The whole frame of a simulated client's request, with the low 32 bits of the source address and
/// the timestamps still 0, and the sums that make its checksums cheap to complete.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FrameTemplate {
    bytes: Box<[u8]>,
    source_at: usize,
    stamps_at: usize,
    ipv4_checksum_at: Option<usize>,
    udp_checksum_at: usize,
    /// The folded sums of everything under the two checksums.
    ipv4_sum: u16,
    udp_sum: u16,
}

/// Where the requests of one lane come from and go to.
#[derive(Clone, Copy, Debug)]
pub struct FramePlan {
    /// The MAC address of the interface that they leave by.
    pub source_mac: MacAddress,
    /// The MAC address of the target or of the gateway to it.
    pub destination_mac: MacAddress,
    /// The network of the simulated clients.
    pub network: SourceNetwork,
    /// The lane's UDP source port.
    pub source_port: u16,
    /// The target; of the same address family as the network.
    pub target: SocketAddr,
    /// NTP version, 1 to 4.
    pub version: u8,
    /// Asks for PTP instead.
    pub ptp: Option<PtpFrames>,
}

/// How a lane asks a PTP master in frames.
#[derive(Clone, Copy, Debug)]
pub struct PtpFrames {
    /// How the master is asked.
    pub plan: PtpPlan,
    /// Its address, which is not where requests to a group go.
    pub master: IpAddr,
    /// The lane.
    pub lane: usize,
    /// Where others come from that ask at the same time. All ask by the same ports, so nothing else
    /// tells their answers from this run's.
    pub apart: Option<SourceNetwork>,
}

impl FramePlan {
    /// The UDP payload of a lane's request, with 0 in what changes with each of them.
    fn payload(&self) -> Vec<u8> {
        match &self.ptp {
            None => payload(self.version, Stamps::default()).to_vec(),
            Some(ptp) => Template::new(&ptp.plan, ptp.lane, ptp.master).bytes().to_vec(),
        }
    }

    /// Whether a datagram between these ends can be a reply to the lane.
    #[must_use]
    pub fn is_reply(&self, from: SocketAddr, to: SocketAddr) -> bool {
        match &self.ptp {
            None => from == self.target && to.port() == self.source_port,
            Some(ptp) => {
                let is_apart = ptp.apart.is_some_and(|apart| apart.prefix().contains(to.ip()));
                !is_apart && ptp.plan.is_answer(ptp.master, from, to)
            }
        }
    }
}

impl FrameTemplate {
    /// Builds the template.
    #[must_use]
    pub fn new(plan: &FramePlan) -> Self {
        // The number before the first client's leads to the network's own address.
        let builder = Builder {
            destination_mac: plan.destination_mac,
            source_mac: plan.source_mac,
            vlan: None,
            source: SocketAddr::new(plan.network.prefix().address(), plan.source_port),
            destination: plan.target,
        };
        let headers_len = builder.headers_len();
        let payload = plan.payload();
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
        let sum_at = |at: usize| {
            let sum = !u16::from_be_bytes([bytes[at], bytes[at + 1]]);
            // One's-complement subtraction is adding the complement.
            fold(u64::from(sum) + halves(!base))
        };
        let (ipv4_sum, udp_sum) = (ipv4_checksum_at.map_or(0, sum_at), sum_at(udp_checksum_at));
        bytes[source_at..source_at + 4].fill(0);
        let stamps_at = headers_len + STAMPS_OFFSET;
        Self { bytes, source_at, stamps_at, ipv4_checksum_at, udp_checksum_at, ipv4_sum, udp_sum }
    }

    /// The bytes of the template; a frame to be completed starts as a copy of them.
    #[must_use]
    pub const fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The sums of the parts that stay the same, of the IPv4 header and of pseudo-header and
    /// datagram, over 16-bit words as this machine reads them: what the in-kernel engine adds
    /// the changing parts to.
    #[must_use]
    pub fn constant_sums(&self) -> (u64, u64) {
        let native = |sum: u16| u64::from(u16::from_ne_bytes(sum.to_be_bytes()));
        (native(self.ipv4_sum), native(self.udp_sum))
    }

    /// Completes a frame of NTP that was copied from [`FrameTemplate::bytes`], or completed before:
    /// sets the low 32 bits of the source address, the timestamps and both checksums.
    ///
    /// # Panics
    /// When `frame` is shorter than the template, or the template is one of PTP.
    #[inline]
    pub fn complete(&self, frame: &mut [u8], source_low: u32, stamps: Stamps) {
        let frame = &mut frame[..self.bytes.len()];
        let source = halves(source_low);
        frame[self.source_at..self.source_at + 4].copy_from_slice(&source_low.to_be_bytes());
        frame[self.stamps_at..self.stamps_at + STAMPS_LEN].copy_from_slice(&stamps.to_bytes());
        if let Some(at) = self.ipv4_checksum_at {
            let checksum = !fold(u64::from(self.ipv4_sum) + source);
            frame[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
        }
        let checksum = match !fold(u64::from(self.udp_sum) + source + stamps.sum()) {
            0 => u16::MAX, // 0 would say that there is no checksum (RFC 768)
            checksum => checksum,
        };
        let at = self.udp_checksum_at;
        frame[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
    }
}

/// The two 16-bit halves, added.
const fn halves(word: u32) -> u64 {
    (word >> 16) as u64 + (word & 0xffff) as u64
}

/// The four 16-bit quarters, added.
const fn words(word: u64) -> u64 {
    halves(word as u32) + halves((word >> 32) as u32)
}

/// Folds the carries of a one's-complement sum of 16-bit words into 16 bits (RFC 1071).
const fn fold(sum: u64) -> u16 {
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
    use horolog_wire::ntp::Mode;
    use proptest::prelude::*;

    fn plan(ipv4: bool) -> FramePlan {
        let (network, target) =
            if ipv4 { ("10.64.0.0/10", "192.0.2.1") } else { ("fd00::77:0/112", "2001:db8::1") };
        let target = target.parse().unwrap();
        FramePlan {
            source_mac: MacAddress([2, 0, 0, 0, 0, 1]),
            destination_mac: MacAddress([2, 0, 0, 0, 0, 2]),
            network: SourceNetwork::new(network.parse().unwrap(), target, &[]).unwrap(),
            source_port: 32_769,
            target: SocketAddr::new(target, 123),
            version: 4,
            ptp: None,
        }
    }

    #[test]
    fn the_payload_is_a_plain_client_request() {
        let bytes = payload(3, Stamps::basic(0x0102_0304_0506_0708));
        let (header, _) = Header::parse(&bytes).unwrap();
        assert_eq!((header.version, header.mode), (3, Mode::Client));
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
            let template = FrameTemplate::new(&plan);
            let mut frame = template.bytes().to_vec();
            for ((client, transmit), origin) in clients.into_iter().zip(transmits).zip(origins) {
                let stamps = if interleaved {
                    Stamps::interleaved(origin, transmit)
                } else {
                    Stamps::basic(transmit)
                };
                let client = u32::from(client) % plan.network.room();
                let low = plan.network.base() + 1 + client;
                template.complete(&mut frame, low, stamps);
                let parsed = UdpFrame::parse(&frame).unwrap();
                prop_assert!(parsed.checksum_fits());
                prop_assert_eq!(parsed.source.ip(), plan.network.address(client));
                prop_assert_eq!(parsed.source.port(), plan.source_port);
                prop_assert_eq!(parsed.destination, plan.target);
                prop_assert_eq!(parsed.payload, &payload(4, stamps)[..]);
                let (header, _) = Header::parse(parsed.payload).unwrap();
                prop_assert_eq!(header.transmit.to_bits(), transmit);
                prop_assert_eq!(header.origin.to_bits(), stamps.origin);
                prop_assert_eq!(header.receive.to_bits(), stamps.receive);
            }
        }
    }
}
