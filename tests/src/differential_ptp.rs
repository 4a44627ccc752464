//! Differential scenarios of the grandmaster's two engines: each reply of the XDP program equals,
//! byte for byte, the reply of [`DelayResponder`] in its frame, and all other frames pass
//! unchanged. The program is test-run in the kernel, attached to no interface.
//!
//! The function uses the timestamp that the program wrote; other scenarios check that it is the
//! served time.

use std::net::{IpAddr, SocketAddr};
use std::thread;

use anyhow::{Context, Result, anyhow, ensure};
use horolog_ptp::{DelayReqClassification, DelayResponder, DelayResponse, ptp_time_of_page};
use horolog_source::ClockPage;
use horolog_sys::affinity::{allowed_cores, pin_to_core};
use horolog_sys::clock::ClockMonotonic;
use horolog_time::{Clock, NO_STEP, Span};
use horolog_wire::ethernet::{HEADER_LEN as LINK_LEN, Header, MacAddress};
use horolog_wire::frame::{UdpFrame, UdpFrameBuilder};
use horolog_wire::ntp::LeapIndicator;
use horolog_wire::prefix::Prefix;
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

use crate::differential::{hexadecimal, publish, random_page};
use crate::frames::{ExpectedOutcome, FrameKind, build};
use crate::frames_ptp::{
    ADMITTED, CLOCK, DOMAIN, KINDS, MAC, MONITOR_KINDS, SDO_ID, SERVER_ADDRESSES,
};
use crate::mutated_frames::update_ipv4_checksum;
use crate::random::Random;

const FRAMES_PER_KIND: usize = 5_000;
const FRAMES_PER_PAGE: usize = 250;
const SEED: u64 = 0x0070_7470_7831;
/// Interface of the frames of a test run.
const LOOPBACK: u32 = 1;
const LOG_MIN_DELAY_REQ: i8 = -4;

/// Returns the port number for a transport.
const fn port_number(transport: PtpTransport) -> u16 {
    0x0a00 + transport as u16
}

/// Kinds of requests that the ports answer.
#[derive(Clone, Copy, Debug)]
struct AnsweredKinds {
    multicast: bool,
    hybrid: bool,
    monitor: bool,
}

const WITHOUT_MONITOR: AnsweredKinds =
    AnsweredKinds { multicast: true, hybrid: true, monitor: false };
const MONITOR: AnsweredKinds = AnsweredKinds { monitor: true, ..WITHOUT_MONITOR };
/// Offset of `control` in a PTP header, and its value in a copy of a response before the program
/// completes it.
const CONTROL_OFFSET: usize = 32;
const CONTROL_INCOMPLETE: u8 = 0xff;

/// Returns the NetSync Monitor data of the port for a transport.
fn monitor_response(transport: PtpTransport) -> NetSyncMonitorResponse<'static> {
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

fn monitor_tlv(transport: PtpTransport) -> Vec<u8> {
    let response = monitor_response(transport);
    let mut bytes = vec![0; NetSyncMonitorResponse::tlv_len(response.address.len())];
    response.emit(&mut bytes);
    bytes
}

/// Returns true if a client is admitted to NetSync Monitor.
fn is_admitted(client: IpAddr) -> bool {
    let has = |&(address, length)| {
        Prefix::new(address, length).is_ok_and(|prefix: Prefix| prefix.contains(client))
    };
    ADMITTED.iter().any(has)
}

/// Loads the program as a grandmaster on the loopback interface.
fn responder(answers: AnsweredKinds) -> Result<(Responder, ResponderClockPageWriter)> {
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
            port: port_number(transport),
            domain: DOMAIN,
            sdo_id: SDO_ID,
            log_min_delay_req: LOG_MIN_DELAY_REQ,
            multicast: answers.multicast,
            hybrid: answers.hybrid,
            mac: MAC.0,
            address: group_source(transport == PtpTransport::Ipv6),
            monitor: answers.monitor.then(|| monitor_tlv(transport)),
        };
        responder.set_ptp_port(LOOPBACK, transport, Some(&port))?;
    }
    SERVER_ADDRESSES.iter().try_for_each(|&address| responder.set_ptp_address(address, true))?;
    Ok((responder, writer))
}

/// Returns the source address of messages to the multicast group.
const fn group_source(ipv6: bool) -> IpAddr {
    SERVER_ADDRESSES[if ipv6 { 2 } else { 0 }]
}

/// Returns the response to `request`; `None` if the port does not answer it.
fn response_to(
    transport: PtpTransport,
    answers: AnsweredKinds,
    (group, admitted): (bool, bool),
    request: &[u8],
    receive: PtpTimestamp,
) -> Option<DelayResponse> {
    let port = DelayResponder {
        identity: PortIdentity { clock: CLOCK, port: port_number(transport) },
        domain: DOMAIN,
        sdo_id: SDO_ID,
        log_min_delay_req: LOG_MIN_DELAY_REQ,
        multicast: answers.multicast,
        hybrid: answers.hybrid,
        monitor: answers.monitor.then(|| monitor_response(transport)),
    };
    let context = DelayReqClassification { group, granted: false, admitted };
    port.respond_to_bytes(request, context, receive).ok()
}

/// Returns true if a request from this source may be answered.
fn is_answerable(source: IpAddr, destination: IpAddr) -> bool {
    let is_unicast = match source {
        IpAddr::V4(ip) => !matches!(ip.octets()[0], 0 | 127 | 224..),
        IpAddr::V6(ip) => {
            !(ip.is_multicast() || ip.is_unspecified() || ip.is_loopback())
                && ip.to_ipv4_mapped().is_none()
        }
    };
    is_unicast && source != destination
}

/// Returns the frame of the response to a request, and true if a Sync follows; `None` if the
/// request is not answered.
fn response_frame(
    request: &[u8],
    answers: AnsweredKinds,
    receive: PtpTimestamp,
) -> Option<(Vec<u8>, bool)> {
    let (link, payload) = Header::parse(request).ok()?;
    if link.source.is_group() || link.vlan.is_some() {
        return None;
    }
    if link.ether_type == ETHER_TYPE {
        let group = link.destination == MULTICAST_MAC;
        if !group && link.destination != MAC {
            return None;
        }
        let answer = response_to(PtpTransport::Ethernet, answers, (group, true), payload, receive)?;
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
    let is_ours = group || SERVER_ADDRESSES.contains(&destination);
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
    let group_and_admitted = (group, is_admitted(source));
    let answer = response_to(transport, answers, group_and_admitted, datagram.payload, receive)?;
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
        // Multicast messages stay on the link (IEEE 1588-2019, annex C.3).
        reply[LINK_LEN + if destination.is_ipv4() { 8 } else { 7 }] = 1;
        if destination.is_ipv4() {
            update_ipv4_checksum(&mut reply);
        }
    }
    Some((reply, answer.needs_sync))
}

/// Returns the timestamp in a response: receive time of a `Delay_Resp`, send time of a Sync.
fn timestamp_of(reply: &[u8]) -> Result<PtpTimestamp> {
    let (link, rest) = Header::parse(reply).map_err(|error| anyhow!("{error:?}"))?;
    let message = if link.ether_type == ETHER_TYPE {
        rest
    } else {
        let datagram = UdpFrame::parse(reply).map_err(|error| anyhow!("no UDP: {error:?}"))?;
        ensure!(datagram.has_valid_checksum(), "response has a wrong UDP checksum");
        datagram.payload
    };
    let (message, _) = Message::parse(message).map_err(|error| anyhow!("{error:?}"))?;
    match message.body {
        PtpMessageBody::DelayResp { receive: at, .. } | PtpMessageBody::Sync(at) => Ok(at),
        other => anyhow::bail!("response contains no timestamp: {other:?}"),
    }
}

/// Completes a response that the program redirects: the first copy becomes the `Delay_Resp`.
fn complete(reply: &mut [u8]) -> Result<()> {
    let (link, _) = Header::parse(reply).map_err(|error| anyhow!("{error:?}"))?;
    let header_at = match (link.ether_type == ETHER_TYPE, reply[LINK_LEN] >> 4) {
        (true, _) => LINK_LEN,
        (false, 4) => LINK_LEN + ipv4::HEADER_LEN + UDP_LEN,
        (false, _) => LINK_LEN + ipv6::HEADER_LEN + UDP_LEN,
    };
    let control = &mut reply[header_at + CONTROL_OFFSET];
    ensure!(*control == CONTROL_INCOMPLETE, "redirected response is already complete");
    *control = 3;
    Ok(())
}

/// Copies of a response become, on egress, the `Delay_Resp`, a Sync and its `Follow_Up`, as the
/// port's own (`Port::send_sync` and `Port::sent`); other frames leave unchanged.
fn check_copies(
    responder: &Responder,
    page: &ClockPage,
    copy: &[u8],
    response: &[u8],
) -> Result<()> {
    let egress = |frame: &[u8]| -> Result<Vec<u8>> {
        let outcome = responder.test_run_copy(frame)?;
        ensure!(outcome.verdict == XdpAction::Pass, "a copy leaves as {:?}", outcome.verdict);
        Ok(outcome.frame)
    };
    let first = egress(copy)?;
    ensure!(first == response, "the first copy leaves as {}", hexadecimal(&first));
    ensure!(egress(&first)? == first, "complete response changed on egress");
    let sync = egress(copy)?;
    let follow_up = egress(copy)?;
    let left = timestamp_of(&sync)?;
    let received = timestamp_of(response)?;
    let now = ptp_time_of_page(page, ClockMonotonic.now()).context("the page has expired")?;
    let in_order = [received, left, now].is_sorted();
    // UTC may have stepped between the two.
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

/// Returns the frame of a Sync or `Follow_Up` to the receiver of a delay response.
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

/// Compares the decisions of both engines on a frame; returns true if the program answered it.
fn compare(
    responder: &Responder,
    answers: AnsweredKinds,
    page: &ClockPage,
    request: &[u8],
) -> Result<bool> {
    let before = ClockMonotonic.now();
    let mut outcome = responder.test_run_ptp(request)?;
    let after = ClockMonotonic.now();
    match outcome.verdict {
        XdpAction::Pass => {
            let to = hexadecimal(&outcome.frame);
            ensure!(outcome.frame == request, "the program passed a changed frame: {to}");
            return Ok(false);
        }
        XdpAction::Redirect => {
            let copy = outcome.frame.clone();
            complete(&mut outcome.frame)?;
            check_copies(responder, page, &copy, &outcome.frame)?;
        }
        XdpAction::Transmit => (),
        other => anyhow::bail!("program returned {other:?}"),
    }
    let by_program = hexadecimal(&outcome.frame);
    let receive = timestamp_of(&outcome.frame).with_context(|| by_program.clone())?;
    let model = response_frame(request, answers, receive);
    let (model, needs_sync) =
        model.with_context(|| format!("only the program answers: {by_program}"))?;
    let is_redirected = outcome.verdict == XdpAction::Redirect;
    ensure!(needs_sync == is_redirected, "redirect disagrees with need of Sync: {needs_sync}");
    let by_model = hexadecimal(&model);
    ensure!(outcome.frame == model, "program {by_program}\nmodel   {by_model}");
    ensure!(page.variables.leap != LeapIndicator::Unsynchronised, "answered without a clock");
    let at =
        |instant| ptp_time_of_page(page, instant).context("answered from a page that has expired");
    let instants = [at(before)?, receive, at(after)?];
    // Only UTC has steps; one may lie between the two instants.
    let steps = before < page.timebase.step_at && page.timebase.step_at <= after;
    ensure!(steps || instants.is_sorted(), "timestamps out of order: {instants:?}");
    Ok(true)
}

/// Returns a page of a synchronised clock, with known or unknown TAI, and possibly a leap second
/// before or among the frames of the page.
fn page_with_leap(random: &mut Random) -> ClockPage {
    let mut page = random_page(random);
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

/// Compares random frames of a kind; returns the numbers of answered and passed frames.
fn compare_kind(
    kind: &FrameKind,
    random: &mut Random,
    answers: AnsweredKinds,
    (responder, writer): &mut (Responder, ResponderClockPageWriter),
) -> Result<(usize, usize)> {
    let mut current = page_with_leap(random);
    let mut answered = 0;
    for number in 0..FRAMES_PER_KIND {
        if number % FRAMES_PER_PAGE == 0 {
            current = page_with_leap(random);
            publish(writer, &current);
        }
        let frame = (kind.make)(random);
        let is_answered = compare(responder, answers, &current, &frame)
            .with_context(|| format!("{} {number}: {}", kind.name, hexadecimal(&frame)))?;
        answered += usize::from(is_answered);
    }
    Ok((answered, FRAMES_PER_KIND - answered))
}

/// Compares frames of these kinds, and checks each kind's outcome if `expected` returns one.
/// Returns the number of answered frames, and prints the counts of each kind on stderr.
fn compare_kinds(
    kinds: &[FrameKind],
    random: &mut Random,
    answers: AnsweredKinds,
    program: &mut (Responder, ResponderClockPageWriter),
    expected: impl Fn(&FrameKind) -> Option<ExpectedOutcome>,
) -> Result<u64> {
    let line = |name: &str, answered: usize, passed: usize| {
        format!("    {name:34} {answered:8} answered {passed:8} passed\n")
    };
    let mut table = String::from("\n");
    let mut total = 0;
    for kind in kinds {
        let (answered, passed) = compare_kind(kind, random, answers, program)?;
        table += &line(kind.name, answered, passed);
        let as_expected = expected(kind).is_none_or(|expected| match expected {
            ExpectedOutcome::Answered => passed == 0,
            ExpectedOutcome::Passed => answered == 0,
            ExpectedOutcome::Either => answered > 0 && passed > 0,
        });
        ensure!(as_expected, "{table}last kind expected {:?}", kind.expected);
        total += answered as u64;
    }
    eprint!("{table}    ");
    Ok(total)
}

/// Program and function answer the same delay requests, and no others.
pub(crate) fn program_and_function_agree() -> Result<()> {
    let mut body = responder(WITHOUT_MONITOR)?;
    let mut random = Random::new(SEED);
    let total =
        compare_kinds(&KINDS, &mut random, WITHOUT_MONITOR, &mut body, |kind| Some(kind.expected))?;
    let counts = body.0.counts();
    ensure!(counts.answered_ptp == total, "{total} were answered: {counts:?}");
    Ok(())
}

/// Program and function answer the same requests of NetSync Monitor, and delay requests as without
/// it.
pub(crate) fn program_and_function_agree_on_monitor() -> Result<()> {
    // The program distinguishes copies by their order on a core, so no other thread may interfere.
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
    let expected = |kind: &FrameKind| Some(kind.expected);
    let total = compare_kinds(&MONITOR_KINDS, &mut random, MONITOR, &mut body, expected)?;
    let counts = body.0.counts();
    ensure!(counts.answered_ptp_monitor == total, "{total} were answered: {counts:?}");
    ensure!(counts.answered_ptp == 0, "monitor requests counted as plain: {counts:?}");
    // One of the other TLVs is that of NetSync Monitor.
    let plain = |kind: &FrameKind| {
        Some(kind.expected).filter(|outcome| *outcome == ExpectedOutcome::Answered)
    };
    compare_kinds(&KINDS, &mut random, MONITOR, &mut body, plain)?;
    Ok(())
}

/// A port answers requests to the group or to itself only as configured.
pub(crate) fn a_port_answers_only_what_is_configured() -> Result<()> {
    let mut random = Random::new(SEED);
    for (multicast, hybrid) in [(true, true), (true, false), (false, true), (false, false)] {
        let answers = AnsweredKinds { multicast, hybrid, ..WITHOUT_MONITOR };
        let mut body = responder(answers)?;
        // Kinds alternate between requests to the port and to the group.
        for (kind, is_wanted) in KINDS.iter().zip([hybrid, multicast].iter().cycle()).take(6) {
            let (answered, passed) = compare_kind(kind, &mut random, answers, &mut body)?;
            let wrong = if *is_wanted { passed } else { answered };
            ensure!(wrong == 0, "{answers:?}, {}: {answered} answered, {passed} passed", kind.name);
        }
    }
    Ok(())
}

/// No request is answered before the first page, with an unsynchronised clock, after the page
/// expired, or after the port was removed.
pub(crate) fn without_a_clock_no_request_is_answered() -> Result<()> {
    let mut random = Random::new(SEED);
    let (responder, mut writer) = responder(WITHOUT_MONITOR)?;
    let answers = |random: &mut Random, page: &ClockPage| -> Result<Vec<bool>> {
        let plain = KINDS.iter().filter(|kind| kind.expected == ExpectedOutcome::Answered);
        plain.map(|kind| compare(&responder, WITHOUT_MONITOR, page, &(kind.make)(random))).collect()
    };
    let mut current = page_with_leap(&mut random);
    ensure!(!answers(&mut random, &current)?.contains(&true), "answered before the first page");
    publish(&mut writer, &current);
    ensure!(!answers(&mut random, &current)?.contains(&false), "not answered with a page");
    current.variables.leap = LeapIndicator::Unsynchronised;
    publish(&mut writer, &current);
    ensure!(!answers(&mut random, &current)?.contains(&true), "answered while unsynchronised");
    current.variables.leap = LeapIndicator::None;
    current.timebase.expires = ClockMonotonic.now();
    publish(&mut writer, &current);
    ensure!(!answers(&mut random, &current)?.contains(&true), "answered after the expiry");
    publish(&mut writer, &page_with_leap(&mut random));
    for transport in [PtpTransport::Ipv4, PtpTransport::Ipv6, PtpTransport::Ethernet] {
        responder.set_ptp_port(LOOPBACK, transport, None)?;
    }
    ensure!(!answers(&mut random, &current)?.contains(&true), "answered by a removed port");
    Ok(())
}
