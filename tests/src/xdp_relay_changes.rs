//! Scenarios of the relay's XDP engine during changes: children join and leave, interfaces go down,
//! rings fill, the process is killed. Children that are not affected receive every packet once.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use horolog_io::{Batch, BatchDevice, PacketSocketDevice};
use horolog_lab::{Lab, LabConfig};
use horolog_sys::namespace::die_with_parent;
use horolog_sys::tap::TapInterface;
use horolog_wire::frame::UdpFrame;
use horolog_xdp::{
    Interface, RelayChild, RelayDropReason, RelayGroup, RelayGroupError, RelayPrograms,
    RelayTableCapacities,
};

use crate::isolation::check_nothing_attached;
use crate::lab::HELPER;
use crate::random::Random;
use crate::xdp_relay::{
    CHILD_HOSTS, CHILD_PORT, FRAME_BYTES, SOURCE_PORT, TIMEOUT, XdpRelayTestbed, expected_copy,
    interface, receive_exactly, send,
};

/// Argument that makes the runner a relay that waits to be killed.
pub(crate) const RELAY_HELPER: &str = "relay";
const SEED: u64 = 0x7265_6c61_7922;
/// Time in which an unexpected frame would arrive.
const QUIET_PERIOD: Duration = Duration::from_millis(200);

/// Numbers of the packets that a child received: the first, the last, how many, and how many were
/// not above their predecessor.
#[derive(Clone, Copy, Default, Debug)]
struct ReceivedRange {
    first: u64,
    last: u64,
    count: u64,
    not_above: u64,
}

impl ReceivedRange {
    fn record(&mut self, number: u64) {
        if self.count == 0 {
            self.first = number;
        } else if number <= self.last {
            self.not_above += 1;
        }
        self.last = number;
        self.count += 1;
    }
}

/// Receives copies until none arrives for `QUIET_PERIOD` after `done`; returns them by their port.
fn receive_copies(
    mut receiver: PacketSocketDevice,
    done: &AtomicBool,
) -> Result<BTreeMap<u16, ReceivedRange>> {
    let mut all = BTreeMap::<u16, ReceivedRange>::new();
    let mut batch = Batch::new(64, 128);
    loop {
        let is_done = done.load(Relaxed);
        if receiver.receive(&mut batch, QUIET_PERIOD)? == 0 && is_done {
            ensure!(receiver.dropped()? == 0, "the receiving socket dropped packets");
            return Ok(all);
        }
        for packet in batch.iter() {
            let frame = UdpFrame::parse(packet.bytes);
            let frame = frame.map_err(|error| anyhow!("{error:?}"))?;
            ensure!(frame.has_valid_checksum(), "invalid checksum");
            let number = frame.payload.first_chunk().context("no number")?;
            all.entry(frame.destination.port()).or_default().record(u64::from_be_bytes(*number));
        }
    }
}

/// Sends numbered packets, some thousand per second, until `done`; returns their number.
fn send_numbered(packet: &[u8], mut sender: PacketSocketDevice, done: &AtomicBool) -> Result<u64> {
    let mut number = 0_u64;
    let mut frame = packet.to_vec();
    let payload = frame.len() - 8;
    while !done.load(Relaxed) {
        frame[payload..].copy_from_slice(&number.to_be_bytes());
        let mut batch = Batch::new(1, FRAME_BYTES);
        ensure!(batch.push((), &frame));
        ensure!(sender.send(&mut batch)? == 1, "a packet was not sent");
        number += 1;
        thread::sleep(Duration::from_micros(50));
    }
    Ok(number)
}

/// While children join and leave, those that remain receive every packet once and in order, and the
/// others no packet twice; the counts equal the received copies.
pub(crate) fn remaining_children_receive_every_packet_once() -> Result<()> {
    const CHANGES: usize = 80;
    let mut testbed = XdpRelayTestbed::new(false)?;
    // Without a UDP checksum the number can be changed in place.
    let frame = crate::mutated_frames::no_udp_checksum(testbed.packet(&[0; 8])?);
    let group = testbed.group()?;
    let remaining = [3, 10];
    let mut random = Random::new(SEED);
    testbed.set_group(&group, &[testbed.child(remaining[0])?, testbed.child(remaining[1])?])?;
    let (sender, receivers) = (testbed.sender()?, [testbed.receiver(0)?, testbed.receiver(1)?]);
    let (stop, done) = (AtomicBool::new(false), AtomicBool::new(false));
    let mut copies = BTreeMap::<SocketAddr, u64>::new();
    let (sent, received) = thread::scope(|scope| -> Result<_> {
        let listening = receivers.map(|receiver| scope.spawn(|| receive_copies(receiver, &done)));
        let numbering = scope.spawn(|| send_numbered(&frame, sender, &stop));
        let changed = (0..CHANGES).try_for_each(|_| {
            let others = (0..12).filter(|other| !remaining.contains(other));
            let mut numbers: Vec<usize> =
                others.filter(|_| random.next().is_multiple_of(2)).chain(remaining).collect();
            numbers.sort_unstable_by_key(|number| (number * 7) % 13);
            let children: Result<Vec<_>> = numbers.iter().map(|&n| testbed.child(n)).collect();
            for (child, counts) in testbed.set_group(&group, &children?)? {
                *copies.entry(child).or_default() += counts.sent;
            }
            Ok(())
        });
        stop.store(true, Relaxed);
        let sent = numbering.join().unwrap_or_else(|_| Err(anyhow!("the sender panicked")));
        thread::sleep(QUIET_PERIOD);
        done.store(true, Relaxed);
        let received = listening
            .map(|thread| thread.join().unwrap_or_else(|_| Err(anyhow!("a listener panicked"))));
        changed.and_then(|()| Ok((sent?, received.into_iter().collect::<Result<Vec<_>>>()?)))
    })?;
    for (child, counts) in testbed.relay.child_counts(group.address) {
        *copies.entry(child).or_default() += counts.sent;
    }
    ensure!(sent > 1_000, "only {sent} packets were sent");
    let received: BTreeMap<u16, ReceivedRange> = received.into_iter().flatten().collect();
    for number in remaining {
        let one = received[&(CHILD_PORT + number as u16)];
        let is_complete = (one.first, one.last, one.count, one.not_above) == (0, sent - 1, sent, 0);
        ensure!(is_complete, "child {number}: {one:?} of {sent}, {:?}", testbed.relay.counts());
    }
    for (child, counted) in copies {
        let one = received.get(&child.port()).copied().unwrap_or_default();
        ensure!(one.not_above == 0 && one.count == counted, "{child}: {one:?}, {counted} counted");
    }
    ensure!(testbed.relay.counts().unmatched == 0, "{:?}", testbed.relay.counts());
    Ok(())
}

/// Copies for a child without a resolved next hop, or whose interface is down, are counted by that
/// reason; the other children receive theirs, and it receives its own once it is reachable.
pub(crate) fn an_unreachable_child_costs_the_others_no_packet() -> Result<()> {
    let mut testbed = XdpRelayTestbed::new(false)?;
    let group = testbed.group()?;
    let mut children = testbed.children(4)?;
    children[2].next_hop = None;
    testbed.set_group(&group, &children)?;
    let (mut sender, mut receivers) =
        (testbed.sender()?, [testbed.receiver(0)?, testbed.receiver(1)?]);
    let frames = vec![testbed.packet(b"whoever")?; 8];
    let far = testbed.lab.client().interfaces[2].index;
    let mut netlink = testbed.lab.client().netlink()?;
    send(&mut sender, &frames)?;
    receive_exactly(&mut receivers[0], 8)?;
    receive_exactly(&mut receivers[1], 16)?;
    netlink.set_link_down(far)?;
    send(&mut sender, &frames)?;
    receive_exactly(&mut receivers[0], 8)?;
    // The copies may still be in flight, so they are not counted at once.
    ensure!(testbed.child_counts(1)?.interface_down == 0, "{:?}", testbed.child_counts(1)?);
    let started = Instant::now();
    while testbed.child_counts(1)?.interface_down < 8 {
        ensure!(started.elapsed() < TIMEOUT, "{:?}", testbed.child_counts(1)?);
        testbed.relay.poll_completions();
        thread::sleep(Duration::from_millis(5));
    }
    netlink.set_link_up(far)?;
    children[2] = testbed.child(2)?;
    testbed.set_group(&group, &children)?;
    await_carrier(&testbed)?;
    send(&mut sender, &frames)?;
    receive_exactly(&mut receivers[0], 16)?;
    receive_exactly(&mut receivers[1], 16)?;
    let child_counts = |number| -> Result<_> {
        let counts = testbed.child_counts(number)?;
        Ok([counts.sent, counts.unresolved, counts.interface_down, counts.driver_full])
    };
    ensure!(child_counts(0)? == [24, 0, 0, 0], "{:?}", child_counts(0)?);
    ensure!(child_counts(1)? == [16, 0, 8, 0], "{:?}", child_counts(1)?);
    ensure!(child_counts(2)? == [8, 16, 0, 0], "{:?}", child_counts(2)?);
    Ok(())
}

fn await_carrier(bench: &XdpRelayTestbed) -> Result<()> {
    let mut netlink = bench.lab.client().netlink()?;
    let started = Instant::now();
    while !netlink.link_by_index(bench.lab.client().interfaces[2].index)?.operational {
        ensure!(started.elapsed() < TIMEOUT, "the link does not come up");
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Copies of one packet exceed the capacity of a driver's ring: the first children receive theirs,
/// and the dropped ones are counted if the kernel reports them.
pub(crate) fn copies_dropped_by_a_full_ring_are_counted() -> Result<()> {
    const CHILDREN: usize = 500;
    let mut testbed = XdpRelayTestbed::new(false)?;
    let group = testbed.group()?;
    // All on one host.
    let children: Result<Vec<_>> = (0..CHILDREN).map(|n| testbed.child(n * CHILD_HOSTS)).collect();
    testbed.set_group(&group, &children?)?;
    let (mut sender, mut receiver) = (testbed.sender()?, testbed.receiver(0)?);
    send(&mut sender, &[testbed.packet(b"too many")?])?;
    let mut batch = Batch::new(64, FRAME_BYTES);
    let mut received = 0;
    while receiver.receive(&mut batch, QUIET_PERIOD)? > 0 {
        received += batch.len() as u64;
    }
    let counts = testbed.relay.child_counts(group.address);
    let sent: u64 = counts.iter().map(|(_, counts)| counts.sent).sum();
    let full: u64 = counts.iter().map(|(_, counts)| counts.driver_full).sum();
    ensure!(sent + full == CHILDREN as u64, "{sent} sent and {full} dropped of {CHILDREN}");
    ensure!(received >= 256, "only {received} copies were received");
    if testbed.relay.uncounted_drops_reason().is_none() {
        ensure!(received == sent, "{received} copies received, {sent} counted as sent");
        let first_full = counts.iter().position(|(_, counts)| counts.driver_full > 0);
        ensure!(first_full.is_none_or(|first| first >= 256), "no copy for child {first_full:?}");
    }
    Ok(())
}

/// Packets that this host sends through a dedicated interface are copied, except those from the
/// group's own port; the interface disappears with its holder.
pub(crate) fn this_host_may_send_by_a_dedicated_interface() -> Result<()> {
    for ipv6 in [false, true] {
        let mut testbed = XdpRelayTestbed::new(ipv6)?;
        let group = testbed.group()?;
        let children = testbed.children(5)?;
        testbed.set_group(&group, &children)?;
        let host = testbed.lab.client();
        let tap = host.run(|| TapInterface::open("relay%d"))??;
        let index = host.netlink()?.link_by_name(tap.name())?.index;
        host.netlink()?.set_link_up(index)?;
        let send_interface = Interface { index, name: tap.name().to_owned() };
        let attachment = host.run(|| testbed.relay.attach_send_interface(&send_interface))??;
        let mut receivers = [testbed.receiver(0)?, testbed.receiver(1)?];
        let mut source = group.address;
        let own_frame = testbed.packet_from(source, b"from here")?;
        tap.send(&own_frame)?;
        source.set_port(SOURCE_PORT);
        let frame = testbed.packet_from(source, b"from here")?;
        for _ in 0..10 {
            tap.send(&frame)?;
        }
        for (number, receiver) in receivers.iter_mut().enumerate() {
            let egress = interface(&testbed.lab.client().interfaces[1 + number]);
            let there = children.iter().filter(|child| child.interface.as_ref() == Some(&egress));
            let copies: Result<Vec<_>> = there.map(|child| expected_copy(&frame, child)).collect();
            let copies = vec![copies?; 10].concat();
            ensure!(receive_exactly(receiver, copies.len())? == copies, "host {number}");
        }
        let counts = testbed.relay.group_counts(group.address).context("no group")?;
        ensure!(counts.refused[RelayDropReason::Relay as usize] == 1, "{counts:?}");
        drop((attachment, tap));
        let found = host.netlink()?.link_by_index(index);
        ensure!(found.is_err(), "the interface still exists");
    }
    Ok(())
}

/// An invalid change is refused, and the previous settings stay in force.
pub(crate) fn an_invalid_change_changes_nothing() -> Result<()> {
    let mut testbed = XdpRelayTestbed::new(false)?;
    let group = testbed.group()?;
    let children = testbed.children(3)?;
    testbed.set_group(&group, &children)?;
    let unreachable = RelayChild {
        interface: Some(Interface { index: 40_000, name: "gone0".to_owned() }),
        ..testbed.child(3)?
    };
    for other in
        [vec![unreachable], testbed.children(513)?, [children.clone(), children.clone()].concat()]
    {
        let error =
            testbed.set_group(&group, &other).err().context("an invalid change was accepted")?;
        let group_error = error.downcast_ref::<RelayGroupError>();
        ensure!(group_error.is_some(), "{error:#}");
    }
    for number in 1..4 {
        let mut address = group.address;
        address.set_port(address.port() + 10 * number);
        let number = number.into();
        testbed.set_group(&RelayGroup { number, address, ..group.clone() }, &children)?;
    }
    let mut address = group.address;
    address.set_port(1);
    let full =
        testbed.set_group(&RelayGroup { number: 4, address, ..group.clone() }, &children).err();
    let full = full.context("a fifth group was accepted")?;
    ensure!(matches!(full.downcast_ref(), Some(RelayGroupError::GroupsFull { .. })), "{full:#}");
    let taken =
        testbed.set_group(&RelayGroup { number: 3, address, ..group.clone() }, &children).err();
    let taken = taken.context("a duplicate number was accepted")?;
    ensure!(matches!(taken.downcast_ref(), Some(RelayGroupError::NumberTaken { .. })), "{taken:#}");
    let (mut sender, mut receiver) = (testbed.sender()?, testbed.receiver(0)?);
    let frame = testbed.packet(b"as before")?;
    send(&mut sender, std::slice::from_ref(&frame))?;
    let copies = [expected_copy(&frame, &children[0])?, expected_copy(&frame, &children[2])?];
    ensure!(receive_exactly(&mut receiver, 2)? == copies);
    ensure!(testbed.relay.groups().count() == 4);
    let relay = &mut testbed.relay;
    let gone = testbed.lab.client().run(|| relay.remove_group(group.address))??;
    ensure!(gone.counts.packets == 1, "{gone:?}");
    let former = gone.children;
    ensure!(former.len() == 3 && former.iter().all(|(_, counts)| counts.sent == 1), "{former:?}");
    ensure!(testbed.relay.group_counts(group.address).is_none());
    Ok(())
}

/// A killed relay leaves no program attached.
pub(crate) fn a_killed_relay_leaves_nothing() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let host = lab.server();
    let mut command = host.command(std::env::current_exe()?);
    let port = host.first_interface();
    command.args([HELPER, RELAY_HELPER, &port.name, &port.index.to_string()]);
    let mut relay = die_with_parent(command.stdout(Stdio::piped())).spawn()?;
    let output = relay.stdout.take().context("no output")?;
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line)?;
    let attached = check_nothing_attached(host).is_err();
    crate::process::signal(&relay, "KILL")?;
    relay.wait()?;
    ensure!(line == "ready\n" && attached, "the relay did not start: {line:?}");
    let started = Instant::now();
    while let Err(left) = check_nothing_attached(host) {
        ensure!(started.elapsed() < TIMEOUT, "{left:#}");
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Runs the relay that is killed.
pub(crate) fn hold_relay(name: &str, index: &str) -> Result<()> {
    let settings =
        RelayTableCapacities { groups: 1, children_per_group: 1, children: 1, addresses: 1 };
    let mut relay = RelayPrograms::load(&settings)?;
    let interface = Interface { index: index.parse()?, name: name.to_owned() };
    let _attachment = relay.attach(&interface)?;
    let group = RelayGroup {
        number: 0,
        address: "192.0.2.2:5000".parse()?,
        addresses: vec!["192.0.2.2".parse()?],
        interface: None,
        sources: vec!["0.0.0.0/0".parse()?],
        local_addresses: Vec::new(),
        length_max: 1_500,
        hops_max: 32,
        hops_reset: false,
        limit: None,
        copy_cost_ns: 0,
    };
    let child = RelayChild {
        destination: "192.0.2.1:6000".parse()?,
        source: "192.0.2.2:5001".parse()?,
        interface: Some(interface),
        source_mac: [2; 6],
        next_hop: None,
    };
    relay.set_group(&group, &[child])?;
    println!("ready");
    loop {
        thread::park();
    }
}
