//! Scenarios of packet devices between lab hosts, which need root for raw frames. They do not
//! measure speed.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use horolog_io::{
    Batch, BatchDevice, DatagramEndpoints, FrameSelection, PacketSocketDevice, PacketSocketError,
    PacketSocketOptions, UdpDevice, UdpDeviceOptions, UdpFilter,
};
use horolog_lab::{Lab, LabConfig, LabHost};
use horolog_wire::ethernet::MacAddress;
use horolog_wire::frame::{UdpFrame, UdpFrameBuilder};

/// Timeout of a frame on a link of a busy machine.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Time in which an unexpected frame would arrive.
const QUIET_PERIOD: Duration = Duration::from_millis(50);
const CLIENT_PORT: u16 = 40_000;
const SERVER_PORT: u16 = 50_123;
const FRAME_BYTES: usize = 2_048;

/// Returns the addresses of client and server of one IP version.
fn addresses(lab: &Lab, ipv6: bool) -> Result<[IpAddr; 2]> {
    let of = |host: &LabHost| -> Result<IpAddr> {
        Ok(if ipv6 {
            host.first_interface().ipv6.context("no IPv6 address")?.into()
        } else {
            host.first_interface().ipv4.into()
        })
    };
    Ok([of(lab.client())?, of(lab.server())?])
}

/// Returns a builder of frames from the client to the server.
fn builder(
    lab: &Lab,
    ipv6: bool,
    source_port: u16,
    destination_port: u16,
) -> Result<UdpFrameBuilder> {
    let [source, destination] = addresses(lab, ipv6)?;
    Ok(UdpFrameBuilder {
        destination_mac: MacAddress(lab.server().first_interface().mac),
        source_mac: MacAddress(lab.client().first_interface().mac),
        vlan: None,
        source: SocketAddr::new(source, source_port),
        destination: SocketAddr::new(destination, destination_port),
    })
}

fn packet_device(host: &LabHost, options: &PacketSocketOptions) -> Result<PacketSocketDevice> {
    Ok(host.run(|| PacketSocketDevice::open(&host.first_interface().name, options))??)
}

fn push(batch: &mut Batch<()>, builder: &UdpFrameBuilder, payload: &[u8]) {
    let pushed = batch.push_with((), |buffer| builder.emit(payload, buffer));
    assert!(pushed, "the batch is full");
}

/// A filter passes matching datagrams, complete and with a timestamp, and no others; over IPv4 and
/// IPv6.
pub(crate) fn a_filter_passes_only_matching_datagrams() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    for ipv6 in [false, true] {
        let [source, _] = addresses(&lab, ipv6)?;
        let filter = UdpFilter {
            source,
            source_port: Some(CLIENT_PORT),
            destination_port: Some(SERVER_PORT),
            destination_network: None,
        };
        let selection = FrameSelection::Udp(filter);
        let mut receiver =
            packet_device(lab.server(), &PacketSocketOptions { selection, ..Default::default() })?;
        let mut sender = packet_device(lab.client(), &PacketSocketOptions::default())?;
        let mut batch = Batch::new(8, FRAME_BYTES);
        let named = builder(&lab, ipv6, CLIENT_PORT, SERVER_PORT)?;
        let begun = Instant::now();
        loop {
            push(
                &mut batch,
                &builder(&lab, ipv6, CLIENT_PORT + 1, SERVER_PORT)?,
                b"wrong source port",
            );
            push(&mut batch, &builder(&lab, ipv6, CLIENT_PORT, SERVER_PORT + 1)?, b"wrong port");
            push(&mut batch, &builder(&lab, !ipv6, CLIENT_PORT, SERVER_PORT)?, b"wrong family");
            push(&mut batch, &named, b"named");
            let expected = batch.packet(3).bytes.to_vec();
            ensure!(sender.send(&mut batch)? == 4);
            ensure!(receiver.receive(&mut batch, TIMEOUT)? == 1, "not one matching frame");
            let frame = batch.packet(0);
            ensure!(frame.bytes == expected && !frame.truncated, "{frame:?}");
            // The kernel starts to take timestamps some time after the first socket requests them.
            if frame.received_at.is_some() {
                break;
            }
            ensure!(begun.elapsed() < TIMEOUT, "no timestamp: {frame:?}");
        }
        ensure!(receiver.receive(&mut batch, QUIET_PERIOD)? == 0, "a frame that does not match");
    }
    Ok(())
}

/// A filter finds the ports after IPv4 options, and drops fragments.
pub(crate) fn a_filter_skips_options_and_refuses_fragments() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let [source, _] = addresses(&lab, false)?;
    let filter = UdpFilter {
        source,
        source_port: None,
        destination_port: Some(SERVER_PORT),
        destination_network: None,
    };
    let selection = FrameSelection::Udp(filter);
    let mut receiver =
        packet_device(lab.server(), &PacketSocketOptions { selection, ..Default::default() })?;
    let mut sender = packet_device(lab.client(), &PacketSocketOptions::default())?;
    let mut plain = [0; FRAME_BYTES];
    let len = builder(&lab, false, CLIENT_PORT, SERVER_PORT)?.emit(b"payload", &mut plain);
    let plain = &plain[..len];
    // One word of no-operation options, so that the header has six words. Packet sockets receive
    // frames before length and checksum are checked.
    let mut with_options = plain.to_vec();
    with_options[14] = 0x46;
    with_options.splice(34..34, [1, 1, 1, 0]);
    let mut fragment = plain.to_vec();
    fragment[20..22].copy_from_slice(&0x2000u16.to_be_bytes());
    let mut batch = Batch::new(4, FRAME_BYTES);
    ensure!(batch.push((), &fragment) && batch.push((), &with_options));
    ensure!(sender.send(&mut batch)? == 2);
    ensure!(receiver.receive(&mut batch, TIMEOUT)? == 1, "not one unfragmented frame");
    ensure!(batch.packet(0).bytes == with_options);
    Ok(())
}

/// A UDP listener answers a raw frame, and the reply arrives as a raw frame from the address of the
/// request; over IPv4 and IPv6.
pub(crate) fn a_listener_answers_raw_frames() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    for ipv6 in [false, true] {
        let [_, server_ip] = addresses(&lab, ipv6)?;
        let wildcard: IpAddr = if ipv6 { "::".parse()? } else { "0.0.0.0".parse()? };
        let local = SocketAddr::new(wildcard, SERVER_PORT);
        let mut listener =
            lab.server().run(|| UdpDevice::bind(local, &UdpDeviceOptions::default()))??;
        let filter = UdpFilter {
            source: server_ip,
            source_port: Some(SERVER_PORT),
            destination_port: Some(CLIENT_PORT),
            destination_network: None,
        };
        let selection = FrameSelection::Udp(filter);
        let mut client =
            packet_device(lab.client(), &PacketSocketOptions { selection, ..Default::default() })?;
        let request = builder(&lab, ipv6, CLIENT_PORT, SERVER_PORT)?;
        let mut frames = Batch::new(4, FRAME_BYTES);
        push(&mut frames, &request, b"request");
        ensure!(client.send(&mut frames)? == 1);
        let mut datagrams = Batch::<DatagramEndpoints>::new(4, 128);
        ensure!(listener.receive(&mut datagrams, TIMEOUT)? == 1, "no request received");
        let received = datagrams.packet(0);
        ensure!(received.bytes == b"request", "{received:?}");
        ensure!(
            received.address.remote == request.source && received.address.local == server_ip,
            "{received:?}"
        );
        ensure!(listener.send(&mut datagrams)? == 1);
        ensure!(client.receive(&mut frames, TIMEOUT)? == 1, "no reply received");
        let reply = UdpFrame::parse(frames.packet(0).bytes)
            .map_err(|error| anyhow::anyhow!("no UDP frame: {error:?}"))?;
        ensure!((reply.source, reply.destination) == (request.destination, request.source));
        ensure!(reply.payload == b"request");
    }
    Ok(())
}

/// Each sent frame is received or counted as dropped.
pub(crate) fn frames_dropped_for_lack_of_room_are_counted() -> Result<()> {
    const ROUNDS: usize = 40;
    const BATCH: usize = 50;
    let lab = Lab::new(&LabConfig::default())?;
    let [source, _] = addresses(&lab, false)?;
    let filter = UdpFilter {
        source,
        source_port: None,
        destination_port: Some(SERVER_PORT),
        destination_network: None,
    };
    let options = PacketSocketOptions {
        selection: FrameSelection::Udp(filter),
        receive_buffer: Some(16_384),
        ..Default::default()
    };
    let mut receiver = packet_device(lab.server(), &options)?;
    let mut sender = packet_device(lab.client(), &PacketSocketOptions::default())?;
    let frame = builder(&lab, false, CLIENT_PORT, SERVER_PORT)?;
    let mut batch = Batch::new(BATCH, FRAME_BYTES);
    while !batch.is_full() {
        push(&mut batch, &frame, &[0; 48]);
    }
    let mut sent = 0;
    for _ in 0..ROUNDS {
        sent += sender.send(&mut batch)?;
    }
    ensure!(sent == ROUNDS * BATCH, "{sent} sent");
    let mut received = 0;
    while let count @ 1.. = receiver.receive(&mut batch, QUIET_PERIOD)? {
        received += count;
    }
    let dropped = receiver.dropped()?;
    ensure!(received < sent, "nothing was dropped");
    ensure!(received as u64 + dropped == sent as u64, "{sent}: {received} + {dropped}");
    ensure!(receiver.dropped()? == dropped, "the count of dropped frames changed");
    Ok(())
}

/// A frame that exceeds the interface's MTU is refused, and those around it are sent.
pub(crate) fn an_overlong_frame_is_refused_alone() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let mut sender = packet_device(lab.client(), &PacketSocketOptions::default())?;
    let frame = builder(&lab, false, CLIENT_PORT, SERVER_PORT)?;
    let mut batch = Batch::new(4, FRAME_BYTES);
    push(&mut batch, &frame, &[0; 48]);
    push(&mut batch, &frame, &[0; 1_900]);
    push(&mut batch, &frame, &[0; 48]);
    ensure!(sender.send(&mut batch)? == 2);
    Ok(())
}

/// A device reports that its interface is down, and sends again once it is up.
pub(crate) fn an_interface_that_goes_down_is_reported() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let client = lab.client();
    let mut netlink = client.netlink()?;
    let mut sender = packet_device(client, &PacketSocketOptions::default())?;
    let mut batch = Batch::new(1, FRAME_BYTES);
    push(&mut batch, &builder(&lab, false, CLIENT_PORT, SERVER_PORT)?, &[0; 48]);
    ensure!(sender.send(&mut batch)? == 1);
    netlink.set_link_down(client.first_interface().index)?;
    let error = sender.send(&mut batch).err().context("sent through an interface that is down")?;
    ensure!(error.kind() == io::ErrorKind::NetworkDown, "{error}");
    netlink.set_link_up(client.first_interface().index)?;
    ensure!(sender.send(&mut batch)? == 1);
    Ok(())
}

/// A packet device on an unknown interface is refused with the interface's name.
pub(crate) fn an_unknown_interface_is_refused_by_name() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let opened = lab
        .client()
        .run(|| PacketSocketDevice::open("no-such-link", &PacketSocketOptions::default()))?;
    let error = opened.err().context("opened an interface that does not exist")?;
    ensure!(
        matches!(&error, PacketSocketError::NoInterface(name) if name == "no-such-link"),
        "{error}"
    );
    Ok(())
}
