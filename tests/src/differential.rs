//! Differential scenarios of the server's two engines: the XDP program and the model in Rust make
//! the same decision on every frame, byte for byte. The program is test-run in the kernel, attached
//! to no interface.
//!
//! The model uses the timestamps that the program wrote, so that whole frames are compared; other
//! scenarios check that these timestamps are correct.

use anyhow::{Context, Result, ensure};
use horolog_server::{
    AddressHashKey, FrameDecisionInputs, FrameInterleavedHandling, FrameTimes, FrameVerdict,
    InterleavedTable, ListenAddressSet, clock_update, decide_frame,
};
use horolog_source::{ClockPage, SystemVariables};
use horolog_sys::clock::ClockMonotonic;
use horolog_time::{Clock, NO_STEP, NOMINAL_RATE, NtpShort, NtpTimestamp, Span, Timebase};
use horolog_wire::frame::UdpFrame;
use horolog_wire::ntp::{
    AssociationMode, HEADER_LEN, Header, LeapIndicator, STRATUM_UNSYNCHRONISED,
};
use horolog_xdp::{Responder, ResponderClockPageWriter, ResponderSettings, XdpAction};

use crate::frames::{ExpectedOutcome, FrameKind, KINDS, LISTEN, listen_by, listen_set};
use crate::random::Random;

const FRAMES_PER_KIND: usize = 20_000;
const SEED: u64 = 0x686f_726f_6c6f_6721;
/// Minimum length of a frame for `BPF_PROG_TEST_RUN`: an Ethernet header, in bytes.
const SHORTEST_FRAME: usize = 14;
/// Frames between two clock pages: a few milliseconds, while a page expires after 2 s.
const FRAMES_PER_PAGE: usize = 500;

/// Returns a clock page with random values in all fields, anchored at the present.
pub(crate) fn random_page(random: &mut Random) -> ClockPage {
    let now = ClockMonotonic.now();
    ClockPage {
        variables: SystemVariables {
            leap: LeapIndicator::from_bits(random.next() as u8),
            // Up to the stratum of an unsynchronised clock.
            stratum: random.within(1..=STRATUM_UNSYNCHRONISED.into()) as u8,
            precision: -(random.within(1..=30) as i8),
            root_delay: NtpShort::from_bits(random.next() as u32),
            root_dispersion: NtpShort::from_bits(random.next() as u32),
            reference_id: (random.next() as u32).to_be_bytes(),
            reference: NtpTimestamp::from_bits(random.next()),
        },
        timebase: Timebase {
            anchor: now,
            // Any time is valid, including the end of an era.
            ntp_at_anchor: NtpTimestamp::from_bits(random.next()),
            rate: NOMINAL_RATE,
            expires: now + Span::from_ms(2_000),
            step_at: NO_STEP,
            step: 0,
        },
        realtime_minus_monotonic: Span::ZERO,
        realtime_step: Span::ZERO,
        tai_minus_utc_s: None,
        root_distance: Span::ZERO,
        root_distance_recent_max: Span::ZERO,
        leap_after: LeapIndicator::None,
    }
}

pub(crate) fn publish(writer: &mut ResponderClockPageWriter, page: &ClockPage) {
    let update = clock_update(page);
    writer.publish(&update, &update);
}

fn responder() -> Result<(Responder, ResponderClockPageWriter)> {
    let (responder, writer) = Responder::load(&ResponderSettings::BASIC)?;
    listen_by(&responder)?;
    Ok((responder, writer))
}

pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Returns receive and transmit timestamps of a reply, which ends with its NTP header.
pub(crate) fn timestamps(reply: &[u8]) -> Result<(NtpTimestamp, NtpTimestamp)> {
    let start = reply.len().checked_sub(HEADER_LEN).context("a reply without an NTP header")?;
    let (header, _) = Header::parse(&reply[start..])?;
    Ok((header.receive, header.transmit))
}

/// Compares the decisions of both engines on a frame; returns true if they answered it.
fn compare(
    responder: &Responder,
    listen: &ListenAddressSet,
    page: &ClockPage,
    frame: &[u8],
) -> Result<bool> {
    let unknown = NtpTimestamp::UNKNOWN;
    let table =
        InterleavedTable::new(0, AddressHashKey([0; 2])).context("a table without slots")?;
    let interleaved = FrameInterleavedHandling::Answer(&table);
    let server = FrameDecisionInputs { listen, page, limiter: None, interleaved };
    let model_verdict = |received, transmit| {
        decide_frame(frame, &server, &FrameTimes { now: page.timebase.anchor, received, transmit })
    };
    if frame.len() < SHORTEST_FRAME {
        let model = model_verdict(unknown, unknown);
        ensure!(model == FrameVerdict::Pass, "the model answers {} bytes", frame.len());
        return Ok(false);
    }
    let before = page.timebase.ntp_at(ClockMonotonic.now()).context("the page has expired")?;
    let outcome = responder.test_run(frame)?;
    let after = page.timebase.ntp_at(ClockMonotonic.now()).context("the page has expired")?;
    let answered = match outcome.verdict {
        XdpAction::Transmit => true,
        XdpAction::Pass => false,
        other => anyhow::bail!("program returned {other:?}"),
    };
    let (receive, transmit) =
        if answered { timestamps(&outcome.frame)? } else { (unknown, unknown) };
    // Formatted only for an error.
    let by_program = || hexadecimal(&outcome.frame);
    match model_verdict(receive, transmit) {
        FrameVerdict::Drop => anyhow::bail!("the model drops a frame without any limits"),
        FrameVerdict::Pass => {
            ensure!(!answered, "only the program answers: {}", by_program());
            ensure!(outcome.frame == frame, "the program passed a changed frame: {}", by_program());
        }
        FrameVerdict::Transmit(reply) => {
            ensure!(answered, "only the model answers");
            ensure!(
                outcome.frame == reply,
                "program {}\nmodel   {}",
                by_program(),
                hexadecimal(&reply)
            );
            check_reply(frame, &reply)?;
            let instants = [before, receive, transmit, after];
            let in_order = instants.windows(2).all(|pair| pair[1].since(pair[0]) >= Span::ZERO);
            ensure!(in_order, "timestamps out of order: {instants:?}");
        }
    }
    Ok(answered)
}

/// Requirements of a reply, beyond the agreement of both engines.
pub(crate) fn check_reply(request: &[u8], reply: &[u8]) -> Result<()> {
    let datagram = UdpFrame::parse(reply).map_err(|error| anyhow::anyhow!("no UDP: {error:?}"))?;
    ensure!(datagram.has_valid_checksum(), "the reply's UDP checksum is wrong");
    ensure!(reply.len() <= request.len(), "the reply is longer than the request");
    let (header, rest) = Header::parse(datagram.payload)?;
    ensure!(rest.is_empty() && datagram.trailer_len == 0, "trailing bytes after the reply");
    let expected = match AssociationMode::from_bits(request[request.len() - HEADER_LEN]) {
        AssociationMode::SymmetricActive => AssociationMode::SymmetricPassive,
        _ => AssociationMode::Server,
    };
    ensure!(header.mode == expected, "mode {:?}", header.mode);
    ensure!(header.stratum < STRATUM_UNSYNCHRONISED, "stratum {}", header.stratum);
    let token = &request[request.len() - 8..];
    ensure!(header.origin.to_bits().to_be_bytes() == token, "origin {:?}", header.origin);
    Ok(())
}

/// Compares random frames of a kind; returns the numbers of answered and passed frames.
fn compare_kind(
    kind: &FrameKind,
    random: &mut Random,
    responder: &Responder,
    writer: &mut ResponderClockPageWriter,
) -> Result<(usize, usize)> {
    let listen = listen_set();
    let mut current = random_page(random);
    let (mut answered, mut passed) = (0, 0);
    for number in 0..FRAMES_PER_KIND {
        if number % FRAMES_PER_PAGE == 0 {
            current = random_page(random);
            publish(writer, &current);
        }
        let frame = (kind.make)(random);
        let is_answered = compare(responder, &listen, &current, &frame)
            .with_context(|| format!("{} {number}: {}", kind.name, hexadecimal(&frame)))?;
        if is_answered {
            answered += 1;
        } else {
            passed += 1;
        }
    }
    let as_expected = match kind.expected {
        ExpectedOutcome::Answered => passed == 0,
        ExpectedOutcome::Passed => answered == 0,
        ExpectedOutcome::Either => answered > 0 && passed > 0,
    };
    ensure!(
        as_expected,
        "{} expected {:?}: {answered} answered, {passed} passed",
        kind.name,
        kind.expected
    );
    Ok((answered, passed))
}

/// Program and model agree, byte for byte, on frames of every kind. Prints their counts on stderr.
pub(crate) fn program_and_model_agree() -> Result<()> {
    let (responder, mut writer) = responder()?;
    let mut random = Random::new(SEED);
    let line = |name: &str, counts: (usize, usize)| {
        format!("    {name:34} {:8} answered {:8} passed\n", counts.0, counts.1)
    };
    let mut table = String::from("\n");
    let mut total = (0, 0);
    for kind in &KINDS {
        let counts = compare_kind(kind, &mut random, &responder, &mut writer)?;
        table += &line(kind.name, counts);
        total = (total.0 + counts.0, total.1 + counts.1);
    }
    eprint!("{table}{}    ", line("all", total));
    Ok(())
}

/// Returns valid requests over IPv4 and IPv6.
pub(crate) fn valid_requests(random: &mut Random) -> [Vec<u8>; 2] {
    [0, 1].map(|kind: usize| (KINDS[kind].make)(random))
}

/// Before the first clock page and after the expiry of the last, all frames pass unchanged.
pub(crate) fn without_a_clock_page_everything_passes() -> Result<()> {
    let mut random = Random::new(SEED);
    let (responder, mut writer) = responder()?;
    let passes = |when: &str, random: &mut Random| -> Result<()> {
        for request in valid_requests(random) {
            let outcome = responder.test_run(&request)?;
            ensure!(outcome.verdict == XdpAction::Pass, "{when}: {:?}", outcome.verdict);
            ensure!(outcome.frame == request, "{when}: the frame was changed");
        }
        Ok(())
    };
    passes("before the first page", &mut random)?;
    let mut current = random_page(&mut random);
    publish(&mut writer, &current);
    for request in valid_requests(&mut random) {
        ensure!(
            responder.test_run(&request)?.verdict == XdpAction::Transmit,
            "request passed although a page is published"
        );
    }
    current.timebase.expires = ClockMonotonic.now();
    publish(&mut writer, &current);
    passes("after the expiry", &mut random)?;
    let counts = responder.counts();
    ensure!((counts.answered_ipv4, counts.answered_ipv6) == (1, 1), "{counts:?}");
    ensure!(counts.passed.iter().sum::<u64>() == 4, "{counts:?}");
    Ok(())
}

/// After removal of an address its requests pass, although the program caches the last address that
/// it found.
pub(crate) fn an_address_can_be_removed() -> Result<()> {
    let mut random = Random::new(SEED);
    let (responder, mut writer) = responder()?;
    publish(&mut writer, &random_page(&mut random));
    for (request, address) in valid_requests(&mut random).iter().zip(LISTEN) {
        let verdict = || Ok::<_, anyhow::Error>(responder.test_run(request)?.verdict);
        ensure!(verdict()? == XdpAction::Transmit && verdict()? == XdpAction::Transmit);
        responder.stop_answering(address)?;
        ensure!(verdict()? == XdpAction::Pass, "requests to {address} are still answered");
        responder.answer_at(address)?;
        ensure!(verdict()? == XdpAction::Transmit, "re-added {address} is not answered");
    }
    Ok(())
}
