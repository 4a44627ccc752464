//! Scenarios of the relay's XDP engine during changes: children join and leave, interfaces go down,
//! rings are full, the process dies. Children that are not concerned receive every packet once.

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

use crate::lab::HELPER;
use crate::random::Random;
use crate::resource_leaks::nothing_is_attached;
use crate::xdp_relay::{
    Bench, CHILD_HOSTS, CHILD_PORT, FRAME_BYTES, SOURCE_PORT, TIMEOUT, expected, interface, send,
    take,
};

/// What makes the runner a relay that waits to be killed.
pub(crate) const RELAY_HELPER: &str = "relay";
const SEED: u64 = 0x7265_6c61_7922;
/// Long enough for a frame that must not come to show itself.
const QUIET_PERIOD: Duration = Duration::from_millis(200);

/// What came to a child: the first and the last number, how many, and how many were not above the
/// one before.
#[derive(Clone, Copy, Default, Debug)]
struct ReceivedRange {
    first: u64,
    last: u64,
    count: u64,
    not_above: u64,
}

impl ReceivedRange {
    fn take(&mut self, number: u64) {
        if self.count == 0 {
            self.first = number;
        } else if number <= self.last {
            self.not_above += 1;
        }
        self.last = number;
        self.count += 1;
    }
}

/// Takes copies until nothing has come for a while after `done`, by the port that they came to.
fn listen(
    mut receiver: PacketSocketDevice,
    done: &AtomicBool,
) -> Result<BTreeMap<u16, ReceivedRange>> {
    let mut all = BTreeMap::<u16, ReceivedRange>::new();
    let mut batch = Batch::new(64, 128);
    loop {
        let over = done.load(Relaxed);
        if receiver.receive(&mut batch, QUIET_PERIOD)? == 0 && over {
            ensure!(receiver.dropped()? == 0, "the scenario's own socket dropped some");
            return Ok(all);
        }
        for packet in batch.iter() {
            let frame = UdpFrame::parse(packet.bytes);
            let frame = frame.map_err(|error| anyhow!("{error:?}"))?;
            ensure!(frame.has_valid_checksum(), "a wrong checksum");
            let number = frame.payload.first_chunk().context("no number")?;
            all.entry(frame.destination.port()).or_default().take(u64::from_be_bytes(*number));
        }
    }
}

/// Sends numbered packets, a few thousand in a second, until `done`; returns how many.
fn number(bench_packet: &[u8], mut sender: PacketSocketDevice, done: &AtomicBool) -> Result<u64> {
    let mut number = 0_u64;
    let mut frame = bench_packet.to_vec();
    let payload = frame.len() - 8;
    while !done.load(Relaxed) {
        frame[payload..].copy_from_slice(&number.to_be_bytes());
        let mut batch = Batch::new(1, FRAME_BYTES);
        ensure!(batch.push((), &frame));
        ensure!(sender.send(&mut batch)? == 1, "it was not sent");
        number += 1;
        thread::sleep(Duration::from_micros(50));
    }
    Ok(number)
}

/// While children come and go, and other MAC addresses are heard of, those that stay get every
/// packet once and in order, and those that do not get none twice; and the counts are those.
pub(crate) fn remaining_children_receive_every_packet_once() -> Result<()> {
    const CHANGES: usize = 80;
    let mut bench = Bench::new(false)?;
    // Without a UDP checksum the number can be changed in place.
    let frame = crate::mutated_frames::no_udp_checksum(bench.packet(&[0; 8])?);
    let group = bench.group()?;
    let staying = [3, 10];
    let mut random = Random::new(SEED);
    bench.set(&group, &[bench.child(staying[0])?, bench.child(staying[1])?])?;
    let (sender, receivers) = (bench.sender()?, [bench.receiver(0)?, bench.receiver(1)?]);
    let (stop, done) = (AtomicBool::new(false), AtomicBool::new(false));
    let mut copies = BTreeMap::<SocketAddr, u64>::new();
    let (sent, received) = thread::scope(|scope| -> Result<_> {
        let listening = receivers.map(|receiver| scope.spawn(|| listen(receiver, &done)));
        let numbering = scope.spawn(|| number(&frame, sender, &stop));
        let changed = (0..CHANGES).try_for_each(|_| {
            let others = (0..12).filter(|other| !staying.contains(other));
            let mut numbers: Vec<usize> =
                others.filter(|_| random.next().is_multiple_of(2)).chain(staying).collect();
            numbers.sort_unstable_by_key(|number| (number * 7) % 13);
            let children: Result<Vec<_>> = numbers.iter().map(|&n| bench.child(n)).collect();
            for (child, counts) in bench.set(&group, &children?)? {
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
    for (child, counts) in bench.relay.child_counts(group.address) {
        *copies.entry(child).or_default() += counts.sent;
    }
    ensure!(sent > 1_000, "{sent} were sent");
    let received: BTreeMap<u16, ReceivedRange> = received.into_iter().flatten().collect();
    for number in staying {
        let one = received[&(CHILD_PORT + number as u16)];
        let whole = (one.first, one.last, one.count, one.not_above) == (0, sent - 1, sent, 0);
        ensure!(whole, "child {number}: {one:?} of {sent}, {:?}", bench.relay.counts());
    }
    for (child, counted) in copies {
        let one = received.get(&child.port()).copied().unwrap_or_default();
        ensure!(one.not_above == 0 && one.count == counted, "{child}: {one:?}, {counted} counted");
    }
    ensure!(bench.relay.counts().unmatched == 0, "{:?}", bench.relay.counts());
    Ok(())
}

/// Copies for a child whose next hop nobody knows, or whose interface is down, are counted as that;
/// the others get theirs, and it gets its own when it can.
pub(crate) fn an_unreachable_child_costs_the_others_no_packet() -> Result<()> {
    let mut bench = Bench::new(false)?;
    let group = bench.group()?;
    let mut children = bench.children(4)?;
    children[2].next_hop = None;
    bench.set(&group, &children)?;
    let (mut sender, mut receivers) = (bench.sender()?, [bench.receiver(0)?, bench.receiver(1)?]);
    let frames = vec![bench.packet(b"whoever")?; 8];
    let far = bench.lab.client().interfaces[2].index;
    let mut netlink = bench.lab.client().netlink()?;
    send(&mut sender, &frames)?;
    take(&mut receivers[0], 8)?;
    take(&mut receivers[1], 16)?;
    netlink.set_link_down(far)?;
    send(&mut sender, &frames)?;
    take(&mut receivers[0], 8)?;
    // As far as can be known at once, their copies may be on their way.
    ensure!(bench.counts_of(1)?.interface_down == 0, "{:?}", bench.counts_of(1)?);
    let started = Instant::now();
    while bench.counts_of(1)?.interface_down < 8 {
        ensure!(started.elapsed() < TIMEOUT, "{:?}", bench.counts_of(1)?);
        bench.relay.poll_completions();
        thread::sleep(Duration::from_millis(5));
    }
    netlink.set_link_up(far)?;
    children[2] = bench.child(2)?;
    bench.set(&group, &children)?;
    await_carrier(&bench)?;
    send(&mut sender, &frames)?;
    take(&mut receivers[0], 16)?;
    take(&mut receivers[1], 16)?;
    let child_counts = |number| -> Result<_> {
        let counts = bench.counts_of(number)?;
        Ok([counts.sent, counts.unresolved, counts.interface_down, counts.driver_full])
    };
    ensure!(child_counts(0)? == [24, 0, 0, 0], "{:?}", child_counts(0)?);
    ensure!(child_counts(1)? == [16, 0, 8, 0], "{:?}", child_counts(1)?);
    ensure!(child_counts(2)? == [8, 16, 0, 0], "{:?}", child_counts(2)?);
    Ok(())
}

fn await_carrier(bench: &Bench) -> Result<()> {
    let mut netlink = bench.lab.client().netlink()?;
    let started = Instant::now();
    while !netlink.link_by_index(bench.lab.client().interfaces[2].index)?.operational {
        ensure!(started.elapsed() < TIMEOUT, "the link does not come up");
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// More copies of one packet than a driver's ring holds: the first children get theirs, and the
/// rest is counted where the kernel tells.
pub(crate) fn copies_dropped_by_a_full_ring_are_counted() -> Result<()> {
    const CHILDREN: usize = 500;
    let mut bench = Bench::new(false)?;
    let group = bench.group()?;
    // All at one host.
    let children: Result<Vec<_>> = (0..CHILDREN).map(|n| bench.child(n * CHILD_HOSTS)).collect();
    bench.set(&group, &children?)?;
    let (mut sender, mut receiver) = (bench.sender()?, bench.receiver(0)?);
    send(&mut sender, &[bench.packet(b"too many")?])?;
    let mut batch = Batch::new(64, FRAME_BYTES);
    let mut received = 0;
    while receiver.receive(&mut batch, QUIET_PERIOD)? > 0 {
        received += batch.len() as u64;
    }
    let counts = bench.relay.child_counts(group.address);
    let sent: u64 = counts.iter().map(|(_, counts)| counts.sent).sum();
    let full: u64 = counts.iter().map(|(_, counts)| counts.driver_full).sum();
    ensure!(sent + full == CHILDREN as u64, "{sent} and {full} of {CHILDREN}");
    ensure!(received >= 256, "{received} came");
    if bench.relay.uncounted_drops_reason().is_none() {
        ensure!(received == sent, "{received} came, {sent} were counted as sent");
        let first_full = counts.iter().position(|(_, counts)| counts.driver_full > 0);
        ensure!(first_full.is_none_or(|first| first >= 256), "{first_full:?} got none");
    }
    Ok(())
}

/// What this host itself puts in by an interface of its own is copied, but what comes from a
/// group's own port; the interface goes with its holder.
pub(crate) fn this_host_may_send_by_a_dedicated_interface() -> Result<()> {
    for ipv6 in [false, true] {
        let mut bench = Bench::new(ipv6)?;
        let group = bench.group()?;
        let children = bench.children(5)?;
        bench.set(&group, &children)?;
        let host = bench.lab.client();
        let tap = host.run(|| TapInterface::open("relay%d"))??;
        let index = host.netlink()?.link_by_name(tap.name())?.index;
        host.netlink()?.set_link_up(index)?;
        let send_interface = Interface { index, name: tap.name().to_owned() };
        let attachment = host.run(|| bench.relay.attach_send_interface(&send_interface))??;
        let mut receivers = [bench.receiver(0)?, bench.receiver(1)?];
        let mut source = group.address;
        let loop_ = bench.packet_from(source, b"from here")?;
        tap.send(&loop_)?;
        source.set_port(SOURCE_PORT);
        let frame = bench.packet_from(source, b"from here")?;
        for _ in 0..10 {
            tap.send(&frame)?;
        }
        for (number, receiver) in receivers.iter_mut().enumerate() {
            let leaves_by = interface(&bench.lab.client().interfaces[1 + number]);
            let there =
                children.iter().filter(|child| child.interface.as_ref() == Some(&leaves_by));
            let copies: Result<Vec<_>> = there.map(|child| expected(&frame, child)).collect();
            let copies = vec![copies?; 10].concat();
            ensure!(take(receiver, copies.len())? == copies, "host {number}");
        }
        let counts = bench.relay.group_counts(group.address).context("no group")?;
        ensure!(counts.refused[RelayDropReason::Relay as usize] == 1, "{counts:?}");
        drop((attachment, tap));
        ensure!(host.netlink()?.link_by_index(index).is_err(), "the interface is still there");
    }
    Ok(())
}

/// What cannot be set is told, and what was set before goes on.
pub(crate) fn an_invalid_change_changes_nothing() -> Result<()> {
    let mut bench = Bench::new(false)?;
    let group = bench.group()?;
    let children = bench.children(3)?;
    bench.set(&group, &children)?;
    let gone = RelayChild {
        interface: Some(Interface { index: 40_000, name: "gone0".to_owned() }),
        ..bench.child(3)?
    };
    for other in [vec![gone], bench.children(513)?, [children.clone(), children.clone()].concat()] {
        let error = bench.set(&group, &other).err().context("it was set")?;
        let group_error = error.downcast_ref::<RelayGroupError>();
        ensure!(group_error.is_some(), "{error:#}");
    }
    for number in 1..4 {
        let mut address = group.address;
        address.set_port(address.port() + 10 * number);
        let number = number.into();
        bench.set(&RelayGroup { number, address, ..group.clone() }, &children)?;
    }
    let mut address = group.address;
    address.set_port(1);
    let full = bench.set(&RelayGroup { number: 4, address, ..group.clone() }, &children).err();
    let full = full.context("a fifth group of four")?;
    ensure!(matches!(full.downcast_ref(), Some(RelayGroupError::GroupsFull { .. })), "{full:#}");
    let taken = bench.set(&RelayGroup { number: 3, address, ..group.clone() }, &children).err();
    let taken = taken.context("a number twice")?;
    ensure!(matches!(taken.downcast_ref(), Some(RelayGroupError::NumberTaken { .. })), "{taken:#}");
    let (mut sender, mut receiver) = (bench.sender()?, bench.receiver(0)?);
    let frame = bench.packet(b"as before")?;
    send(&mut sender, std::slice::from_ref(&frame))?;
    let copies = [expected(&frame, &children[0])?, expected(&frame, &children[2])?];
    ensure!(take(&mut receiver, 2)? == copies);
    ensure!(bench.relay.groups().count() == 4);
    let relay = &mut bench.relay;
    let gone = bench.lab.client().run(|| relay.remove_group(group.address))??;
    ensure!(gone.counts.packets == 1, "{gone:?}");
    let former = gone.children;
    ensure!(former.len() == 3 && former.iter().all(|(_, counts)| counts.sent == 1), "{former:?}");
    ensure!(bench.relay.group_counts(group.address).is_none());
    Ok(())
}

/// A relay that is killed leaves no program behind, and copies nothing any more.
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
    let attached = nothing_is_attached(host).is_err();
    crate::process::signal(&relay, "KILL")?;
    relay.wait()?;
    ensure!(line == "ready\n" && attached, "it did not work: {line:?}");
    let started = Instant::now();
    while let Err(left) = nothing_is_attached(host) {
        ensure!(started.elapsed() < TIMEOUT, "{left:#}");
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// The relay that is killed.
pub(crate) fn hold(name: &str, index: &str) -> Result<()> {
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
