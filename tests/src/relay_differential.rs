//! Differential scenario of the two engines of a relay, which share one decision function: one
//! relay sends all copies by sockets, the other lets the kernel make as many as it can. Both
//! receive the same packets: every child has the same copies, and packets, refusals and copies have
//! the same counts. Ignored are the identification of an IPv4 packet, an IPv6 flow label, and
//! whether a packet that arrived without a UDP checksum leaves with one.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::thread;
use std::time::Duration;

use anyhow::{Result, anyhow, ensure};
use horolog_io::{
    Batch, BatchDevice, FrameSelection, PacketSocketDevice, PacketSocketOptions, UdpFilter,
};
use horolog_lab::{Lab, LabConfig};
use horolog_relay::RelayListing;
use horolog_wire::ethernet::{HEADER_LEN as LINK_LEN, MacAddress};
use horolog_wire::frame::{UdpFrame, UdpFrameBuilder};

use crate::mutated_frames;
use crate::random::Random;
use crate::relay::{GROUP, PORT, QUIET_PERIOD, Relay};
use crate::xdp_relay::{FRAME_BYTES, send};

const FRAMES: usize = 1_500;
/// Packets sent at once; a ring of a veth holds all their copies.
const BATCH_LEN: usize = 10;
const SEED: u64 = 0x7265_6c61_7923;
/// Ports of a group of one address, of all addresses, and of a multicast group.
const PORTS: [u16; 3] = [PORT, PORT + 1, PORT + 2];
const SOURCE_PORT: u16 = 4_000;
const CHILD_PORT: u16 = 6_000;
const RECEIVE_BUFFER: usize = 16 << 20;

/// Lab with a relay of one engine.
struct RelayTestbed {
    lab: Lab,
    relay: Relay,
    ipv6: bool,
}

impl RelayTestbed {
    fn new(engine: &str, ipv6: bool) -> Result<Self> {
        let lab = Lab::new(&LabConfig { hosts: 4, ..LabConfig::default() })?;
        let near = &lab.client().interfaces[0];
        let (all, group) = if ipv6 { ("::", "ff0e::5") } else { ("0.0.0.0", "239.1.2.3") };
        let at = |address: IpAddr, port: usize| SocketAddr::new(address, PORTS[port]);
        let own =
            if ipv6 { near.ipv6.map_or(near.ipv4.into(), IpAddr::from) } else { near.ipv4.into() };
        let children: Vec<String> = (0..6)
            .map(|number: u16| {
                let far = lab.host(2 + usize::from(number % 2)).first_interface();
                let address = if ipv6 { far.ipv6.map(IpAddr::from) } else { None };
                let address = address.unwrap_or(far.ipv4.into());
                format!("\"{}\"", SocketAddr::new(address, CHILD_PORT + number))
            })
            .collect();
        let children = children.join(", ");
        let mut table = "destinations = [\"192.0.2.0/24\", \"2001:db8::/32\"]\n".to_owned();
        for (name, listen, more) in [
            ("one", at(own, 0), String::new()),
            ("all", at(all.parse()?, 1), "hop-limit = 200\n".to_owned()),
            ("many", at(group.parse()?, 2), format!("interface = \"{}\"\n", near.name)),
        ] {
            // Half of the network may send.
            let sources = "sources = [\"192.0.2.0/25\", \"2001:db8::/33\"]";
            write!(
                table,
                "[[group]]\nname = \"{name}\"\nlisten = \"{listen}\"\n{more}{sources}\n\
                 children = [{children}]\n"
            )?;
        }
        let relay = Relay::start(lab.client(), &table, &["--engine", engine])?;
        let listing = relay.listing()?;
        ensure!(listing.groups.iter().all(|group| group.engine == engine), "{listing:?}");
        Ok(Self { lab, relay, ipv6 })
    }

    fn address(&self, host: usize) -> IpAddr {
        let port = if host == 0 {
            &self.lab.client().interfaces[0]
        } else {
            self.lab.host(host).first_interface()
        };
        let ipv6 = port.ipv6.map(IpAddr::from).filter(|_| self.ipv6);
        ipv6.unwrap_or(port.ipv4.into())
    }

    /// Returns a random packet, valid or not.
    fn frame(&self, number: u32, random: &mut Random) -> Vec<u8> {
        let port = random.within(0..=2) as usize;
        let many: IpAddr =
            if self.ipv6 { [0xff0e, 0, 0, 0, 0, 0, 0, 5].into() } else { GROUP.into() };
        let to = if port == 2 { many } else { self.address(0) };
        let mut mac = self.lab.client().interfaces[0].mac;
        match (port, many) {
            (2, IpAddr::V4(_)) => mac = [1, 0, 0x5e, 1, 2, 3],
            (2, IpAddr::V6(_)) => mac = [0x33, 0x33, 0, 0, 0, 5],
            _ => {}
        }
        let server = self.address(1);
        let unlisted: IpAddr = match server {
            IpAddr::V4(_) => Ipv4Addr::new(192, 0, 2, 200).into(),
            IpAddr::V6(_) => [0x2001, 0xdb8, 0x8000, 0, 0, 0, 0, 9].into(),
        };
        let source = match random.within(0..=11) {
            0 => SocketAddr::new(unlisted, SOURCE_PORT),
            1 => SocketAddr::new(self.address(2), CHILD_PORT),
            2 => SocketAddr::new(self.address(2), SOURCE_PORT),
            3 => SocketAddr::new(self.address(0), SOURCE_PORT),
            4 => SocketAddr::new(self.address(0), PORTS[1]),
            5 => SocketAddr::new(
                mutated_frames::unanswerable_source(self.address(0), random),
                SOURCE_PORT,
            ),
            6 => SocketAddr::new(server, PORTS[1]),
            _ => SocketAddr::new(server, SOURCE_PORT),
        };
        match random.within(0..=31) {
            0 | 1 => mac = [2, 9, 9, 9, 9, 9],
            // Unicast by its IP address, broadcast by its MAC address.
            2 if port != 2 => mac = [0xff; 6],
            _ => {}
        }
        let builder = UdpFrameBuilder {
            destination_mac: MacAddress(mac),
            source_mac: MacAddress(self.lab.server().first_interface().mac),
            vlan: None,
            source,
            destination: SocketAddr::new(to, PORTS[port]),
        };
        let length = random.within(0..=1_400) as usize;
        let length = random.pick(&[length, 0, 1, 30]);
        let payload = [&number.to_be_bytes()[..], &random.bytes(length)].concat();
        let mut frame = vec![0; builder.headers_len() + payload.len()];
        builder.emit(&payload, &mut frame);
        let frame = mutated_frames::other_header_fields(frame, random);
        self.mutate(frame, random)
    }

    /// Changes some packets into unusual or invalid ones.
    fn mutate(&self, mut frame: Vec<u8>, random: &mut Random) -> Vec<u8> {
        let hops = LINK_LEN + if self.ipv6 { 7 } else { 8 };
        let kind = random.within(0..=15);
        if kind < 3 {
            frame[hops] = kind as u8;
        }
        if !self.ipv6 {
            mutated_frames::update_ipv4_checksum(&mut frame);
        }
        match kind {
            3 => mutated_frames::add_vlan_tag(frame, random),
            4 => mutated_frames::wrong_length(frame, random),
            5 => mutated_frames::other_protocol(frame, random),
            6 => [frame, vec![0; 3]].concat(),
            7 if self.ipv6 => mutated_frames::extension_header(frame, random),
            7 => mutated_frames::with_options(&frame, &[1; 4]),
            8 if !self.ipv6 => mutated_frames::fragment(frame, random),
            9 if !self.ipv6 => mutated_frames::wrong_ipv4_checksum(frame, random),
            10 => mutated_frames::no_udp_checksum(frame),
            11 => mutated_frames::wrong_udp_checksum(frame, random),
            _ => frame,
        }
    }

    fn receivers(&self) -> Result<Vec<PacketSocketDevice>> {
        let open = |host: usize| {
            let near = &self.lab.client().interfaces[host - 1];
            let source = near.ipv6.map(IpAddr::from).filter(|_| self.ipv6);
            // Groups of one address send from there; others from the address of the egress.
            let networks = [self.address(0), source.unwrap_or(near.ipv4.into())];
            let host = self.lab.host(host);
            networks.map(|source| {
                let filter = UdpFilter {
                    source,
                    source_port: None,
                    destination_port: None,
                    destination_network: None,
                };
                let options = PacketSocketOptions {
                    selection: FrameSelection::Udp(filter),
                    receive_buffer: Some(RECEIVE_BUFFER),
                    ..Default::default()
                };
                anyhow::Ok(
                    host.run(|| PacketSocketDevice::open(&host.first_interface().name, &options))??,
                )
            })
        };
        [2, 3].into_iter().flat_map(open).collect()
    }

    /// Sends the packets; returns each copy with its count, and the listing of the relay.
    fn outcome(&self, frames: &[Vec<u8>]) -> Result<(BTreeMap<Vec<u8>, usize>, RelayListing)> {
        let mut receivers = self.receivers()?;
        let server = self.lab.server();
        let open = || {
            PacketSocketDevice::open(
                &server.first_interface().name,
                &PacketSocketOptions::default(),
            )
        };
        let mut sender = server.run(open)??;
        for together in frames.chunks(BATCH_LEN) {
            send(&mut sender, together)?;
            thread::sleep(Duration::from_millis(3));
        }
        let mut copies = BTreeMap::new();
        let mut batch = Batch::new(64, FRAME_BYTES);
        for receiver in &mut receivers {
            while receiver.receive(&mut batch, QUIET_PERIOD)? > 0 {
                for packet in batch.iter() {
                    *copies.entry(comparable(packet.bytes)?).or_default() += 1;
                }
            }
        }
        Ok((copies, self.relay.listing()?))
    }
}

/// Returns a copy without what may differ. Copies of sockets have no complete UDP checksum on a
/// veth.
fn comparable(frame: &[u8]) -> Result<Vec<u8>> {
    let udp = UdpFrame::parse(frame).map_err(|error| anyhow!("{error:?}: {frame:02x?}"))?;
    // Padding to the minimum length of a frame is no part of the packet.
    let frame = &frame[..frame.len() - udp.trailer_len];
    let (ipv4, mut plain) = (udp.source.is_ipv4(), frame.to_vec());
    let checksum = if ipv4 {
        // The identification, and the checksum that covers it.
        plain[LINK_LEN + 4..][..2].fill(0);
        plain[LINK_LEN + 10..][..2].fill(0);
        LINK_LEN + 26
    } else {
        plain[LINK_LEN + 1] &= 0xf0;
        plain[LINK_LEN + 2..][..2].fill(0);
        LINK_LEN + 46
    };
    plain[checksum..][..2].fill(0);
    Ok(plain)
}

/// Both engines make the same copies of the same packets.
pub(crate) fn both_engines_decide_alike() -> Result<()> {
    for ipv6 in [false, true] {
        let sockets = RelayTestbed::new("sendmmsg", ipv6)?;
        let mut random = Random::new(SEED);
        let frames: Vec<_> =
            (0..FRAMES).map(|number| sockets.frame(number as u32, &mut random)).collect();
        let (expected, listed) = sockets.outcome(&frames)?;
        drop(sockets);
        let kernel = RelayTestbed::new("xdp", ipv6)?;
        let (received, counted) = kernel.outcome(&frames)?;
        ensure!(expected.len() > FRAMES, "only {} copies", expected.len());
        for (copies, others, engine) in
            [(&expected, &received, "socket"), (&received, &expected, "XDP")]
        {
            let odd = copies.iter().find(|(copy, count)| others.get(*copy) != Some(*count));
            ensure!(odd.is_none(), "{engine} engine alone: {odd:02x?}\n{listed:?}\n{counted:?}");
        }
        for (one, other) in listed.groups.iter().zip(&counted.groups) {
            let of = |group: &horolog_relay::GroupListing| {
                (group.packets, group.bytes, group.refused.clone(), group.children.clone())
            };
            ensure!(of(one) == of(other), "by sockets {one:?}\nin the kernel {other:?}");
            let refused = ["source", "from-child"].map(|reason| one.refused.contains_key(reason));
            ensure!(refused == [true; 2], "too few reasons of refusals: {one:?}");
        }
    }
    Ok(())
}
