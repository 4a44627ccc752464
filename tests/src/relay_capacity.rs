//! Scenarios of a relay at its limits: packets as fast as they are accepted, while children join
//! and leave; the largest table; and `/metrics` of a running relay, compared with the copies that
//! its children received.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use horolog_io::{
    Batch, BatchDevice, FrameSelection, PacketSocketDevice, PacketSocketOptions, UdpFilter,
};
use horolog_lab::{Lab, LabConfig, LabHost};
use horolog_wire::frame::UdpFrame;
use horolog_wire::prefix::Prefix;

use crate::process::TIMEOUT;
use crate::relay::{PORT, QUIET_PERIOD, Relay, address, bind, check_no_copy, payload, send, table};
use crate::scenario::{Queue, Scenario, scenario};
use crate::xdp_relay::FRAME_BYTES;
use crate::{ROOT, relay_capacity, scenarios};

/// Duration of sending at full rate.
const LOAD_TIME: Duration = Duration::from_secs(2);
/// Limit of packets under way: a ring of a veth holds their copies.
const WINDOW: u32 = 64;
const RECEIVE_BUFFER: usize = 16 << 20;

pub(crate) fn all() -> Vec<Scenario> {
    let mut all = Vec::from(
        scenarios!(ROOT, relay_capacity: the_largest_table_is_served)
            .map(|scenario| scenario.in_queue(Queue::Measuring)),
    );
    for engine in ["sendmmsg", "xdp"] {
        let name = |what: &str| format!("relay_capacity::{what}::{engine}");
        let run = move || copies_are_correct_at_full_speed(engine);
        let at_full_speed = scenario(name("copies_are_correct_at_full_speed"), ROOT, run);
        all.push(at_full_speed.in_queue(Queue::Exclusive));
        let run = move || metrics_match_the_packets_received(engine);
        let with_metrics = scenario(name("metrics_match_the_packets_received"), ROOT, run);
        all.push(with_metrics.in_queue(Queue::Measuring));
    }
    all
}

/// Returns the number of the next copy, which must be complete and correct; `None` at the timeout.
fn next_number(socket: &UdpSocket) -> Result<Option<u32>> {
    let mut buffer = [0; 2_048];
    // Callers repeat the call after an error.
    let Ok(length) = socket.recv(&mut buffer) else { return Ok(None) };
    let number = buffer.first_chunk().copied().map(u32::from_be_bytes).context("a short copy")?;
    ensure!(buffer[..length] == payload(number)[..], "copy {number} is damaged");
    Ok(Some(number))
}

/// Receives numbered packets in order, up to the last, and publishes their count.
fn receive_all(socket: &UdpSocket, received: &AtomicU32, last: &AtomicU32) -> Result<()> {
    socket.set_read_timeout(Some(QUIET_PERIOD))?;
    let mut received_at = Instant::now();
    for expected in 0.. {
        let latest = loop {
            if expected == last.load(Ordering::Acquire) {
                return Ok(());
            }
            if let Some(number) = next_number(socket)? {
                break number;
            }
            ensure!(received_at.elapsed() < TIMEOUT, "copy {expected} is missing");
        };
        ensure!(latest == expected, "received {latest} instead of {expected}");
        received_at = Instant::now();
        received.store(expected + 1, Ordering::Release);
    }
    Ok(())
}

/// Sends numbered packets for some seconds, never further ahead of the slowest receiver than the
/// window; returns their number.
fn send_in_window(source: &UdpSocket, at: SocketAddr, received: &[AtomicU32]) -> Result<u32> {
    let (begun, mut sent) = (Instant::now(), 0);
    while begun.elapsed() < LOAD_TIME {
        let slowest = || received.iter().map(|received| received.load(Ordering::Acquire)).min();
        let mut waited = Instant::now();
        let mut observed = slowest();
        while sent >= observed.unwrap_or(sent) + WINDOW {
            thread::yield_now();
            let now = slowest();
            if now != observed {
                (observed, waited) = (now, Instant::now());
            }
            ensure!(waited.elapsed() < TIMEOUT / 2, "{sent} sent, {received:?} received");
        }
        source.send_to(&payload(sent), at)?;
        sent += 1;
    }
    Ok(sent)
}

fn copies_are_correct_at_full_speed(engine: &str) -> Result<()> {
    let lab = Lab::new(&LabConfig { hosts: 5, ..LabConfig::default() })?;
    let at = SocketAddr::from((lab.client().interfaces[0].ipv4, PORT));
    let socket_address = |host| anyhow::Ok(SocketAddr::new(address(lab.host(host), false)?, PORT));
    let children = [socket_address(2)?, socket_address(3)?, socket_address(4)?];
    let sockets = [
        bind(lab.host(2), children[0])?,
        bind(lab.host(3), children[1])?,
        bind(lab.host(4), children[2])?,
    ];
    let relay = Relay::start(lab.client(), &table(at, &children[..2]), &["--engine", engine])?;
    ensure!(relay.listing()?.groups[0].engine == engine, "{:?}", relay.listing()?);
    let source = bind(lab.server(), SocketAddr::new(address(lab.server(), false)?, 0))?;
    let received = [AtomicU32::new(0), AtomicU32::new(0)];
    let (last, is_over) = (AtomicU32::new(u32::MAX), AtomicBool::new(false));
    let changing_child = children[2].to_string();
    let (sent, of_guest) = thread::scope(|scope| -> Result<(u32, u64)> {
        let receivers: Vec<_> = sockets[..2]
            .iter()
            .zip(&received)
            .map(|(socket, received)| scope.spawn(|| receive_all(socket, received, &last)))
            .collect();
        let changing = scope.spawn(|| count_changing_copies(&sockets[2], &is_over));
        let sending = scope.spawn(|| send_in_window(&source, at, &received));
        let mut changes = 0;
        let mut changed = Ok(());
        while changed.is_ok() && !sending.is_finished() {
            changed = relay.control(&["add", "g", &changing_child]).map(drop);
            thread::sleep(Duration::from_millis(5));
            changed =
                changed.and_then(|()| relay.control(&["remove", "g", &changing_child]).map(drop));
            changes += 1;
        }
        let sent = sending.join().ok().context("the source panicked")??;
        last.store(sent, Ordering::Release);
        is_over.store(true, Ordering::Release);
        for receiver in receivers {
            receiver.join().ok().context("a receiver panicked")??;
        }
        let of_guest = changing.join().ok().context("the guest panicked")??;
        changed?;
        ensure!(changes > 2, "only {changes} changes while packets were sent");
        Ok((sent, of_guest))
    })?;
    ensure!(of_guest > 0 && of_guest < sent.into(), "{of_guest} of {sent} for the changing child");
    for (socket, child) in sockets.iter().zip(&children[..2]) {
        check_no_copy(socket)?;
        let child = relay.child(*child)?;
        ensure!(child.packets == u64::from(sent) && child.dropped.is_empty(), "{sent}: {child:?}");
    }
    let group = &relay.listing()?.groups[0];
    ensure!(group.packets == u64::from(sent) && group.refused.is_empty(), "{sent}: {group:?}");
    let rate = f64::from(sent) / LOAD_TIME.as_secs_f64();
    ensure!(rate > 3_000.0, "no load: {rate:.0} packets/s");
    Ok(())
}

/// Receives the copies of a child that joins and leaves, each complete, once and in order, until
/// `is_over`; returns their number.
fn count_changing_copies(socket: &UdpSocket, is_over: &AtomicBool) -> Result<u64> {
    socket.set_read_timeout(Some(QUIET_PERIOD))?;
    let (mut last, mut received) = (None, 0);
    loop {
        match next_number(socket)? {
            None if is_over.load(Ordering::Acquire) => return Ok(received),
            None => {}
            number => {
                ensure!(last < number, "received {number:?} after {last:?}");
                (last, received) = (number, received + 1);
            }
        }
    }
}

const GROUPS: u16 = 256;
const CHILDREN_PER_GROUP: u16 = 4;
const GROUP_PORT: u16 = 2_000;
const CHILD_PORT: u16 = 10_000;
const ROUNDS: u32 = 5;

/// Relay with the largest table, whose children are ports of two hosts.
struct LargestTable {
    lab: Lab,
    relay: Relay,
    source: UdpSocket,
    receivers: Vec<PacketSocketDevice>,
}

/// Numbers of the received copies of each child, in the order of arrival.
type ReceivedCopies = HashMap<SocketAddr, Vec<u32>>;

impl LargestTable {
    fn new() -> Result<Self> {
        let lab = Lab::new(&LabConfig { hosts: 4, ..LabConfig::default() })?;
        let near = lab.client().interfaces[0].ipv4;
        let mut text = "destinations = [\"192.0.2.0/24\"]\n".to_owned();
        for group in 0..GROUPS {
            let children: Vec<String> = (0..CHILDREN_PER_GROUP)
                .map(|child| format!("\"{}\"", child_of(&lab, group, child)))
                .collect();
            write!(
                text,
                "[[group]]\nname = \"g{group}\"\nlisten = \"{near}:{}\"\n\
                 sources = [\"192.0.2.0/24\"]\nchildren = [{}]\n",
                GROUP_PORT + group,
                children.join(", ")
            )?;
        }
        let relay = Relay::start(lab.client(), &text, &["--engine", "sendmmsg"])?;
        let source = bind(lab.server(), SocketAddr::new(address(lab.server(), false)?, 0))?;
        // The kernel queues few packets for a neighbour whose MAC address is not resolved yet.
        let resolver = bind(lab.client(), SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)))?;
        for host in [2, 3] {
            resolver.send_to(&[], SocketAddr::new(address(lab.host(host), false)?, 9))?;
        }
        thread::sleep(QUIET_PERIOD);
        let receivers = [2, 3].map(|host| receiver(lab.host(host), near));
        let receivers = receivers.into_iter().collect::<Result<_>>()?;
        Ok(Self { lab, relay, source, receivers })
    }

    fn child(&self, group: u16, child: u16) -> SocketAddr {
        child_of(&self.lab, group, child)
    }

    /// Sends some packets to each group's port, and returns the received copies.
    fn exchange(&mut self) -> Result<ReceivedCopies> {
        let near = self.lab.client().interfaces[0].ipv4;
        let mut received = ReceivedCopies::new();
        for round in 0..ROUNDS {
            for group in 0..GROUPS {
                self.source.send_to(&payload(round), (near, GROUP_PORT + group))?;
                if group % 32 == 0 {
                    thread::sleep(Duration::from_millis(2));
                }
            }
        }
        let mut batch = Batch::new(64, FRAME_BYTES);
        for receiver in &mut self.receivers {
            while receiver.receive(&mut batch, QUIET_PERIOD)? > 0 {
                for packet in batch.iter() {
                    let udp =
                        UdpFrame::parse(packet.bytes).map_err(|error| anyhow!("{error:?}"))?;
                    let number = udp.payload.first_chunk().copied().map(u32::from_be_bytes);
                    let number = number.context("a short copy")?;
                    ensure!(udp.payload == payload(number), "copy {number} is damaged");
                    received.entry(udp.destination).or_default().push(number);
                }
            }
        }
        Ok(received)
    }

    /// Checks that exactly these children receive copies: each packet once and in order.
    fn check_copies(&mut self, children: &[SocketAddr]) -> Result<()> {
        let received = self.exchange()?;
        for child in children {
            let numbers = received.get(child).map(Vec::as_slice).unwrap_or_default();
            ensure!(numbers.iter().copied().eq(0..ROUNDS), "{child} received {numbers:?}");
        }
        ensure!(received.len() == children.len(), "{} children received copies", received.len());
        Ok(())
    }
}

fn child_of(lab: &Lab, group: u16, child: u16) -> SocketAddr {
    let host = lab.host(2 + usize::from(child % 2)).first_interface();
    SocketAddr::from((host.ipv4, CHILD_PORT + group * CHILDREN_PER_GROUP + child))
}

/// Returns a device that receives all packets of a relay to a host, at any port, open or not.
fn receiver(host: &LabHost, relay: Ipv4Addr) -> Result<PacketSocketDevice> {
    let filter = UdpFilter {
        source: relay.into(),
        source_port: None,
        destination_port: None,
        destination_network: None,
    };
    let options = PacketSocketOptions {
        selection: FrameSelection::Udp(filter),
        receive_buffer: Some(RECEIVE_BUFFER),
        ..Default::default()
    };
    Ok(host.run(|| PacketSocketDevice::open(&host.first_interface().name, &options))??)
}

fn the_largest_table_is_served() -> Result<()> {
    let mut largest = LargestTable::new()?;
    let every = |largest: &LargestTable| -> Vec<SocketAddr> {
        let of = |group| (0..CHILDREN_PER_GROUP).map(move |child| (group, child));
        (0..GROUPS).flat_map(of).map(|(group, child)| largest.child(group, child)).collect()
    };
    let mut children = every(&largest);
    ensure!(children.len() == 1_024);
    largest.check_copies(&children)?;
    // The table is full.
    let (first, last) = (largest.child(0, 0), largest.child(GROUPS - 1, CHILDREN_PER_GROUP - 1));
    let guest = SocketAddr::new(first.ip(), 9);
    for (arguments, words) in [
        (&["add", "g0", &guest.to_string()][..], "1025 children exceed"),
        (&["add", "h", "--listen", "192.0.2.1:9", "--source", "192.0.2.0/24"], "257 groups"),
    ] {
        let stderr = String::from_utf8(largest.relay.try_control(arguments)?.stderr)?;
        ensure!(stderr.contains(words), "{stderr} lacks {words}");
    }
    // A removed child makes room for another one, also in another group.
    largest.relay.control(&["remove", "g0", &first.to_string()])?;
    largest.relay.control(&["add", "g255", &guest.to_string()])?;
    children.retain(|child| *child != first);
    children.push(guest);
    largest.check_copies(&children)?;
    // A removed group makes room for another one, with children at other ports.
    largest.relay.control(&["remove", "g255"])?;
    children.retain(|child| *child != guest && child.port() < largest.child(GROUPS - 1, 0).port());
    largest.check_copies(&children)?;
    let at = SocketAddr::from((largest.lab.client().interfaces[0].ipv4, GROUP_PORT + GROUPS - 1));
    let (at, source) = (at.to_string(), "192.0.2.0/24");
    largest.relay.control(&["add", "h", "--listen", &at, "--source", source, &last.to_string()])?;
    children.push(last);
    largest.check_copies(&children)?;
    let listing = largest.relay.listing()?;
    ensure!(listing.groups.len() == usize::from(GROUPS));
    let odd = listing.groups.iter().flat_map(|group| &group.children).find(|child| {
        child.packets % u64::from(ROUNDS) != 0 || child.packets == 0 || !child.dropped.is_empty()
    });
    ensure!(odd.is_none(), "{odd:?}");
    Ok(())
}

/// Returns the samples of `GET /metrics`, by name and labels.
fn read_metrics(host: &LabHost, at: SocketAddr) -> Result<HashMap<String, u64>> {
    let mut stream = host.run(|| TcpStream::connect(at))??;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let samples = text.lines().filter(|line| line.starts_with("horolog_relay_"));
    let sample = |line: &str| {
        let (name, value) = line.rsplit_once(' ')?;
        Some((name.to_owned(), value.parse().ok()?))
    };
    samples.map(|line| sample(line).context(line.to_owned())).collect()
}

/// Receives the copies of a child; returns their number and their payload in bytes.
fn receive_waiting(socket: &UdpSocket) -> Result<(u64, u64)> {
    socket.set_read_timeout(Some(QUIET_PERIOD))?;
    let (mut packets, mut bytes) = (0, 0);
    loop {
        match socket.recv(&mut [0; 2_048]) {
            Ok(length) => (packets, bytes) = (packets + 1, bytes + length as u64),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                return Ok((packets, bytes));
            }
            Err(error) => bail!("cannot receive: {error}"),
        }
    }
}

fn metrics_match_the_packets_received(engine: &str) -> Result<()> {
    const SENT: u32 = 3_000;
    let lab = Lab::new(&LabConfig { hosts: 4, ..LabConfig::default() })?;
    let host = lab.client();
    let socket_address = |host| anyhow::Ok(SocketAddr::new(address(lab.host(host), false)?, PORT));
    let near = [socket_address(2)?, socket_address(3)?];
    let unresolved = SocketAddr::from(([10, 77, 0, 1], PORT));
    let nowhere = SocketAddr::from(([10, 99, 0, 1], PORT));
    let link = Prefix::new(Ipv4Addr::new(10, 77, 0, 0).into(), 24)?;
    host.netlink()?.add_route(link, None, host.interfaces[0].index)?;
    // A link with a small MTU.
    host.netlink()?.set_link_mtu(host.interfaces[2].index, 600)?;
    let sockets = [bind(lab.host(2), near[0])?, bind(lab.host(3), near[1])?];
    let at = SocketAddr::from((host.interfaces[0].ipv4, PORT));
    let metrics_at = SocketAddr::from((Ipv4Addr::LOCALHOST, 9_105));
    let relay = Relay::start(
        host,
        &table(at, &[near[0], near[1], unresolved, nowhere]),
        &["--engine", engine, "--no-fragment", "--metrics", &metrics_at.to_string()],
    )?;
    ensure!(relay.listing()?.groups[0].engine == engine, "{:?}", relay.listing()?);
    let source = bind(lab.server(), SocketAddr::new(address(lab.server(), false)?, 0))?;
    // The relay detects the unresolved neighbour before packets are counted.
    thread::sleep(Duration::from_millis(1_500));
    send(&source, at, 0..SENT, 3_000)?;
    let received = [receive_waiting(&sockets[0])?, receive_waiting(&sockets[1])?];
    let all = read_metrics(host, metrics_at)?;
    let of = |name: &str, child: SocketAddr, more: &str| {
        let key = format!("horolog_relay_{name}_total{{group=\"g\",child=\"{child}\"{more}}}");
        all.get(&key).copied().unwrap_or(0)
    };
    let dropped = |child, reason: &str| of("dropped", child, &format!(",reason=\"{reason}\""));
    let group =
        |name: &str| all.get(&format!("horolog_relay_{name}_total{{group=\"g\"}}")).copied();
    let bytes: u64 = (0..SENT).map(|one| payload(one).len() as u64).sum();
    ensure!(group("received") == Some(SENT.into()), "{all:?}");
    ensure!(group("received_bytes") == Some(bytes), "{bytes}: {all:?}");
    for (child, received) in near.into_iter().zip(received) {
        let reported = (of("copies", child, ""), of("copied_bytes", child, ""));
        ensure!(reported == received, "{child}: {reported:?} reported, {received:?} received");
    }
    let too_large = (0..SENT).filter(|one| payload(*one).len() + 28 > 600).count() as u64;
    ensure!(received[0] == (SENT.into(), bytes) && too_large > 1_000, "{received:?}");
    ensure!(dropped(near[1], "too-large") == too_large, "{too_large}: {all:?}");
    ensure!(dropped(nowhere, "unreachable") == u64::from(SENT), "{all:?}");
    ensure!(dropped(unresolved, "unresolved") > 1_500, "{all:?}");
    for child in [near[0], near[1], unresolved, nowhere] {
        let own = format!("horolog_relay_dropped_total{{group=\"g\",child=\"{child}\"");
        let lost: u64 = all.iter().filter(|(key, _)| key.starts_with(&own)).map(|one| one.1).sum();
        let reported = of("copies", child, "") + lost;
        ensure!(reported == u64::from(SENT), "{child}: {reported} of {SENT}: {all:?}");
    }
    Ok(())
}
