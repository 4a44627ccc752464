//! Scenarios of requests that no ordinary client sends, as raw frames: VLAN tags and IPv4 options,
//! which XDP answers, and fragments, which it leaves to the network stack.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Result, anyhow, ensure};
use horolog_io::{
    Batch, BatchDevice, FrameSelection, PacketSocketDevice, PacketSocketOptions, UdpFilter,
};
use horolog_lab::{Lab, LabConfig};
use horolog_sys::filter::BpfInstruction;
use horolog_wire::ethernet::{
    HEADER_LEN as LINK_LEN, MacAddress, TYPE_SERVICE_VLAN, TYPE_VLAN, VlanTag,
};
use horolog_wire::frame::{UdpFrame, UdpFrameBuilder};
use horolog_wire::ntp::{AssociationMode, HEADER_LEN, Header};
use horolog_wire::{ipv4, ipv6};

use crate::client;
use crate::mutated_frames::{mend, with_options};
use crate::process::{Engine, Server, server_address};

/// Long enough for a reply on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Long enough for a reply that must not come to show itself.
const QUIET_PERIOD: Duration = Duration::from_millis(50);
const CLIENT_PORT: u16 = 40_000;
const FRAME_BYTES: usize = 2_048;
/// Where a classic BPF program finds the VLAN tag that the kernel took off a frame: that there is
/// one, its control information, its protocol (`SKF_AD_OFF` and others in linux/filter.h).
const VLAN_PRESENT: u32 = 0xffff_f000 + 48;
const VLAN_CONTROL: u32 = 0xffff_f000 + 44;
const VLAN_PROTOCOL: u32 = 0xffff_f000 + 60;
const KEEP: u32 = u32::MAX;

/// A server with everything that it takes to ask it by raw frames.
struct Bench {
    lab: Lab,
    server: Server,
    at: SocketAddr,
}

impl Bench {
    fn new(engine: Engine, ipv6: bool) -> Result<Self> {
        let lab = Lab::new(&LabConfig::default())?;
        let at = server_address(&lab, ipv6)?;
        let server = Server::start(lab.server(), engine, &[at], &[])?;
        Ok(Self { lab, server, at })
    }

    fn builder(&self) -> UdpFrameBuilder {
        let client = self.lab.client().first_interface();
        let own = match (self.at, client.ipv6) {
            (SocketAddr::V6(_), Some(ipv6)) => ipv6.into(),
            _ => client.ipv4.into(),
        };
        UdpFrameBuilder {
            destination_mac: MacAddress(self.lab.server().first_interface().mac),
            source_mac: MacAddress(client.mac),
            vlan: None,
            source: SocketAddr::new(own, CLIENT_PORT),
            destination: self.at,
        }
    }

    fn request(&self) -> Vec<u8> {
        build(&self.builder())
    }

    fn replies(&self) -> FrameSelection {
        FrameSelection::Udp(UdpFilter {
            source: self.at.ip(),
            source_port: Some(self.at.port()),
            destination_port: Some(CLIENT_PORT),
            destination_network: None,
        })
    }

    /// Sends frames and returns what comes back of the frames selected, within `wait`.
    fn exchange(
        &self,
        frames: &[&[u8]],
        selection: FrameSelection,
        wait: Duration,
    ) -> Result<Vec<Vec<u8>>> {
        let client = self.lab.client();
        let options = PacketSocketOptions { selection, ..PacketSocketOptions::default() };
        let mut device =
            client.run(|| PacketSocketDevice::open(&client.first_interface().name, &options))??;
        let mut batch = Batch::new(8, FRAME_BYTES);
        for frame in frames {
            ensure!(batch.push((), frame), "the frame does not fit");
        }
        let sent = device.send(&mut batch)?;
        ensure!(sent == frames.len(), "{sent} frames were sent");
        device.receive(&mut batch, wait)?;
        Ok(batch.iter().map(|packet| packet.bytes.to_vec()).collect())
    }

    /// Sends frames that are one request, and returns its reply.
    fn query(&self, frames: &[&[u8]], selection: FrameSelection) -> Result<Vec<u8>> {
        let mut replies = self.exchange(frames, selection, TIMEOUT)?;
        ensure!(replies.len() == 1, "{} replies", replies.len());
        check_reply(&self.builder(), &replies[0])?;
        Ok(replies.remove(0))
    }

    fn counter(&self, path: &str) -> Result<Option<u64>> {
        Ok(self.server.status()?.pointer(path).and_then(serde_json::Value::as_u64))
    }
}

fn build(builder: &UdpFrameBuilder) -> Vec<u8> {
    let mut frame = vec![0; builder.headers_len() + HEADER_LEN];
    builder.emit(&client::request(4, client::now()), &mut frame);
    frame
}

fn check_reply(request: &UdpFrameBuilder, frame: &[u8]) -> Result<()> {
    let reply = UdpFrame::parse(frame).map_err(|error| anyhow!("no UDP frame: {error:?}"))?;
    let ends = (reply.source, reply.destination);
    ensure!(ends == (request.destination, request.source), "{reply:?}");
    let macs = (reply.ethernet.source, reply.ethernet.destination);
    ensure!(macs == (request.destination_mac, request.source_mac), "{reply:?}");
    let (header, rest) = Header::parse(reply.payload)?;
    ensure!(header.mode == AssociationMode::Server && rest.is_empty(), "{header:?}");
    Ok(())
}

/// Keeps the frames that had this tag and no others.
fn with_tag(tag: VlanTag) -> FrameSelection {
    // Each test that fails skips the rest, up to the last instruction.
    FrameSelection::Program(vec![
        BpfInstruction::load_word(VLAN_PRESENT),
        BpfInstruction::jump_if_equal(0, 5, 0),
        BpfInstruction::load_word(VLAN_CONTROL),
        BpfInstruction::jump_if_equal(tag.control.into(), 0, 3),
        BpfInstruction::load_word(VLAN_PROTOCOL),
        BpfInstruction::jump_if_equal(tag.protocol.into(), 0, 1),
        BpfInstruction::finish(KEEP),
        BpfInstruction::finish(0),
    ])
}

/// A request with a priority is answered by XDP with the same tag; one of a VLAN that the server
/// has no interface in is not.
pub(crate) fn only_a_priority_tag_is_returned() -> Result<()> {
    for ipv6 in [false, true] {
        let bench = Bench::new(Engine::Xdp, ipv6)?;
        for protocol in [TYPE_VLAN, TYPE_SERVICE_VLAN] {
            let tag = VlanTag { protocol, control: 0x6000 };
            let request = build(&UdpFrameBuilder { vlan: Some(tag), ..bench.builder() });
            bench.query(&[&request], with_tag(tag))?;
            let other = VlanTag { control: 0x6124, ..tag };
            let request = build(&UdpFrameBuilder { vlan: Some(other), ..bench.builder() });
            let strange = bench.exchange(&[&request], with_tag(other), QUIET_PERIOD)?;
            ensure!(strange.is_empty(), "a reply in a VLAN that the server is not in");
        }
    }
    Ok(())
}

/// A request with IPv4 options is answered, by XDP and by sockets alike, without them.
pub(crate) fn ipv4_options_are_answered(engine: Engine) -> Result<()> {
    let bench = Bench::new(engine, false)?;
    for words in 1..=10 {
        // No operation, and at the end the end of the list.
        let mut options = vec![1; words * 4];
        options[words * 4 - 1] = 0;
        let reply = bench.query(&[&with_options(&bench.request(), &options)], bench.replies())?;
        ensure!(reply[LINK_LEN] == 0x45, "the reply has options");
    }
    let answered = match engine {
        Engine::Socket => bench.counter("/counters/answered")?,
        Engine::Xdp => bench.counter("/xdp_counters/answered_ipv4")?,
    };
    ensure!(answered == Some(10), "{answered:?} answered");
    Ok(())
}

/// The two fragments of an IPv4 frame, cut behind 24 bytes of UDP.
fn fragments_ipv4(frame: &[u8]) -> [Vec<u8>; 2] {
    const CUT: usize = 24;
    const MORE: u16 = 0x2000;
    let (head, datagram) = frame.split_at(LINK_LEN + ipv4::HEADER_LEN);
    let fragment = |bits: u16, payload: &[u8]| {
        let mut fragment = [head, payload].concat();
        let total = (fragment.len() - LINK_LEN) as u16;
        fragment[LINK_LEN + 2..][..2].copy_from_slice(&total.to_be_bytes());
        fragment[LINK_LEN + 4..][..2].copy_from_slice(&7_u16.to_be_bytes());
        fragment[LINK_LEN + 6..][..2].copy_from_slice(&bits.to_be_bytes());
        mend(&mut fragment);
        fragment
    };
    [fragment(MORE, &datagram[..CUT]), fragment(CUT as u16 / 8, &datagram[CUT..])]
}

/// The same for IPv6, with a fragment header each (RFC 8200, section 4.5).
fn fragments_ipv6(frame: &[u8]) -> [Vec<u8>; 2] {
    const CUT: usize = 24;
    const FRAGMENT: u8 = 44;
    let (head, datagram) = frame.split_at(LINK_LEN + ipv6::HEADER_LEN);
    let fragment = |offset_and_more: u16, payload: &[u8]| {
        let [high, low] = offset_and_more.to_be_bytes();
        let header = [ipv4::PROTOCOL_UDP, 0, high, low, 0, 0, 0, 7];
        let mut fragment = [head, &header, payload].concat();
        fragment[LINK_LEN + 6] = FRAGMENT;
        let length = (header.len() + payload.len()) as u16;
        fragment[LINK_LEN + 4..][..2].copy_from_slice(&length.to_be_bytes());
        fragment
    };
    [fragment(1, &datagram[..CUT]), fragment(CUT as u16, &datagram[CUT..])]
}

/// XDP passes fragments up; the kernel puts them together and the sockets answer, once.
pub(crate) fn fragments_are_answered_by_the_sockets() -> Result<()> {
    type Cut = fn(&[u8]) -> [Vec<u8>; 2];
    let cut: [(bool, Cut, &str); 2] = [
        (false, fragments_ipv4, "/xdp_counters/passed/fragment"),
        // With an extension header in between, it is not seen to be UDP.
        (true, fragments_ipv6, "/xdp_counters/passed/not_ntp"),
    ];
    for (ipv6, cut, passed) in cut {
        let bench = Bench::new(Engine::Xdp, ipv6)?;
        let before = bench.counter(passed)?.unwrap_or(0);
        let [first, second] = cut(&bench.request());
        // Without its other half it is nothing.
        let early = bench.exchange(&[&first], bench.replies(), QUIET_PERIOD)?;
        ensure!(early.is_empty(), "half a request was answered");
        bench.query(&[&second], bench.replies())?;
        let after = bench.counter(passed)?.unwrap_or(0);
        ensure!(after >= before + 2, "{passed}: {before}, then {after}");
        let answered = bench.counter("/counters/answered")?;
        ensure!(answered == Some(1), "the sockets answered {answered:?}");
    }
    Ok(())
}
