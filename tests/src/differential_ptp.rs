//! Differential scenarios of the grandmaster's two engines: every reply of the XDP program is byte
//! for byte what `FastPort` makes of the request, in the frame that it belongs in, and what it does
//! not answer it passes unchanged. The program runs in the kernel without being attached anywhere.
//!
//! The function uses the timestamp that the program wrote; that it is the time which the server
//! serves at that instant is checked separately.

use std::net::{IpAddr, SocketAddr};
use std::thread;

use anyhow::{Context, Result, anyhow, ensure};
use horolog_server::ClockPage;
use horolog_server::ptp::{
    DelayReqClassification, DelayResponder, DelayResponse, ptp_time_of_page,
};
use horolog_sys::affinity::{allowed_cores, pin_to_core};
use horolog_sys::clock::ClockMonotonic;
use horolog_sys::netlink::Prefix;
use horolog_time::{Clock, NO_STEP, Span};
use horolog_wire::ethernet::{HEADER_LEN as LINK_LEN, Header, MacAddress};
use horolog_wire::frame::{UdpFrame, UdpFrameBuilder};
use horolog_wire::ntp::LeapIndicator;
use horolog_wire::ptp::message::{Grandmaster, TIMESTAMP_MESSAGE_LEN};
use horolog_wire::ptp::monitor::{CurrentDataSet, NetSyncMonitorResponse, ParentDataSet};
use horolog_wire::ptp::{
    ETHER_TYPE, EVENT_PORT, GENERAL_PORT, IPV6_PADDING_LEN, MULTICAST_IPV4, MULTICAST_IPV6,
    MULTICAST_MAC, Message, PortIdentity, PtpFlags, PtpMessageBody, PtpTimestamp, TimeInterval,
};
use horolog_wire::udp::HEADER_LEN as UDP_LEN;
use horolog_wire::{ipv4, ipv6};
use horolog_xdp::{
    PtpPort, PtpTransport, Responder, ResponderClockPageWriter, ResponderSettings, XdpAction,
};

use crate::differential::{hexadecimal, page, publish};
use crate::frames::{Expected, Kind, build};
use crate::frames_ptp::{ADMITTED, CLOCK, DOMAIN, KINDS, MAC, MONITOR_KINDS, OWN, SDO_ID};
use crate::mutated_frames::mend;
use crate::random::Random;

const FRAMES_OF_A_KIND: usize = 5_000;
const FRAMES_OF_A_PAGE: usize = 250;
const SEED: u64 = 0x0070_7470_7831;
/// A test run's frames come in by the loopback interface.
const LOOPBACK: u32 = 1;
const LOG_MIN_DELAY_REQ: i8 = -4;

/// The ports' numbers, by transport.
const fn number(transport: PtpTransport) -> u16 {
    0x0a00 + transport as u16
}

/// What the ports answer.
#[derive(Clone, Copy, Debug)]
struct Answers {
    multicast: bool,
    hybrid: bool,
    monitor: bool,
}

const BOTH: Answers = Answers { multicast: true, hybrid: true, monitor: false };
const MONITOR: Answers = Answers { monitor: true, ..BOTH };
/// Where `control` stands in a header, and what the program has there while a copy of an answer is
/// not finished.
const CONTROL_OFFSET: usize = 32;
const UNFINISHED: u8 = 0xff;

/// What NetSync Monitor is told over a transport.
fn monitor(transport: PtpTransport) -> NetSyncMonitorResponse<'static> {
    const ADDRESS: [u8; 16] = [7, 6, 5, 4, 3, 2, 1, 0, 9, 8, 7, 6, 5, 4, 3, 2];
    let address_len = [4, 16, 6][transport as usize];
    NetSyncMonitorResponse {
        port_state: 6,
        protocol: transport as u16 + 1,
        address: &ADDRESS[..address_len],
        parent: ParentDataSet {
            port: PortIdentity { clock: CLOCK, port: 0 },
            has_statistics: false,
            variance: 0xffff,
            phase_change_rate: 0x7fff_ffff,
            grandmaster: Grandmaster { priority1: 77, identity: CLOCK, ..Grandmaster::default() },
        },
        current: CurrentDataSet::default(),
        utc_offset: 37,
        time_flags: 0x3c,
        time_source: 0x20,
        last_sync: PtpTimestamp::ZERO,
    }
}

fn tlv(transport: PtpTransport) -> Vec<u8> {
    let response = monitor(transport);
    let mut bytes = vec![0; NetSyncMonitorResponse::tlv_len(response.address.len())];
    response.emit(&mut bytes);
    bytes
}

/// Whether a client is admitted to NetSync Monitor.
fn is_admitted(client: IpAddr) -> bool {
    let has = |&(address, length)| {
        Prefix::new(address, length).is_ok_and(|prefix: Prefix| prefix.contains(client))
    };
    ADMITTED.iter().any(has)
}

/// The program as a grandmaster on the loopback interface.
fn responder(answers: Answers) -> Result<(Responder, ResponderClockPageWriter)> {
    let settings = ResponderSettings { ptp_monitor: answers.monitor, ..ResponderSettings::BASIC };
    let (responder, writer) = Responder::load(&settings)?;
    if answers.monitor {
        responder.chain_ptp()?;
        responder.enable_monitor(LOOPBACK)?;
        for (transport, prefix) in
            [PtpTransport::Ipv4, PtpTransport::Ipv6].into_iter().zip(ADMITTED)
        {
            responder.set_monitor_client(LOOPBACK, transport, prefix, true)?;
        }
    }
    for transport in [PtpTransport::Ipv4, PtpTransport::Ipv6, PtpTransport::Ethernet] {
        let port = PtpPort {
            clock: CLOCK,
            port: number(transport),
            domain: DOMAIN,
            sdo_id: SDO_ID,
            log_min_delay_req: LOG_MIN_DELAY_REQ,
            multicast: answers.multicast,
            hybrid: answers.hybrid,
            mac: MAC.0,
            address: group_source(transport == PtpTransport::Ipv6),
            monitor: answers.monitor.then(|| tlv(transport)),
        };
        responder.set_ptp_port(LOOPBACK, transport, Some(&port))?;
    }
    OWN.iter().try_for_each(|&address| responder.set_ptp_address(address, true))?;
    Ok((responder, writer))
}

/// Where messages to the group come from.
const fn group_source(ipv6: bool) -> IpAddr {
    OWN[if ipv6 { 2 } else { 0 }]
}

/// The message that answers `request`, where the port does.
fn message(
    transport: PtpTransport,
    answers: Answers,
    (group, admitted): (bool, bool),
    request: &[u8],
    receive: PtpTimestamp,
) -> Option<DelayResponse> {
    let port = DelayResponder {
        identity: PortIdentity { clock: CLOCK, port: number(transport) },
        domain: DOMAIN,
        sdo_id: SDO_ID,
        log_min_delay_req: LOG_MIN_DELAY_REQ,
        multicast: answers.multicast,
        hybrid: answers.hybrid,
        monitor: answers.monitor.then(|| monitor(transport)),
    };
    let context = DelayReqClassification { group, granted: false, admitted };
    port.respond_to_bytes(request, context, receive).ok()
}

/// Whether whoever has this address may be answered.
fn is_answerable(source: IpAddr, destination: IpAddr) -> bool {
    let is_one = match source {
        IpAddr::V4(ip) => !matches!(ip.octets()[0], 0 | 127 | 224..),
        IpAddr::V6(ip) => {
            !(ip.is_multicast() || ip.is_unspecified() || ip.is_loopback())
                && ip.to_ipv4_mapped().is_none()
        }
    };
    is_one && source != destination
}

/// The frame that answers another, where one may, and whether a Sync is owed as well.
fn frame(request: &[u8], answers: Answers, receive: PtpTimestamp) -> Option<(Vec<u8>, bool)> {
    let (link, payload) = Header::parse(request).ok()?;
    if link.source.is_group() || link.vlan.is_some() {
        return None;
    }
    if link.ether_type == ETHER_TYPE {
        let group = link.destination == MULTICAST_MAC;
        if !group && link.destination != MAC {
            return None;
        }
        let answer = message(PtpTransport::Ethernet, answers, (group, true), payload, receive)?;
        let destination = if group { MULTICAST_MAC } else { link.source };
        let mut reply = vec![0; LINK_LEN];
        Header { destination, source: MAC, ..link }.emit(&mut reply);
        reply.extend_from_slice(answer.bytes());
        return Some((reply, answer.needs_sync));
    }
    let datagram = UdpFrame::parse(request).ok()?;
    let (source, destination) = (datagram.source.ip(), datagram.destination.ip());
    let group = [IpAddr::V4(MULTICAST_IPV4), MULTICAST_IPV6.into()].contains(&destination);
    let mac = if group { MacAddress::of_group(destination) } else { MAC };
    let is_ours = group || OWN.contains(&destination);
    if datagram.destination.port() != EVENT_PORT
        || !is_ours
        || link.destination != mac
        || datagram.options_len + datagram.trailer_len > 0
        || !is_answerable(source, destination)
        || !(datagram.has_valid_checksum() || datagram.has_partial_checksum())
    {
        return None;
    }
    let transport = if destination.is_ipv4() { PtpTransport::Ipv4 } else { PtpTransport::Ipv6 };
    let from_whom = (group, is_admitted(source));
    let answer = message(transport, answers, from_whom, datagram.payload, receive)?;
    let mut payload = answer.bytes().to_vec();
    if transport == PtpTransport::Ipv6 {
        payload.extend([0; IPV6_PADDING_LEN]);
    }
    let from = if group { group_source(destination.is_ipv6()) } else { destination };
    let builder = UdpFrameBuilder {
        destination_mac: if group { mac } else { link.source },
        source_mac: MAC,
        vlan: None,
        source: SocketAddr::new(from, GENERAL_PORT),
        destination: SocketAddr::new(if group { destination } else { source }, GENERAL_PORT),
    };
    let mut reply = build(&builder, &payload);
    if group {
        // Messages to the group stay on the link (annex C.3).
        reply[LINK_LEN + if destination.is_ipv4() { 8 } else { 7 }] = 1;
        if destination.is_ipv4() {
            mend(&mut reply);
        }
    }
    Some((reply, answer.needs_sync))
}

/// The time that a frame tells: when a request was received, or when this left.
fn time_of(reply: &[u8]) -> Result<PtpTimestamp> {
    let (link, rest) = Header::parse(reply).map_err(|error| anyhow!("{error:?}"))?;
    let message = if link.ether_type == ETHER_TYPE {
        rest
    } else {
        let datagram = UdpFrame::parse(reply).map_err(|error| anyhow!("no UDP: {error:?}"))?;
        ensure!(datagram.has_valid_checksum(), "the answer's UDP checksum is wrong");
        datagram.payload
    };
    let (message, _) = Message::parse(message).map_err(|error| anyhow!("{error:?}"))?;
    match message.body {
        PtpMessageBody::DelayResp { receive: at, .. } | PtpMessageBody::Sync(at) => Ok(at),
        other => anyhow::bail!("it tells no time: {other:?}"),
    }
}

/// Makes an answer that copies are made of what the first of them becomes.
fn finish(reply: &mut [u8]) -> Result<()> {
    let (link, _) = Header::parse(reply).map_err(|error| anyhow!("{error:?}"))?;
    let header_at = match (link.ether_type == ETHER_TYPE, reply[LINK_LEN] >> 4) {
        (true, _) => LINK_LEN,
        (false, 4) => LINK_LEN + ipv4::HEADER_LEN + UDP_LEN,
        (false, _) => LINK_LEN + ipv6::HEADER_LEN + UDP_LEN,
    };
    let control = &mut reply[header_at + CONTROL_OFFSET];
    ensure!(*control == UNFINISHED, "a finished answer is copied");
    *control = 3;
    Ok(())
}

/// Where the parts of an answer leave they become the delay response, a Sync and its follow-up, as
/// the port's own are (`Port::send_sync` and `Port::sent`); what is no part leaves as it is.
fn check_copies(
    responder: &Responder,
    page: &ClockPage,
    copy: &[u8],
    response: &[u8],
) -> Result<()> {
    let leave = |frame: &[u8]| -> Result<Vec<u8>> {
        let outcome = responder.test_run_copy(frame)?;
        ensure!(outcome.verdict == XdpAction::Pass, "a copy leaves as {:?}", outcome.verdict);
        Ok(outcome.frame)
    };
    let first = leave(copy)?;
    ensure!(first == response, "the first copy leaves as {}", hexadecimal(&first));
    ensure!(leave(&first)? == first, "what is finished is changed");
    let sync = leave(copy)?;
    let follow_up = leave(copy)?;
    let left = time_of(&sync)?;
    let received = time_of(response)?;
    let now = ptp_time_of_page(page, ClockMonotonic.now()).context("the page has expired")?;
    let in_order = [received, left, now].is_sorted();
    // UTC may have stepped in between.
    let steps = page.timebase.step_at != NO_STEP && page.tai_minus_utc_s.is_none();
    ensure!(steps || in_order, "received {received:?}, left {left:?}");
    let two_step = PtpFlags::UNICAST.union(PtpFlags::TWO_STEP);
    let parts = [
        (sync, PtpMessageBody::Sync(left), two_step, EVENT_PORT),
        (follow_up, PtpMessageBody::FollowUp(left), PtpFlags::UNICAST, GENERAL_PORT),
    ];
    for (by_program, body, flags, port) in parts {
        let model = time_frame(response, body, flags, port)?;
        let (by_program, model) = (hexadecimal(&by_program), hexadecimal(&model));
        ensure!(by_program == model, "{body:?}:\nprogram {by_program}\nmodel   {model}");
    }
    Ok(())
}

/// The frame with a message that tells the time, to whom a delay response goes.
fn time_frame(
    response: &[u8],
    body: PtpMessageBody<'_>,
    flags: PtpFlags,
    port: u16,
) -> Result<Vec<u8>> {
    const ETHERNET_MIN: usize = 60;
    let (link, payload) = Header::parse(response).map_err(|error| anyhow!("{error:?}"))?;
    let datagram = UdpFrame::parse(response).ok();
    let payload = datagram.map_or(payload, |datagram| datagram.payload);
    let (answered, padding) = Message::parse(payload).map_err(|error| anyhow!("{error:?}"))?;
    let header =
        horolog_wire::ptp::Header { flags, correction: TimeInterval(0), ..answered.header };
    let mut message = [0; TIMESTAMP_MESSAGE_LEN + IPV6_PADDING_LEN];
    let length = Message::new(header, body).emit(&mut message);
    let Some(datagram) = datagram else {
        let mut frame = vec![0; ETHERNET_MIN];
        link.emit(&mut frame);
        frame[LINK_LEN..][..length].copy_from_slice(&message[..length]);
        return Ok(frame);
    };
    let builder = UdpFrameBuilder {
        destination_mac: link.destination,
        source_mac: link.source,
        vlan: None,
        source: SocketAddr::new(datagram.source.ip(), port),
        destination: SocketAddr::new(datagram.destination.ip(), port),
    };
    Ok(build(&builder, &message[..length + padding.len()]))
}

/// Has both engines decide on a frame, and returns true if the program answered it.
fn compare(
    responder: &Responder,
    answers: Answers,
    page: &ClockPage,
    request: &[u8],
) -> Result<bool> {
    let before = ClockMonotonic.now();
    let mut outcome = responder.test_run_ptp(request)?;
    let after = ClockMonotonic.now();
    match outcome.verdict {
        XdpAction::Pass => {
            let to = hexadecimal(&outcome.frame);
            ensure!(outcome.frame == request, "the program changed what it passed to {to}");
            return Ok(false);
        }
        XdpAction::Redirect => {
            let copy = outcome.frame.clone();
            finish(&mut outcome.frame)?;
            check_copies(responder, page, &copy, &outcome.frame)?;
        }
        XdpAction::Transmit => (),
        other => anyhow::bail!("the program says {other:?}"),
    }
    let by_program = hexadecimal(&outcome.frame);
    let receive = time_of(&outcome.frame).with_context(|| by_program.clone())?;
    let model = frame(request, answers, receive);
    let (model, owes_sync) =
        model.with_context(|| format!("nobody else answers it with {by_program}"))?;
    ensure!(owes_sync == (outcome.verdict == XdpAction::Redirect), "a Sync is owed: {owes_sync}");
    let by_model = hexadecimal(&model);
    ensure!(outcome.frame == model, "program {by_program}\nmodel   {by_model}");
    ensure!(page.variables.leap != LeapIndicator::Unsynchronised, "answered without a clock");
    let at =
        |instant| ptp_time_of_page(page, instant).context("answered from a page that has expired");
    let instants = [at(before)?, receive, at(after)?];
    // Only UTC has a step, which may lie between the two.
    let steps = before < page.timebase.step_at && page.timebase.step_at <= after;
    ensure!(steps || instants.is_sorted(), "timestamps out of order: {instants:?}");
    Ok(true)
}

/// A page of a synchronised clock, which may know TAI or not, and in whose time there may be a leap
/// second: behind it, or in the middle of the frames that it is for.
fn page_with_leap(random: &mut Random) -> ClockPage {
    let mut page = page(random);
    page.variables.leap =
        random.pick(&[LeapIndicator::None, LeapIndicator::Insert, LeapIndicator::Delete]);
    page.tai_minus_utc_s = random.pick(&[None, Some(37), Some(0), Some(-1), Some(i16::MAX)]);
    if random.pick(&[true, false]) {
        let distance = Span::from_ns(random.within(0..=2_000_000) as i64 - 1_000_000);
        page.timebase.step_at = page.timebase.anchor + distance;
        page.timebase.step = random.pick(&[-1, 1]) << 32;
    }
    page
}

/// How many frames of a kind were answered, and how many passed.
fn compare_kind(
    kind: &Kind,
    random: &mut Random,
    answers: Answers,
    (responder, writer): &mut (Responder, ResponderClockPageWriter),
) -> Result<(usize, usize)> {
    let mut current = page_with_leap(random);
    let mut answered = 0;
    for number in 0..FRAMES_OF_A_KIND {
        if number % FRAMES_OF_A_PAGE == 0 {
            current = page_with_leap(random);
            publish(writer, &current);
        }
        let frame = (kind.make)(random);
        let is_answered = compare(responder, answers, &current, &frame)
            .with_context(|| format!("{} {number}: {}", kind.name, hexadecimal(&frame)))?;
        answered += usize::from(is_answered);
    }
    Ok((answered, FRAMES_OF_A_KIND - answered))
}

/// Compares all of these kinds, each against what is expected of it where that is given; returns
/// how many frames were answered. What the program did is printed on stderr.
fn compare_kinds(
    kinds: &[Kind],
    random: &mut Random,
    answers: Answers,
    body: &mut (Responder, ResponderClockPageWriter),
    expected: impl Fn(&Kind) -> Option<Expected>,
) -> Result<u64> {
    let line = |name: &str, answered: usize, passed: usize| {
        format!("    {name:34} {answered:8} answered {passed:8} passed\n")
    };
    let mut table = String::from("\n");
    let mut total = 0;
    for kind in kinds {
        let (answered, passed) = compare_kind(kind, random, answers, body)?;
        table += &line(kind.name, answered, passed);
        let as_expected = expected(kind).is_none_or(|expected| match expected {
            Expected::Answered => passed == 0,
            Expected::Passed => answered == 0,
            Expected::Either => answered > 0 && passed > 0,
        });
        ensure!(as_expected, "{table}the last should be {:?}", kind.expected);
        total += answered as u64;
    }
    eprint!("{table}    ");
    Ok(total)
}

/// The program answers all that it should and nothing else, as the function does.
pub(crate) fn program_and_function_agree() -> Result<()> {
    let mut body = responder(BOTH)?;
    let mut random = Random::new(SEED);
    let total = compare_kinds(&KINDS, &mut random, BOTH, &mut body, |kind| Some(kind.expected))?;
    let counts = body.0.counts();
    ensure!(counts.answered_ptp == total, "{total} were answered: {counts:?}");
    Ok(())
}

/// The same of NetSync Monitor, beside which requests for the delay are answered as before.
pub(crate) fn program_and_function_agree_on_monitor() -> Result<()> {
    // The program tells copies by their order on a core, which is this thread's alone to keep.
    let run = || {
        let core = allowed_cores()?.into_iter().next().context("no core")?;
        pin_to_core(core)?;
        agree_on_monitor()
    };
    thread::scope(|scope| scope.spawn(run).join().map_err(|_| anyhow!("it panicked"))?)
}

fn agree_on_monitor() -> Result<()> {
    let mut body = responder(MONITOR)?;
    let mut random = Random::new(SEED);
    let expected = |kind: &Kind| Some(kind.expected);
    let total = compare_kinds(&MONITOR_KINDS, &mut random, MONITOR, &mut body, expected)?;
    let counts = body.0.counts();
    ensure!(counts.answered_ptp_monitor == total, "{total} were answered: {counts:?}");
    ensure!(counts.answered_ptp == 0, "one frame for three: {counts:?}");
    // Among the TLVs there is NetSync Monitor's.
    let plain = |kind: &Kind| Some(kind.expected).filter(|outcome| *outcome == Expected::Answered);
    compare_kinds(&KINDS, &mut random, MONITOR, &mut body, plain)?;
    Ok(())
}

/// A port answers the group, itself, or nobody, as it was told; with another's clock or without a
/// clock it answers nobody.
pub(crate) fn a_port_answers_only_what_is_configured() -> Result<()> {
    let mut random = Random::new(SEED);
    for (multicast, hybrid) in [(true, true), (true, false), (false, true), (false, false)] {
        let answers = Answers { multicast, hybrid, ..BOTH };
        let mut body = responder(answers)?;
        // To the port and to the group, by turns.
        for (kind, is_wanted) in KINDS.iter().zip([hybrid, multicast].iter().cycle()).take(6) {
            let (answered, passed) = compare_kind(kind, &mut random, answers, &mut body)?;
            let wrong = if *is_wanted { passed } else { answered };
            ensure!(wrong == 0, "{answers:?}, {}: {answered}, {passed} passed", kind.name);
        }
    }
    Ok(())
}

/// Nothing is answered before the first page, without a clock that can be relied on, from a page
/// that has expired, and by a port that is taken away.
pub(crate) fn without_a_clock_no_request_is_answered() -> Result<()> {
    let mut random = Random::new(SEED);
    let (responder, mut writer) = responder(BOTH)?;
    let answers = |random: &mut Random, page: &ClockPage| -> Result<Vec<bool>> {
        let plain = KINDS.iter().filter(|kind| kind.expected == Expected::Answered);
        plain.map(|kind| compare(&responder, BOTH, page, &(kind.make)(random))).collect()
    };
    let mut current = page_with_leap(&mut random);
    ensure!(!answers(&mut random, &current)?.contains(&true), "before the first page");
    publish(&mut writer, &current);
    ensure!(!answers(&mut random, &current)?.contains(&false), "with a page");
    current.variables.leap = LeapIndicator::Unsynchronised;
    publish(&mut writer, &current);
    ensure!(!answers(&mut random, &current)?.contains(&true), "without synchronisation");
    current.variables.leap = LeapIndicator::None;
    current.timebase.expires = ClockMonotonic.now();
    publish(&mut writer, &current);
    ensure!(!answers(&mut random, &current)?.contains(&true), "after the expiry");
    publish(&mut writer, &page_with_leap(&mut random));
    for transport in [PtpTransport::Ipv4, PtpTransport::Ipv6, PtpTransport::Ethernet] {
        responder.set_ptp_port(LOOPBACK, transport, None)?;
    }
    ensure!(!answers(&mut random, &current)?.contains(&true), "as nobody's port");
    Ok(())
}
