//! A receiver as a source: sentences by a line of memory, and everything that a line can do.

use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use horolog_sys::clock::{ClockMonotonic, realtime_minus_monotonic};
use horolog_time::{Clock, NS_PER_S, Span};

use super::frame::tests::sentence;
use super::*;
use crate::reference::tests::CLAIM;

/// A line of which a test has the other end; it ends with that.
struct Memory(Receiver<Vec<u8>>);

impl CharacterTransport for Memory {
    fn read(&mut self, buffer: &mut [u8], wait: Duration) -> io::Result<Option<usize>> {
        match self.0.recv_timeout(wait) {
            Ok(bytes) => {
                buffer[..bytes.len()].copy_from_slice(&bytes);
                Ok(Some(bytes.len()))
            }
            Err(mpsc::RecvTimeoutError::Timeout) => Ok(None),
            Err(mpsc::RecvTimeoutError::Disconnected) => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

fn readings() -> ClockReadings {
    ClockReadings {
        monotonic: ClockMonotonic.now(),
        realtime_minus_monotonic: realtime_minus_monotonic().offset,
        kernel: None,
        leaps_s: 0,
        leaps: crate::ServerLeapSeconds::default(),
    }
}

fn gnss() -> (GnssSource, Sender<Vec<u8>>) {
    let (sender, line) = mpsc::channel();
    let gone = || Err(io::ErrorKind::NotFound.into());
    let claim = ReferenceClockSettings { offset: Span::ZERO, uncertainty: Span::ZERO, ..CLAIM };
    (GnssSource::new("gnss".into(), ReceiverLineReader::new(Memory(line), gone), claim), sender)
}

/// The sentence of an instant that is so many seconds from now.
fn zda(ahead_s: i64) -> String {
    named("GPZDA,%H%M%S.00,%d,%m,%Y,00,00", ahead_s)
}

fn rmc(ahead_s: i64) -> String {
    named("GNRMC,%H%M%S.00,A,,,,,,,%d%m%y,,,A", ahead_s)
}

fn named(form: &str, ahead_s: i64) -> String {
    let (seconds, _) = readings().realtime().to_timespec();
    let time = jiff::Timestamp::from_second(seconds + ahead_s).unwrap();
    sentence(&time.strftime(form).to_string())
}

/// Polls until it says something else than that nothing has come.
fn poll(gnss: &mut GnssSource) -> Result<Option<SourceEstimate>, SourceError> {
    let started = Instant::now();
    loop {
        let answer = gnss.poll(&readings());
        let nothing = Err(SourceError::NoData("no data on its line".into()));
        if answer != nothing || started.elapsed() > Duration::from_secs(5) {
            return answer;
        }
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_sentence_becomes_a_report() {
    let (mut gnss, line) = gnss();
    line.send(zda(100).into()).unwrap();
    let report = poll(&mut gnss).unwrap().unwrap();
    let off = report.offset - Span::from_ns(100 * NS_PER_S);
    assert!(off.as_ns().abs() < 2 * NS_PER_S, "{report:?}");
    assert!(report.uncertainty >= Span::from_ms(1_000), "{report:?}");
    // The same instant once more, as receivers with several kinds of sentences have it.
    let (seconds, _) = (readings().realtime() + Span::from_ns(100 * NS_PER_S)).to_timespec();
    gnss.last = Some(Timestamp::from_timespec(seconds + 1, 0));
    line.send(zda(101).into()).unwrap();
    assert_eq!(poll(&mut gnss), Ok(None));
}

#[test]
fn what_is_wrong_with_a_line_is_named() {
    let error_of = |bytes: &str| {
        let (mut gnss, line) = gnss();
        line.send(bytes.into()).unwrap();
        poll(&mut gnss).unwrap_err()
    };
    let unusable =
        |bytes: &str, why: &str| assert_eq!(error_of(bytes), SourceError::Unusable(why.into()));
    unusable(&sentence("GNRMC,081253.00,V,,,,,,,270219,,,N"), "the receiver has no fix");
    unusable(&sentence("GNRMC,,V,,,,,,,,,,N"), "the receiver has no fix yet");
    let estimated = "the receiver has no fix: mode E, estimated by dead reckoning";
    unusable(&sentence("GNRMC,081253.00,A,,,,,,,270219,,,E"), estimated);
    unusable(&sentence("GPZDA,,,,,,"), "the receiver has no time yet");
    let odd = "invalid sentence: its date is missing or malformed; the last was \
               $GNRMC,081253,A,,,,,,,300219";
    unusable(&sentence("GNRMC,081253,A,,,,,,,300219"), odd);
    assert!(error_of(&sentence("GNGGA,1")).to_string().contains("RMC or ZDA"));
    assert!(error_of("\u{1}\u{2}noise").to_string().contains("speed"));
    unusable(
        "$GPZDA,1*00\r\n",
        "1 sentence arrived with a wrong checksum and none with a right one; check its speed and \
         line; the last was $GPZDA,1",
    );
    unusable(
        "$GPZDA,1\r\n$GPZDA,2\r\n",
        "2 sentences arrived without a checksum and none with one; enable checksums on it; the \
         last was $GPZDA,2",
    );
    assert!(error_of("$GPZDA,\u{1}$GP\u{2}").to_string().contains("2 sentences were damaged"));
    let mixed = format!("{}$GPZDA,1*00\r\n", sentence("GNGGA,1"));
    let expected = "and 1 sentence arrived with a wrong checksum; enable RMC or ZDA, and check \
                    its speed and line; the last was $GPZDA,1";
    assert!(error_of(&mixed).to_string().ends_with(expected), "{}", error_of(&mixed));
    let mixed = format!("{}$GPZDA,1\r\n$GPZDA,2\r\n", sentence("GNGGA,1"));
    let expected = "and 2 sentences arrived without a checksum; enable RMC or ZDA, \
                    and enable checksums on it; the last was $GPZDA,2";
    assert!(error_of(&mixed).to_string().ends_with(expected), "{}", error_of(&mixed));
    let (mut gnss, line) = gnss();
    drop(line);
    let ended = poll(&mut gnss).unwrap_err().to_string();
    assert!(ended.contains("line was closed"), "{ended}");
}

/// Polls so many seconds from now until what was sent has come; what is said then.
fn later(gnss: &mut GnssSource, seconds: i64) -> Result<Option<SourceEstimate>, SourceError> {
    thread::sleep(Duration::from_millis(300));
    let readings = readings();
    let monotonic = readings.monotonic + Span::from_ns(seconds * NS_PER_S);
    let realtime_minus_monotonic =
        readings.realtime_minus_monotonic - Span::from_ns(seconds * NS_PER_S);
    gnss.poll(&ClockReadings { monotonic, realtime_minus_monotonic, ..readings })
}

#[test]
fn a_named_time_holds_for_a_short_while_when_another_talker_has_no_fix() {
    let (mut gnss, line) = gnss();
    let void = sentence("GARMC,081253.00,V,,,,,,,,,,N");
    line.send(format!("{void}{}{void}", rmc(0)).into()).unwrap();
    assert!(poll(&mut gnss).unwrap().is_some());
    line.send(void.clone().into()).unwrap();
    assert_eq!(later(&mut gnss, 1), Ok(None));
    assert_eq!(later(&mut gnss, 2), Ok(None), "nothing came");
    line.send(void.clone().into()).unwrap();
    assert_eq!(later(&mut gnss, 6), Ok(None), "the other comes every few seconds");
    line.send(void.into()).unwrap();
    assert_eq!(
        later(&mut gnss, 8),
        Err(SourceError::Unusable("the receiver has no fix yet".into()))
    );
    // A ZDA that may be of the receiver without a fix.
    line.send(zda(1).into()).unwrap();
    assert_eq!(later(&mut gnss, 9), Err(SourceError::Unusable("the receiver has no fix".into())));
}

#[test]
fn a_receiver_that_reports_itself_that_it_lost_its_fix_is_not_held() {
    let (mut gnss, line) = gnss();
    line.send(rmc(0).into()).unwrap();
    assert!(poll(&mut gnss).unwrap().is_some());
    line.send(sentence("GNRMC,081253.00,V,,,,,,,,,,N").into()).unwrap();
    assert_eq!(later(&mut gnss, 1), Ok(None));
    line.send(sentence("GNRMC,081253.00,V,,,,,,,,,,N").into()).unwrap();
    assert_eq!(
        later(&mut gnss, 4),
        Err(SourceError::Unusable("the receiver has no fix yet".into()))
    );
}

#[test]
fn a_date_with_a_report_of_no_fix_is_no_time() {
    let (mut gnss, line) = gnss();
    line.send(format!("{}{}", sentence("GPGGA,081253.00,,,,,0"), zda(0)).into()).unwrap();
    assert_eq!(poll(&mut gnss), Err(SourceError::Unusable("the receiver has no fix".into())));
    line.send(format!("{}{}", sentence("GPGGA,081253.00,,,,,1"), zda(1)).into()).unwrap();
    assert!(later(&mut gnss, 1).unwrap().is_some());
}

#[test]
fn a_leap_second_is_passed_over() {
    let (mut gnss, line) = gnss();
    line.send(sentence("GPZDA,235960.00,31,12,2016,00,00").into()).unwrap();
    assert_eq!(poll(&mut gnss), Ok(None));
}

#[test]
fn a_line_that_ended_is_opened_again() {
    let (first, line) = mpsc::channel();
    let (second, next) = mpsc::channel();
    let mut next = Some(Memory(next));
    let open = move || next.take().ok_or_else(|| io::ErrorKind::NotFound.into());
    let mut gnss =
        GnssSource::new("gnss".into(), ReceiverLineReader::new(Memory(line), open), CLAIM);
    drop(first);
    assert!(poll(&mut gnss).is_err());
    second.send(zda(0).into()).unwrap();
    let started = Instant::now();
    while gnss.poll(&readings()).is_err() {
        assert!(started.elapsed() < Duration::from_secs(20), "it is not opened again");
        thread::sleep(Duration::from_millis(50));
    }
}
