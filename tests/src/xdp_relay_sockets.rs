//! A scenario of the relay's XDP engine with plain sockets at both ends.

use std::net::{SocketAddr, UdpSocket};

use anyhow::{Context, Result, ensure};
use horolog_xdp::RelayGroup;

use crate::random::Random;
use crate::xdp_relay::{Bench, CHILD_HOSTS, FRAME_BYTES, SEED, SOURCE_PORT, TIMEOUT};

/// RFC 6676, section 2.1: for documents.
const MULTICAST: &str = "233.252.0.5:7000";
const MULTICAST_NETWORK: &str = "233.252.0.0/24";

/// What plain sockets send, checksums left to a card that is none, comes to plain sockets with
/// right checksums, whether it was sent to the relay or to a multicast group.
pub(crate) fn sockets_are_served() -> Result<()> {
    for ipv6 in [false, true] {
        let mut bench = Bench::new(ipv6)?;
        let group = bench.group()?;
        let mut groups = vec![group.clone()];
        if !ipv6 {
            let address: SocketAddr = MULTICAST.parse()?;
            let addresses = vec![address.ip()];
            groups.push(RelayGroup { number: 1, address, addresses, ..group });
        }
        let children = bench.children(6)?;
        for group in &groups {
            bench.set(group, &children)?;
        }
        let sockets: Result<Vec<_>> = (0..6).map(|number| listen(&bench, number)).collect();
        let sockets = sockets?;
        let source = bench.lab.server();
        let own = SocketAddr::new(bench.address(source.first_interface())?, SOURCE_PORT);
        source.netlink()?.add_route(
            MULTICAST_NETWORK.parse()?,
            None,
            source.first_interface().index,
        )?;
        let sender = source.run(|| UdpSocket::bind(own))??;
        if !ipv6 {
            sender.set_multicast_ttl_v4(8)?;
        }
        let mut random = Random::new(SEED);
        let mut buffer = [0; FRAME_BYTES];
        for number in 0..300 {
            let length = random.within(0..=1_400) as usize;
            let payload = random.bytes(length);
            sender.send_to(&payload, groups[number % groups.len()].address)?;
            for (socket, child) in sockets.iter().zip(&children) {
                let (length, from) = socket
                    .recv_from(&mut buffer)
                    .with_context(|| format!("packet {number}: {:?}", bench.relay.counts()))?;
                ensure!(from == child.source && buffer[..length] == payload, "packet {number}");
            }
        }
    }
    Ok(())
}

/// A socket at a child's address.
fn listen(bench: &Bench, number: usize) -> Result<UdpSocket> {
    let destination = bench.child(number)?.destination;
    let socket = bench.child_host(number % CHILD_HOSTS).run(|| UdpSocket::bind(destination))??;
    socket.set_read_timeout(Some(TIMEOUT))?;
    Ok(socket)
}
