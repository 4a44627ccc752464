//! Scenario of the relay's XDP engine under load: every core sends full batches, as fast as the
//! rings allow, while children join and leave.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use horolog_lab::LabHost;
use horolog_sys::affinity;
use horolog_sys::clock::ClockMonotonic;
use horolog_sys::signal::InterruptibleThread;
use horolog_time::Clock;
use horolog_xdp::{
    RelayChild, RelayChildCounts, RelayGroup, RelayPrograms, STREAM_MARK_LEN, StreamFrameTemplate,
    StreamLane, StreamSink, StreamSource, StreamTrialExpectation,
};

use crate::random::Random;
use crate::xdp_relay::{CHILD_HOSTS, CHILD_PORT, XdpRelayTestbed, interface};

const SEED: u64 = 0x7265_6c61_7924;
/// Length of a packet's payload in bytes: the mark of a stream and padding.
const PAYLOAD_LEN: usize = 100;
/// Number of children that are ever present; the first one remains.
const CHILDREN: usize = 8;
const CHANGES: usize = 60;
/// Copies for an interface per batch: as many as the kernel processes at once, so that a ring holds
/// them unless the thread that empties it loses its CPU for long.
const COPIES_PER_BATCH: usize = 64;
/// Least share of packets that the remaining child receives: rings fill while other programs keep a
/// CPU.
const SHARE_MIN: f64 = 0.5;
/// Time in which packets in flight arrive.
const DRAIN: Duration = Duration::from_millis(300);
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Copies that were counted for removed children.
type RemovedChildCopies = BTreeMap<SocketAddr, u64>;

/// The remaining child receives every packet once, in order for each core, except for those counted
/// as dropped by a full interface; other children receive as many as counted; and no copy is
/// counted as unsent because of an interface that is down.
pub(crate) fn full_batches_from_every_core_reach_remaining_children() -> Result<()> {
    // First large batches with few copies of each packet, then small ones with more.
    for children_per_host in [1, 4] {
        let cores = affinity::allowed_cores()?;
        let mut testbed = XdpRelayTestbed::with_queues(false, cores.len() as u32)?;
        let sink = StreamSink::load(cores.len() as u32, CHILDREN as u32)?;
        let attached: Result<Vec<_>> = (0..CHILD_HOSTS)
            .map(|number| {
                let host = testbed.child_host(number);
                Ok(host.run(|| sink.attach(&interface(host.first_interface())))??)
            })
            .collect();
        let _attached = attached?;
        sink.begin_trial(&StreamTrialExpectation {
            number: 1,
            lanes: cores.len() as u32,
            children: CHILDREN as u32,
            first_port: CHILD_PORT,
            payload_len: PAYLOAD_LEN as u32,
            timed: false,
        });
        let frame =
            StreamFrameTemplate::new(testbed.packet(&payload())?).context("no room for a mark")?;
        let host = testbed.lab.server();
        let source =
            host.run(|| StreamSource::attach(&interface(host.first_interface()), frame))??;
        let group = testbed.group()?;
        testbed.set_group(&group, &[testbed.child(0)?])?;
        let batch = (COPIES_PER_BATCH / children_per_host) as u32;
        let children = testbed.children(CHILDREN)?;
        let XdpRelayTestbed { lab, relay, .. } = &mut testbed;
        let senders = Senders { host: lab.server(), source: &source, cores: &cores, batch };
        let copies = senders.send_while(|| {
            change_children(lab.client(), relay, &group, &children, children_per_host)
        })?;
        thread::sleep(DRAIN);
        let sent: Vec<u64> = cores.iter().map(|&core| source.lane(core as u32).sent).collect();
        check_counts(&testbed, &group, &sink, &sent, copies)
            .with_context(|| format!("batches of {batch}"))?;
    }
    Ok(())
}

fn payload() -> Vec<u8> {
    (0..PAYLOAD_LEN).map(|at| if at < STREAM_MARK_LEN { 0 } else { at as u8 }).collect()
}

/// Sending threads, one on each core of the source.
struct Senders<'a> {
    host: &'a LabHost,
    source: &'a StreamSource,
    cores: &'a [usize],
    batch: u32,
}

impl Senders<'_> {
    /// Runs `work` while all threads send as fast as they can.
    fn send_while<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        thread::scope(|scope| {
            let senders = (0..self.cores.len()).map(|number| {
                let (thread_sender, thread_receiver) = mpsc::channel();
                (
                    scope.spawn(move || self.host.run(|| self.send(number, &thread_sender))?),
                    thread_receiver,
                )
            });
            let senders: Vec<_> = senders.collect();
            let done = work();
            for ((task, thread_receiver), &core) in senders.into_iter().zip(self.cores) {
                let thread = thread_receiver.recv();
                self.source.end_lane(core as u32);
                // The thread may be between two calls when the signal arrives.
                while !task.is_finished() {
                    if let Ok(thread) = &thread {
                        thread.interrupt()?;
                    }
                    thread::sleep(POLL_INTERVAL);
                }
                task.join().unwrap_or_else(|_| Err(anyhow!("a sender panicked")))?;
            }
            done
        })
    }

    fn send(&self, number: usize, thread_sender: &mpsc::Sender<InterruptibleThread>) -> Result<()> {
        let core = self.cores[number];
        affinity::pin_to_core(core)?;
        self.source.set_lane(core as u32, &lane(number));
        thread_sender.send(InterruptibleThread::current()?)?;
        while self.source.lane(core as u32).done == 0 {
            self.source.send(self.batch)?;
        }
        Ok(())
    }
}

/// Returns a lane whose packets are always due.
fn lane(number: usize) -> StreamLane {
    StreamLane {
        start_ns: ClockMonotonic.now().as_ns() as u64,
        interval: 1,
        end: u64::MAX,
        late_max: u64::MAX / 2,
        trial: 1,
        number: number as u32,
        active: 1,
        ..StreamLane::default()
    }
}

/// Adds and removes children, with a limit per host. Returns the copies of removed ones.
fn change_children(
    host: &LabHost,
    relay: &mut RelayPrograms,
    group: &RelayGroup,
    children: &[RelayChild],
    children_per_host: usize,
) -> Result<RemovedChildCopies> {
    let mut random = Random::new(SEED);
    let mut copies = RemovedChildCopies::new();
    for _ in 0..CHANGES {
        let mut numbers = vec![0];
        for number in 1..CHILDREN {
            let there = numbers.iter().filter(|one| *one % CHILD_HOSTS == number % CHILD_HOSTS);
            if there.count() < children_per_host && random.next().is_multiple_of(2) {
                numbers.push(number);
            }
        }
        // The remaining child is at any position among the others.
        let turn = random.within(0..=7) as usize;
        numbers.sort_unstable_by_key(|number| (number + turn) % CHILDREN);
        let present: Vec<_> = numbers.iter().map(|&number| children[number].clone()).collect();
        for (child, counts) in host.run(|| relay.set_group(group, &present))?? {
            *copies.entry(child).or_default() += counts.sent;
        }
        for _ in 0..20 {
            check_no_copy_unsent(relay, group)?;
        }
    }
    Ok(copies)
}

fn check_no_copy_unsent(relay: &RelayPrograms, group: &RelayGroup) -> Result<()> {
    let counts = relay.child_counts(group.address);
    let is_unsent = |(_, counts): &&(_, RelayChildCounts)| counts.interface_down > 0;
    let odd = counts.iter().find(is_unsent);
    ensure!(odd.is_none(), "copies are counted as unsent: {odd:?}");
    Ok(())
}

fn check_counts(
    testbed: &XdpRelayTestbed,
    group: &RelayGroup,
    sink: &StreamSink,
    sent: &[u64],
    mut copies: RemovedChildCopies,
) -> Result<()> {
    let of_child = |number: usize| {
        (0..sent.len()).map(move |lane| sink.child_counts(lane as u32, number as u32))
    };
    let counts = testbed.relay.child_counts(group.address);
    let all: u64 = sent.iter().sum();
    let packets = testbed.relay.group_counts(group.address).context("no group")?.packets;
    let overall = testbed.relay.counts();
    // Packets dropped by the relay's own ring are not counted anywhere; but no packet of the source
    // is left to the network stack, which receives other packets of the link.
    ensure!((10_000..=all).contains(&packets), "{packets} of {all} were copied: {overall:?}");
    let left: u64 = overall.passed.iter().sum();
    ensure!(left < 1_000 && overall.unmatched == 0, "{packets} of {all} were copied: {overall:?}");
    let received: u64 = of_child(0).map(|one| one.packets).sum();
    let remaining = testbed.child(0)?.destination;
    let remaining_counts = counts.iter().find(|(child, _)| *child == remaining);
    let (_, RelayChildCounts { driver_full, .. }) =
        remaining_counts.context("no counts of the remaining child")?;
    let message = format!("the remaining child got {received} of {packets} packets: {counts:?}");
    ensure!(
        received + driver_full == packets && received as f64 > SHARE_MIN * packets as f64,
        "{message}"
    );
    for (child, counts) in counts {
        *copies.entry(child).or_default() += counts.sent;
    }
    for number in 0..CHILDREN {
        let child = testbed.child(number)?.destination;
        let received = of_child(number).map(|one| one.packets).sum::<u64>();
        let counted = copies.get(&child).copied().unwrap_or(0);
        ensure!(received == counted, "{child} received {received} copies, {counted} are counted");
        let odd = of_child(number).find(|one| one.disordered + one.damaged > 0);
        // Duplicates count as disordered, too.
        ensure!(odd.is_none(), "{child}: {odd:?}");
    }
    check_no_copy_unsent(&testbed.relay, group)
}
