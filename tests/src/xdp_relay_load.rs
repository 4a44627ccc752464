//! A scenario of the relay's XDP engine under load: every core sends full batches, as fast as it
//! can within what rings hold, while children join and leave.

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
use crate::xdp_relay::{Bench, CHILD_HOSTS, CHILD_PORT, interface};

const SEED: u64 = 0x7265_6c61_7924;
/// Payload of a packet: the mark of a stream, and more.
const SIZE: usize = 100;
/// Children that there are at one time or another; the first stays.
const CHILDREN: usize = 8;
const CHANGES: usize = 60;
/// Copies for an interface at a time: as many as the kernel takes in at once, so that a ring holds
/// them for as long as whoever empties it is not kept from its processor.
const TOGETHER: usize = 64;
/// Of who stays, so much arrives at least: a processor that others have for long lets rings fill.
const SHARE_MIN: f64 = 0.5;
/// Long enough for what is on its way to arrive.
const DRAIN: Duration = Duration::from_millis(300);
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Copies that were counted for children that went.
type RemovedChildCopies = BTreeMap<SocketAddr, u64>;

/// Who stays gets every packet once, from every core in order, but for those that are counted as
/// having found its interface full; who comes and goes gets what is counted for it; and no copy is
/// said to be unmade meanwhile that is still to be made.
pub(crate) fn full_batches_from_every_core_reach_remaining_children() -> Result<()> {
    // By turns many packets at once with few copies, and fewer with more.
    for of_host in [1, 4] {
        let cores = affinity::allowed_cores()?;
        let mut bench = Bench::with_queues(false, cores.len() as u32)?;
        let sink = StreamSink::load(cores.len() as u32, CHILDREN as u32)?;
        let attached: Result<Vec<_>> = (0..CHILD_HOSTS)
            .map(|number| {
                let host = bench.child_host(number);
                Ok(host.run(|| sink.attach(&interface(host.first_interface())))??)
            })
            .collect();
        let _attached = attached?;
        sink.begin_trial(&StreamTrialExpectation {
            number: 1,
            lanes: cores.len() as u32,
            children: CHILDREN as u32,
            first_port: CHILD_PORT,
            payload_len: SIZE as u32,
            timed: false,
        });
        let frame =
            StreamFrameTemplate::new(bench.packet(&payload())?).context("no room for a mark")?;
        let host = bench.lab.server();
        let source =
            host.run(|| StreamSource::attach(&interface(host.first_interface()), frame))??;
        let group = bench.group()?;
        bench.set(&group, &[bench.child(0)?])?;
        let batch = (TOGETHER / of_host) as u32;
        let children = bench.children(CHILDREN)?;
        let Bench { lab, relay, .. } = &mut bench;
        let senders = Senders { host: lab.server(), source: &source, cores: &cores, batch };
        let copies =
            senders.send_while(|| change(lab.client(), relay, &group, &children, of_host))?;
        thread::sleep(DRAIN);
        let sent: Vec<u64> = cores.iter().map(|&core| source.lane(core as u32).sent).collect();
        check(&bench, &group, &sink, &sent, copies)
            .with_context(|| format!("batches of {batch}"))?;
    }
    Ok(())
}

fn payload() -> Vec<u8> {
    (0..SIZE).map(|at| if at < STREAM_MARK_LEN { 0 } else { at as u8 }).collect()
}

/// A thread on every core of the source.
struct Senders<'a> {
    host: &'a LabHost,
    source: &'a StreamSource,
    cores: &'a [usize],
    batch: u32,
}

impl Senders<'_> {
    /// Has all of them send what they can while something is done.
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
                // It may be between two calls when a signal comes.
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

/// A lane of packets that are always due.
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

/// Has children come and go, no more than so many of a host; what those got that went.
fn change(
    host: &LabHost,
    relay: &mut RelayPrograms,
    group: &RelayGroup,
    children: &[RelayChild],
    of_host: usize,
) -> Result<RemovedChildCopies> {
    let mut random = Random::new(SEED);
    let mut copies = RemovedChildCopies::new();
    for _ in 0..CHANGES {
        let mut numbers = vec![0];
        for number in 1..CHILDREN {
            let there = numbers.iter().filter(|one| *one % CHILD_HOSTS == number % CHILD_HOSTS);
            if there.count() < of_host && random.next().is_multiple_of(2) {
                numbers.push(number);
            }
        }
        // Who stays stands here or there among the others.
        let turn = random.within(0..=7) as usize;
        numbers.sort_unstable_by_key(|number| (number + turn) % CHILDREN);
        let present: Vec<_> = numbers.iter().map(|&number| children[number].clone()).collect();
        for (child, counts) in host.run(|| relay.set_group(group, &present))?? {
            *copies.entry(child).or_default() += counts.sent;
        }
        for _ in 0..20 {
            no_copy_is_unsent(relay, group)?;
        }
    }
    Ok(copies)
}

fn no_copy_is_unsent(relay: &RelayPrograms, group: &RelayGroup) -> Result<()> {
    let counts = relay.child_counts(group.address);
    let unmade = |(_, counts): &&(_, RelayChildCounts)| counts.interface_down > 0;
    let odd = counts.iter().find(unmade);
    ensure!(odd.is_none(), "said not to be made while copies are: {odd:?}");
    Ok(())
}

fn check(
    bench: &Bench,
    group: &RelayGroup,
    sink: &StreamSink,
    sent: &[u64],
    mut copies: RemovedChildCopies,
) -> Result<()> {
    let of_child = |number: usize| {
        (0..sent.len()).map(move |lane| sink.child_counts(lane as u32, number as u32))
    };
    let counts = bench.relay.child_counts(group.address);
    let all: u64 = sent.iter().sum();
    let packets = bench.relay.group_counts(group.address).context("no group")?.packets;
    let overall = bench.relay.counts();
    // What the relay's own ring had no room for, nobody counts; but no packet of the source is
    // left to the network stack, where others of the link go.
    ensure!((10_000..=all).contains(&packets), "{packets} of {all} were copied: {overall:?}");
    let left: u64 = overall.passed.iter().sum();
    ensure!(left < 1_000 && overall.unmatched == 0, "{packets} of {all} were copied: {overall:?}");
    let received: u64 = of_child(0).map(|one| one.packets).sum();
    let who_stayed = bench.child(0)?.destination;
    let of_who_stayed = counts.iter().find(|(child, _)| *child == who_stayed);
    let (_, RelayChildCounts { driver_full, .. }) = of_who_stayed.context("who stayed is not")?;
    let message = format!("{received} of {packets} came to who stayed: {counts:?}");
    ensure!(
        received + driver_full == packets && received as f64 > SHARE_MIN * packets as f64,
        "{message}"
    );
    for (child, counts) in counts {
        *copies.entry(child).or_default() += counts.sent;
    }
    for number in 0..CHILDREN {
        let child = bench.child(number)?.destination;
        let received = of_child(number).map(|one| one.packets).sum::<u64>();
        let counted = copies.get(&child).copied().unwrap_or(0);
        ensure!(received == counted, "{received} came to {child}, {counted} were counted");
        let odd = of_child(number).find(|one| one.disordered + one.damaged > 0);
        // Out of order is whatever came twice, too.
        ensure!(odd.is_none(), "{child}: {odd:?}");
    }
    no_copy_is_unsent(&bench.relay, group)
}
