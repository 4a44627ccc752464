//! Differential scenarios of the server's two engines where the decision depends on earlier
//! requests: rate limits, access lists, kiss-o'-death packets and interleaved mode. Both engines
//! process the same long sequence of frames, in which few clients send often, and make the same
//! decisions, byte for byte.
//!
//! The model uses the instant that the program used and the timestamps that it wrote.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use horolog_server::{
    AddressHashKey, FrameDecisionInputs, FrameInterleavedHandling, FrameTimes, FrameVerdict,
    InterleavedConfig, InterleavedTable, Limiter, LimitsConfig, ListenAddressSet, as_transmit,
    decide_frame, responder_settings,
};
use horolog_source::ClockPage;
use horolog_sys::clock::ClockMonotonic;
use horolog_time::{Clock, NtpTimestamp};
use horolog_wire::ethernet::MacAddress;
use horolog_wire::frame::UdpFrameBuilder;
use horolog_wire::ntp::{HEADER_LEN, Header};
use horolog_xdp::{
    AdmissionRefusal, Responder, ResponderClockPageWriter, TestRunOutcome, XdpAction,
};

use crate::differential::{hexadecimal, publish, random_page, timestamps};
use crate::frames::{LISTEN, MAC, build, listen_by, listen_set, request};
use crate::random::Random;

const SEED: u64 = 0x6c69_6d69_7473_2121;
const KEY: AddressHashKey = AddressHashKey([0x1357_9bdf_0246_8ace, 0xfdb9_7531_eca8_6420]);
/// Shortest request of a client: version 4, mode 3.
const PLAIN: [u8; HEADER_LEN] = {
    let mut request = [0; HEADER_LEN];
    request[0] = 0x23;
    request
};
/// Number of frames of one sequence, under one configuration of limits and lists.
const FRAMES: usize = 20_000;
/// Frames between two clock pages, and between two changes of the lists.
const FRAMES_PER_PAGE: usize = 1_000;

/// State of both engines, and the counts of outcomes so far.
struct EnginePair {
    responder: Responder,
    limiter: Option<Limiter>,
    table: InterleavedTable,
    listen: ListenAddressSet,
    page: ClockPage,
    /// Receive timestamps of the last replies, by client.
    last: BTreeMap<IpAddr, NtpTimestamp>,
    occurrences: BTreeMap<&'static str, u64>,
}

fn prefixes(texts: &[&str]) -> Result<Vec<horolog_wire::prefix::Prefix>> {
    Ok(texts.iter().map(|text| text.parse()).collect::<Result<_, _>>()?)
}

/// Returns configurations of limits and lists that take effect at about 40,000 frames per second.
fn configurations() -> Result<Vec<LimitsConfig>> {
    let limits = LimitsConfig {
        rate: Some(300.0),
        clients: 64,
        idle: Duration::from_secs(1),
        ..LimitsConfig::default()
    };
    let lists = LimitsConfig {
        allow: prefixes(&["10.0.0.0/8", "10.0.0.8/29", "fd00::/16", "fd00:0:0:3::/64"])?,
        deny: prefixes(&["10.0.0.0/27", "fd00::/63", "fd00:0:0:2::/64"])?,
        ..LimitsConfig::default()
    };
    Ok(vec![
        limits.clone(),
        LimitsConfig { kiss_rate: true, new_client_rate: Some(100.0), burst: 2, ..limits.clone() },
        lists.clone(),
        LimitsConfig { kiss_deny: true, kiss_rate: true, rate: Some(300.0), ..lists.clone() },
        LimitsConfig { ipv4_prefix: 28, ipv6_prefix: 63, rate: Some(1_000.0), ..lists },
        LimitsConfig { clients: 4, new_client_rate: Some(2_000.0), ..limits },
        LimitsConfig::default(),
    ])
}

fn random_client(random: &mut Random) -> IpAddr {
    let number = random.within(0..=60);
    match random.within(0..=2) {
        0 => Ipv4Addr::from_bits(0x0a00_0000 + number as u32 + 1).into(),
        1 => Ipv6Addr::from_bits(0xfd00 << 112 | u128::from(number / 8) << 64 | 1).into(),
        // Rare clients of a larger network.
        _ => Ipv4Addr::from_bits(0x0a00_0000 + random.within(0..=0xffff) as u32 + 1).into(),
    }
}

/// Returns a random request and its client: basic, interleaved, or longer than a header.
fn random_request(random: &mut Random, last: &BTreeMap<IpAddr, NtpTimestamp>) -> (IpAddr, Vec<u8>) {
    let ip = random_client(random);
    let mut payload = request(random);
    let kind = random.within(0..=9);
    if let (3..=7, Some(receive)) = (kind, last.get(&ip)) {
        payload[24..32].copy_from_slice(&receive.to_bits().to_be_bytes());
    }
    if kind == 0 {
        payload[24..32].fill(0);
    }
    if kind == 8 {
        let count = random.within(1..=30) as usize * 4;
        payload.extend(random.bytes(count));
    }
    (ip, request_frame(ip, random.within(1..=65_535) as u16, &payload))
}

/// Returns a frame with this payload from a client to the server's address.
fn request_frame(ip: IpAddr, port: u16, payload: &[u8]) -> Vec<u8> {
    let builder = UdpFrameBuilder {
        destination_mac: MAC,
        source_mac: MacAddress([2, 0, 192, 0, 2, 1]),
        vlan: None,
        source: SocketAddr::new(ip, port),
        destination: LISTEN[usize::from(ip.is_ipv6())],
    };
    build(&builder, payload)
}

impl EnginePair {
    fn count(&mut self, outcome: &'static str) {
        *self.occurrences.entry(outcome).or_default() += 1;
    }

    /// Compares the decisions of both engines on a frame, and counts the outcome.
    fn compare(&mut self, ip: IpAddr, frame: &[u8]) -> Result<()> {
        let before = ClockMonotonic.now();
        let TestRunOutcome { verdict, frame: returned } = self.responder.test_run(frame)?;
        let now = match self.limiter {
            Some(_) => self.responder.last_checked_at().context("no request was checked")?,
            None => before,
        };
        ensure!((before..=ClockMonotonic.now()).contains(&now), "wrong decision time: {now:?}");
        let unknown = (NtpTimestamp::UNKNOWN, NtpTimestamp::UNKNOWN);
        let (received, _) =
            if verdict == XdpAction::Transmit { timestamps(&returned)? } else { unknown };
        let arrival = FrameTimes { now, received, transmit: as_transmit(received) };
        let server = FrameDecisionInputs {
            listen: &self.listen,
            page: &self.page,
            limiter: self.limiter.as_ref(),
            interleaved: FrameInterleavedHandling::Answer(&self.table),
        };
        match (verdict, decide_frame(frame, &server, &arrival)) {
            (XdpAction::Drop, FrameVerdict::Drop) => self.count("dropped"),
            (XdpAction::Pass, FrameVerdict::Pass) => {
                ensure!(returned == frame, "the program passed a changed frame");
                self.count("passed");
            }
            (XdpAction::Transmit, FrameVerdict::Transmit(reply)) => {
                ensure!(
                    returned == reply,
                    "program {}\nmodel   {}",
                    hexadecimal(&returned),
                    hexadecimal(&reply)
                );
                self.count_reply(ip, frame, &reply)?;
            }
            (program, model) => anyhow::bail!("program returned {program:?}, the model {model:?}"),
        }
        Ok(())
    }

    fn count_reply(&mut self, ip: IpAddr, request: &[u8], reply: &[u8]) -> Result<()> {
        let (header, _) = Header::parse(&reply[reply.len() - HEADER_LEN..])?;
        let (request_header, _) = Header::parse(&request[request.len() - HEADER_LEN..])?;
        self.last.insert(ip, header.receive);
        let outcome = match (&header.reference_id, header.stratum) {
            (b"RATE", 0) => "RATE kisses",
            (b"DENY", 0) => "DENY kisses",
            _ if header.origin == request_header.transmit => "basic replies",
            _ => "interleaved replies",
        };
        self.count(outcome);
        Ok(())
    }
}

/// Runs both engines through one sequence, in which the lists are removed and restored; returns the
/// counts of outcomes.
fn run_sequence(config: &LimitsConfig, random: &mut Random) -> Result<BTreeMap<&'static str, u64>> {
    let interleaved = InterleavedConfig { clients: 32, ..InterleavedConfig::default() };
    let settings = responder_settings(KEY, config, &interleaved);
    let (responder, mut writer) = Responder::load(&settings)?;
    listen_by(&responder)?;
    responder.set_limits(&config.rules(), &config.listed_prefixes())?;
    let mut pair = EnginePair {
        responder,
        limiter: Limiter::new(config, KEY),
        table: InterleavedTable::new(interleaved.clients, KEY).context("a small table")?,
        listen: listen_set(),
        page: random_page(random),
        last: BTreeMap::new(),
        occurrences: BTreeMap::new(),
    };
    for number in 0..FRAMES {
        if number % FRAMES_PER_PAGE == 0 {
            pair.page = random_page(random);
            publish(&mut writer, &pair.page);
            if number != 0 {
                set_deny_list(&mut pair, config, number / FRAMES_PER_PAGE % 2 == 1)?;
            }
        }
        let (ip, frame) = random_request(random, &pair.last);
        pair.compare(ip, &frame)
            .with_context(|| format!("frame {number}: {}", hexadecimal(&frame)))?;
    }
    for (refusal, count) in AdmissionRefusal::ALL.into_iter().zip(pair.responder.counts().refused) {
        let outcome = match refusal {
            AdmissionRefusal::Limited => "refused: limited",
            AdmissionRefusal::Denied => "refused: denied",
            AdmissionRefusal::NewClients => "refused: new clients",
            AdmissionRefusal::KissRate => "refused: kiss RATE",
            AdmissionRefusal::KissDeny => "refused: kiss DENY",
        };
        *pair.occurrences.entry(outcome).or_default() += count;
    }
    Ok(pair.occurrences)
}

/// Removes or restores the deny list of both engines.
fn set_deny_list(pair: &mut EnginePair, config: &LimitsConfig, without: bool) -> Result<()> {
    let Some(limiter) = &pair.limiter else { return Ok(()) };
    if config.listed_prefixes().is_empty() {
        return Ok(());
    }
    let mut changed = config.clone();
    if without {
        changed.deny.clear();
    }
    let rules = changed.rules();
    pair.responder.set_limits(&rules, &changed.listed_prefixes())?;
    pair.limiter = Some(limiter.successor(&changed));
    Ok(())
}

/// Both engines agree on long sequences of frames under several configurations, and each outcome
/// occurs often enough. Prints the counts on stderr.
pub(crate) fn limits_agree() -> Result<()> {
    let mut random = Random::new(SEED);
    let mut occurrences: BTreeMap<&'static str, u64> = BTreeMap::new();
    for (number, config) in configurations()?.iter().enumerate() {
        let counts =
            run_sequence(config, &mut random).with_context(|| format!("rules {number}"))?;
        for (outcome, count) in counts {
            *occurrences.entry(outcome).or_default() += count;
        }
    }
    eprintln!();
    for (outcome, count) in &occurrences {
        eprintln!("    {outcome:22} {count:8}");
    }
    let all = [
        ("basic replies", 10_000),
        ("interleaved replies", 1_000),
        ("passed", 1_000),
        ("RATE kisses", 100),
        ("DENY kisses", 10),
        ("refused: limited", 1_000),
        ("refused: denied", 1_000),
        ("refused: new clients", 100),
    ];
    for (outcome, at_least) in all {
        let count = occurrences.get(outcome).copied().unwrap_or(0);
        ensure!(count >= at_least, "only {count} {outcome}: too few to have tested them");
    }
    Ok(())
}

/// Loads the program with these limits, listening on the server's addresses.
fn load_limited(
    config: &LimitsConfig,
    random: &mut Random,
) -> Result<(Responder, ResponderClockPageWriter)> {
    let settings = responder_settings(KEY, config, &InterleavedConfig::default());
    let (responder, mut writer) = Responder::load(&settings)?;
    listen_by(&responder)?;
    responder.set_limits(&config.rules(), &config.listed_prefixes())?;
    publish(&mut writer, &random_page(random));
    Ok((responder, writer))
}

/// Sends requests of new clients until one is dropped.
fn exhaust_new_clients(responder: &Responder) -> Result<()> {
    for number in 0..1_000 {
        let new_client =
            request_frame(Ipv4Addr::from_bits(0x0a01_0000 + number).into(), 40_000, &PLAIN);
        if responder.test_run(&new_client)?.verdict == XdpAction::Drop {
            return Ok(());
        }
    }
    anyhow::bail!("none of 1,000 new clients was dropped")
}

/// A known client is served through more list changes than the program has epochs, while new
/// clients are dropped.
pub(crate) fn clients_keep_their_entries_through_changes() -> Result<()> {
    let mut random = Random::new(SEED);
    let one = LimitsConfig {
        rate: Some(100.0),
        new_client_rate: Some(1.0),
        deny: prefixes(&["192.0.2.0/24"])?,
        ..LimitsConfig::default()
    };
    let other = LimitsConfig { deny: prefixes(&["198.51.100.0/24"])?, ..one.clone() };
    let closed = LimitsConfig { deny: prefixes(&["10.0.0.0/8"])?, ..one.clone() };
    let (responder, _writer) = load_limited(&one, &mut random)?;
    let known = request_frame(Ipv4Addr::new(10, 0, 0, 1).into(), 40_000, &PLAIN);
    ensure!(responder.test_run(&known)?.verdict == XdpAction::Transmit, "refused first client");
    for config in [&other, &one].into_iter().cycle().take(31) {
        responder.set_limits(&config.rules(), &config.listed_prefixes())?;
    }
    exhaust_new_clients(&responder)?;
    ensure!(responder.test_run(&known)?.verdict == XdpAction::Transmit, "lost the entry");
    // A cached decision of an epoch is not used when the epoch's number recurs.
    for config in [&other, &one].into_iter().cycle().take(14) {
        responder.set_limits(&config.rules(), &config.listed_prefixes())?;
    }
    responder.set_limits(&closed.rules(), &closed.listed_prefixes())?;
    ensure!(responder.test_run(&known)?.verdict == XdpAction::Drop, "denied client was served");
    Ok(())
}

/// Long requests of new clients pass while plain ones are dropped, and have the same limit of their
/// own.
pub(crate) fn plain_new_clients_leave_room_for_long_requests() -> Result<()> {
    let config = LimitsConfig { new_client_rate: Some(1.0), ..LimitsConfig::default() };
    let (responder, _writer) = load_limited(&config, &mut Random::new(SEED))?;
    exhaust_new_clients(&responder)?;
    let long = [&PLAIN[..], &[0; 20]].concat();
    let verdict = |number: u32| -> Result<XdpAction> {
        let ip = Ipv4Addr::from_bits(0x0a02_0000 + number).into();
        Ok(responder.test_run(&request_frame(ip, 40_000, &long))?.verdict)
    };
    ensure!(verdict(0)? == XdpAction::Pass, "long request of a new client was dropped");
    for number in 1..1_000 {
        if verdict(number)? == XdpAction::Drop {
            return Ok(());
        }
    }
    anyhow::bail!("none of 1,000 long requests of new clients was dropped")
}

/// If the sockets serve interleaved mode, requests that may be interleaved pass unchanged, and
/// others are answered.
pub(crate) fn passed_interleaved_requests_are_not_answered() -> Result<()> {
    let mut random = Random::new(SEED);
    let settings = responder_settings(KEY, &LimitsConfig::default(), &InterleavedConfig::default());
    let (responder, mut writer) = Responder::load(&settings)?;
    listen_by(&responder)?;
    publish(&mut writer, &random_page(&mut random));
    let (mut answered, mut passed) = (0, 0);
    for _ in 0..1_000 {
        let ip = random_client(&mut random);
        let last = [(ip, NtpTimestamp::from_bits(random.next() & !1 | 2))].into();
        let (_, frame) = random_request(&mut random, &last);
        let outcome = responder.test_run_basic(&frame)?;
        let udp = horolog_wire::frame::UdpFrame::parse(&frame)
            .map_err(|error| anyhow::anyhow!("no UDP: {error:?}"))?;
        let (header, rest) = Header::parse(udp.payload)?;
        let is_passed = !rest.is_empty() || horolog_server::may_be_interleaved(&header);
        let expected = if is_passed { XdpAction::Pass } else { XdpAction::Transmit };
        ensure!(outcome.verdict == expected, "{:?}: {}", outcome.verdict, hexadecimal(&frame));
        ensure!(!is_passed || outcome.frame == frame, "the program passed a changed frame");
        if is_passed { passed += 1 } else { answered += 1 }
    }
    ensure!(answered > 100 && passed > 100, "{answered} answered, {passed} passed");
    Ok(())
}
