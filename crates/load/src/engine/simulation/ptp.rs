//! Load profiles against a simulated PTP master: counts of each interval in every mode, offsets of
//! its Syncs, outages and overload.

use horolog_wire::ptp::message::TIMESTAMP_MESSAGE_LEN;
use horolog_wire::ptp::monitor::{self, CurrentDataSet, NetSyncMonitorResponse, ParentDataSet};
use horolog_wire::ptp::tlv::{UNICAST_LEN_MAX, UnicastNegotiationTlv};
use horolog_wire::ptp::{
    HEADER_LEN as PTP_HEADER_LEN, Header as PtpHeader, Message, MessageType, PortIdentity,
    PtpFlags, PtpMessageBody, PtpTimestamp,
};

use super::profiles::{phase, run};
use super::*;
use crate::load_profile::LoadPhase;
use crate::offset::ServerOffsetCounts;
use crate::outage::Outage;
use crate::ptp::{
    PtpLoadTransport, PtpMessageVerifier as PtpExpected, PtpRequestKind, PtpRequestOptions,
    UnicastMessageTypes, UnicastRequestParameters,
};
use crate::request::PtpFrameParameters;
use crate::request_tracker::PtpReplyCounts;

/// Replies of the master to its request number `n`, made from the correct ones, each with its
/// delay.
pub(super) type MasterBehaviour = fn(n: u64, right: &[Vec<u8>]) -> Vec<(Span, Vec<u8>)>;

/// The master's clock keeps TAI.
const MASTER_AHEAD: Span = Span::from_ms(37_000);
/// Time between the timestamp and the departure of a Sync.
const EARLY: Span = Span::from_ns(12_345);
const HALF_AN_INTERVAL: Span = Span::from_ms(25);

fn immediate_replies(_: u64, right: &[Vec<u8>]) -> Vec<(Span, Vec<u8>)> {
    right.iter().map(|answer| (Span::ZERO, answer.clone())).collect()
}

/// Delays the last of the replies to a request by half an interval.
fn last_reply_delayed(_: u64, right: &[Vec<u8>]) -> Vec<(Span, Vec<u8>)> {
    let mut all = immediate_replies(0, right);
    all.last_mut().into_iter().for_each(|last| last.0 = HALF_AN_INTERVAL);
    all
}

fn timestamp(at: Timestamp<Utc>) -> PtpTimestamp {
    let ns = (at + MASTER_AHEAD).as_ns() as u64;
    PtpTimestamp::new(ns / 1_000_000_000, (ns % 1_000_000_000) as u32)
}

/// Returns the right answers to a request received at `at`; none to other packets.
pub(super) fn correct_replies(request: &[u8], at: Timestamp<Utc>) -> Vec<Vec<u8>> {
    let Ok((request, _)) = Message::parse(request) else { return Vec::new() };
    let requesting = request.header.source;
    let source = PortIdentity { clock: 0xfeed, port: 1 };
    let header = PtpHeader { source, ..request.header };
    let delay = PtpMessageBody::DelayResp { receive: timestamp(at), requesting };
    let message = |body, suffix: &[u8]| {
        let message = Message { header, body, suffix };
        let mut bytes = vec![0; message.len()];
        message.emit(&mut bytes);
        bytes
    };
    let first = request.tlvs().flatten().next();
    match (request.body, first) {
        (PtpMessageBody::DelayReq(_), None) => vec![message(delay, &[])],
        (PtpMessageBody::DelayReq(_), Some(_)) => {
            let sync = PtpMessageBody::Sync(timestamp(at + Span::from_ns(700)));
            vec![message(delay, &monitor_status()), message(sync, &[])]
        }
        (PtpMessageBody::Signaling(_), Some(tlv)) => {
            let Some(Ok(UnicastNegotiationTlv::Request { kind, log_interval, duration_s })) =
                UnicastNegotiationTlv::from_tlv(&tlv)
            else {
                return Vec::new();
            };
            let mut grant = [0; UNICAST_LEN_MAX];
            let length = UnicastNegotiationTlv::Grant {
                kind,
                log_interval,
                duration_s,
                renewal_invited: false,
            }
            .emit(&mut grant);
            vec![message(PtpMessageBody::Signaling(requesting), &grant[..length])]
        }
        _ => Vec::new(),
    }
}

/// Returns the master's status as NetSync Monitor reports it.
fn monitor_status() -> Vec<u8> {
    let response = NetSyncMonitorResponse {
        port_state: 6,
        protocol: 1,
        address: &[192, 0, 2, 1],
        parent: ParentDataSet::default(),
        current: CurrentDataSet::default(),
        utc_offset: 37,
        time_flags: PtpFlags::TIME_TRACEABLE.0 as u8,
        time_source: 0x20,
        last_sync: PtpTimestamp::ZERO,
    };
    let mut tlv = vec![0; NetSyncMonitorResponse::tlv_len(4)];
    response.emit(&mut tlv);
    assert_eq!(tlv[..2], monitor::RESPONSE_TLV_TYPE.to_be_bytes());
    tlv
}

/// Writes the departure time into a Sync, which ends where the frame ends.
pub(super) fn set_sync_timestamp(frame: &mut [u8], left: Timestamp<Utc>) {
    let Some(at) = frame.len().checked_sub(TIMESTAMP_MESSAGE_LEN) else { return };
    let message = &mut frame[at..];
    if message[0] & 0xf != MessageType::Sync as u8 || message[1] & 0xf != 2 {
        return;
    }
    let left = timestamp(left);
    let stamp = &mut message[PTP_HEADER_LEN..];
    stamp[..6].copy_from_slice(&left.seconds().to_be_bytes()[2..]);
    stamp[6..].copy_from_slice(&left.nanoseconds().to_be_bytes());
}

fn master_lane(
    kind: PtpRequestKind,
    master: MasterBehaviour,
) -> SimulatedLane<LanePacketSocket<SimulatedPath<()>>> {
    let mut scene = SimulatedLane::with_frames(FaultInjectionPlan::default(), answer);
    let address = "192.0.2.1".parse().unwrap();
    let (multicast, transport) = (false, PtpLoadTransport::Udp);
    let plan = PtpRequestOptions { kind, domain: 7, minor_version: 1, multicast, transport };
    let mut frames = frame_plan();
    frames.target = plan.destination(address);
    frames.source_port = plan.port();
    frames.ptp =
        Some(PtpFrameParameters { plan, master: address, lane: 0, excluded_network: None });
    let (lane, lanes, clients) = (0, 1, CLIENTS);
    let token = scene.token;
    scene.ptp = Some(PtpExpected { plan, token, lane, lanes, clients, master: address });
    let mut world = SimulatedPath::new(&scene.clock, FaultInjectionPlan::default(), answer);
    world.master = Some(master);
    scene.port = LanePacketSocket::new(world, &frames, crate::ptp::REQUEST_LEN_MAX);
    scene
}

/// Two rates and the ramp between them, six intervals.
fn profile() -> Vec<LoadPhase> {
    let rises = LoadPhase { to: 20_000.0, ..phase(4_000.0, 100) };
    vec![phase(4_000.0, 100), rises, phase(1_000.0, 100)]
}

fn unicast_kind() -> PtpRequestKind {
    let messages = UnicastMessageTypes::new(&[MessageType::Announce, MessageType::Sync]).unwrap();
    PtpRequestKind::Unicast(UnicastRequestParameters { messages, log_interval: 0, duration_s: 10 })
}

/// Counts of `n` requests that were answered in full.
type ExpectedPtpCountsFn = fn(u64) -> PtpReplyCounts;

/// Replies of the next interval count in the interval of their request.
#[test]
fn every_request_stands_in_its_own_interval() {
    let counted: [(PtpRequestKind, ExpectedPtpCountsFn); 3] = [
        (PtpRequestKind::Delay, |all| PtpReplyCounts { delay: all, ..PtpReplyCounts::default() }),
        (PtpRequestKind::Nsm, |all| PtpReplyCounts {
            delay: all,
            sync_follow_up: all,
            ..PtpReplyCounts::default()
        }),
        (unicast_kind(), |all| PtpReplyCounts { grant: all, ..PtpReplyCounts::default() }),
    ];
    for (kind, counted) in counted {
        let intervals = run(&mut master_lane(kind, last_reply_delayed), profile());
        let sent: Vec<_> = intervals.iter().map(|interval| interval.sent).collect();
        let right = [200, 200, 400, 800, 50, 50];
        assert!(sent.iter().zip(right).all(|(sent, right)| sent.abs_diff(right) <= 1), "{sent:?}");
        for interval in &intervals {
            assert_eq!((interval.received, interval.planned), (interval.sent, 0), "{kind:?}");
            assert_eq!(interval.ptp, Some(counted(interval.sent)), "{kind:?}");
            assert_eq!((interval.duplicate, interval.late), (0, 0));
            assert_eq!(interval.invalid, [0; InvalidReplyReason::ALL.len()]);
            assert_eq!(interval.rtt.count(), interval.received);
            // The last answer is what a round trip ends with.
            assert!(interval.rtt.min().unwrap() >= HALF_AN_INTERVAL.as_ns() as u64);
            let timed = if kind == PtpRequestKind::Nsm { interval.received } else { 0 };
            assert_eq!(interval.response.count(), timed);
        }
    }
}

#[test]
fn a_master_that_dies_in_a_soak_has_an_outage_of_that_length() {
    fn mortal(n: u64, right: &[Vec<u8>]) -> Vec<(Span, Vec<u8>)> {
        if (3_000..6_000).contains(&n) { vec![] } else { immediate_replies(n, right) }
    }
    for kind in [PtpRequestKind::Delay, PtpRequestKind::Nsm, unicast_kind()] {
        let intervals = run(&mut master_lane(kind, mortal), vec![phase(20_000.0, 400)]);
        let lost: Vec<_> = intervals.iter().map(TrialCounts::lost).collect();
        assert_eq!(lost, [0, 0, 0, 1000, 1000, 1000, 0, 0], "{kind:?}");
        let outages = intervals[7].outages.clone().unwrap();
        let [Outage { from, to, ended: true }] = outages[..] else { panic!("{outages:?}") };
        let ends = [from, to].map(|at| (at.as_ns() + 25_000) / 50_000);
        assert_eq!(ends, [2999, 6000], "{kind:?}");
    }
}

/// One of two answers is missing for a while: its requests are lost, and the other is counted.
#[test]
fn half_an_answer_is_a_loss_of_its_own_interval() {
    fn halves(n: u64, right: &[Vec<u8>]) -> Vec<(Span, Vec<u8>)> {
        let mut all = immediate_replies(n, right);
        match n {
            1_000..2_000 => drop(all.pop()),
            2_000..3_000 => drop(all.remove(0)),
            _ => {}
        }
        all
    }
    let intervals = run(&mut master_lane(PtpRequestKind::Nsm, halves), vec![phase(20_000.0, 200)]);
    let counted: Vec<_> = intervals
        .iter()
        .map(|interval| {
            (interval.received, interval.ptp.unwrap().delay, interval.ptp.unwrap().sync_follow_up)
        })
        .collect();
    assert_eq!(counted, [(1000, 1000, 1000), (0, 1000, 0), (0, 0, 1000), (1000, 1000, 1000)]);
}

/// Overload of a master, between two phases with less.
#[test]
fn an_overload_is_lost_where_it_is_and_nowhere_else() {
    fn capable(n: u64, right: &[Vec<u8>]) -> Vec<(Span, Vec<u8>)> {
        let is_over = (2_000..10_000).contains(&n);
        if is_over && !n.is_multiple_of(4) { vec![] } else { immediate_replies(n, right) }
    }
    for kind in [PtpRequestKind::Delay, PtpRequestKind::Nsm] {
        let phases = vec![phase(20_000.0, 100), phase(80_000.0, 100), phase(20_000.0, 100)];
        let intervals = run(&mut master_lane(kind, capable), phases);
        let counted: Vec<_> =
            intervals.iter().map(|interval| (interval.sent, interval.received)).collect();
        let (before, over) = ((1000, 1000), (4000, 1000));
        assert_eq!(counted, [before, before, over, over, before, before], "{kind:?}");
        let outages = intervals.last().and_then(|interval| interval.outages.clone());
        assert!(outages.is_some_and(|outages| outages.is_empty()));
    }
}

/// Requests omitted by a sender that falls behind count in their own phase.
#[test]
fn omitted_requests_count_in_the_phase_in_which_a_sender_falls_behind() {
    let mut scene = master_lane(PtpRequestKind::Delay, immediate_replies);
    scene.path().send_cost = Span::from_ns(20_000);
    let intervals = run(&mut scene, vec![phase(200_000.0, 100), phase(1_000.0, 100)]);
    let sum = |of: fn(&TrialCounts) -> u64| intervals.iter().map(of).sum::<u64>();
    assert_eq!(sum(|interval| interval.sent) + sum(|interval| interval.planned), 20_100);
    assert_eq!(intervals[2..].iter().map(|interval| interval.sent).sum::<u64>(), 100);
}

/// By kernel and hardware timestamps: each interval has the offsets of its own Syncs, of which half
/// arrived in the next one.
#[test]
fn each_interval_has_the_offsets_of_its_syncs() {
    for hardware in [false, true] {
        let mut scene = master_lane(PtpRequestKind::Nsm, last_reply_delayed);
        let options = ServerOffsetOptions {
            correction: LINK_DELAY,
            hardware,
            ..ServerOffsetOptions::default()
        };
        scene.offset = Some(ServerOffsetParameters { options, phc_ahead: PHC_AHEAD.unwrap() });
        scene.path().transmit_error = Some(EARLY);
        let intervals = run(&mut scene, profile());
        for interval in &intervals {
            let ServerOffsetCounts { offsets, timestamped, .. } =
                interval.offsets.as_ref().unwrap();
            let summary = offsets.summary().unwrap();
            assert_eq!((summary.count, *timestamped), (interval.sent, interval.sent));
            let expected = EARLY.as_ns();
            assert!(summary.min >= expected - 2 && summary.max <= expected + 2, "{summary:?}");
        }
        assert_eq!(intervals.len(), 6);
    }
}
