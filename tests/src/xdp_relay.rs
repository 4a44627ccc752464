//! Scenarios of the relay's XDP engine: every child of a group receives every packet, correct byte
//! for byte; packets that are not relayed pass unchanged; refusals are counted. One host relays the
//! packets of a second one to children on two more.

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU64;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use horolog_io::{
    Batch, BatchDevice, FrameSelection, PacketSocketDevice, PacketSocketOptions, UdpFilter,
};
use horolog_lab::{Lab, LabConfig, LabHost, LabInterface};
use horolog_wire::checksum;
use horolog_wire::ethernet::{HEADER_LEN as LINK_LEN, MacAddress};
use horolog_wire::frame::UdpFrameBuilder;
use horolog_wire::{ipv4, ipv6};
use horolog_xdp::{
    Attachment, Interface, RelayChild, RelayChildCounts, RelayDropReason, RelayGroup,
    RelayPacketRateLimit, RelayPassedReason, RelayPrograms, RelayTableCapacities, XdpAction,
    XdpError,
};

use crate::mutated_frames;
use crate::random::Random;

/// Longest time in which a frame crosses two links on a busy host.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(5);
/// Port of the group.
pub(crate) const GROUP_PORT: u16 = 5_000;
/// Port from which the source sends packets to the group.
pub(crate) const SOURCE_PORT: u16 = 4_000;
/// Port from which the relay sends copies.
pub(crate) const COPY_PORT: u16 = 5_001;
/// Port of the first child; the others follow.
pub(crate) const CHILD_PORT: u16 = 6_000;
const SETTINGS: RelayTableCapacities =
    RelayTableCapacities { groups: 4, children_per_group: 512, children: 600, addresses: 8 };
/// Number of hosts with children: the relay's second and third neighbours.
pub(crate) const CHILD_HOSTS: usize = 2;
pub(crate) const FRAME_BYTES: usize = 2_048;
/// Size in bytes, enough for all copies that arrive while a busy host does other work.
const RECEIVE_BUFFER: usize = 16 << 20;
/// Flag DF of IPv4.
const DONT_FRAGMENT: u16 = 0x4000;
pub(crate) const SEED: u64 = 0x7265_6c61_7921;

/// Relay that is attached to the interface of the source's packets, and its neighbours.
pub(crate) struct XdpRelayTestbed {
    pub(crate) lab: Lab,
    pub(crate) relay: RelayPrograms,
    pub(crate) ipv6: bool,
    _attachment: Attachment,
}

impl XdpRelayTestbed {
    pub(crate) fn new(ipv6: bool) -> Result<Self> {
        Self::with_queues(ipv6, 1)
    }

    /// Makes a relay whose links have `queues` queues.
    pub(crate) fn with_queues(ipv6: bool, queues: u32) -> Result<Self> {
        let hosts = 2 + CHILD_HOSTS;
        let lab = Lab::new(&LabConfig { hosts, queues, ..LabConfig::default() })?;
        let relay = RelayPrograms::load(&SETTINGS)?;
        let at = interface(&lab.client().interfaces[0]);
        let attachment = lab.client().run(|| relay.attach(&at))??;
        Ok(Self { lab, relay, ipv6, _attachment: attachment })
    }

    pub(crate) fn address(&self, port: &LabInterface) -> Result<IpAddr> {
        let ipv6 = || port.ipv6.map(Into::into).context("no IPv6 address");
        if self.ipv6 { ipv6() } else { Ok(port.ipv4.into()) }
    }

    /// Returns the address of the group: the relay's, on the side of the source.
    pub(crate) fn group_address(&self) -> Result<SocketAddr> {
        Ok(SocketAddr::new(self.address(&self.lab.client().interfaces[0])?, GROUP_PORT))
    }

    pub(crate) fn group(&self) -> Result<RelayGroup> {
        let network = if self.ipv6 { "2001:db8::/32" } else { "192.0.2.0/24" };
        Ok(RelayGroup {
            number: 0,
            address: self.group_address()?,
            addresses: vec![self.group_address()?.ip()],
            interface: None,
            sources: vec![network.parse()?],
            local_addresses: vec![self.group_address()?.ip()],
            length_max: 1_500,
            hops_max: 255,
            hops_reset: false,
            limit: None,
            copy_cost_ns: 0,
        })
    }

    /// Returns a host with children.
    pub(crate) fn child_host(&self, number: usize) -> &LabHost {
        self.lab.host(2 + number)
    }

    /// Returns child `number`; children alternate between the hosts.
    pub(crate) fn child(&self, number: usize) -> Result<RelayChild> {
        let host = number % CHILD_HOSTS;
        let near = &self.lab.client().interfaces[1 + host];
        let far = self.child_host(host).first_interface();
        let port = CHILD_PORT + number as u16;
        Ok(RelayChild {
            destination: SocketAddr::new(self.address(far)?, port),
            source: SocketAddr::new(self.address(near)?, COPY_PORT),
            interface: Some(interface(near)),
            source_mac: near.mac,
            next_hop: Some(far.mac),
        })
    }

    pub(crate) fn children(&self, count: usize) -> Result<Vec<RelayChild>> {
        (0..count).map(|number| self.child(number)).collect()
    }

    pub(crate) fn set_group(
        &mut self,
        group: &RelayGroup,
        children: &[RelayChild],
    ) -> Result<Vec<(SocketAddr, RelayChildCounts)>> {
        let Self { lab, relay, .. } = self;
        Ok(lab.client().run(|| relay.set_group(group, children))??)
    }

    fn builder(&self) -> Result<UdpFrameBuilder> {
        let source = self.lab.server().first_interface();
        Ok(UdpFrameBuilder {
            destination_mac: MacAddress(self.lab.client().interfaces[0].mac),
            source_mac: MacAddress(source.mac),
            vlan: None,
            source: SocketAddr::new(self.address(source)?, SOURCE_PORT),
            destination: self.group_address()?,
        })
    }

    /// Returns a packet of the source to the group.
    pub(crate) fn packet(&self, payload: &[u8]) -> Result<Vec<u8>> {
        self.packet_from(self.builder()?.source, payload)
    }

    /// Returns a packet from any source to the group.
    pub(crate) fn packet_from(&self, source: SocketAddr, payload: &[u8]) -> Result<Vec<u8>> {
        let builder = UdpFrameBuilder { source, ..self.builder()? };
        let mut frame = vec![0; builder.headers_len() + payload.len()];
        builder.emit(payload, &mut frame);
        Ok(frame)
    }

    /// Opens a device that sends frames as the source.
    pub(crate) fn sender(&self) -> Result<PacketSocketDevice> {
        let source = self.lab.server();
        let open = || {
            PacketSocketDevice::open(
                &source.first_interface().name,
                &PacketSocketOptions::default(),
            )
        };
        Ok(source.run(open)??)
    }

    /// Opens a device that receives the copies for a host with children.
    pub(crate) fn receiver(&self, number: usize) -> Result<PacketSocketDevice> {
        let filter = UdpFilter {
            source: self.address(&self.lab.client().interfaces[1 + number])?,
            source_port: Some(COPY_PORT),
            destination_port: None,
            destination_network: None,
        };
        let selection = FrameSelection::Udp(filter);
        let options = PacketSocketOptions {
            selection,
            receive_buffer: Some(RECEIVE_BUFFER),
            ..Default::default()
        };
        let host = self.child_host(number);
        Ok(host.run(|| PacketSocketDevice::open(&host.first_interface().name, &options))??)
    }

    pub(crate) fn child_counts(&self, number: usize) -> Result<RelayChildCounts> {
        let destination = self.child(number)?.destination;
        let all = self.relay.child_counts(self.group_address()?);
        let found = all.into_iter().find(|(child, _)| *child == destination);
        Ok(found.context("no such child")?.1)
    }

    fn refused_count(&self, refusal: RelayDropReason) -> Result<u64> {
        let counts = self.relay.group_counts(self.group_address()?).context("no group")?;
        Ok(counts.refused[refusal as usize])
    }
}

pub(crate) fn interface(port: &LabInterface) -> Interface {
    Interface { index: port.index, name: port.name.clone() }
}

pub(crate) fn send(sender: &mut PacketSocketDevice, frames: &[Vec<u8>]) -> Result<()> {
    let mut batch = Batch::new(frames.len(), FRAME_BYTES);
    for frame in frames {
        ensure!(batch.push((), frame), "the frame does not fit");
    }
    let sent = sender.send(&mut batch)?;
    ensure!(sent == frames.len(), "{sent} frames were sent");
    Ok(())
}

/// Receives `count` frames; further ones in the last batch are an error.
pub(crate) fn receive_exactly(
    receiver: &mut PacketSocketDevice,
    count: usize,
) -> Result<Vec<Vec<u8>>> {
    let mut frames = Vec::new();
    let mut batch = Batch::new(64, FRAME_BYTES);
    while frames.len() < count {
        let received = receiver.receive(&mut batch, TIMEOUT)?;
        ensure!(received > 0, "{} of {count} frames were received", frames.len());
        frames.extend(batch.iter().map(|packet| packet.bytes.to_vec()));
    }
    ensure!(frames.len() == count, "{} frames instead of {count}", frames.len());
    Ok(frames)
}

/// Returns the copy of a frame that a child must receive, computed independently of the relay.
pub(crate) fn expected_copy(frame: &[u8], child: &RelayChild) -> Result<Vec<u8>> {
    let mut copy = frame.to_vec();
    copy[..6].copy_from_slice(&child.next_hop.context("no next hop")?);
    copy[6..12].copy_from_slice(&child.source_mac);
    let udp = match (child.source.ip(), child.destination.ip()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            copy[LINK_LEN + 1] = 0;
            copy[LINK_LEN + 6..][..2].copy_from_slice(&DONT_FRAGMENT.to_be_bytes());
            copy[LINK_LEN + 8] -= 1;
            copy[LINK_LEN + 12..][..4].copy_from_slice(&source.octets());
            copy[LINK_LEN + 16..][..4].copy_from_slice(&destination.octets());
            mutated_frames::update_ipv4_checksum(&mut copy);
            LINK_LEN + ipv4::HEADER_LEN
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            copy[LINK_LEN] = 0x60;
            copy[LINK_LEN + 1] &= 0x0f;
            copy[LINK_LEN + 7] -= 1;
            copy[LINK_LEN + 8..][..16].copy_from_slice(&source.octets());
            copy[LINK_LEN + 24..][..16].copy_from_slice(&destination.octets());
            LINK_LEN + ipv6::HEADER_LEN
        }
        mixed => return Err(anyhow!("a child of two IP versions: {mixed:?}")),
    };
    copy[udp..udp + 2].copy_from_slice(&child.source.port().to_be_bytes());
    copy[udp + 2..udp + 4].copy_from_slice(&child.destination.port().to_be_bytes());
    if copy[udp + 6..udp + 8] != [0, 0] {
        copy[udp + 6..udp + 8].fill(0);
        let length = u16::from_be_bytes([copy[udp + 4], copy[udp + 5]]);
        let pseudo = match (child.source.ip(), child.destination.ip()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                checksum::ipv4_pseudo_header_sum(source, destination, length)
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                checksum::ipv6_pseudo_header_sum(source, destination, length)
            }
            _ => checksum::OnesComplementSum::default(),
        };
        let sum = pseudo.add_bytes(&copy[udp..udp + usize::from(length)]).finish();
        let sum = if sum == 0 { u16::MAX } else { sum };
        copy[udp + 6..udp + 8].copy_from_slice(&sum.to_be_bytes());
    }
    Ok(copy)
}

/// Returns a packet that is relayed: of any length and any hop limit above 1, with random values in
/// other fields, and in IPv4 with or without a UDP checksum.
fn relayed_packet(testbed: &XdpRelayTestbed, random: &mut Random) -> Result<Vec<u8>> {
    let headers = if testbed.ipv6 { 48 } else { 28 };
    let length = random.within(0..=1_500 - headers);
    let length = random.pick(&[length, length, 0, 1, 18, 36, 1_500 - headers]);
    let frame = testbed.packet(&random.bytes(length as usize))?;
    let mut frame = mutated_frames::other_header_fields(frame, random);
    let hops = LINK_LEN + if testbed.ipv6 { 7 } else { 8 };
    frame[hops] = frame[hops].max(2);
    if !testbed.ipv6 {
        mutated_frames::update_ipv4_checksum(&mut frame);
        if random.within(0..=3) == 0 {
            frame = mutated_frames::no_udp_checksum(frame);
        }
    }
    Ok(frame)
}

/// Every child receives every packet in order: with its own addresses, one hop less, the default
/// traffic class, valid checksums, the flag DF, and all else unchanged, for any set of children.
pub(crate) fn copies_are_correct() -> Result<()> {
    const ROUNDS: usize = 40;
    const PACKETS: usize = 8;
    for ipv6 in [false, true] {
        let mut testbed = XdpRelayTestbed::new(ipv6)?;
        let group = testbed.group()?;
        let mut random = Random::new(SEED);
        let mut sender = testbed.sender()?;
        let mut receivers = [testbed.receiver(0)?, testbed.receiver(1)?];
        for round in 0..ROUNDS {
            let first = random.within(0..=200) as usize;
            let count = random.within(1..=30) as usize;
            let children: Result<Vec<_>> =
                (first..first + count).map(|n| testbed.child(n)).collect();
            let children = children?;
            testbed.set_group(&group, &children)?;
            let frames: Result<Vec<_>> =
                (0..PACKETS).map(|_| relayed_packet(&testbed, &mut random)).collect();
            let frames = frames?;
            send(&mut sender, &frames)?;
            for (number, receiver) in receivers.iter_mut().enumerate() {
                let egress = interface(&testbed.lab.client().interfaces[1 + number]);
                let mut copies = Vec::new();
                for frame in &frames {
                    let there =
                        children.iter().filter(|child| child.interface.as_ref() == Some(&egress));
                    for child in there {
                        copies.push(expected_copy(frame, child)?);
                    }
                }
                let received = receive_exactly(receiver, copies.len()).with_context(|| {
                    format!("round {round}, host {number}: {:?}", testbed.relay.counts())
                })?;
                let wrong = received.iter().zip(&copies).find(|(received, copy)| received != copy);
                ensure!(wrong.is_none(), "round {round}, host {number}: {wrong:02x?}");
            }
        }
        let counts = testbed.relay.counts();
        ensure!(counts.packets == (ROUNDS * PACKETS) as u64 && counts.unmatched == 0, "{counts:?}");
    }
    Ok(())
}

/// Packets that are not relayed pass unchanged, counted by reason.
pub(crate) fn other_packets_are_passed_unchanged() -> Result<()> {
    type Mutation = fn(&XdpRelayTestbed, Vec<u8>, &mut Random) -> Result<Vec<u8>>;
    const ANY_VERSION: [(Mutation, RelayPassedReason); 6] = [
        (
            |_, frame, random| Ok(mutated_frames::add_vlan_tag(frame, random)),
            RelayPassedReason::Other,
        ),
        (
            |_, frame, random| Ok(mutated_frames::other_protocol(frame, random)),
            RelayPassedReason::Other,
        ),
        (|bench, frame, _| Ok(to_another_port(bench, frame)), RelayPassedReason::Other),
        (
            |_, frame, random| Ok(mutated_frames::wrong_length(frame, random)),
            RelayPassedReason::Malformed,
        ),
        (
            |_, frame, random| Ok(mutated_frames::wrong_udp_checksum(frame, random)),
            RelayPassedReason::Malformed,
        ),
        (|_, frame, _| Ok([frame, vec![0]].concat()), RelayPassedReason::Malformed),
    ];
    const IPV4: [(Mutation, RelayPassedReason); 2] = [
        (|_, frame, _| Ok(mutated_frames::with_options(&frame, &[1; 4])), RelayPassedReason::Other),
        (|_, frame, random| Ok(mutated_frames::fragment(frame, random)), RelayPassedReason::Other),
    ];
    const IPV6: [(Mutation, RelayPassedReason); 2] = [
        (|_, frame, _| Ok(mutated_frames::no_udp_checksum(frame)), RelayPassedReason::Malformed),
        (
            |_, frame, random| Ok(mutated_frames::extension_header(frame, random)),
            RelayPassedReason::Other,
        ),
    ];
    for ipv6 in [false, true] {
        let mut bench = XdpRelayTestbed::new(ipv6)?;
        let group = RelayGroup { length_max: 900, ..bench.group()? };
        bench.set_group(&group, &bench.children(3)?)?;
        let mut random = Random::new(SEED);
        let kinds = ANY_VERSION.iter().chain(if ipv6 { &IPV6 } else { &IPV4 });
        for (number, (mutate, reason)) in kinds.enumerate() {
            for _ in 0..200 {
                let frame = bench.packet(&random.bytes(300))?;
                let frame = mutate(&bench, frame, &mut random)?;
                check_passed(&bench, &frame, *reason).with_context(|| format!("kind {number}"))?;
            }
        }
        let headers = bench.packet(&[])?.len() - LINK_LEN;
        check_passed(&bench, &bench.packet(&vec![7; 901 - headers])?, RelayPassedReason::TooLong)?;
        let longest = bench.packet(&vec![7; 900 - headers])?;
        let verdict = bench.relay.test_run(&longest)?.verdict;
        ensure!(verdict == XdpAction::Redirect, "the longest packet: {verdict:?}");
        bench.set_group(&group, &[])?;
        check_passed(&bench, &bench.packet(b"nobody")?, RelayPassedReason::NoChildren)?;
    }
    Ok(())
}

fn to_another_port(bench: &XdpRelayTestbed, mut frame: Vec<u8>) -> Vec<u8> {
    let port = LINK_LEN + if bench.ipv6 { ipv6::HEADER_LEN } else { ipv4::HEADER_LEN } + 3;
    frame[port] ^= 1;
    frame
}

fn check_passed(bench: &XdpRelayTestbed, frame: &[u8], reason: RelayPassedReason) -> Result<()> {
    let before = bench.relay.counts();
    let outcome = bench.relay.test_run(frame)?;
    let after = bench.relay.counts();
    ensure!(outcome.verdict == XdpAction::Pass && outcome.frame == frame, "{outcome:02x?}");
    let counted = after.passed[reason as usize] - before.passed[reason as usize];
    ensure!(counted == 1, "not counted as {reason:?}: {before:?}, {after:?}: {frame:02x?}");
    Ok(())
}

/// Packets from unknown sources or children, without hops left, or above a limit are dropped, each
/// counted by its reason; those from the relay's own address pass.
pub(crate) fn refusals_are_counted_by_reason() -> Result<()> {
    for ipv6 in [false, true] {
        let mut bench = XdpRelayTestbed::new(ipv6)?;
        let group = bench.group()?;
        let children = bench.children(2)?;
        bench.set_group(&group, &children)?;
        let unlisted = if ipv6 { "2001:db9::1" } else { "198.51.100.1" }.parse()?;
        let sources = [
            (SocketAddr::new(unlisted, SOURCE_PORT), RelayDropReason::Source),
            (children[1].destination, RelayDropReason::Child),
        ];
        for (source, refusal) in sources {
            let frame = bench.packet_from(source, b"whose?")?;
            check_refused(&bench, &frame, refusal)?;
        }
        // Packets with an address of this host as source are left to the network stack.
        let source = SocketAddr::new(group.address.ip(), SOURCE_PORT);
        let frame = bench.packet_from(source, b"mine?")?;
        check_passed(&bench, &frame, RelayPassedReason::Other)?;
        let hops = LINK_LEN + if ipv6 { 7 } else { 8 };
        for left in [0, 1] {
            let mut frame = bench.packet(b"far enough")?;
            frame[hops] = left;
            update_checksum_if_ipv4(&bench, &mut frame);
            check_refused(&bench, &frame, RelayDropReason::HopLimit)?;
        }
        // A child may send from another port than the one of its copies if the sources include it;
        // a former child may send from that port, too.
        let mut other = children[1].destination;
        other.set_port(SOURCE_PORT);
        for (count, source) in [(2, other), (1, children[1].destination)] {
            bench.set_group(&group, &children[..count])?;
            let frame = bench.packet_from(source, b"mine")?;
            ensure!(bench.relay.test_run(&frame)?.verdict == XdpAction::Redirect);
        }
        check_limits(&mut bench, &group)?;
    }
    Ok(())
}

fn update_checksum_if_ipv4(bench: &XdpRelayTestbed, frame: &mut [u8]) {
    if !bench.ipv6 {
        mutated_frames::update_ipv4_checksum(frame);
    }
}

fn check_refused(bench: &XdpRelayTestbed, frame: &[u8], refusal: RelayDropReason) -> Result<()> {
    let before = bench.refused_count(refusal)?;
    let verdict = bench.relay.test_run(frame)?.verdict;
    ensure!(verdict == XdpAction::Drop, "{refusal:?}: {verdict:?}");
    ensure!(bench.refused_count(refusal)? == before + 1, "not counted as {refusal:?}");
    Ok(())
}

/// Returns how many of `packets` packets in a row are relayed.
fn relayed_count(bench: &XdpRelayTestbed, packets: usize) -> Result<usize> {
    let frame = bench.packet(b"many")?;
    let verdicts = (0..packets).map(|_| bench.relay.test_run(&frame).map(|out| out.verdict));
    let verdicts: Result<Vec<_>, XdpError> = verdicts.collect();
    Ok(verdicts?.into_iter().filter(|&verdict| verdict == XdpAction::Redirect).count())
}

/// A limit of one packet or copy per hour passes a burst and then nothing.
fn check_limits(bench: &mut XdpRelayTestbed, group: &RelayGroup) -> Result<()> {
    let hour = NonZeroU64::new(3_600_000_000_000).context("zero interval")?;
    let children = bench.children(3)?;
    let limit = Some(RelayPacketRateLimit { interval_ns: hour, tolerance_ns: 5 * hour.get() });
    bench.set_group(&RelayGroup { limit, ..group.clone() }, &children)?;
    let count = relayed_count(bench, 20)?;
    ensure!(count == 5, "{count} packets with a burst of 5 packets");
    ensure!(bench.refused_count(RelayDropReason::Rate)? == 20 - count as u64);
    bench.set_group(&RelayGroup { copy_cost_ns: 3 * hour.get(), ..group.clone() }, &children)?;
    bench.relay.limit_copies(NonZeroU64::new(10 * hour.get()));
    let count = relayed_count(bench, 20)?;
    ensure!(count == 3, "{count} packets of 3 copies with a burst of 10 copies");
    ensure!(bench.refused_count(RelayDropReason::FanOut)? == 20 - count as u64);
    bench.relay.limit_copies(None);
    ensure!(relayed_count(bench, 20)? == 20);
    Ok(())
}
