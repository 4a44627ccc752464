//! Scenarios of the `AF_XDP` sockets to which the server's XDP engine redirects requests.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use horolog_io::{
    Batch, BatchDevice, DatagramEndpoints, FrameEndpoints, FrameSelection, PacketSocketDevice,
    PacketSocketOptions, UdpDevice, UdpDeviceOptions, UdpFilter, XskDevice,
};
use horolog_lab::{Lab, LabConfig, LabHost};
use horolog_wire::ethernet::MacAddress;
use horolog_wire::frame::{UdpFrame, UdpFrameBuilder};
use horolog_wire::ntp::{HEADER_LEN, PORT};
use horolog_xdp::{
    AttachMode, Interface, InterleavedHandling, Responder, ResponderSettings, StationAddress,
    XdpAction, XdpReplySendAction, XskSocket,
};

use crate::frames::{LISTEN, MAC, build, listen_by};

/// Timeout of a frame's arrival on a busy host.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Wait after which a frame that must not arrive counts as absent.
const QUIET_PERIOD: Duration = Duration::from_millis(300);
const CLIENT_PORT: u16 = 40_000;
/// Number of frames in a batch.
const BATCH: usize = 32;

fn interface(host: &LabHost) -> Interface {
    Interface { index: host.first_interface().index, name: host.first_interface().name.clone() }
}

/// Loads a program that redirects requests with more than a header to `queues` queues.
fn responder(queues: u32) -> Result<Responder> {
    let settings = ResponderSettings { af_xdp_queues: queues, ..ResponderSettings::BASIC };
    Ok(Responder::load(&settings)?.0)
}

/// Returns a request with `more` bytes after its header.
fn long_request(more: usize) -> Vec<u8> {
    let mut request = vec![0; HEADER_LEN + more];
    request[0] = 0x23;
    request
}

/// Checks that a request on a queue without a socket is passed to the network stack, and not
/// redirected to the socket of another interface, whose map entries follow.
pub(crate) fn frames_of_unserved_queues_are_passed() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let host = lab.server();
    let responder = responder(2)?;
    listen_by(&responder)?;
    let builder = UdpFrameBuilder {
        destination_mac: MAC,
        source_mac: MacAddress([2, 0, 192, 0, 2, 1]),
        vlan: None,
        source: "10.0.0.1:40000".parse()?,
        destination: LISTEN[0],
    };
    let request = build(&builder, &long_request(20));
    // The frame of a test run arrives on queue 0 of the loopback interface.
    let verdict =
        || -> Result<XdpAction> { Ok(host.run(|| responder.test_run(&request))??.verdict) };
    ensure!(verdict()? == XdpAction::Pass, "redirected without a socket");
    let loopback = Interface { index: 1, name: "lo".to_owned() };
    let [own, other] = [&loopback, &interface(host)].map(|at| host.run(|| XskSocket::open(at, 0)));
    let (own, other) = (own??, other??);
    responder.redirect_to(&loopback, &[], 0)?;
    responder.redirect_to(&interface(host), std::slice::from_ref(&other), 0)?;
    ensure!(verdict()? == XdpAction::Pass, "redirected to another interface's socket");
    responder.redirect_to(&loopback, std::slice::from_ref(&own), 1)?;
    ensure!(verdict()? == XdpAction::Redirect, "not redirected to the interface's own socket");
    Ok(())
}

/// Opens a device that sends through the client's interface, and one that captures the frames that
/// arrive at the server.
fn sender_and_receiver(lab: &Lab) -> Result<(XskDevice, PacketSocketDevice)> {
    let client = lab.client();
    let socket = client.run(|| XskSocket::open(&interface(client), 0))??;
    let filter = UdpFilter {
        source: client.first_interface().ipv4.into(),
        source_port: None,
        destination_port: Some(PORT),
        destination_network: None,
    };
    let options =
        PacketSocketOptions { selection: FrameSelection::Udp(filter), ..Default::default() };
    let server = lab.server();
    let receiver =
        server.run(|| PacketSocketDevice::open(&server.first_interface().name, &options))??;
    Ok((XskDevice::new(socket, client.first_interface().index), receiver))
}

/// Returns a batch of datagrams from the client to the server with this payload.
fn datagrams(lab: &Lab, payload: &[u8]) -> Batch<DatagramEndpoints> {
    let [client, server] = [lab.client(), lab.server()].map(LabHost::first_interface);
    let link = FrameEndpoints {
        remote: MacAddress(server.mac),
        local: MacAddress(client.mac),
        vlan: None,
        local_port: CLIENT_PORT,
    };
    let address = DatagramEndpoints {
        remote: SocketAddr::new(server.ipv4.into(), PORT),
        local: client.ipv4.into(),
        link: Some(link),
        ..DatagramEndpoints::default()
    };
    let mut batch = Batch::new(BATCH, 64);
    while batch.push(address, payload) {}
    batch
}

/// Receives frames until none arrives for a while, and returns how many have the expected payload
/// and how many another one.
fn count_frames(
    receiver: &mut PacketSocketDevice,
    expected: &[u8],
    wait: Duration,
) -> Result<[usize; 2]> {
    let mut batch = Batch::new(BATCH, 2_048);
    let (mut counts, mut wait) = ([0; 2], wait);
    while receiver.receive(&mut batch, wait)? > 0 {
        for frame in batch.iter() {
            let frame = UdpFrame::parse(frame.bytes);
            let payload = frame.map_err(|error| anyhow::anyhow!("{error:?}"))?.payload;
            counts[usize::from(payload != expected)] += 1;
        }
        wait = if counts[0] >= BATCH { QUIET_PERIOD / 10 } else { QUIET_PERIOD };
    }
    Ok(counts)
}

/// Checks that frames which could not be sent while the interface was down are not sent after it is
/// up, and that all their buffers are usable again.
pub(crate) fn unsent_frames_are_not_sent_later() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let (client, index) = (lab.client(), lab.client().first_interface().index);
    let mut netlink = client.netlink()?;
    let (mut sender, mut receiver) = sender_and_receiver(&lab)?;
    let mut batch = datagrams(&lab, b"before");
    ensure!(sender.send(&mut batch)? == BATCH);
    ensure!(count_frames(&mut receiver, b"before", TIMEOUT)? == [BATCH, 0]);
    for round in 0..3 {
        netlink.set_link_down(index)?;
        let mut batch = datagrams(&lab, b"meanwhile");
        for _ in 0..20 {
            let sent = sender.send(&mut batch).unwrap_or(0);
            ensure!(sent == 0, "{sent} reported as sent while the interface is down");
        }
        netlink.set_link_up(index)?;
        // A receive call drives transmission, too.
        let received = sender.receive(&mut Batch::new(1, 64), QUIET_PERIOD)?;
        ensure!(received == 0, "{received} frames received");
        let counts = count_frames(&mut receiver, b"after", QUIET_PERIOD)?;
        ensure!(counts == [0, 0], "round {round}: {counts:?} old frames sent");
        // Needs more buffers than exist, so all must be reused.
        let mut batch = datagrams(&lab, b"after");
        for number in 0..40 {
            let sent = sender.send(&mut batch)?;
            ensure!(sent == BATCH, "round {round}, batch {number}: {sent} were sent");
            let counts = count_frames(&mut receiver, b"after", TIMEOUT)?;
            ensure!(counts == [BATCH, 0], "round {round}, batch {number}: {counts:?} received");
        }
    }
    Ok(())
}

/// Checks that a datagram longer than a buffer is reported as truncated, so that it can be counted.
pub(crate) fn oversized_datagrams_are_reported_as_truncated() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let server = lab.server();
    let responder = responder(1)?;
    let at = SocketAddr::new(IpAddr::V4(server.first_interface().ipv4), PORT);
    responder.answer_at(at)?;
    let server_interface = interface(server);
    let station = StationAddress {
        interface: server_interface.index,
        vlan: None,
        mac: server.first_interface().mac,
    };
    responder.set_station(station, true)?;
    let (mode, path) = (AttachMode::Native, XdpReplySendAction::Redirect);
    let (socket, _attachment) = server.run(|| -> Result<_> {
        let attachment =
            responder.attach(&server_interface, mode, path, InterleavedHandling::Answer)?;
        Ok((XskSocket::open(&server_interface, 0)?, attachment))
    })??;
    responder.redirect_to(&server_interface, std::slice::from_ref(&socket), 0)?;
    let mut receiver = XskDevice::new(socket, server_interface.index);
    let mut requester =
        lab.client().run(|| UdpDevice::connect(at, &UdpDeviceOptions::default()))??;
    let mut requests = Batch::<DatagramEndpoints>::new(2, 256);
    ensure!(requests.push(DatagramEndpoints::default(), &long_request(20)));
    ensure!(requests.push(DatagramEndpoints::default(), &long_request(100)));
    ensure!(requester.send(&mut requests)? == 2);
    let mut batch = Batch::<DatagramEndpoints>::new(4, 100);
    let mut count_frames = Vec::new();
    while count_frames.len() < 2 {
        let count = receiver.receive(&mut batch, TIMEOUT)?;
        ensure!(count > 0, "only {count_frames:?} received");
        count_frames.extend(batch.iter().map(|packet| (packet.bytes.len(), packet.truncated)));
    }
    ensure!(count_frames == [(HEADER_LEN + 20, false), (100, true)], "{count_frames:?}");
    let link = batch.packet(batch.len() - 1).address.link.context("no link")?;
    ensure!(link.local_port == PORT, "{link:?}");
    Ok(())
}
