//! Against a simulated server over a simulated wire, in simulated time, where the truth is known.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use horolog_io::{FaultInjectionPlan, FaultyDevice};
use horolog_record::{InvalidReplyReason, TimestampCounts};
use horolog_time::{Clock, NS_PER_S, SimulatedClock, Span, TimeGrid, Utc};
use horolog_wire::ethernet::MacAddress;
use horolog_wire::frame::UdpFrameBuilder;
use proptest::prelude::*;

use super::*;

const START: i64 = 1_700_000_000 * NS_PER_S;
/// The server's clock is ahead by this much.
const AHEAD_NS: i64 = 250_000;
const THERE_NS: i64 = 40_000;
const AT_SERVER_NS: i64 = 5_000;
const BACK_NS: i64 = 44_000;
/// Between what this program, the kernel and the card see of a packet.
const TO_KERNEL_NS: i64 = 6_000;
const TO_NIC_NS: i64 = 2_000;
/// The card's clock is ahead by this much.
const PHC_AHEAD_NS: i64 = 37 * NS_PER_S + 123;
const NIC_INDEX: u32 = 7;
const CONVERSION: Span = Span::from_ns(40);

struct SimulatedPace(Arc<SimulatedClock>);

impl QueryClock for SimulatedPace {
    fn utc(&self) -> Timestamp<Utc> {
        self.0.now()
    }

    fn monotonic(&self) -> Timestamp<Monotonic> {
        self.0.now()
    }

    fn sleep(&self, time: Duration) {
        self.0.advance(Span::from_ns(time.as_nanos() as i64));
    }
}

struct SimulatedNicClock;

impl NicClock for SimulatedNicClock {
    fn compare_if_due(&mut self) {}

    fn convert(&self, time: HardwareTimestamp) -> Option<PacketTimestamp> {
        let at = Timestamp::from_ns(time.ns - PHC_AHEAD_NS);
        (time.interface == NIC_INDEX).then(|| PacketTimestamp::hardware(at, CONVERSION))
    }

    fn describe(&self) -> PhcTimestampSource {
        PhcTimestampSource { interface: "card".into(), clock: 3, conversion_uncertainty_ns: 40 }
    }
}

/// What the server makes of the reply that it ought to send.
type Humour = fn(&mut Vec<u8>, u64);

/// A wire with a server at its end.
struct Wire {
    clock: Arc<SimulatedClock>,
    humour: Humour,
    requests: u64,
    /// The best that timestamps are taken by.
    best_source: TimestampSource,
    /// The server forgets its clients at once.
    forgetful: bool,
    /// The network doubles replies.
    twice: bool,
    /// Somebody sends for ever.
    flooded: bool,
    /// Datagrams on their way back, by when they reach the card.
    coming: VecDeque<(i64, Vec<u8>)>,
    looped: VecDeque<(i64, Vec<u8>)>,
    memory: Option<(NtpTimestamp, NtpTimestamp)>,
}

impl Wire {
    fn new(humour: Humour) -> Self {
        Self {
            clock: Arc::new(SimulatedClock::new(START)),
            humour,
            requests: 0,
            best_source: TimestampSource::Kernel,
            forgetful: false,
            twice: false,
            flooded: false,
            coming: VecDeque::new(),
            looped: VecDeque::new(),
            memory: None,
        }
    }

    fn now_ns(&self) -> i64 {
        Clock::<Utc>::now(&*self.clock).as_ns()
    }

    fn advance(&self, ns: i64) {
        self.clock.advance(Span::from_ns(ns));
    }

    /// The server receives a request at this instant of true time.
    fn serve(&mut self, request: &[u8], at_ns: i64) {
        let by_server = |ns: i64| NtpTimestamp::from_utc(Timestamp::from_ns(ns + AHEAD_NS));
        let (header, _) = Header::parse(request).unwrap();
        let (receive, left) = (by_server(at_ns), by_server(at_ns + AT_SERVER_NS));
        // What the reply says is when it was made, before it left.
        let made = by_server(at_ns + AT_SERVER_NS / 2);
        let known = self.memory.replace((receive, left));
        let (origin, transmit) = match known {
            Some((key, left)) if key == header.origin && !self.forgetful => (header.receive, left),
            _ => (header.transmit, made),
        };
        let reply = Header {
            mode: AssociationMode::Server,
            stratum: 1,
            precision: -30,
            reference_id: *b"GPS\0",
            origin,
            receive,
            transmit,
            ..header
        };
        let mut bytes = vec![0; HEADER_LEN];
        reply.emit(&mut bytes);
        (self.humour)(&mut bytes, self.requests);
        self.requests += 1;
        if !bytes.is_empty() {
            let copies = if self.twice { 2 } else { 1 };
            let parcel = (at_ns + AT_SERVER_NS + BACK_NS, bytes);
            self.coming.extend(std::iter::repeat_n(parcel, copies));
        }
    }

    fn packet<'a>(
        &self,
        bytes: &'a [u8],
        nic_ns: i64,
        kernel_ns: i64,
    ) -> BatchPacket<'a, DatagramEndpoints> {
        let hardware = HardwareTimestamp { interface: NIC_INDEX, ns: nic_ns + PHC_AHEAD_NS };
        BatchPacket {
            bytes,
            address: DatagramEndpoints::default(),
            truncated: false,
            received_at: (self.best_source != TimestampSource::User)
                .then(|| Timestamp::from_ns(kernel_ns)),
            received_monotonic: None,
            hardware: (self.best_source == TimestampSource::Hardware).then_some(hardware),
            wants_timestamp: false,
        }
    }
}

fn framed(payload: &[u8]) -> Vec<u8> {
    let builder = UdpFrameBuilder {
        destination_mac: MacAddress([2; 6]),
        source_mac: MacAddress([4; 6]),
        vlan: None,
        source: "192.0.2.1:40000".parse().unwrap(),
        destination: "192.0.2.2:123".parse().unwrap(),
    };
    let mut frame = vec![0; builder.headers_len() + payload.len()];
    builder.emit(payload, &mut frame);
    frame
}

impl BatchDevice for Wire {
    type Address = DatagramEndpoints;

    fn receive(
        &mut self,
        batch: &mut Batch<DatagramEndpoints>,
        wait: Duration,
    ) -> io::Result<usize> {
        batch.clear();
        let until = self.now_ns() + wait.as_nanos() as i64;
        let delivered_ns = |at_ns: i64| at_ns + TO_NIC_NS + TO_KERNEL_NS;
        let next = self.coming.front().map(|(at_ns, _)| delivered_ns(*at_ns));
        let wakes = next.filter(|next| *next <= until).unwrap_or(until);
        self.advance((wakes - self.now_ns()).max(0));
        let now_ns = self.now_ns();
        while !batch.is_full()
            && let Some((at_ns, bytes)) =
                self.coming.pop_front_if(|(at_ns, _)| delivered_ns(*at_ns) <= now_ns)
        {
            assert!(batch.push_packet(&self.packet(&bytes, at_ns, at_ns + TO_NIC_NS)));
        }
        while self.flooded && wait.is_zero() && !batch.is_full() {
            assert!(batch.push_packet(&self.packet(b"noise", now_ns, now_ns)));
        }
        Ok(batch.len())
    }

    fn send(&mut self, batch: &mut Batch<DatagramEndpoints>) -> io::Result<usize> {
        for packet in batch.iter() {
            self.clock.advance(Span::from_ns(TO_KERNEL_NS + TO_NIC_NS));
            let at_nic = self.now_ns();
            if packet.wants_timestamp {
                self.looped.push_back((at_nic, framed(packet.bytes)));
            }
            self.serve(packet.bytes, at_nic + THERE_NS);
        }
        Ok(batch.len())
    }

    fn receive_transmitted(&mut self, batch: &mut Batch<DatagramEndpoints>) -> io::Result<usize> {
        batch.clear();
        while let Some((at_ns, frame)) = self.looped.pop_front() {
            assert!(batch.push_packet(&self.packet(&frame, at_ns, at_ns - TO_NIC_NS)));
        }
        Ok(batch.len())
    }
}

fn faithful(_: &mut Vec<u8>, _: u64) {}

fn kiss(reply: &mut [u8], code: [u8; 4]) {
    reply[1] = 0;
    reply[12..16].copy_from_slice(&code);
}

fn plan(count: u64, interleaved: bool) -> PollPlan {
    let start = Timestamp::from_ns(START + 1_000_000);
    let grid = TimeGrid { start, interval: Span::from_ms(100) };
    PollPlan { grid, count, has_final_request: interleaved }
}

fn poll_over<D: BatchDevice<Address = DatagramEndpoints>>(
    device: D,
    clock: &Arc<SimulatedClock>,
    with_nic_clock: bool,
    plan: &PollPlan,
) -> PolledServerOutcome {
    let options = PollOptions {
        version: 4,
        interleaved: plan.has_final_request,
        timeout: Duration::from_millis(50),
        precision: -30,
    };
    let pace = SimulatedPace(Arc::clone(clock));
    let nic_clock = with_nic_clock.then(|| Box::new(SimulatedNicClock) as Box<dyn NicClock>);
    let random = NonceStream::new().unwrap();
    ServerPoller::new(device, options, None, nic_clock, random, &pace).run_plan(
        plan,
        &|| {},
        &|| false,
    )
}

fn poll(wire: Wire, with_nic_clock: bool, plan: &PollPlan) -> PolledServerOutcome {
    let clock = Arc::clone(&wire.clock);
    poll_over(wire, &clock, with_nic_clock, plan)
}

#[test]
fn timestamps_of_the_kernel_give_the_offset_within_its_bound() {
    let PolledServerStats { counts, samples, server_state, end_reason: ended, .. } =
        poll(Wire::new(faithful), false, &plan(20, false)).stats;
    assert_eq!((counts.sent, counts.received, counts.lost), (20, 20, 0));
    assert_eq!((samples.len(), ended), (20, None));
    assert_eq!(server_state.unwrap().reference_id, "GPS");
    for (sequence, sample) in (0..).zip(&samples) {
        assert_eq!(sample.sequence, sequence);
        assert_eq!(
            (sample.transmit, sample.receive),
            (TimestampSource::Kernel, TimestampSource::Kernel)
        );
        // Both ways, and the time between kernel and card at both ends. The server says half the
        // time that a reply takes it.
        let there = THERE_NS + TO_NIC_NS;
        let back = BACK_NS + TO_NIC_NS + AT_SERVER_NS / 2;
        assert!((sample.delay_ns - there - back).abs() <= 2, "{sample:?}");
        assert!((sample.offset_ns - AHEAD_NS - (there - back) / 2).abs() <= 2, "{sample:?}");
        assert!((sample.offset_ns - AHEAD_NS).unsigned_abs() <= sample.error_bound_ns());
    }
}

#[test]
fn a_nic_measures_less_delay_than_the_kernel_and_this_program_more() {
    let delay = |wire: Wire, with_nic_clock| {
        let done = poll(wire, with_nic_clock, &plan(5, false));
        let account = done.stats;
        (
            account.samples[2].delay_ns,
            account.transmit_timestamps,
            account.receive_timestamps,
            done.nic_clock,
        )
    };
    let path = THERE_NS + BACK_NS + AT_SERVER_NS / 2;
    let by = |hardware, kernel, user| TimestampCounts { hardware, kernel, user };

    let (ns, transmit, receive, clock) =
        delay(Wire { best_source: TimestampSource::Hardware, ..Wire::new(faithful) }, true);
    assert!((ns - path).abs() <= 2, "{ns}");
    assert_eq!((transmit, receive), (by(5, 0, 0), by(5, 0, 0)));
    assert_eq!(clock.unwrap().clock, 3);

    // A card that takes none leaves the kernel's.
    let (ns, transmit, ..) = delay(Wire::new(faithful), true);
    assert!((ns - path - 2 * TO_NIC_NS).abs() <= 2, "{ns}");
    assert_eq!(transmit, by(0, 5, 0));

    let (ns, transmit, receive, clock) =
        delay(Wire { best_source: TimestampSource::User, ..Wire::new(faithful) }, false);
    assert!((ns - path - 2 * TO_NIC_NS - 2 * TO_KERNEL_NS).abs() <= 2, "{ns}");
    assert_eq!((transmit, receive, clock), (by(0, 0, 5), by(0, 0, 5), None));
}

#[test]
fn the_error_of_the_phc_conversion_is_dispersion() {
    let dispersion = |with_nic_clock| {
        let wire = Wire { best_source: TimestampSource::Hardware, ..Wire::new(faithful) };
        poll(wire, with_nic_clock, &plan(1, false)).stats.samples[0].dispersion_ns
    };
    assert_eq!(dispersion(true), dispersion(false) + 80);
}

#[test]
fn interleaved_mode_learns_when_replies_really_left() {
    let account = poll(Wire::new(faithful), false, &plan(10, true)).stats;
    assert_eq!((account.samples.len(), account.counts.sent), (10, 11), "one more to close");
    assert_eq!(account.counts.interleaved, 10);
    for sample in &account.samples {
        assert!(sample.interleaved);
        assert!((sample.t3_ns - sample.t2_ns - AT_SERVER_NS).abs() <= 1, "{sample:?}");
    }
}

#[test]
fn a_server_that_knows_no_interleaved_mode_is_measured_all_the_same() {
    let wire = Wire { forgetful: true, ..Wire::new(faithful) };
    let account = poll(wire, false, &plan(10, true)).stats;
    assert_eq!((account.samples.len(), account.counts.interleaved), (10, 0));
    assert!(account.samples.iter().all(|sample| !sample.interleaved));
}

#[test]
fn invalid_replies_give_no_sample() {
    use InvalidReplyReason::{Length, Mode as BadMode, Origin, Stratum, Timestamp, Version};
    let humour: Humour = |reply, index| match index {
        0 => reply[24] ^= 1,        // Another origin.
        1 => reply[0] = 0x23,       // Mode 3.
        2 => reply.truncate(47),    // Too short.
        3 => reply.push(0),         // Too long.
        4 => reply[1] = 17,         // No such stratum.
        5 => reply[0] |= 0xc0,      // Unsynchronised at stratum 1, which is valid.
        6 => reply[40..48].fill(0), // No transmit timestamp.
        _ => reply[0] = 0x1c,       // Version 3.
    };
    let account = poll(Wire::new(humour), false, &plan(8, false)).stats;
    let expected = [(Length, 2), (BadMode, 1), (Version, 1), (Origin, 1), (Stratum, 1)];
    let expected = expected.into_iter().chain([(Timestamp, 1)]);
    assert_eq!(account.counts.invalid, expected.collect::<BTreeMap<_, _>>());
    assert_eq!((account.counts.lost, account.samples.len()), (7, 1));
    assert_eq!((account.counts.unsynchronised, account.counts.received), (1, 1));
}

#[test]
fn a_second_reply_at_the_same_time_is_a_duplicate() {
    let mut wire = Wire::new(faithful);
    wire.twice = true;
    let account = poll(wire, false, &plan(6, false)).stats;
    assert_eq!((account.counts.received, account.counts.duplicate), (6, 6));
    assert_eq!(account.samples.len(), 6);
}

#[test]
fn a_kiss_rate_reduces_the_polling_rate() {
    let humour: Humour = |reply, index| {
        if index == 1 {
            kiss(reply, *b"RATE");
        }
    };
    let account = poll(Wire::new(humour), false, &plan(5, false)).stats;
    assert_eq!(account.counts.kisses, BTreeMap::from([("RATE".to_owned(), 1)]));
    let slots: Vec<_> = account.samples.iter().map(|sample| sample.sequence).collect();
    assert_eq!(slots, [0, 3, 5, 7], "1 was the kiss");
    assert_eq!(account.end_reason, None);
}

#[test]
fn a_kiss_deny_ends_it() {
    let humour: Humour = |reply, index| {
        if index == 2 {
            kiss(reply, *b"DENY");
        }
    };
    let account = poll(Wire::new(humour), false, &plan(50, false)).stats;
    assert_eq!((account.counts.sent, account.samples.len()), (3, 2));
    assert_eq!(account.end_reason.unwrap().reason, QueryEndReason::Kiss);
}

#[test]
fn a_lost_exchange_leaves_a_gap_on_the_grid() {
    let humour: Humour = |reply, index| {
        if index == 1 {
            reply.clear();
        }
    };
    let account = poll(Wire::new(humour), false, &plan(4, false)).stats;
    let slots: Vec<_> = account.samples.iter().map(|sample| sample.sequence).collect();
    assert_eq!(slots, [0, 2, 3]);
    assert_eq!((account.counts.sent, account.counts.received, account.counts.lost), (4, 3, 1));
}

#[test]
fn a_slow_server_s_replies_are_late_and_the_grid_holds() {
    let mut wire = Wire::new(faithful);
    // On its way back for a second when the first request goes out.
    let stale = (START + NS_PER_S, vec![0; HEADER_LEN]);
    wire.coming.push_back(stale);
    let account = poll(wire, false, &plan(12, false)).stats;
    // Replies wait behind it: nothing is received until it has come.
    assert!(account.counts.late >= 9, "{:?}", account.counts);
    assert!(account.samples.iter().all(|sample| sample.sequence >= 9), "{:?}", account.samples);
    for sample in &account.samples {
        let planned = START + 1_000_000 + sample.sequence as i64 * 100_000_000;
        assert!((0..1_000_000).contains(&(sample.t1_ns - planned)), "{sample:?}");
    }
}

#[test]
fn stopping_keeps_what_there_is() {
    let wire = Wire::new(faithful);
    let clock = Arc::clone(&wire.clock);
    let pace = SimulatedPace(Arc::clone(&clock));
    let options = PollOptions {
        version: 4,
        interleaved: false,
        timeout: Duration::from_millis(50),
        precision: -30,
    };
    let poller = ServerPoller::new(wire, options, None, None, NonceStream::new().unwrap(), &pace);
    let until = START + NS_PER_S / 2;
    let stop = || Clock::<Utc>::now(&*clock).as_ns() > until;
    let account = poller.run_plan(&plan(1_000, false), &|| {}, &stop).stats;
    assert_eq!((account.samples.len(), account.counts.sent), (5, 5));
    assert_eq!(account.end_reason.unwrap().reason, QueryEndReason::Interrupted);
}

#[test]
fn who_sends_for_ever_does_not_hold_it_up() {
    let done = poll(Wire { flooded: true, ..Wire::new(faithful) }, false, &plan(3, false));
    let counts = done.stats.counts;
    assert_eq!((counts.received, counts.sent), (3, 3));
    assert!(counts.invalid[&InvalidReplyReason::Length] >= DRAIN_BATCHES as u64, "{counts:?}");
}

proptest! {
    /// Whatever the network does to packets short of forging them, what is measured is right and
    /// the counts add up.
    #[test]
    fn a_bad_network_costs_samples_and_not_the_truth(
        seed: u64, interleaved: bool, loss in 0.0_f64..0.4, duplication in 0.0_f64..0.4,
        reordering in 0.0_f64..0.4,
    ) {
        let wire = Wire::new(faithful);
        let clock = Arc::clone(&wire.clock);
        let faults = FaultInjectionPlan { seed, loss, duplication, reordering, ..FaultInjectionPlan::default() };
        let device = FaultyDevice::new(wire, faults, Arc::clone(&clock) as _, 8, FRAME_CAPACITY);
        let account = poll_over(device, &clock, false, &plan(60, interleaved)).stats;
        let counts = &account.counts;
        prop_assert_eq!(counts.received + counts.lost, counts.sent);
        prop_assert!(account.samples.len() as u64 <= counts.received);
        prop_assert!(account.samples.is_sorted_by(|a, b| a.sequence < b.sequence));
        for sample in &account.samples {
            let off = (sample.offset_ns - AHEAD_NS).unsigned_abs();
            prop_assert!(off <= sample.error_bound_ns() + 1, "{:?}", sample);
        }
    }
}
