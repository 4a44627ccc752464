//! Scenario of the relay's XDP engine with ordinary sockets at both ends.

use std::net::{SocketAddr, UdpSocket};

use anyhow::{Context, Result, ensure};
use horolog_xdp::RelayGroup;

use crate::random::Random;
use crate::xdp_relay::{CHILD_HOSTS, FRAME_BYTES, SEED, SOURCE_PORT, TIMEOUT, XdpRelayTestbed};

/// Multicast addresses for documentation (RFC 6676, section 2.1).
const MULTICAST: &str = "233.252.0.5:7000";
const MULTICAST_NETWORK: &str = "233.252.0.0/24";

/// Packets of ordinary sockets, which leave checksums to the interface, arrive at ordinary sockets
/// with valid checksums, whether they were sent to the relay or to a multicast group.
pub(crate) fn sockets_are_served() -> Result<()> {
    for ipv6 in [false, true] {
        let mut testbed = XdpRelayTestbed::new(ipv6)?;
        let group = testbed.group()?;
        let mut groups = vec![group.clone()];
        if !ipv6 {
            let address: SocketAddr = MULTICAST.parse()?;
            let addresses = vec![address.ip()];
            groups.push(RelayGroup { number: 1, address, addresses, ..group });
        }
        let children = testbed.children(6)?;
        for group in &groups {
            testbed.set_group(group, &children)?;
        }
        let sockets: Result<Vec<_>> = (0..6).map(|number| bind_child(&testbed, number)).collect();
        let sockets = sockets?;
        let source = testbed.lab.server();
        let own = SocketAddr::new(testbed.address(source.first_interface())?, SOURCE_PORT);
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
                    .with_context(|| format!("packet {number}: {:?}", testbed.relay.counts()))?;
                ensure!(from == child.source && buffer[..length] == payload, "packet {number}");
            }
        }
    }
    Ok(())
}

/// Binds a socket to the address of a child.
fn bind_child(testbed: &XdpRelayTestbed, number: usize) -> Result<UdpSocket> {
    let destination = testbed.child(number)?.destination;
    let socket =
        testbed.child_host(number % CHILD_HOSTS).run(|| UdpSocket::bind(destination))??;
    socket.set_read_timeout(Some(TIMEOUT))?;
    Ok(socket)
}
