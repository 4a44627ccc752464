//! Scenarios of unusual requests as raw frames: with VLAN tags and IPv4 options, which XDP answers,
//! and in fragments, which XDP passes to the network stack.

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
use crate::mutated_frames::{update_ipv4_checksum, with_options};
use crate::process::{Engine, Server, server_address};

/// Timeout of a reply on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Time in which an unexpected reply would arrive.
const QUIET_PERIOD: Duration = Duration::from_millis(50);
const CLIENT_PORT: u16 = 40_000;
const FRAME_BYTES: usize = 2_048;
/// Offsets at which a classic BPF program reads the VLAN tag that the kernel removed from a frame:
/// its presence, control information and protocol (`SKF_AD_OFF` and others in linux/filter.h).
const VLAN_PRESENT: u32 = 0xffff_f000 + 48;
const VLAN_CONTROL: u32 = 0xffff_f000 + 44;
const VLAN_PROTOCOL: u32 = 0xffff_f000 + 60;
const KEEP: u32 = u32::MAX;

/// Lab with a server that receives raw frames.
struct RawFrameTestbed {
    lab: Lab,
    server: Server,
    at: SocketAddr,
}

impl RawFrameTestbed {
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

    /// Sends frames and returns the selected frames that arrive within `wait`.
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
            ensure!(batch.push((), frame), "the batch is full");
        }
        let sent = device.send(&mut batch)?;
        ensure!(sent == frames.len(), "{sent} frames were sent");
        device.receive(&mut batch, wait)?;
        Ok(batch.iter().map(|packet| packet.bytes.to_vec()).collect())
    }

    /// Sends the frames of one request, and returns the reply.
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

/// Returns a selection of the frames that had this tag.
fn frames_with_tag(tag: VlanTag) -> FrameSelection {
    // A failed comparison skips to the last instruction.
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

/// XDP answers a request with a priority tag with the same tag, and does not answer one of a VLAN
/// in which the server has no interface.
pub(crate) fn only_a_priority_tag_is_returned() -> Result<()> {
    for ipv6 in [false, true] {
        let bench = RawFrameTestbed::new(Engine::Xdp, ipv6)?;
        for protocol in [TYPE_VLAN, TYPE_SERVICE_VLAN] {
            let tag = VlanTag { protocol, control: 0x6000 };
            let request = build(&UdpFrameBuilder { vlan: Some(tag), ..bench.builder() });
            bench.query(&[&request], frames_with_tag(tag))?;
            let other = VlanTag { control: 0x6124, ..tag };
            let request = build(&UdpFrameBuilder { vlan: Some(other), ..bench.builder() });
            let unexpected = bench.exchange(&[&request], frames_with_tag(other), QUIET_PERIOD)?;
            ensure!(unexpected.is_empty(), "a reply in a VLAN without an interface of the server");
        }
    }
    Ok(())
}

/// XDP and sockets answer a request with IPv4 options without options.
pub(crate) fn ipv4_options_are_answered(engine: Engine) -> Result<()> {
    let bench = RawFrameTestbed::new(engine, false)?;
    for words in 1..=10 {
        // No-operation options, terminated by an end of the list.
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

/// Returns the two fragments of an IPv4 frame, cut after 24 bytes of UDP.
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
        update_ipv4_checksum(&mut fragment);
        fragment
    };
    [fragment(MORE, &datagram[..CUT]), fragment(CUT as u16 / 8, &datagram[CUT..])]
}

/// Returns the two fragments of an IPv6 frame, each with a fragment header (RFC 8200, section 4.5).
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

/// XDP passes fragments; the kernel reassembles them and the sockets answer once.
pub(crate) fn fragments_are_answered_by_the_sockets() -> Result<()> {
    type Cut = fn(&[u8]) -> [Vec<u8>; 2];
    let cut: [(bool, Cut, &str); 2] = [
        (false, fragments_ipv4, "/xdp_counters/passed/fragment"),
        // After an extension header, XDP does not detect UDP.
        (true, fragments_ipv6, "/xdp_counters/passed/not_ntp"),
    ];
    for (ipv6, cut, passed) in cut {
        let bench = RawFrameTestbed::new(Engine::Xdp, ipv6)?;
        let before = bench.counter(passed)?.unwrap_or(0);
        let [first, second] = cut(&bench.request());
        // A single fragment is no request.
        let early = bench.exchange(&[&first], bench.replies(), QUIET_PERIOD)?;
        ensure!(early.is_empty(), "a single fragment was answered");
        bench.query(&[&second], bench.replies())?;
        let after = bench.counter(passed)?.unwrap_or(0);
        ensure!(after >= before + 2, "{passed}: {before}, then {after}");
        let answered = bench.counter("/counters/answered")?;
        ensure!(answered == Some(1), "the sockets answered {answered:?}");
    }
    Ok(())
}
