//! When a port is a master, and when it yields.

use proptest::prelude::*;

use super::*;
use crate::foreign::MasterRank;

const OTHER: PortIdentity = PortIdentity { clock: 0x0200_5eff_fe10_0077, port: 1 };

/// Lets a port hear another master's Announce for so many intervals from `now`, and returns the
/// instant after the last.
fn receive_announces(
    port: &mut ClockPort,
    priority1: u8,
    count: u16,
    mut now: Timestamp<Monotonic>,
) -> Timestamp<Monotonic> {
    for sequence_id in 0..count {
        replies_to_group(port, &announce(OTHER, priority1, sequence_id), now);
        now = now + seconds(2);
        port.process_due(&GOOD, now, &mut RecordingOutbox::default());
    }
    now
}

#[test]
fn it_listens_before_it_is_the_master() {
    let mut port = port(PtpProfile::DefaultE2e);
    let mut out = RecordingOutbox::default();
    port.process_due(&GOOD, START, &mut out);
    assert_eq!((port.state(), port.next_due()), (PortState::Listening, START + seconds(6)));
    port.process_due(&GOOD, START + Span::from_ms(5_999), &mut out);
    assert!(out.0.is_empty());
    port.process_due(&GOOD, START + seconds(6), &mut out);
    assert_eq!(port.state(), PortState::Master);
    assert_eq!(out.kinds(), [MessageType::Announce, MessageType::Sync]);
    assert!(replies_to(&mut port, &delay_req(), START + seconds(6)).len() == 1);
}

#[test]
fn what_a_master_announces_is_what_the_clock_is() {
    let (mut port, now) = master();
    let mut out = RecordingOutbox::default();
    port.process_due(&GOOD, now + seconds(2), &mut out);
    let sent = &out.0[0];
    assert_eq!((sent.to, sent.event, sent.stamp), (PtpDestination::Group, false, false));
    let message = sent.message();
    let PtpMessageBody::Announce(announce) = message.body else { panic!("{message:?}") };
    assert_eq!((announce.utc_offset, announce.time_source, announce.steps_removed), (37, 0x20, 0));
    let grandmaster = announce.grandmaster;
    assert_eq!((grandmaster.clock_class, grandmaster.clock_accuracy), (6, 0x21));
    assert_eq!((grandmaster.variance, grandmaster.identity), (0x4e5d, OWN));
    assert_eq!((grandmaster.priority1, grandmaster.priority2), (128, 128));
    let header = message.header;
    assert_eq!((header.flags, header.log_interval, header.sequence_id), (PtpFlags(0x3c), 1, 1));
}

#[test]
fn an_unusable_clock_sends_nothing() {
    let (mut port, now) = master();
    let mut out = RecordingOutbox::default();
    port.process_due(&UNUSABLE, now + seconds(2), &mut out);
    assert!(out.0.is_empty());
    assert_eq!(port.state(), PortState::Listening);
    assert!(port.next_due() > now + seconds(2), "nothing is due until the clock is usable");
    assert!(port.delay_responder(&GOOD).is_none());
    port.receive(&arrival(&bytes(&delay_req())), &UNUSABLE, now + seconds(2), &mut out);
    assert_eq!((out.0.len(), port.counts.refused(PtpRefusal::State)), (0, 1));
    port.process_due(&GOOD, now + seconds(3), &mut out);
    assert_eq!(port.state(), PortState::Master, "it has listened long enough");
}

/// The state of the port lags behind that of the clock until something is due.
#[test]
fn a_request_is_not_answered_from_an_unusable_clock() {
    let (mut port, now) = master();
    let mut out = RecordingOutbox::default();
    port.receive(&arrival(&bytes(&delay_req())), &UNUSABLE, now, &mut out);
    assert!(out.0.is_empty() && port.delay_responder(&UNUSABLE).is_none());
}

#[test]
fn it_yields_to_a_better_master_and_comes_back() {
    let (mut port, now) = master();
    let now = receive_announces(&mut port, 127, 1, now);
    assert_eq!(port.state(), PortState::Master, "once is not enough");
    let now = receive_announces(&mut port, 127, 2, now);
    assert_eq!(port.state(), PortState::Passive);
    assert_eq!(port.view(&GOOD).better_master.unwrap().rank.sender, OTHER);
    assert!(replies_to(&mut port, &delay_req(), now).is_empty());
    // The last was heard two seconds ago; three intervals of two seconds make it gone.
    let mut out = RecordingOutbox::default();
    port.process_due(&GOOD, now + Span::from_ms(3_999), &mut out);
    assert_eq!((port.state(), port.next_due()), (PortState::Passive, now + seconds(4)));
    assert!(out.0.is_empty());
    port.process_due(&GOOD, now + seconds(4), &mut out);
    assert_eq!(port.state(), PortState::Master);
    assert_eq!(port.view(&GOOD).foreign_masters, []);
}

#[test]
fn an_interface_that_goes_down_makes_it_faulty_until_it_is_up_again() {
    let (mut port, now) = master();
    let now = receive_announces(&mut port, 129, 3, now);
    port.set_link_state(true, now);
    assert_eq!(port.state(), PortState::Master);
    port.set_link_state(false, now);
    assert_eq!(port.state(), PortState::Faulty);
    assert_eq!(port.view(&GOOD).foreign_masters, [], "nobody is heard any more");
    let mut out = RecordingOutbox::default();
    port.process_due(&GOOD, now + seconds(60), &mut out);
    assert!(out.0.is_empty() && replies_to(&mut port, &delay_req(), now).is_empty());
    assert_eq!(port.state(), PortState::Faulty);
    let up = now + seconds(60);
    port.set_link_state(true, up);
    port.process_due(&GOOD, up + Span::from_ms(5_999), &mut out);
    assert_eq!(port.state(), PortState::Listening, "as at the start");
    port.process_due(&GOOD, up + seconds(6), &mut out);
    assert_eq!(port.state(), PortState::Master);
}

#[test]
fn it_does_not_yield_to_a_worse_master() {
    let (mut port, now) = master();
    receive_announces(&mut port, 129, 5, now);
    assert_eq!(port.state(), PortState::Master);
    assert!(
        port.view(&GOOD).better_master.is_none() && port.view(&GOOD).foreign_masters.len() == 1
    );
}

#[test]
fn a_worse_clock_of_ours_yields() {
    let (mut port, now) = master();
    let now = receive_announces(&mut port, 128, 3, now);
    let own_is_better = OWN < OTHER.clock;
    assert!(own_is_better && port.state() == PortState::Master, "equal but for the identity");
    port.process_due(
        &PtpClockProperties { clock_class: 7, ..GOOD },
        now,
        &mut RecordingOutbox::default(),
    );
    assert_eq!(port.state(), PortState::Passive);
}

#[test]
fn two_announces_far_apart_do_not_make_a_master() {
    let (mut port, now) = master();
    for sequence_id in 0..4 {
        let now = now + seconds(9 * i64::from(sequence_id));
        replies_to_group(&mut port, &announce(OTHER, 1, sequence_id), now);
        assert_eq!(port.state(), PortState::Master);
    }
}

#[test]
fn copies_of_one_announce_do_not_make_a_master() {
    let (mut port, now) = master();
    for _ in 0..4 {
        replies_to_group(&mut port, &announce(OTHER, 1, 7), now);
    }
    assert_eq!(port.state(), PortState::Master);
}

#[test]
fn announces_without_a_usable_master_are_ignored() {
    let (mut port, now) = master();
    let far = |message: &mut Message<'_>, steps, identity| {
        let PtpMessageBody::Announce(announce) = &mut message.body else { panic!() };
        announce.steps_removed = steps;
        announce.grandmaster.identity = identity;
    };
    for sequence_id in 0..4 {
        let mut alternate = announce(OTHER, 1, sequence_id);
        alternate.header.flags = PtpFlags::ALTERNATE_MASTER;
        let mut distant = announce(OTHER, 1, sequence_id);
        far(&mut distant, 255, OTHER.clock);
        let mut ours = announce(OTHER, 1, sequence_id);
        far(&mut ours, 1, OWN);
        for message in [alternate, distant, ours] {
            replies_to_group(&mut port, &message, now);
        }
        let looped = announce(PortIdentity { clock: OWN, port: 2 }, 1, sequence_id);
        replies_to_group(&mut port, &looped, now);
        let alone = announce(OTHER, 1, sequence_id);
        replies_to(&mut port, &alone, now);
    }
    assert_eq!(port.state(), PortState::Master);
    let refused = [PtpRefusal::Unqualified, PtpRefusal::Own, PtpRefusal::Group];
    assert_eq!(refused.map(|reason| port.counts.refused(reason)), [12, 4, 4]);
}

/// Those who announce once do not keep out one who goes on, if that is better than they are.
#[test]
fn a_flood_of_masters_fills_five_records() {
    let (mut port, mut now) = master();
    for number in 0..1000u16 {
        let sender = PortIdentity { clock: 0xff00 + u64::from(number), port: 1 };
        replies_to_group(&mut port, &announce(sender, 200, number), now);
    }
    assert_eq!(port.view(&GOOD).foreign_masters.len(), FOREIGN_MASTERS_MAX);
    assert_eq!(port.counts.refused(PtpRefusal::ForeignMastersFull), 995);
    now = receive_announces(&mut port, 127, 2, now);
    assert_eq!(
        (port.state(), port.view(&GOOD).foreign_masters.len() <= 5),
        (PortState::Passive, true),
        "{now:?}"
    );
}

#[test]
fn without_a_group_it_is_the_master_at_once() {
    let mut port = port(PtpProfile::G8275_2);
    let mut out = RecordingOutbox::default();
    port.process_due(&GOOD, START, &mut out);
    assert_eq!((port.state(), out.0.len()), (PortState::Master, 0), "and says nothing unasked");
    let mut request = announce(OTHER, 1, 0);
    request.header.domain = 44;
    replies_to_group(&mut port, &request, START);
    assert_eq!(port.counts.refused(PtpRefusal::Group), 1);
}

#[test]
fn a_late_master_does_not_catch_up() {
    let (mut port, now) = master();
    let mut out = RecordingOutbox::default();
    port.process_due(&GOOD, now + seconds(100), &mut out);
    port.process_due(&GOOD, now + seconds(100), &mut out);
    assert_eq!(out.kinds(), [MessageType::Announce, MessageType::Sync]);
    assert_eq!(port.next_due(), now + seconds(101));
}

fn ranks() -> impl Strategy<Value = MasterRank> {
    let small = || 0u8..3;
    (small(), small(), small(), small(), (small(), small()), (small(), small())).prop_map(
        |(
            priority1,
            clock_class,
            clock_accuracy,
            variance,
            (priority2, identity),
            (steps, sender),
        )| MasterRank {
            grandmaster: horolog_wire::ptp::message::Grandmaster {
                priority1,
                clock_class,
                clock_accuracy,
                variance: variance.into(),
                priority2,
                identity: identity.into(),
            },
            steps_removed: steps.into(),
            sender: PortIdentity { clock: sender.into(), port: 1 },
        },
    )
}

proptest! {
    #[test]
    fn the_comparison_is_a_strict_order(a in ranks(), b in ranks(), c in ranks()) {
        prop_assert_eq!(a < b, b > a);
        prop_assert_eq!(a == b, a >= b && b >= a);
        prop_assert!(!(a < b && b < c) || a < c);
    }

    /// Figure 34: the first that differs decides, whatever follows.
    #[test]
    fn the_first_difference_decides(a in ranks(), b in ranks()) {
        let (x, y) = (a.grandmaster, b.grandmaster);
        let pairs = [
            (u64::from(x.priority1), u64::from(y.priority1)),
            (x.clock_class.into(), y.clock_class.into()),
            (x.clock_accuracy.into(), y.clock_accuracy.into()),
            (x.variance.into(), y.variance.into()),
            (x.priority2.into(), y.priority2.into()),
            (x.identity, y.identity),
            (a.steps_removed.into(), b.steps_removed.into()),
            (a.sender.clock, b.sender.clock),
        ];
        let first = pairs.into_iter().find(|(x, y)| x != y);
        prop_assert_eq!(a < b, first.is_some_and(|(x, y)| x < y));
    }
}

/// What happens to a port.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// Announce of one of a few masters, with this priority1.
    Announce(u8, u8),
    /// Time passes, in ms.
    Pass(u16),
    /// Its clock becomes usable or not.
    Usable(bool),
}

fn events() -> impl Strategy<Value = Event> {
    prop_oneof![
        (0u8..7, 126u8..131).prop_map(|(master, priority1)| Event::Announce(master, priority1)),
        (0u16..6000).prop_map(Event::Pass),
        any::<bool>().prop_map(Event::Usable),
    ]
}

proptest! {
    #[test]
    fn the_state_follows_from_the_clock_and_the_masters_received(
        all in proptest::collection::vec(events(), 0..80),
    ) {
        let mut port = port(PtpProfile::DefaultE2e);
        let (mut now, mut clock) = (START, GOOD);
        for (sequence_id, event) in (0..).zip(all) {
            match event {
                Event::Announce(master, priority1) => {
                    let sender = PortIdentity { clock: OTHER.clock + u64::from(master), port: 1 };
                    let bytes = bytes(&announce(sender, priority1, sequence_id));
                    let arrival = ReceivedPtpMessage { group: true, ..arrival(&bytes) };
                    port.receive(&arrival, &clock, now, &mut RecordingOutbox::default());
                }
                Event::Pass(ms) => now = now + Span::from_ms(ms.into()),
                Event::Usable(usable) => clock.usable = usable,
            }
            let mut out = RecordingOutbox::default();
            port.process_due(&clock, now, &mut out);
            let view = port.view(&clock);
            prop_assert!(view.foreign_masters.len() <= FOREIGN_MASTERS_MAX);
            prop_assert!(view.foreign_masters.iter().all(|foreign| now - foreign.last_announce_at < seconds(8)));
            let expected = match (clock.usable, view.better_master.is_some()) {
                (false, _) => PortState::Listening,
                (true, true) => PortState::Passive,
                (true, false) if now < START + seconds(6) => port.state(),
                (true, false) => PortState::Master,
            };
            prop_assert_eq!(port.state(), expected);
            prop_assert!(out.0.is_empty() || expected == PortState::Master);
            prop_assert!(port.next_due() > now);
        }
        port.process_due(&GOOD, now + seconds(8), &mut RecordingOutbox::default());
        prop_assert_eq!(port.state(), PortState::Master, "all others have been silent");
    }
}

#[test]
fn a_time_that_jumps_is_not_sent_to_its_followers() {
    let (mut port, now) = master();
    let later = now + seconds(1);
    let mut out = RecordingOutbox::default();
    let utc = PtpClockProperties { flags: PtpFlags(0x30), utc_offset: 0, ..GOOD };
    port.process_due(&utc, later, &mut out);
    assert_eq!((port.state(), out.0.len()), (PortState::Listening, 0), "UTC after TAI");
    port.process_due(&utc, later + seconds(100), &mut out);
    assert_eq!(port.state(), PortState::Master);
    let corrected = PtpClockProperties { utc_offset: 36, ..GOOD };
    let (mut port, now) = master();
    port.process_due(&corrected, now, &mut out);
    assert_eq!(port.state(), PortState::Listening, "another offset");
}

#[test]
fn a_leap_second_is_no_jump() {
    let (mut port, now) = master();
    let before = PtpClockProperties { flags: GOOD.flags.union(PtpFlags::LEAP_61), ..GOOD };
    let after = PtpClockProperties { utc_offset: 38, ..GOOD };
    for clock in [before, after, after] {
        port.process_due(&clock, now, &mut RecordingOutbox::default());
        assert_eq!(port.state(), PortState::Master);
    }
}
